"""The choices of a training on the command line: one group of options for ``train`` and ``run``.

Common choices have options of their own; ``--set NAME=VALUE`` reaches every other one. A value is written as in Python:
a number, a word, a list, or a class of the library with its arguments by name. It is read, never run.
"""

from __future__ import annotations

import ast
import difflib
import inspect
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any

import typer

from propersbi.types import InputError

__all__ = ["choose", "make_changes", "parse_setting", "with_training_options"]

OPTIONS: dict[str, Any] = {
    "draws": Annotated[
        int | None,
        typer.Option("--draws", "-m", help="Draws per simulation in training, at least 2; 20, or 10 in one pass."),
    ],
    "refinement_steps": Annotated[
        int | None,
        typer.Option(help="1 draws in one pass; more refine the draws step by step. 8, or 1 for images."),
    ],
    "rule": Annotated[str | None, typer.Option(help="Scoring rule: energy (unless a task says otherwise) or kernel.")],
    "beta": Annotated[
        float | None,
        typer.Option(help="Power of the energy score, between 0 and 2; a smaller one resolves finer detail. 0.5."),
    ],
    "max_steps": Annotated[int | None, typer.Option(help="Gradient steps at most; by default it grows with -n.")],
    "time_limit": Annotated[float | None, typer.Option(help="Seconds of training at most.")],
    "device": Annotated[str | None, typer.Option(help="auto (the default), cpu, cuda, ...")],
    "settings": Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Any other choice of the recipe, for example learning_rate=1e-3, ensemble=3 or "
            "'rule=KernelScore(kernel=Gaussian(bandwidth=0.5))'; repeat it for several.",
        ),
    ],
}


def with_training_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the training options; what was chosen comes to it as ``changes``, by the names of ``fit``."""
    own = inspect.signature(command, eval_str=True).parameters
    parameters = [part for name, part in own.items() if name != "changes"]
    parameters += [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
        for name, kind in OPTIONS.items()
    ]

    @wraps(command)
    def extended(**given: Any) -> None:
        chosen = {name: given.pop(name) for name in OPTIONS}
        command(**given, changes=make_changes(**chosen))

    extended.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    extended.__annotations__ = {part.name: part.annotation for part in parameters}
    return extended


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
