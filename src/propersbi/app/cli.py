"""The command line. A command parses, calls the library once and prints; results go to stdout, progress to stderr."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from propersbi.app.options import choose, with_training_options
from propersbi.types import InputError

if TYPE_CHECKING:  # torch takes seconds to load, and --help should not wait for it
    from propersbi.app.run import Run
    from propersbi.sequential.corrections import Correction

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


@app.callback()
def options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the full traceback of an error.")] = False,
) -> None:
    """Simulation-based inference with generative networks trained by proper scoring rules."""


@app.command(epilog="Example: propersbi tasks")
def tasks() -> None:
    """List the built-in tasks."""
    from propersbi import tasks as built_in

    width = max(map(len, built_in.names()))
    for name in built_in.names():
        task = built_in.get(name)
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
    from propersbi.app.problems import load_problem
    from propersbi.app.run import Run

    problem = load_problem(model)
    started = Run.create(out or Path("runs") / Path(model).stem, problem, _command())
    pairs = started.simulate(simulations, test=test, seed=seed, workers=workers, progress=not quiet)
    typer.echo(f"{len(pairs)} simulations, {pairs.invalid} invalid, in {started.folder / 'simulations'}")


@app.command(epilog="Example: propersbi train runs/two_moons --time-limit 300")
@with_training_options
def train(
    run: RunArgument, changes: dict[str, Any], model: OwnFile = None, seed: Seed = 0, quiet: Quiet = False
) -> None:
    """Train the posterior on the simulations of a run. Rerun to continue."""
    opened = _reopen(run, model)
    opened.train(seed=seed, progress=not quiet, **changes)
    done = opened.record.training
    assert done is not None
    typer.echo(
        f"Trained {done.steps} steps in {done.seconds or 0:.0f} s, validation score {done.kept_score or 0:.4g} at step "
        f"{done.kept_step}: {opened.folder / 'posterior'}"
    )


@app.command(epilog="Example: propersbi sample runs/two_moons --observation 1 -n 1000 -o samples.csv")
def sample(
    run: RunArgument,
    observation: ObservationSource = None,
    count: Annotated[int, typer.Option("-n", help="Posterior draws.")] = 1000,
    out: Annotated[
        str | None, typer.Option("--out", "-o", help="A .csv, .npy or .parquet file, or - for CSV on stdout.")
    ] = None,
    model: OwnFile = None,
    seed: Seed = 0,
    quiet: Quiet = False,
) -> None:
    """Draw from the posterior given an observation. Without -o, print its summary."""
    from propersbi.app.problems import read_observation
    from propersbi.app.tables import summary_table, write_samples

    opened = _reopen(run, model)
    observed = read_observation(observation, opened.problem)
    if observed is None:
        raise InputError("There is no observation: give --observation FILE.")
    posterior = opened.posterior()
    if out is None:
        typer.echo(summary_table(posterior.summary(observed.values, num_samples=count, seed=seed)))
        return
    draws = posterior.sample((count,), x=observed.values, seed=seed, show_progress_bars=not quiet)
    write_samples(out, draws.cpu().numpy(), posterior.parameter_names)
    if out != "-":
        typer.echo(f"{count} draws in {out}")


@app.command(epilog="Example: propersbi diagnose runs/two_moons --observation 1")
def diagnose(
    run: RunArgument,
    observation: ObservationSource = None,
    model: OwnFile = None,
    num_samples: Annotated[int | None, typer.Option(help="Posterior draws for each test pair; 250.")] = None,
    seed: Seed = 0,
    quiet: Quiet = False,
) -> None:
    """Check the posterior on fresh simulations, and show it for an observation."""
    from propersbi.app.problems import read_observation

    opened = _reopen(run, model)
    observed = read_observation(observation, opened.problem)
    typer.echo(opened.diagnose(observed, num_samples=num_samples, seed=seed, progress=not quiet).summary())


@app.command(epilog="Example: propersbi report runs/two_moons")
def report(run: RunArgument) -> None:
    """Write report.html: one self-contained page about the run."""
    from propersbi.app.run import Run
    from propersbi.reports.page import report as write

    typer.echo(write(Run.open(run).folder))


@app.command(
    epilog="Examples: propersbi run two_moons  |  propersbi run my_model.py --observation x.npy --simulations 10000"
    "  |  propersbi run my_model.py --observation x.npy --rounds 5"
)
@with_training_options
def run(
    model: ModelArgument,
    changes: dict[str, Any],
    observation: ObservationSource = None,
    out: Out = None,
    simulations: Count = None,
    rounds: Rounds = 1,
    correction: CorrectionName = "truncated",
    test: Test = None,
    workers: Workers = 1,
    seed: Seed = 0,
    quiet: Quiet = False,
) -> None:
    """Do everything: simulate, train, diagnose, report. Rerun to continue where it stopped."""
    from propersbi.app.run import run as run_all

    finished = run_all(
        model,
        observation=observation,
        folder=out,
        simulations=simulations,
        rounds=rounds,
        correction=_correction(correction),
        test=test,
        seed=seed,
        workers=workers,
        progress=not quiet,
        command=_command(),
        **changes,
    )
    typer.echo(finished.diagnostics.summary())
    typer.echo(f"\nReport: {finished.report}")


def _command() -> str:
    return " ".join(["propersbi", *sys.argv[1:]])


def _reopen(folder: Path, own_file: str | None) -> Run:
    """A run and its problem; a file runs only if it is named here, never because the run directory names it."""
    from propersbi import tasks as built_in
    from propersbi.app.problems import load_problem
    from propersbi.app.run import Run

    opened = Run.open(folder)
    name = own_file or opened.record.problem
    if own_file or name in built_in.names():
        opened.problem = load_problem(name)
    return opened


def _correction(name: str) -> Correction:
    from propersbi.samplers.latent import Metropolis, Rejection
    from propersbi.sequential.corrections import CorrectedLatent, ImportanceWeights, Truncated, Uncorrected

    corrections: dict[str, Callable[[], Correction]] = {
        "truncated": Truncated,
        "weights": ImportanceWeights,
        "rejection": lambda: CorrectedLatent(Rejection()),
        "metropolis": lambda: CorrectedLatent(Metropolis()),
        "uncorrected": Uncorrected,
    }
    made: Correction = choose("correction", name, corrections)()
    return made


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
