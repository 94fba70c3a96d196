"""Measure one cell: simulate, train, draw, compare. Every part continues where a killed process left it.

A folder holds ``plan.json`` (what fits the time, decided once), ``checkpoint.ckpt``, ``posterior`` once it is trained,
``scores.json`` (C2ST so far) and at the end ``result.json``.
"""

from __future__ import annotations

import math
import resource
import sys
import time
import warnings
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

import propersbi as ps
from benchmarks import paper
from benchmarks.accuracy import machine, told_apart
from benchmarks.bench import Cell, locked
from propersbi.storage.config import decode
from propersbi.recipes import Defaults
from propersbi.storage.files import read_json, write_json
from propersbi.samplers.bounds import support_of

__all__ = ["drawn", "measure", "tested"]

LARGE = 500  # numbers in x from which on simulations are kept on disk
ATTEMPTS = 10  # to draw inside the prior's support
C2ST_SECONDS = 30.0  # of one comparison of 10 000 draws, roughly: for plans only
LENGTH = ("time_limit", "max_steps")  # what `propersbi run` makes short
FEW = 100  # draws inside the support that a comparison needs


def measure(cell: Cell, runs: Path, *, progress: bool = True) -> dict[str, Any]:
    """The result of a cell, measured now unless it is there."""
    folder = cell.folder(runs)
    done = folder / "result.json"
    with locked(folder / "lock"):  # a process whose starter was killed may still be at it
        if not done.exists():
            write_json(done, _measured(cell, folder, runs, progress))
    return read_json(done)


def _measured(cell: Cell, folder: Path, runs: Path, progress: bool) -> dict[str, Any]:
    task, started = ps.tasks.get(cell.task), time.monotonic()
    sims = simulated(cell, task, runs, progress)
    simulating = time.monotonic() - started
    plan = planned(cell, task, sims, folder)
    posterior = trained(cell, task, sims, plan, folder, progress)
    started = time.monotonic()
    found = evaluated(cell, task, posterior, plan, folder)
    info, seconds = posterior.info, simulating + posterior.info["seconds"] + time.monotonic() - started
    found |= {"runtime": [round(seconds, 1), None], "stop_step": [info["steps"], None]}
    parts = [f"{cell.simulations:,} of {cell.n:,} simulations"] if cell.simulations < cell.n else []
    parts += [f"at most {plan['max_steps']:,} steps"] if plan["fewer_steps"] else []
    seen = f"{plan['observations']} of {cell.evaluation['observations']} observations"
    parts += [seen] if plan["fewer_observations"] else []
    parts += ["a smaller critic"] if cell.seconds is not None and "gan" in cell.method else []
    parts += [f"other {', '.join(cell.changed)}"] if cell.changed else []
    return {
        "metrics": {name: found[name] for name in cell.metrics},
        "reduced": bool(parts),
        "note": "; ".join([*parts, f"stopped by {info['stopped']}"]),
        "seconds": round(info["seconds"], 1),
        "peak_mb": round(_peak()),
        "versions": f"propersbi {ps.__version__}, torch {info['torch']}, Python {sys.version.split()[0]}",
        "machine": machine(),
        "date": date.today().isoformat(),
    }


def simulated(cell: Cell, task: Any, runs: Path, progress: bool) -> Any:
    """The training pairs; large data are kept on disk, in half precision, for all cells with the same seed."""
    options: dict[str, Any] = {"seed": cell.seed, "progress": progress}
    silent = cell.family == "ours" and task.parts is not None  # the noise is then drawn anew for every batch
    simulator = task.parts[0] if silent else task.simulate
    if math.prod(task.x_shape) > LARGE:
        place = runs / "simulations" / f"{cell.task}-{cell.simulations}-{cell.seed}{'-silent' * silent}"
        with locked(place.with_suffix(".lock")):
            options |= {"path": place, "chunk_size": 250, "half": True}
            return ps.simulate(task.prior, simulator, cell.simulations, **options)
    return ps.simulate(task.prior, simulator, cell.simulations, **options)


def planned(cell: Cell, task: Any, sims: Any, folder: Path) -> dict[str, Any]:
    """Steps and observations that fit the cell's time; decided once, so that a rerun does the same.

    Half of it is for training, and the other for comparing with references, where there are any; else most of it.
    """
    path, whole = folder / "plan.json", cell.evaluation["observations"]
    asked = cell.training.get("max_steps")
    if cell.seconds is None:
        return {"max_steps": asked, "observations": whole, "fewer_steps": False, "fewer_observations": False}
    if not path.exists():
        compares = "c2st" in cell.metrics
        share = 0.5 if compares else 0.8
        steps = max(1, int(share * cell.seconds / _seconds_per_step(cell, task, sims)))
        compared = C2ST_SECONDS * cell.evaluation["draws"] / 10_000
        observations = max(1, min(whole, int(cell.seconds / 2 / compared))) if compares else whole
        most = asked if asked is not None else _default_steps(cell, task)
        plan = {"max_steps": min(steps, most), "observations": observations}
        write_json(path, {**plan, "fewer_steps": steps < most, "fewer_observations": observations < whole})
    return read_json(path)


def _default_steps(cell: Cell, task: Any) -> int:
    default = Defaults(task.theta_shape, task.x_shape)
    return default.max_steps(round(0.9 * cell.simulations), default.steps())


