"""Measure one cell: simulate, train, sample, compare. Every part continues where a killed process stopped.

A folder holds ``plan.json`` (what fits the time limit, decided once), ``checkpoint.ckpt``, ``posterior`` once it is
trained, ``scores.json`` (C2ST so far) and at the end ``result.json``.
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
from benchmarks.accuracy import c2st_scores, machine
from benchmarks.bench import Cell, lock
from benchmarks.paper.recipes import paper_recipe
from benchmarks.paper.specs import rule_of
from benchmarks.paper.training import fit as fit_paper
from propersbi.posterior import Posterior
from propersbi.recipes import Recipe
from propersbi.samplers import Box, support_of
from propersbi.simulation import Simulations
from propersbi.storage.config import decode
from propersbi.storage.files import read_json, write_json
from propersbi.tasks.task import Task

__all__ = ["cell_recipe", "measure", "sample", "sample_test_pairs", "simulate", "train"]

LARGE = 500  # numbers in x above which simulations are stored on disk
ATTEMPTS = 10  # to sample inside the prior's support
C2ST_SECONDS = 30.0  # of one comparison of 10 000 draws, roughly: for plans only
LENGTH = ("time_limit", "max_steps", "emulated")  # settings of a task that make `propersbi run` short
MIN_INSIDE = 100  # draws inside the support that a comparison needs


def measure(cell: Cell, runs: Path, *, progress: bool = True) -> dict[str, Any]:
    """The result of a cell, measured now unless it is there."""
    folder = cell.folder(runs)
    done = folder / "result.json"
    with lock(folder / "lock"):  # a process whose starter was killed may still be measuring
        if not done.exists():
            write_json(done, _measure(cell, folder, runs, progress))
    return dict(read_json(done))


def _measure(cell: Cell, folder: Path, runs: Path, progress: bool) -> dict[str, Any]:
    task, started = ps.tasks.get(cell.task), time.monotonic()
    sims = simulate(cell, task, runs, progress)
    simulating = time.monotonic() - started
    plan = make_plan(cell, task, sims, folder)
    limit = {} if plan["max_steps"] is None else {"max_steps": plan["max_steps"]}
    posterior = train(cell, task, sims, folder, progress, **limit)
    started = time.monotonic()
    metrics = evaluate(cell, task, posterior, plan["observations"], folder)
    info = posterior.info
    seconds = simulating + info["seconds"] + time.monotonic() - started
    metrics |= {"runtime": [round(seconds, 1), None], "stop_step": [info["steps"], None]}
    reductions = _reductions(cell, plan)
    return {
        "metrics": {name: metrics[name] for name in cell.metrics},
        "reduced": bool(reductions),
        "note": "; ".join([*reductions, f"stopped by {info['stopped']}"]),
        "seconds": round(info["seconds"], 1),
        "peak_mb": round(_peak()),
        "versions": f"propersbi {ps.__version__}, torch {info['torch']}, Python {sys.version.split()[0]}",
        "machine": machine(),
        "date": date.today().isoformat(),
    }


def _reductions(cell: Cell, plan: dict[str, Any]) -> list[str]:
    """In what a cell falls short of the paper's."""
    parts = [f"{cell.simulations:,} of {cell.n:,} simulations"] if cell.simulations < cell.n else []
    parts += [f"at most {plan['max_steps']:,} steps"] if plan["fewer_steps"] else []
    observations = f"{plan['observations']} of {cell.evaluation['observations']} observations"
    parts += [observations] if plan["fewer_observations"] else []
    parts += ["a smaller critic"] if cell.seconds is not None and "gan" in cell.method else []
    return [*parts, *([f"other {', '.join(cell.changed)}"] if cell.changed else [])]


