"""Arguments and options that several commands have, some in groups: how to simulate, and how to train.

Common choices of a training have options of their own; ``--set NAME=VALUE`` reaches every other one. A value is written
as in Python: a number, a word, a list, or a class of the library with its arguments by name. It is read, never run.
"""

from __future__ import annotations

import ast
import difflib
import inspect
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from propersbi.types import InputError

__all__ = [
    "EXIT_CODES",
    "CorrectionName",
    "Count",
    "ModelArgument",
    "ObservationSource",
    "Open",
    "Out",
    "OwnFile",
    "Quiet",
    "Rounds",
    "RunArgument",
    "Seed",
    "Strict",
    "Test",
    "choose",
    "chosen_model",
    "make_changes",
    "parse_setting",
    "with_simulation_options",
    "with_training_options",
]

EXIT_CODES = (
    "Exit codes: 0 done, 1 an error on the way, 2 wrong input, 130 interrupted; with --strict also 3 for a posterior "
    "that is usable with care and 4 for one that is not to be trusted."
)

ModelArgument = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="A task's name, or your own Python file, which defines prior and simulator and, where wanted, "
        "observation, parameter_names, support, discrete, batched, embedding. 'propersbi new' writes one.",
    ),
]
RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.")]
OwnFile = Annotated[
    str | None, typer.Option("--model", help="The run's own Python file, where its simulator or embedding is needed.")
]
Out = Annotated[Path | None, typer.Option("--out", "-o", help="The run directory; by default runs/MODEL.")]
Count = Annotated[
    int | None,
    typer.Option("--simulations", "-n", help="Simulations to train on; 10000, unless a task says otherwise."),
]
Test = Annotated[int | None, typer.Option(help="Fresh simulations to test with; by default a tenth, 300 to 1000.")]
Seed = Annotated[int, typer.Option(help="Seed of everything random.")]
ObservationSource = Annotated[
    str | None,
    typer.Option(
        "--observation", "-x", help="Observed data: a .npy, .csv or .txt file, or the number of a task's own."
    ),
]
Rounds = Annotated[
    int, typer.Option(help="Rounds of simulations near the observation; 1 is for any observation, all from the prior.")
]
CorrectionName = Annotated[
    str, typer.Option("--correction", help="With rounds: truncated, weights, rejection, metropolis or uncorrected.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bars.")]
Strict = Annotated[
    bool,
    typer.Option(
        "--strict", help="Exit with 3 if the posterior is usable with care, and with 4 if it is not to be trusted."
    ),
]

Open = Annotated[bool, typer.Option("--open", help="Open the report in a browser, where there is a display.")]

Command = Callable[..., None]

SIMULATING, LEARNING = "Simulation", "Training"  # headings of --help

SIMULATION: dict[str, Any] = {
    "workers": Annotated[int | None, typer.Option(help="Processes that simulate; 1.", rich_help_panel=SIMULATING)],
    "executor": Annotated[
        str | None,
        typer.Option(
            help="Simulate on a cluster: dask, ray or mpi; see the page on clusters.", rich_help_panel=SIMULATING
        ),
    ],
    "address": Annotated[str | None, typer.Option(help="Of the scheduler of the cluster.", rich_help_panel=SIMULATING)],
    "batched": Annotated[
        bool | None,
        typer.Option(
            "--batched/--one-by-one",
            help="Whether the simulator takes many parameters at once, or one at a time; found out, unless given.",
            rich_help_panel=SIMULATING,
        ),
    ],
    "timeout": Annotated[
        float | None,
        typer.Option(
            help="Seconds that one simulation may take; one that takes longer counts as failed.",
            rich_help_panel=SIMULATING,
        ),
    ],
    "on_error": Annotated[
        str | None,
        typer.Option(
            help="A simulation that raises: record leaves it out and counts it, raise ends the run. record.",
            rich_help_panel=SIMULATING,
        ),
    ],
    "max_failed": Annotated[
        float | None,
        typer.Option(help="The share of failed simulations that ends the run; 0.2.", rich_help_panel=SIMULATING),
    ],
    "images": Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER",
            help="With camera: a folder with the idx files of MNIST or EMNIST; letters from fonts, unless given.",
            rich_help_panel=SIMULATING,
        ),
    ],
    "force": Annotated[
        bool | None,
        typer.Option(
            "--force",
            help="Keep simulations that another prior or simulator has made, and go on.",
            rich_help_panel=SIMULATING,
        ),
    ],
}