def _seconds_per_step(cell: Cell, task: Any, sims: Any) -> float:
    """By a step, and if it was quick, by some more."""
    seconds = 0.0
    for steps in (1, 20):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # so few steps do break down at times
            info = _fit(cell, task, sims, {"max_steps": steps}, None, False).info
        seconds = info["seconds"] / max(1, info["steps"])
        if seconds > 1:
            break
    return seconds


def trained(cell: Cell, task: Any, sims: Any, plan: dict[str, Any], folder: Path, progress: bool) -> ps.Posterior:
    chosen = {} if plan["max_steps"] is None else {"max_steps": plan["max_steps"]}
    return _fit(cell, task, sims, chosen, folder, progress)


def _fit(cell: Cell, task: Any, sims: Any, chosen: dict[str, Any], folder: Path | None, progress: bool) -> ps.Posterior:
    training: dict[str, Any] = {**cell.training, **chosen}
    if cell.family == "paper":
        return paper.fit(
            sims.theta,
            sims.x,
            method=dict(cell.method),
            m=cell.m,
            seed=cell.seed,
            training=training,
            reduced=cell.seconds is not None,
            folder=folder,
            progress=progress,
        )
    usual = {key: decode(value) for key, value in task.quick.get("training", {}).items() if key not in LENGTH}
    if "rule" in cell.method:
        training["rule"] = paper.rule_of(cell.method["rule"])
    common: dict[str, Any] = {"prior": task.prior, "seed": cell.seed, "folder": folder, "progress": progress}
    common["noise"] = None if task.parts is None else task.parts[1]
    return ps.fit(sims.theta, sims.x, m=cell.m, **common, **{**usual, **training})


def evaluated(cell: Cell, task: Any, posterior: ps.Posterior, plan: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Mean and standard deviation of every metric: over observations, or over parameters, as in the paper."""
    asked, found = cell.evaluation, {}
    if "c2st" in cell.metrics:
        draws = []
        for i in range(1, plan["observations"] + 1):
            samples, inside = drawn(cell, task, posterior, task.observation(i)[None], asked["draws"], i)
            kept = samples[:, 0][inside[:, 0]]
            draws.append(kept if len(kept) >= FEW else samples[:, 0])
        found["c2st"] = told_apart(task, draws, asked["draws"], cell.seed, folder, cell.name)
    if set(cell.metrics) & {"calibration_error", "r2", "nrmse", "rmse", "crps"}:
        found |= _errors(*tested(cell, task, posterior))
    return {name: [round(float(np.mean(v)), 6), round(float(np.std(v)), 6)] for name, v in found.items()}


def tested(cell: Cell, task: Any, posterior: ps.Posterior) -> tuple[np.ndarray, np.ndarray]:
    """Draws ``(draws, N, d)`` for fresh test pairs, and their parameters ``(N, d)``."""
    prior, draws = task.test_prior or task.prior, cell.evaluation["pair_draws"]
    test = ps.simulate(prior, task.simulate, cell.evaluation["pairs"], seed=cell.seed, group="test", progress=False)
    theta = np.asarray(test.theta).reshape(len(test.theta), -1)
    samples = np.empty((draws, *theta.shape), np.float32)
    for start in range(0, len(theta), 100):
        rows = slice(start, start + 100)
        part, _ = drawn(cell, task, posterior, np.asarray(test.x[rows]), draws, 100 + start)
        samples[:, rows] = part.reshape(*part.shape[:2], -1)
    return samples, theta


def _errors(samples: np.ndarray, theta: np.ndarray) -> dict[str, Any]:
    """Per parameter; pixels that are the same in all test images are left out, as there is nothing to explain."""
    varies = np.ptp(theta, axis=0) > 0
    samples, theta = samples[:, :, varies], theta[:, varies]
    return {
        "calibration_error": ps.metrics.calibration_error(samples, theta),
        "r2": ps.metrics.r2(samples, theta),
        "nrmse": ps.metrics.nrmse(samples, theta),
        "rmse": ps.metrics.rmse(samples, theta),
        "crps": 2 * ps.metrics.crps(samples, theta).mean(0),  # twice the usual one, as published
    }


def drawn(
    cell: Cell, task: Any, posterior: ps.Posterior, x: np.ndarray, draws: int, place: int
) -> tuple[np.ndarray, np.ndarray]:
    """Draws ``(draws, N, *theta)`` and which lie inside the support; the paper draws those outside again.

    It did so without end for its calibration; here what is still outside after ten attempts stays.
    """
    seeds = np.random.SeedSequence([cell.seed, place]).generate_state(ATTEMPTS)
    samples = posterior.sample_batched((draws,), x=x, seed=int(seeds[0]), show_progress_bars=False).numpy()
    inside = _inside(task, samples)
    if not cell.evaluation["reject"]:
        return samples, np.ones_like(inside)
    for seed in seeds[1:]:
        if inside.all():
            break
        again = posterior.sample_batched((draws,), x=x, seed=int(seed), show_progress_bars=False).numpy()
        samples[~inside] = again[~inside]
        inside = _inside(task, samples)
    return samples, inside


def _inside(task: Any, samples: np.ndarray) -> np.ndarray:
    flat = samples.reshape(*samples.shape[:2], -1)
    low, high = (np.asarray(end, dtype=float) for end in support_of(task.prior).ends())
    return np.all((flat >= low) & (flat <= high), axis=-1)


def _peak() -> float:
    """The most memory this process held, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform == "linux" else 1024**2)
