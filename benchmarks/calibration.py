"""Are the posteriors of the accuracy benchmark calibrated? SBC and calibration error on 1000 fresh pairs.

    python -m benchmarks.calibration --tasks two_moons slcp --simulations 10000 --methods default "simulations alone"

Trains what is not in ``benchmarks/runs``, as :mod:`benchmarks.accuracy` does, and writes ``results/calibration.md``.
The true posterior is measured on the same pairs: its deviations are due to chance alone.
"""

from __future__ import annotations

import argparse
from datetime import date
from typing import Any

import numpy as np

import propersbi as ps
from benchmarks.accuracy import OURS, RESULTS, RUNS, machine
from propersbi.diagnostics import Diagnostics
from propersbi.metrics.calibration import ecdf_band
from propersbi.posterior import Posterior
from propersbi.tasks.task import Task

PAIRS, DRAWS, SEED = 1000, 500, 0


class ReferencePosterior:
    """The true posterior of a task, drawn by its reference sampler."""

    def __init__(self, task: Task) -> None:
        self.task, self.rng = task, np.random.default_rng(SEED)

    def sample_batched(self, shape: tuple[int], x: Any, **_: Any) -> np.ndarray:
        rows = [self.task.reference_posterior(np.asarray(row, float), *shape, self.rng) for row in x]
        return np.stack(rows, 1)


def train(task: Task, name: str, simulations: int, method: str) -> Posterior:
    """The posterior of the accuracy benchmark."""
    sims = ps.simulate(task.prior, task.simulate, simulations, seed=SEED)
    folder = RUNS / f"{name}-{simulations}-{SEED}-{method.replace(' ', '-')}-10x10000"
    return ps.fit(sims.theta, sims.x, prior=task.prior, seed=SEED, folder=folder, **OURS[method])


def measure(name: str, simulations: int | None, method: str) -> Diagnostics:
    """Diagnostics of the posterior trained on so many simulations; ``None`` is the true posterior."""
    task = ps.tasks.get(name)
    posterior: Any = ReferencePosterior(task) if simulations is None else train(task, name, simulations, method)
    test = ps.simulate(task.prior, task.simulate, PAIRS, seed=1000 + SEED)
    return ps.diagnose(posterior, test.theta, test.x, num_samples=DRAWS, seed=SEED)


def outside(ranks: np.ndarray) -> np.ndarray:
    """By how much the line of each parameter's ranks leaves the 99 % band at most; 0 if it stays inside."""
    levels, low, high = ecdf_band(len(ranks))
    line = (ranks[:, None] < levels[:, None] * (DRAWS + 1)).mean(0)  # (levels, parameters)
    return np.asarray(np.maximum(np.maximum(low[:, None] - line, line - high[:, None]), 0).max(0))


def row(name: str, simulations: int | None, method: str, result: Diagnostics) -> str:
    error, excess = result.parameters["calibration_error"], outside(result.arrays["ranks"])
    inside = "all" if not excess.any() else f"{np.sum(excess == 0)} of {len(excess)} (beyond by {excess.max():.3f})"
    which = "true posterior" if simulations is None else f"{simulations:,}, {method}"
    return (
        f"| {name} | {which} | **{error.mean():.3f}** | {', '.join(f'{value:.3f}' for value in error)} "
        f"| {inside} | {', '.join(f'{value:.2g}' for value in result.parameters['sbc_p'])} "
        f"| {', '.join(f'{value:.2f}' for value in result.parameters['coverage_90'])} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=["two_moons", "slcp"])
    parser.add_argument("--simulations", nargs="+", type=int, default=[10_000, 100_000])
    parser.add_argument("--methods", nargs="+", default=["default"], choices=list(OURS))
    options = parser.parse_args()
    lines = [
        "# Calibration",
        "",
        f"{PAIRS} fresh pairs, {DRAWS} draws each, seed {SEED}, methods as in [accuracy](accuracy.md): the calibration",
        "error (mean and per parameter), whether the lines of the SBC ranks stay inside their 99 % band, the p-value",
        "of each line and the coverage of 90 % intervals. The deviations of the true posterior are due to chance",
        "alone. Written by `python -m benchmarks.calibration`.",
        "",
        "| task | simulations | calibration error | per parameter | inside the band | SBC p | 90 % coverage |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in options.tasks:
        trained = [(simulations, method) for simulations in options.simulations for method in options.methods]
        for which in [*trained, (None, "")]:
            lines.append(row(name, *which, measure(name, *which)))
            print(lines[-1], flush=True)
    lines += ["", f"Machine: {machine()}. Date: {date.today().isoformat()}.", ""]
    (RESULTS / "calibration.md").write_text("\n".join(lines))


if __name__ == "__main__":
    main()