def simulate(cell: Cell, task: Task, runs: Path, progress: bool) -> Simulations:
    """The training pairs; large data are stored on disk, in half precision, for all cells with the same seed."""
    options: dict[str, Any] = {"seed": cell.seed, "progress": progress}
    noiseless = cell.family == "ours" and task.noise is not None  # the noise is then drawn anew for every batch
    simulator = task.training_simulator if noiseless else task.simulate
    if math.prod(task.x_shape) > LARGE:
        store = runs / "simulations" / f"{cell.task}-{cell.simulations}-{cell.seed}{'-noiseless' * noiseless}"
        with lock(store.with_suffix(".lock")):
            options |= {"path": store, "chunk_size": 250, "half": True}
            return ps.simulate(task.prior, simulator, cell.simulations, **options)
    return ps.simulate(task.prior, simulator, cell.simulations, **options)


def make_plan(cell: Cell, task: Task, sims: Simulations, folder: Path) -> dict[str, Any]:
    """Steps and observations that fit the cell's time limit; decided once, so that a rerun does the same.

    Comparisons with references, where there are any, take at most half of the time; training takes what they leave, or
    most of it where there are none.
    """
    path, whole = folder / "plan.json", cell.evaluation["observations"]
    if cell.seconds is None:
        steps = cell.training.get("max_steps")
        return {"max_steps": steps, "observations": whole, "fewer_steps": False, "fewer_observations": False}
    if not path.exists():
        compares = "c2st" in cell.metrics
        seconds = C2ST_SECONDS * cell.evaluation["draws"] / 10_000
        observations = max(1, min(whole, int(cell.seconds / 2 / seconds))) if compares else whole
        rest = max(cell.seconds / 2, cell.seconds - observations * seconds) if compares else 0.8 * cell.seconds
        steps = max(1, int(rest / _seconds_per_step(cell, task, sims)))
        most = cell_recipe(cell, task, sims).training.max_steps
        plan = {"max_steps": min(steps, most), "observations": observations}
        write_json(path, {**plan, "fewer_steps": steps < most, "fewer_observations": observations < whole})
    return dict(read_json(path))


def _seconds_per_step(cell: Cell, task: Task, sims: Simulations) -> float:
    """Of one step, or of twenty if one is quick."""
    seconds = 0.0
    for steps in (1, 20):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # so few steps may collapse
            info = train(cell, task, sims, None, False, max_steps=steps).info
        seconds = info["seconds"] / max(1, info["steps"])
        if seconds > 1:
            break
    return seconds


def cell_recipe(cell: Cell, task: Task, sims: Simulations, **changes: Any) -> Recipe:
    """The recipe of a cell: the paper's, or the one that follows from the data and the task's own settings."""
    training = {**cell.training, **changes}
    if cell.family == "paper":
        reduced, n = cell.seconds is not None, len(sims.theta)
        return paper_recipe(cell.method, training, task.theta_shape, draws=cell.m, simulations=n, reduced=reduced)
    own = {name: decode(value) for name, value in task.training.items() if name not in LENGTH}
    if "rule" in cell.method:
        training["rule"] = rule_of(cell.method["rule"], task.theta_shape)
    return ps.recipe(sims.theta, sims.x, prior=task.prior, **{**own, **training, "draws": cell.m})


def train(cell: Cell, task: Task, sims: Simulations, folder: Path | None, progress: bool, **changes: Any) -> Posterior:
    """The posterior of a cell; what is in its folder is not trained again."""
    recipe = cell_recipe(cell, task, sims, **changes)
    common: dict[str, Any] = {"seed": cell.seed, "folder": folder, "progress": progress}
    if cell.family == "paper":
        return fit_paper(sims.theta, sims.x, recipe, center=cell.training.get("center", 0.0), **common)
    noise = None if task.noise is None else task.noise.add
    return ps.fit(sims.theta, sims.x, prior=task.prior, recipe=recipe, noise=noise, **common)


