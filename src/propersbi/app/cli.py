"""The command line. A command parses, calls the library once and prints; results go to stdout, progress to stderr."""

from __future__ import annotations

import io
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from propersbi import __version__
from propersbi.app.options import (
    EXIT_CODES,
    CorrectionName,
    Count,
    ModelArgument,
    ObservationSource,
    Open,
    Out,
    OwnFile,
    Quiet,
    Rounds,
    RunArgument,
    Seed,
    Strict,
    Test,
    choose,
    chosen_model,
    with_simulation_options,
    with_training_options,
)
from propersbi.app.simulating import commands
from propersbi.types import InputError

if TYPE_CHECKING:  # torch takes seconds to load, and --help should not wait for it
    from propersbi.app.run import Run
    from propersbi.diagnostics import Diagnostics
    from propersbi.sequential.corrections import Correction

__all__ = ["app", "main"]

app = typer.Typer(
    name="propersbi",
    help="Simulation-based inference with generative networks trained by proper scoring rules.",
    epilog="Start with: propersbi run two_moons  |  or with a model of your own: propersbi new my_model.py, propersbi "
    f"check my_model.py, propersbi run my_model.py. {EXIT_CODES}",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(commands)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"propersbi {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
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


@app.command(epilog="Example: propersbi new my_model.py")
def new(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to write it; a name that ends in .py.")],
) -> None:
    """Write a commented problem file, ready to run, to put your own prior and simulator into."""
    from propersbi.app.problems import write_example

    written = write_example(file)
    typer.echo(f"Wrote {written}. Next:\n  propersbi check {written}\n  propersbi run {written} -n 500 --max-steps 50")


@app.command(epilog="Example: propersbi check my_model.py --observation x.npy")
@with_simulation_options
def check(
    model: ModelArgument,
    simulation: dict[str, Any],
    observation: ObservationSource = None,
    simulations: Count = None,
    test: Test = None,
    seed: Seed = 0,
) -> None:
    """Simulate a few rows and say what is there: shapes, names, support, speed, failures. Exits with 2 on a problem."""
    from propersbi.app.checking import check_problem

    simulation.pop("executor", None)  # a few rows are simulated here
    model = chosen_model(model, simulation)
    found = check_problem(model, observation=observation, simulations=simulations, test=test, seed=seed, **simulation)
    typer.echo(found.summary())
    if found.problems:
        raise typer.Exit(2)


@app.command(epilog="Example: propersbi train runs/two_moons --time-limit 300")
@with_training_options
def train(
    run: RunArgument, changes: dict[str, Any], model: OwnFile = None, seed: Seed = 0, quiet: Quiet = False
) -> None:
    """Train the posterior on the simulations of a run. Rerun to continue."""
    if changes.pop("online", None):
        raise InputError("A training that simulates is part of 'propersbi run MODEL --online'.")
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
        str | None,
        typer.Option("--out", "-o", help="A .csv, .npy, .parquet or .nc file, a .zarr folder, or - for CSV on stdout."),
    ] = None,
    model: OwnFile = None,
    seed: Seed = 0,
    quiet: Quiet = False,
) -> None:
    """Draw from the posterior given an observation. Without -o, print its summary."""
    from propersbi.app.observed import read_observation
    from propersbi.app.tables import check_output, write_draws

    if out is not None:
        check_output(out)
    opened = _reopen(run, model)
    posterior = opened.posterior()
    observed = read_observation(observation, opened.problem, missing=posterior.takes_missing)
    if observed is None:
        raise InputError("There is no observation: give --observation FILE.")
    values = observed.arranged(posterior.x_names).values
    if out is None:
        typer.echo(posterior.summary(values, num_samples=count, seed=seed))
        return
    write_draws(out, posterior, values, count, seed=seed, progress=not quiet)
    if out != "-":
        typer.echo(f"{count} draws in {out}")


@app.command(epilog=f"Example: propersbi diagnose runs/two_moons --observation 1. {EXIT_CODES}")
def diagnose(
    run: RunArgument,
    observation: ObservationSource = None,
    model: OwnFile = None,
    num_samples: Annotated[int | None, typer.Option(help="Posterior draws for each test pair; 250.")] = None,
    seed: Seed = 0,
    quiet: Quiet = False,
    strict: Strict = False,
) -> None:
    """Check the posterior on fresh simulations, and show it for an observation."""
    from propersbi.app.observed import read_observation

    opened = _reopen(run, model)
    observed = read_observation(observation, opened.problem, missing=opened.posterior().takes_missing)
    checks = opened.diagnose(observed, num_samples=num_samples, seed=seed, progress=not quiet)
    typer.echo(checks.summary())
    _exit(checks, strict)


@app.command(epilog=f"Example: propersbi report runs/two_moons. {EXIT_CODES}")
def report(run: RunArgument, strict: Strict = False, show: Open = False) -> None:
    """Write report.html: one self-contained page about the run."""
    from propersbi.app.run import Run
    from propersbi.app.showing import open_report
    from propersbi.reports.page import report as write

    opened = Run.open(run)
    typer.echo(page := write(opened.folder))
    if show:
        open_report(Path(page))
    if strict:
        _exit(opened.diagnostics, strict)


@app.command(
    epilog="Examples: propersbi run two_moons  |  propersbi run my_model.py --observation x.npy --simulations 10000"
    f"  |  propersbi run my_model.py --observation x.npy --rounds 5. {EXIT_CODES}"
)
@with_simulation_options
@with_training_options
def run(
    model: ModelArgument,
    changes: dict[str, Any],
    simulation: dict[str, Any],
    observation: ObservationSource = None,
    out: Out = None,
    simulations: Count = None,
    rounds: Rounds = 1,
    correction: CorrectionName = "truncated",
    test: Test = None,
    seed: Seed = 0,
    quiet: Quiet = False,
    strict: Strict = False,
) -> None:
    """Do everything: simulate, train, diagnose, report. Rerun to continue where it stopped."""
    from propersbi.app.run import run as run_all

    finished = run_all(
        chosen_model(model, simulation),
        observation=observation,
        folder=out,
        simulations=simulations,
        rounds=rounds,
        correction=_correction(correction),
        test=test,
        seed=seed,
        progress=not quiet,
        command=_command(),
        **simulation,
        **changes,
    )
    checks = finished.diagnostics
    typer.echo(checks.summary())
    typer.echo(f"\nReport: {finished.report}")
    _exit(checks, strict)


def _exit(checks: Diagnostics, strict: bool) -> None:
    """End with the exit code of the verdict, if that was asked for."""
    if strict:
        raise typer.Exit(checks.exit_code)


def _command() -> str:
    return " ".join(["propersbi", *sys.argv[1:]])


def _reopen(folder: Path, own_file: str | None) -> Run:
    """A run and its problem; a file runs only if it is named here, never because the run directory names it."""
    from propersbi import tasks as built_in
    from propersbi.app.problems import load_problem
    from propersbi.app.run import Run

    opened = Run.open(folder)
    name = own_file or opened.record.problem
    if own_file or name.partition(":")[0] in built_in.names():
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
    if os.environ.get("LOCAL_RANK", "0") != "0":  # of several processes that train together, the first one reports
        sys.stdout = io.StringIO()
    warnings.showwarning = lambda message, *_, **__: typer.echo(f"Warning: {message}", err=True)
    try:
        code = app([word for word in arguments if word != "--debug"], standalone_mode=False)
        message = "Interrupted. What was finished is kept; the same command continues." if code == 130 else ""
    except SystemExit as error:  # of the user's own code; typer itself does not end the program here
        code, message = 1, f"The program was ended from inside, with {error!r}, before it was done."
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
