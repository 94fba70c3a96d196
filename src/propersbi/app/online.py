"""A run that trains on batches simulated while training."""

from __future__ import annotations

from typing import Any

from propersbi.app.directory import Run
from propersbi.app.facts import training_record
from propersbi.online import fit_online
from propersbi.posterior import Posterior
from propersbi.types import InputError

__all__ = ["train_online"]


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
    run.note(training=training_record(posterior, seed))
    return posterior
