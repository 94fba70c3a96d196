"""The commands about simulations: simulate, status, import and cluster."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from propersbi.app.options import (
    Count,
    ModelArgument,
    Out,
    OwnFile,
    Quiet,
    RunArgument,
    Seed,
    Test,
    chosen_model,
    with_simulation_options,
)
from propersbi.types import InputError

__all__ = ["commands"]

commands = typer.Typer()
cluster = typer.Typer(help="Scripts that submit a run to a cluster.", no_args_is_help=True)
commands.add_typer(cluster, name="cluster")

PartOption = Annotated[
    str | None,
    typer.Option(
        "--part", help="Simulate one part of many, such as 17/200, into a folder that all share, and help with others."
    ),
]


@commands.command(
    epilog="Examples: propersbi simulate two_moons -n 10000 --workers 2  |  propersbi simulate my_model.py --part 3/8"
)
@with_simulation_options
def simulate(
    model: ModelArgument,
    simulation: dict[str, Any],
    out: Out = None,
    simulations: Count = None,
    test: Test = None,
    part: PartOption = None,
    seed: Seed = 0,
    quiet: Quiet = False,
) -> None:
    """Simulate pairs of parameters and data. Rerun to continue; raise -n to add more."""
    from propersbi.app.parts import simulate_part
    from propersbi.app.problems import load_problem
    from propersbi.app.run import Run
    from propersbi.simulation.claims import Part

    if part is not None and ("executor" in simulation or "workers" in simulation):
        raise InputError("A --part is one process: give neither --workers nor --executor with it.")
    chosen = None if part is None else Part.parse(part)
    problem = load_problem(chosen_model(model, simulation))
    started = Run.create(out or Path("runs") / Path(model).stem, problem, " ".join(["propersbi", *sys.argv[1:]]))
    if chosen is not None:
        left = simulate_part(started, chosen, simulations, test=test, seed=seed, progress=not quiet, **simulation)
        typer.echo("\n".join(left) or f"All chunks are finished in {started.folder / 'simulations'}")
        return
    pairs = started.simulate(simulations, test=test, seed=seed, progress=not quiet, **simulation)
    failed = f" ({pairs.failures.total} failed)" if pairs.failures.total else ""
    typer.echo(f"{len(pairs)} simulations, {pairs.invalid} invalid{failed}, in {started.folder / 'simulations'}")


@commands.command(epilog="Example: propersbi status runs/two_moons --watch")
def status(
    run: RunArgument,
    watch: Annotated[bool, typer.Option("--watch", help="Show it again every few seconds until all is done.")] = False,
) -> None:
    """Say how far the simulations of a run are: chunks done and under way, speed, time left, who works where."""
    from propersbi.app.status import status as status_of

    while True:
        groups = status_of(run)
        typer.echo("\n".join(map(str, groups)))
        if not watch or all(group.complete for group in groups):
            return
        time.sleep(5)
        typer.echo("")


@commands.command(name="import", epilog="Example: propersbi import runs/mine theta.npy x.npy")
def import_(
    run: RunArgument,
    sources: Annotated[
        list[str], typer.Argument(metavar="FILES", help="theta.npy and x.npy, a folder of .npz, or a .parquet file.")
    ],
    parameters: Annotated[
        str | None, typer.Option(help="Columns of a .parquet file that are parameters, separated by commas.")
    ] = None,
    test: Annotated[int | None, typer.Option(help="Rows to test with; by default a tenth, 300 to 1000.")] = None,
    model: OwnFile = None,
) -> None:
    """Take over simulations that exist already into a run; then train, diagnose and report as usual."""
    from propersbi.app.importing import import_run

    names = None if parameters is None else [name.strip() for name in parameters.split(",")]
    done = import_run(run, sources, parameters=names, test=test, model=model)
    typer.echo(f"{done.n} rows to train on and {done.test} to test with, {done.invalid} invalid, in {run}")
    own = f" --model {model}" if model else ""
    typer.echo(f"Next: propersbi train {run}{own}")


@cluster.command(epilog="Example: propersbi cluster slurm my_model.py -n 1000000 --parts 200 --script submit.sh")
def slurm(
    model: ModelArgument,
    parts: Annotated[int, typer.Option(help="Jobs in the array.")],
    out: Out = None,
    simulations: Count = None,
    test: Test = None,
    seed: Seed = 0,
    script: Annotated[Path | None, typer.Option(help="Where to write the script; by default it is printed.")] = None,
    limit: Annotated[str, typer.Option("--time", help="Time limit of a simulating job.")] = "04:00:00",
    train_time: Annotated[str, typer.Option(help="Time limit of the training job.")] = "04:00:00",
    extra: Annotated[str, typer.Option("--sbatch", help="Further options of sbatch, as one word.")] = "",
) -> None:
    """Write a script that submits a SLURM array of simulating jobs and a training job that depends on it."""
    from propersbi.app.parts import slurm_script

    given = {"-n": simulations, "--test": test, "--seed": seed or None}
    words = [word for name, value in given.items() if value is not None for word in (name, str(value))]
    folder = out or Path("runs") / Path(model).stem
    name = str(script or "submit.sh")
    text = slurm_script(model, folder, parts, words, name=name, time=limit, train_time=train_time, extra=extra)
    if script is None:
        typer.echo(text, nl=False)
        return
    script.write_text(text)
    typer.echo(f"Wrote {script}. Submit it with: bash {script}")