TRAINING: dict[str, Any] = {
    "online": Annotated[
        bool | None,
        typer.Option(
            "--online",
            help="With run: train on batches that are simulated while training; for cheap simulators.",
            rich_help_panel=LEARNING,
        ),
    ],
    "draws": Annotated[
        int | None,
        typer.Option(
            "--draws",
            "-m",
            help="Draws per simulation in training, at least 2; 20, or 10 in one pass.",
            rich_help_panel=LEARNING,
        ),
    ],
    "refinement_steps": Annotated[
        int | None,
        typer.Option(
            help="1 draws in one pass; more refine the draws step by step. 8, or 1 for images.",
            rich_help_panel=LEARNING,
        ),
    ],
    "rule": Annotated[
        str | None,
        typer.Option(help="Scoring rule: energy (unless a task says otherwise) or kernel.", rich_help_panel=LEARNING),
    ],
    "beta": Annotated[
        float | None,
        typer.Option(
            help="Power of the energy score, between 0 and 2; a smaller one resolves finer detail. 0.5.",
            rich_help_panel=LEARNING,
        ),
    ],
    "max_steps": Annotated[
        int | None, typer.Option(help="Gradient steps at most; by default it grows with -n.", rich_help_panel=LEARNING)
    ],
    "time_limit": Annotated[float | None, typer.Option(help="Seconds of training at most.", rich_help_panel=LEARNING)],
    "device": Annotated[str | None, typer.Option(help="auto (the default), cpu, cuda, ...", rich_help_panel=LEARNING)],
    "settings": Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Any other choice of the recipe, for example learning_rate=1e-3, ensemble=3 or "
            "'rule=KernelScore(kernel=Gaussian(bandwidth=0.5))'; repeat it for several.",
            rich_help_panel=LEARNING,
        ),
    ],
}


def with_simulation_options(command: Command) -> Command:
    """Give a command the simulation options; what was given comes as ``simulation``, by the names of ``simulate``."""
    return _with_group(command, "simulation", SIMULATION, _make_simulation)


def chosen_model(model: str, simulation: dict[str, Any]) -> str:
    """The model, with the images that were given for it.

    >>> chosen_model("camera", {"images": "mnist"})
    'camera:mnist'
    """
    images = simulation.pop("images", None)
    return model if images is None else f"{model}:{images}"


def with_training_options(command: Command) -> Command:
    """Give a command the training options; what was chosen comes to it as ``changes``, by the names of ``fit``."""
    return _with_group(command, "changes", TRAINING, make_changes)


def _with_group(
    command: Command, argument: str, group: dict[str, Any], collect: Callable[..., dict[str, Any]]
) -> Command:
    """The command with the options of a group in place of one ``argument``, which holds what was made of them."""
    own = inspect.signature(command, eval_str=True).parameters
    parameters = [part for name, part in own.items() if name != argument]
    parameters += [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
        for name, kind in group.items()
    ]

    @wraps(command)
    def extended(**given: Any) -> None:
        chosen = {name: given.pop(name) for name in group}
        command(**given, **{argument: collect(**chosen)})

    extended.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    extended.__annotations__ = {part.name: part.annotation for part in parameters}
    return extended