def evaluate(cell: Cell, task: Task, posterior: Posterior, observations: int, folder: Path) -> dict[str, Any]:
    """Mean and standard deviation of every metric: over observations, or over parameters, as in the paper."""
    metrics: dict[str, Any] = {}
    if "c2st" in cell.metrics:
        num_samples, draws = cell.evaluation["draws"], []
        for i in range(1, observations + 1):
            samples, inside = sample(cell, task, posterior, task.observation(i)[None], num_samples, i)
            accepted = samples[:, 0][inside[:, 0]]
            draws.append(accepted if len(accepted) >= MIN_INSIDE else samples[:, 0])
        metrics["c2st"] = c2st_scores(task, draws, num_samples, cell.seed, folder, cell.name)
    if set(cell.metrics) & {"calibration_error", "r2", "nrmse", "rmse", "crps"}:
        metrics |= _errors(*sample_test_pairs(cell, task, posterior))
    return {name: [round(float(np.mean(v)), 6), round(float(np.std(v)), 6)] for name, v in metrics.items()}


def sample_test_pairs(cell: Cell, task: Task, posterior: Posterior) -> tuple[np.ndarray, np.ndarray]:
    """Draws ``(draws, N, d)`` for fresh test pairs, and their parameters ``(N, d)``."""
    prior, draws = task.test_prior or task.prior, cell.evaluation["pair_draws"]
    test = ps.simulate(prior, task.simulate, cell.evaluation["pairs"], seed=cell.seed, group="test", progress=False)
    theta = np.asarray(test.theta).reshape(len(test.theta), -1)
    samples = np.empty((draws, *theta.shape), np.float32)
    for start in range(0, len(theta), 100):
        rows = slice(start, start + 100)
        part, _ = sample(cell, task, posterior, np.asarray(test.x[rows]), draws, 100 + start)
        samples[:, rows] = part.reshape(*part.shape[:2], -1)
    return samples, theta


def _errors(samples: np.ndarray, theta: np.ndarray) -> dict[str, Any]:
    """Per parameter; pixels that are the same in all test images are excluded, as they have no variance to explain."""
    varies = np.ptp(theta, axis=0) > 0
    samples, theta = samples[:, :, varies], theta[:, varies]
    return {
        "calibration_error": ps.metrics.calibration_error(samples, theta),
        "r2": ps.metrics.r2(samples, theta),
        "nrmse": ps.metrics.nrmse(samples, theta),
        "rmse": ps.metrics.rmse(samples, theta),
        "crps": 2 * ps.metrics.crps(samples, theta).mean(0),  # twice the usual one, as published
    }


def sample(
    cell: Cell, task: Task, posterior: Posterior, x: np.ndarray, num_samples: int, stream: int
) -> tuple[np.ndarray, np.ndarray]:
    """Draws ``(num_samples, N, *theta)`` and which lie inside the support; the paper resamples those outside.

    For its calibration it did so without limit; here what is still outside after ten attempts stays.
    """
    seeds = np.random.SeedSequence([cell.seed, stream]).generate_state(ATTEMPTS)
    samples = posterior.sample_batched((num_samples,), x=x, seed=int(seeds[0]), show_progress_bars=False).numpy()
    inside = _inside(task, samples)
    if not cell.evaluation["reject"]:
        return samples, np.ones_like(inside)
    for seed in seeds[1:]:
        if inside.all():
            break
        again = posterior.sample_batched((num_samples,), x=x, seed=int(seed), show_progress_bars=False).numpy()
        samples[~inside] = again[~inside]
        inside = _inside(task, samples)
    return samples, inside


def _inside(task: Task, samples: np.ndarray) -> np.ndarray:
    flat = samples.reshape(*samples.shape[:2], -1)
    support = support_of(task.prior)
    assert isinstance(support, Box)  # as of all tasks
    low, high = support.ends()
    return np.asarray(np.all((flat >= low) & (flat <= high), axis=-1))


def _peak() -> float:
    """The largest memory this process held, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform == "linux" else 1024**2)
