"""The command line. A command parses, calls the library once and prints; results go to stdout, progress to stderr."""

from __future__ import annotations

import difflib
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from propersbi.types import InputError

if TYPE_CHECKING:  # torch takes seconds to load, and --help should not wait for it
    from propersbi.app.models import Model
    from propersbi.app.run import Run

__all__ = ["app", "main"]

app = typer.Typer(
    name="propersbi",
    help="Simulation-based inference with generative networks trained by proper scoring rules.",
    epilog="Start with: propersbi run two_moons",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

ModelArgument = Annotated[str, typer.Argument(metavar="MODEL", help="A task's name, or your own Python file.")]
RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.")]
OwnFile = Annotated[
    str | None, typer.Option("--model", help="The run's own Python file, where its simulator or embedding is needed.")
]
Out = Annotated[Path | None, typer.Option("--out", "-o", help="The run directory; by default runs/MODEL.")]
Count = Annotated[
    int | None,
    typer.Option("--simulations", "-n", help="Simulations to train on; 10000, unless a task says otherwise."),
]
Test = Annotated[int | None, typer.Option(help="Fresh simulations to test with; by default a tenth, 50 to 1000.")]
Seed = Annotated[int, typer.Option(help="Seed of everything random.")]
Workers = Annotated[int, typer.Option(help="Processes that simulate.")]
Observation = Annotated[
    str | None,
    typer.Option(
        "--observation", "-x", help="Observed data: a .npy, .csv or .txt file, or the number of a task's own."
    ),
]
Rule = Annotated[str | None, typer.Option(help="Scoring rule: energy (unless a task says otherwise) or kernel.")]
Beta = Annotated[
    float | None, typer.Option(help="Power of the energy score, between 0 and 2; smaller sees finer detail. 0.5.")
]
Draws = Annotated[
    int | None,
    typer.Option("--draws", "-m", help="Draws per simulation in training, at least 2; 20, or 10 in one pass."),
]
Refine = Annotated[
    int | None,
    typer.Option("--steps", help="1 draws in one pass; more refine the draws step by step. 8, or 1 of images."),
]
Steps = Annotated[int | None, typer.Option("--max-steps", help="Gradient steps at most; by default it grows with -n.")]
Limit = Annotated[float | None, typer.Option("--time-limit", help="Seconds of training at most.")]
Rounds = Annotated[
    int, typer.Option(help="Rounds of simulations near the observation; 1 is for any observation, all from the prior.")
]
CorrectionName = Annotated[
    str, typer.Option("--correction", help="With rounds: truncated, weights, rejection, metropolis or uncorrected.")
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, ...")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bars.")]


@app.callback()
def options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the full traceback of an error.")] = False,
) -> None:
    """Simulation-based inference with generative networks trained by proper scoring rules."""


@app.command(epilog="Example: propersbi tasks")
def tasks() -> None:
    """List the built-in tasks."""
    from propersbi import tasks as known

    width = max(map(len, known.names()))
    for name in known.names():
        task = known.get(name)
        sizes = f"theta {task.theta_shape}, x {task.x_shape}"
        typer.echo(f"{name:{width}}  {sizes:24}  {task.description}")


@app.command(epilog="Example: propersbi simulate two_moons -n 10000 --workers 2")
def simulate(
    model: ModelArgument,
    out: Out = None,
    simulations: Count = None,
    test: Test = None,
    seed: Seed = 0,
    workers: Workers = 1,
    quiet: Quiet = False,
) -> None:
    """Simulate pairs of parameters and data. Rerun to continue; raise -n to add more."""
    known, run = _start(model, out)
    pairs = run.simulate(known, simulations, test=test, seed=seed, workers=workers, progress=not quiet)
    typer.echo(f"{len(pairs)} simulations, {pairs.invalid} invalid, in {run.folder / 'simulations'}")


