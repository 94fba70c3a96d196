"""A run that trains on batches simulated while training."""

from __future__ import annotations

from typing import Any

from propersbi.app.directory import Run
from propersbi.app.facts import training_record
from propersbi.online import fit_online
from propersbi.posterior import Posterior
from propersbi.storage.records import RunRecord
from propersbi.types import InputError

__all__ = ["propose_online", "train_online"]


def propose_online(record: RunRecord) -> str | None:
    """A sentence on training online, if the simulator was faster than the training that used its rows again and again.

    >>> from propersbi.storage.records import SimulationsRecord, TrainingRecord
    >>> made, used = SimulationsRecord(9000, 1000, 0, 0, 0.5), TrainingRecord(0, batch_size=256, steps=1000, seconds=20)
    >>> propose_online(RunRecord("model.py", simulations=made, training=used)).partition(":")[0]
    'The simulator made 20,000 rows a second, and training used 12,800'
    """
    simulated, trained = record.simulations, record.training
    if simulated is None or not simulated.seconds or trained is None:
        return None
    if not (trained.steps and trained.batch_size and trained.seconds):
        return None
    made = (simulated.n + simulated.test) / simulated.seconds
    used = trained.members * trained.steps * trained.batch_size / trained.seconds
    if made < used or trained.steps * trained.batch_size <= simulated.n:
        return None
    return (
        f"The simulator made {made:,.0f} rows a second, and training used {used:,.0f}: "
        "--online (online=True) would train on fresh ones only."
    )


def train_online(run: Run, *, seed: int = 0, workers: int = 1, progress: bool = True, **changes: Any) -> Posterior:
    """Fill ``posterior/`` by :func:`propersbi.fit_online`; the simulations of the run are for its units and tests.

    Arguments:
        run: The run, with its problem, after its simulations.
        seed: The seed.
        workers: Processes that simulate while another one trains.
        progress: Whether to show a progress bar.
        **changes: Choices of the recipe, and ``batched``.
    """
    problem, done = run.problem, run.record.simulations
    if problem is None or done is None:
        raise InputError(f"'{run.folder}' needs its problem and its simulations before it is trained online.")
    options = {**run.own_choices(seed), **changes}
    if options.get("batched") is None:
        options["batched"] = problem.batched
    posterior = fit_online(
        options.pop("prior"),
        problem.checked_simulator,
        simulations=done.n,
        workers=workers,
        folder=run.folder,
        seed=seed,
        progress=progress,
        **options,
    )
    posterior = run.with_data_names(posterior)
    run.note(training=training_record(posterior, seed))
    return posterior
