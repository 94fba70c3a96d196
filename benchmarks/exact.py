"""What the metrics of the paper's tables say about the exact posterior, on the test pairs of these tables.

    python -m benchmarks.exact            Two Moons and SLCP: results/exact.md

No sampler can do better on average, so that these figures say how far a metric can distinguish methods at all.
"""

from __future__ import annotations

import time
from datetime import date
from pathlib import Path

import numpy as np

import propersbi as ps
from benchmarks.accuracy import machine
from propersbi.storage.files import write_text
from propersbi.storage.progress import progress_bar

RESULT = Path(__file__).parent / "results" / "exact.md"
TASKS, SEED, PAIRS, DRAWS = ("two_moons", "slcp"), 0, 1000, 1000  # as in the specifications


def measure(name: str) -> str:
    """A row of the table: mean over the parameters of each metric."""
    task, started = ps.tasks.get(name), time.perf_counter()
    test = ps.simulate(task.prior, task.simulate, PAIRS, seed=SEED, group="test", progress=False)
    theta, draws = np.asarray(test.theta), np.empty((DRAWS, PAIRS, *task.theta_shape), np.float32)
    with progress_bar(PAIRS, name, "pair", show=True) as bar:
        for i in range(PAIRS):
            draws[:, i] = task.reference_posterior(test.x[i], DRAWS, np.random.default_rng([SEED, i]))
            bar.update()
    metrics = ps.metrics.r2(draws, theta), ps.metrics.nrmse(draws, theta), ps.metrics.calibration_error(draws, theta)
    cells = [f"{np.mean(values):.4f} ± {np.std(values):.4f}" for values in metrics]
    return f"| {name} | {' | '.join(cells)} | {time.perf_counter() - started:.0f} |"


def main() -> None:
    lines = [
        "# Exact posteriors",
        "",
        f"{PAIRS:,} test pairs, those of the tables (seed {SEED}), {DRAWS:,} independent draws of the true posterior "
        "of each; mean ± standard deviation over the parameters. By `python -m benchmarks.exact`.",
        "",
        "| task | R2 | NRMSE | calibration error | seconds |",
        "|---|---|---|---|---|",
        *map(measure, TASKS),
        "",
        f"Machine: {machine()}. Date: {date.today()}.",
    ]
    write_text(RESULT, "\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