@app.command(epilog="Example: propersbi train runs/two_moons --time-limit 300")
def train(
    run: RunArgument,
    model: OwnFile = None,
    rule: Rule = None,
    beta: Beta = None,
    draws: Draws = None,
    steps: Refine = None,
    max_steps: Steps = None,
    time_limit: Limit = None,
    seed: Seed = 0,
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Train the posterior on the simulations of a run. Rerun to continue."""
    opened, known = _reopen(run, model)
    options = _training(
        rule,
        beta,
        m=draws,
        steps=steps,
        max_steps=max_steps,
        time_limit=time_limit,
        seed=seed,
        device=device,
        progress=not quiet,
    )
    info = opened.train(known, **options).info
    typer.echo(
        f"Trained {info['steps']} steps in {info['seconds']:.0f} s, best score {info['best_score']:.4g} at step "
        f"{info['best_step']}: {opened.folder / 'posterior'}"
    )


@app.command(epilog="Example: propersbi sample runs/two_moons --observation 1 -n 1000 -o samples.csv")
def sample(
    run: RunArgument,
    observation: Observation = None,
    count: Annotated[int, typer.Option("-n", help="Draws.")] = 1000,
    out: Annotated[
        str | None, typer.Option("--out", "-o", help="A .csv, .npy or .parquet file, or - for CSV on stdout.")
    ] = None,
    model: OwnFile = None,
    seed: Seed = 0,
    quiet: Quiet = False,
) -> None:
    """Draw from the posterior given an observation. Without -o, print its summary."""
    from propersbi.app.tables import summary_table, write_samples

    opened, known = _reopen(run, model)
    x, _ = _observed(known, observation)
    if x is None:
        raise InputError("There is no observation: give --observation FILE.")
    posterior = opened.posterior(known)
    if out is None:
        typer.echo(summary_table(posterior.summary(x, draws=count, seed=seed)))
        return
    draws = posterior.sample((count,), x=x, seed=seed, show_progress_bars=not quiet)
    write_samples(out, draws.cpu().numpy(), posterior.parameter_names)
    if out != "-":
        typer.echo(f"{count} draws in {out}")


@app.command(epilog="Example: propersbi diagnose runs/two_moons --observation 1")
def diagnose(
    run: RunArgument,
    observation: Observation = None,
    model: OwnFile = None,
    draws: Annotated[int | None, typer.Option("--draws", help="Posterior draws for each test pair; 250.")] = None,
    seed: Seed = 0,
    quiet: Quiet = False,
) -> None:
    """Check the posterior on fresh simulations, and look at it for an observation."""
    opened, known = _reopen(run, model)
    typer.echo(_diagnose(opened, known, observation, draws, seed, quiet).summary())


@app.command(epilog="Example: propersbi report runs/two_moons")
def report(run: RunArgument) -> None:
    """Write report.html: one self-contained page about the run."""
    from propersbi.app.run import Run

    typer.echo(Run.open(run).report())


@app.command(
    epilog="Examples: propersbi run two_moons  |  propersbi run my_model.py --observation x.npy --simulations 10000"
    "  |  propersbi run my_model.py --observation x.npy --rounds 5"
)
def run(
    model: ModelArgument,
    observation: Observation = None,
    out: Out = None,
    simulations: Count = None,
    rounds: Rounds = 1,
    correction: CorrectionName = "truncated",
    test: Test = None,
    workers: Workers = 1,
    rule: Rule = None,
    beta: Beta = None,
    draws: Draws = None,
    steps: Refine = None,
    max_steps: Steps = None,
    time_limit: Limit = None,
    seed: Seed = 0,
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Do everything: simulate, train, diagnose, report. Rerun to continue where it stopped."""
    from propersbi.diagnostics import one_observation

    training = _training(
        rule,
        beta,
        m=draws,
        steps=steps,
        max_steps=max_steps,
        time_limit=time_limit,
        seed=seed,
        device=device,
        progress=not quiet,
    )
    known, started = _start(model, out)
    x, _ = _observed(known, observation)  # what cannot be read should not wait for the training
    if rounds != 1:
        if x is None:
            raise InputError(f"{rounds} rounds are for one observation: give --observation FILE.")
        chosen = {"rounds": rounds, "correction": _correction(correction), "test": test, "workers": workers}
        started.sequential(known, x, simulations, **chosen, **training)
    else:
        pairs = started.simulate(known, simulations, test=test, seed=seed, workers=workers, progress=not quiet)
        if x is not None:
            one_observation(x, pairs.x.shape[1:])
        started.train(known, **training)
    checks = _diagnose(started, known, observation, None, seed, quiet)
    typer.echo(checks.summary())
    typer.echo(f"\nReport: {started.report()}")


def _start(name: str, out: Path | None) -> tuple[Model, Run]:
    from propersbi.app.models import load_model
    from propersbi.app.run import Run

    model = load_model(name)
    folder = out or Path("runs") / Path(name).stem
    return model, Run.create(folder, model, " ".join(["propersbi", *sys.argv[1:]]))


def _reopen(folder: Path, own_file: str | None) -> tuple[Run, Model | None]:
    """A run and its model; an own file runs only if it is named here, never because the run directory names it."""
    from propersbi.app.models import load_model
    from propersbi.app.run import Run

    run = Run.open(folder)
    name = own_file or str(run.record.get("model"))
    return run, load_model(name) if own_file or not name.endswith(".py") else None


def _observed(model: Model | None, observation: str | None) -> tuple[Any, str]:
    """The observation and where it is from; a task without one shows its first."""
    from propersbi.app.models import read_observation

    if observation is None and model is not None and callable(model.observation):
        observation = "1"
    source = f"observation {observation} of {model.name}" if model and (observation or "").isdigit() else observation
    return read_observation(observation, model), source or "the model file"


def _diagnose(run: Run, model: Model | None, observation: str | None, draws: int | None, seed: int, quiet: bool) -> Any:
    x, source = _observed(model, observation)
    return run.diagnose(model, observation=x, source=source, draws=draws, seed=seed, progress=not quiet)


def _training(rule: str | None, beta: float | None, **options: Any) -> dict[str, Any]:
    """What was asked for; all else is up to the task, or follows from the shapes."""
    from propersbi.scoring import EnergyScore, KernelScore

    rules: dict[str, Callable[[], Any]] = {
        "energy": lambda: EnergyScore(beta=0.5 if beta is None else beta),
        "kernel": KernelScore,
    }
    given = {name: value for name, value in options.items() if value is not None}
    if rule is None and beta is None:
        return given
    return {"rule": _chosen("scoring rule", rule or "energy", rules)(), **given}


def _correction(name: str) -> Any:
    from propersbi.sequential.corrections import CorrectedLatent, ImportanceWeights, Truncated, Uncorrected
    from propersbi.samplers.latent import Metropolis, Rejection

    corrections: dict[str, Callable[[], Any]] = {
        "truncated": Truncated,
        "weights": ImportanceWeights,
        "rejection": lambda: CorrectedLatent(Rejection()),
        "metropolis": lambda: CorrectedLatent(Metropolis()),
        "uncorrected": Uncorrected,
    }
    return _chosen("correction", name, corrections)()


def _chosen(what: str, name: str, known: dict[str, Any]) -> Any:
    if name in known:
        return known[name]
    close = difflib.get_close_matches(name, known, n=1)
    hint = f" Did you mean '{close[0]}'?" if close else ""
    raise InputError(f"There is no {what} '{name}': choose one of {', '.join(known)}.{hint}")


def main() -> None:
    """Run the command line: an error is one sentence and an exit code, a traceback only with ``--debug``."""
    arguments = sys.argv[1:]
    warnings.showwarning = lambda message, *_, **__: typer.echo(f"Warning: {message}", err=True)
    try:
        code = app([word for word in arguments if word != "--debug"], standalone_mode=False)
        message = "Interrupted. What was finished is kept; the same command continues." if code == 130 else ""
    except Exception as error:
        if hasattr(error, "show"):  # typer's own: a wrong option or command
            error.show()
            raise SystemExit(getattr(error, "exit_code", 2)) from None
        if "--debug" in arguments:
            raise
        code, message = _explained(error)
    if message:
        typer.echo(f"Error: {message}", err=True)
    raise SystemExit(code)


def _explained(error: Exception) -> tuple[int, str]:
    """The exit code and the sentence for an error: 2 for what the user gave, 1 for what went wrong on the way."""
    if isinstance(error, InputError):
        return 2, str(error)
    if isinstance(error, (MemoryError, OSError, RuntimeError)):
        return 1, f"{type(error).__name__}: {error}"
    return 1, f"Unexpected {type(error).__name__}: {error} (--debug shows where)"


if __name__ == "__main__":
    main()
