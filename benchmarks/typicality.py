"""Size and power of the test whether an observation is like the simulations.

    python -m benchmarks.typicality

Size: the share of fresh simulations with a p-value of at most 0.05 and 0.01. Power: the same share after a shift of 6
standard deviations of the noise, of all ten numbers and of one, on the ten-parameter Gaussian. Short trainings, since
the test does not depend on how good the posterior is. Writes ``results/typicality.md``.
"""

from __future__ import annotations

import time
from datetime import date

import numpy as np
import torch

import propersbi as ps
from benchmarks.accuracy import RESULTS, machine
from propersbi.posterior import Posterior
from propersbi.typicality import features_of

TASKS, SIMULATIONS, SEEDS, FRESH, STEPS = ("gaussian_linear", "two_moons", "slcp"), (1000, 10_000), 3, 5000, 50
NOISE = 0.1**0.5  # the standard deviation in the ten-parameter Gaussian
SHIFT = 6.0


def p_values(posterior: Posterior, x: np.ndarray) -> np.ndarray:
    """The p-value of each row of data."""
    rows, test = torch.from_numpy(x), posterior.typicality_test
    assert test is not None
    with torch.no_grad():
        return np.asarray(test.p_values(rows.flatten(1), features_of(posterior.sampler, rows)))


def measure(name: str, n: int, seed: int) -> list[np.ndarray]:
    """P-values of fresh data and, for the Gaussian, of shifted ones; and the milliseconds for one observation."""
    task = ps.tasks.get(name)
    sims = ps.simulate(task.prior, task.simulate, n, seed=seed, progress=False)
    posterior = ps.fit(sims.theta, sims.x, prior=task.prior, max_steps=STEPS, seed=seed, progress=False)
    x = np.asarray(ps.simulate(task.prior, task.simulate, FRESH, seed=1000 + seed, progress=False).x)
    found = [p_values(posterior, x)]
    if name == "gaussian_linear":
        one = x.copy()
        one[:, seed] += SHIFT * NOISE
        found += [p_values(posterior, x + np.float32(SHIFT * NOISE)), p_values(posterior, one)]
    else:
        found += [np.full(1, np.nan)] * 2
    times = []
    for row in x[:50]:
        start = time.perf_counter()
        p_values(posterior, row[None])
        times.append(1000 * (time.perf_counter() - start))
    return [*found, np.array(times)]


def main() -> None:
    lines = [
        "# Is an observation like the simulations? Size and power of the test",
        "",
        f"`python -m benchmarks.typicality`, seeds 0 to {SEEDS - 1}, {FRESH} fresh simulations each, {STEPS} steps of "
        f"training, {machine()}, {date.today()}. Shares of p-values up to the level, lowest to highest of the seeds; "
        "power at level .05.",
        "",
        "| task | simulations | size at .05 | size at .01 | power, 6 sd on all numbers | on one | ms for one |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in TASKS:
        for n in SIMULATIONS:
            runs = [measure(name, n, seed) for seed in range(SEEDS)]
            shares = [[(p <= 0.05).mean(), (p <= 0.01).mean(), (a <= 0.05).mean(), (b <= 0.05).mean()]
                      for p, a, b, _ in runs]  # fmt: skip
            columns = np.array(shares).T if name == "gaussian_linear" else np.array(shares).T[:2]
            cells = [f"{column.min():.3f} to {column.max():.3f}" for column in columns] + ["–"] * (4 - len(columns))
            speed = np.median(np.concatenate([run[3] for run in runs]))
            lines.append(f"| {name} | {n} | {' | '.join(cells)} | {speed:.1f} |")
            print(lines[-1], flush=True)
    (RESULTS / "typicality.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