def _make_simulation(executor: str | None = None, address: str | None = None, **options: Any) -> dict[str, Any]:
    """What was given, with the executor of a cluster."""
    given = {name: value for name, value in options.items() if value is not None}
    if executor is None:
        if address is not None:
            raise InputError("An --address is that of a cluster: name its --executor, dask or ray.")
        return given
    from propersbi.simulation.engines import MPI, Dask, Ray

    if executor == "dask" and address is None:
        raise InputError("Dask needs the --address of its scheduler, for example tcp://node17:8786.")
    if "workers" in given:
        raise InputError("Give either --executor or --workers: a cluster has its own number of workers.")
    makers: dict[str, Callable[[], Any]] = {"dask": lambda: Dask(address), "ray": lambda: Ray(address), "mpi": MPI}
    return {**given, "executor": choose("executor", executor, makers)()}


def make_changes(
    *, rule: str | None = None, beta: float | None = None, settings: list[str] | None = None, **others: Any
) -> dict[str, Any]:
    """Changes of the recipe; all other choices follow from the task and from the shapes.

    >>> make_changes(beta=1.0, draws=5, device=None, settings=["warmup=10"])
    {'draws': 5, 'rule': EnergyScore(beta=1.0, fair=True), 'warmup': 10}
    """
    changes = {name: value for name, value in others.items() if value is not None}
    if rule is not None or beta is not None:
        changes["rule"] = _rule(rule or "energy", beta)
    return changes | dict(parse_setting(text) for text in settings or [])


def _rule(name: str, beta: float | None) -> Any:
    from propersbi.scoring import EnergyScore, KernelScore

    rules: dict[str, Callable[[], Any]] = {
        "energy": lambda: EnergyScore(beta=0.5 if beta is None else beta),
        "kernel": KernelScore,
    }
    make = choose("scoring rule", name, rules)
    if beta is not None and name != "energy":
        raise InputError(f"Only the energy score has a 'beta', not the scoring rule '{name}'.")
    return make()


def parse_setting(text: str) -> tuple[str, Any]:
    """The name and the value of ``NAME=VALUE``.

    >>> parse_setting("learning_rate=1e-3"), parse_setting("device=cuda")
    (('learning_rate', 0.001), ('device', 'cuda'))
    >>> parse_setting("rule=KernelScore(kernel=Gaussian(bandwidth=0.5))")[1].kernel
    Gaussian(bandwidth=0.5)
    """
    from propersbi.storage.config import decode

    name, sign, value = text.partition("=")
    name = name.strip().replace("-", "_")
    if not sign or not name.isidentifier() or not value.strip():
        raise InputError(f"--set takes NAME=VALUE, for example learning_rate=1e-3, got '{text}'.")
    try:
        tree = ast.parse(value.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return name, value.strip()  # a word such as cuda:0
    return name, decode(_plain(tree, text))


def _plain(tree: ast.expr, text: str) -> Any:
    """What an expression describes, as the plain data of :func:`propersbi.storage.config.decode`."""
    if isinstance(tree, ast.Name):
        return tree.id
    if isinstance(tree, ast.List | ast.Tuple):
        return [_plain(item, text) for item in tree.elts]
    if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name):
        if tree.args or any(part.arg is None for part in tree.keywords):
            raise InputError(f"Write the arguments of {tree.func.id} by name in '{text}'.")
        return {"class": tree.func.id, **{str(part.arg): _plain(part.value, text) for part in tree.keywords}}
    try:
        return ast.literal_eval(tree)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        raise InputError(f"'{text}' is not a number, a word, a list or a class of the library.") from None


def choose(what: str, name: str, choices: dict[str, Any]) -> Any:
    """The choice of this name; for an unknown name, the nearest one is suggested."""
    if name in choices:
        return choices[name]
    close = difflib.get_close_matches(name, choices, n=1)
    hint = f" Did you mean '{close[0]}'?" if close else ""
    raise InputError(f"There is no {what} '{name}': choose one of {', '.join(choices)}.{hint}")
