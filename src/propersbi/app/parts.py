"""A run simulated by many processes that share its folder, as the jobs of a SLURM array do."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from propersbi.app.directory import Run
from propersbi.app.status import plan
from propersbi.simulation.claims import Part, UnderWayError
from propersbi.simulation.simulations import simulate
from propersbi.types import InputError

__all__ = ["simulate_part", "slurm_script"]


def simulate_part(
    run: Run, part: Part, n: int | None, *, test: int | None = None, progress: bool = True, **options: Any
) -> list[str]:
    """Simulate one part of a run and help with the others; a sentence for each group that others still work on.

    Nothing is recorded: the same command without a part completes the run.

    Arguments:
        run: The run.
        part: Which part.
        n: Pairs to train on; by default as many as the settings of the problem say.
        test: Pairs to test with, likewise.
        progress: Whether to show progress bars.
        **options: As for :meth:`Run.simulate`.
    """
    problem = run.problem
    if problem is None:
        raise InputError(f"Nothing can be simulated for '{run.folder}' without its problem: give that too.")
    n = problem.settings.simulations if n is None else n
    test = problem.settings.test_pairs(n) if test is None else test
    plan(run.folder, train=n, test=test)
    work = run.simulation_work(progress=progress, executor=part, **options)
    test_prior = problem.prior if problem.test_prior is None else problem.test_prior
    under_way: list[str] = []
    for group, prior, simulator, count in (
        ("train", problem.prior, problem.training_simulator, n),
        ("test", test_prior, problem.checked_simulator, test),
    ):
        try:
            simulate(prior, simulator, count, group=group, **work)
        except UnderWayError as error:
            under_way.append(str(error))
    return under_way


SCRIPT = """#!/bin/bash
# Submits an array of {parts} jobs that simulate, and one that trains when they have ended:  bash {name}
set -euo pipefail
mkdir -p {logs}
array=$(sbatch --parsable --job-name=simulate --array=1-{parts} --time={time} \\
    --output={logs}/simulate-%a.log{extra} <<'JOB'
#!/bin/bash
export OMP_NUM_THREADS=1
srun {command} --part "$SLURM_ARRAY_TASK_ID/{parts}" --quiet
JOB
)
# Whatever jobs that were lost have left is simulated by the last one, before it trains.
sbatch --dependency=afterany:"$array" --job-name=train --time={train_time} \\
    --output={logs}/train.log{extra} <<'JOB'
#!/bin/bash
export OMP_NUM_THREADS=1
{command} --quiet
{train}
JOB
echo "Submitted. How far it is:  propersbi status {out} --watch"
"""


def slurm_script(
    model: str, out: Path, parts: int, simulate_options: list[str], *, name: str, time: str, train_time: str, extra: str
) -> str:
    """A script that submits a SLURM array of ``parts`` simulating jobs and a training job that depends on it.

    Arguments:
        model: The task or file.
        out: The run directory, on a disk that all nodes share.
        parts: The number of jobs in the array.
        simulate_options: Further words of ``propersbi simulate``.
        name: What the script is called.
        time: The time limit of a simulating job, as SLURM writes it.
        train_time: Likewise of the training job.
        extra: Further options of sbatch.
    """
    if parts < 1:
        raise InputError(f"'parts' must be at least 1, got {parts}.")
    command = shlex.join(["propersbi", "simulate", model, "-o", str(out), *simulate_options])
    own_file = ["--model", model] if model.endswith(".py") else []
    train = shlex.join(["propersbi", "train", str(out), *own_file, "--quiet"])
    return SCRIPT.format(
        parts=parts,
        name=name,
        logs=shlex.quote(f"{out}-logs"),
        time=shlex.quote(time),
        train_time=shlex.quote(train_time),
        extra=f" {extra}" if extra else "",
        command=command,
        train=train,
        out=shlex.quote(str(out)),
    )
