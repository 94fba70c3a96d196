"""The whole pipeline in one call: simulate, train, diagnose and report."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from propersbi.app.directory import SIMULATION_OPTIONS, Run
from propersbi.app.observed import read_observation, takes_missing
from propersbi.app.online import propose_online, train_online
from propersbi.app.problems import check_ready, load_problem
from propersbi.observations import one_observation
from propersbi.problem import Problem
from propersbi.recipes import check_names
from propersbi.reports.page import report
from propersbi.sequential.corrections import Correction, Truncated
from propersbi.storage.progress import Phases
from propersbi.training.devices import is_first_process, wait_for_all
from propersbi.types import InputError

__all__ = ["Run", "run"]

# Arguments of fit that are no choices of a recipe.
FIT_ARGUMENTS = ("recipe", "start", "weight", "noise", "parameter_names", "device", "logger")
ONLINE_OPTIONS = ("batched", "on_error", "max_failed")  # of simulate, which also hold for batches simulated in training


def run(
    problem: Problem | str | Path,
    *,
    observation: Any = None,
    folder: str | Path | None = None,
    simulations: int | None = None,
    rounds: int = 1,
    correction: Correction | None = None,
    online: bool = False,
    test: int | None = None,
    seed: int = 0,
    workers: int = 1,
    progress: bool = True,
    command: str | None = None,
    **changes: Any,
) -> Run:
    """Do everything: simulate, train, diagnose and report. Calling again continues where it stopped.

    Arguments:
        problem: A :class:`~propersbi.problem.Problem` or task, the name of a task, or the path of a Python file.
        observation: The observed data: an array, a ``.npy``, ``.csv`` or ``.txt`` file, or the number of a task's
            observation; by default the problem's own, if it has one.
        folder: The run directory; by default ``runs/NAME``.
        simulations: Pairs to train on; by default as many as the settings of the problem say.
        rounds: More than 1 simulate in rounds near the observation; see :func:`propersbi.fit_sequential`.
        correction: How rounds are learnt from; :class:`~propersbi.sequential.corrections.Truncated`, unless given.
        online: Whether to train on batches that are simulated while training, for cheap simulators; see
            :func:`propersbi.fit_online`. ``simulations`` are then for units and validation only.
        test: Pairs to test with; by default as the settings of the problem say.
        seed: The same seed gives the same run.
        workers: Processes that simulate.
        progress: Whether to show progress bars on stderr.
        command: What the report names as the command that made the run; by default this call.
        **changes: Changes of the recipe and other arguments of :func:`propersbi.fit`; and those of
            :func:`propersbi.simulate` that say how to call the simulator and what becomes of simulations that fail:
            ``batched``, ``timeout``, ``on_error``, ``max_failed``, ``force``.
    """
    _check_changes(changes)
    if not isinstance(online, bool):
        raise InputError(f"'online' must be True or False, got {online!r:.80}.")
    if online and rounds != 1:
        raise InputError(f"Training online has no rounds: give either 'online' or {rounds} rounds.")
    if online and changes.get("timeout") is not None:
        raise InputError("'timeout' is for stored simulations: give either 'online' or a 'timeout'.")
    found = load_problem(problem)
    check_ready(found)  # what cannot work should not wait for the simulations
    observed = read_observation(observation, found)
    if rounds != 1 and observed is None:
        raise InputError(f"{rounds} rounds are for one observation: give an 'observation' (--observation FILE).")
    asked = {"simulations": simulations, "rounds": rounds, "test": test, "seed": seed, **changes}
    started = Run.create(folder or Path("runs") / _stem(found.name), found, command or _call(found, asked))
    in_rounds = rounds != 1
    first = [f"simulate and train in {rounds} rounds"] if in_rounds else ["simulate", "train"]
    progress = progress and is_first_process()
    phases = Phases([*first, "diagnose on fresh simulations", "write the report"], show=progress)
    with started.locked():
        simulation = {name: changes.pop(name) for name in SIMULATION_OPTIONS if name in changes}
        work: dict[str, Any] = {"test": test, "seed": seed, "workers": workers, "progress": progress, **simulation}
        phases.next()
        if in_rounds and observed is not None:
            changes |= {"rounds": rounds, "correction": correction or Truncated()}
            started.sequential(observed, simulations, **work, **changes)
        else:
            pairs = started.simulate(simulations, **work)
            if observed is not None:
                observed = observed.arranged(pairs.x_names)
                shape, missing = tuple(pairs.x.shape[1:]), takes_missing(found)
                if not found.training.get("exchangeable"):
                    one_observation(observed.values, shape, name="observation", missing=missing)
            phases.next()
            if online:
                changes |= {name: value for name, value in simulation.items() if name in ONLINE_OPTIONS}
                train_online(started, seed=seed, workers=workers, progress=progress, **changes)
            else:
                started.train(seed=seed, progress=progress, **changes)
                proposal = propose_online(started.record)
                if progress and proposal:
                    sys.stderr.write(f"{proposal}\n")
        if is_first_process():  # of several that train together
            phases.next()
            simulation.pop("force", None)
            started.diagnose(observed, seed=seed, progress=progress, **simulation)
            phases.next()
            report(started.folder)
        wait_for_all(changes.get("devices", 1))
    return started


def _stem(name: str) -> str:
    """The name of the run directory: that of the file or of the task, without its images.

    >>> _stem("camera:images/mnist"), _stem("models/my_model.py")
    ('camera', 'my_model')
    """
    return Path(name).stem if name.endswith(".py") else Path(name.partition(":")[0]).stem


def _check_changes(changes: Mapping[str, Any]) -> None:
    """Refuse unknown names before anything is simulated."""
    other = (*FIT_ARGUMENTS, *SIMULATION_OPTIONS)
    check_names({name: value for name, value in changes.items() if name not in other})


def _call(problem: Problem, asked: dict[str, Any]) -> str:
    """The call from Python that made the run, for people.

    >>> _call(load_problem("two_moons"), {"simulations": 100, "rounds": 1, "test": None, "seed": 0})
    "propersbi.run('two_moons', simulations=100)"
    """
    usual = {"simulations": None, "rounds": 1, "test": None, "seed": 0}
    words = [f"{name}={value!r:.80}" for name, value in asked.items() if name not in usual or value != usual[name]]
    return f"propersbi.run({', '.join([repr(problem.name), *words])})"
