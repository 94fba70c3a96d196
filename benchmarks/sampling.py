"""How long posterior draws take, compared with sbi's posteriors in the same run.

    python -m benchmarks.sampling                                   # pip install propersbi[peers]

All are trained for a few steps only: the cost of a draw does not depend on its accuracy. Networks and sampling steps
are the defaults; after a warm-up, each is timed three times, and the fastest counts. Writes ``results/sampling.md``.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from datetime import date
from functools import partial

import numpy as np
import torch

import propersbi as ps
from benchmarks.accuracy import RESULTS, machine
from benchmarks.peers import PEERS
from propersbi.posterior import Posterior

DRAWS, SIMULATIONS, SEED, REPEATS = (1000, 10_000), 1000, 0, 3


def fastest(sample: Callable[[np.ndarray, int], np.ndarray], x: np.ndarray, draws: int) -> float:
    """Seconds of the fastest of some repeats."""
    sample(x, 100)  # warm-up
    times = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        sample(x, draws)
        times.append(time.perf_counter() - started)
    return min(times)


def draw(posterior: Posterior, x: np.ndarray, n: int) -> np.ndarray:
    return np.asarray(posterior.sample((n,), x=x))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=["two_moons", "slcp"])
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    lines = [
        "# Sampling",
        "",
        f"Seconds for posterior draws of observation 1 with the default steps, the fastest of {REPEATS} after a",
        f"warm-up, on {options.threads} threads. Written by `python -m benchmarks.sampling`.",
        "",
        "| task | draws | `ps.fit`, 8 steps | one pass | sbi NPE | sbi NPSE | NPSE / ours |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in options.tasks:
        task = ps.tasks.get(name)
        sims = ps.simulate(task.prior, task.simulate, SIMULATIONS, seed=SEED, progress=False)
        theta, x = np.asarray(sims.theta), np.asarray(sims.x)
        samplers: dict[str, Callable[[np.ndarray, int], np.ndarray]] = {}
        for method, steps in (("ours", 8), ("one pass", 1)):
            recipe = ps.recipe(theta, x, prior=task.prior, refinement_steps=steps, max_steps=20)
            samplers[method] = partial(draw, ps.fit(theta, x, recipe=recipe, seed=SEED, progress=False))
        for method, train in PEERS.items():
            samplers[method] = train(task.prior, theta, x, SEED, max_num_epochs=5)[0]
        torch.set_num_threads(options.threads)
        for draws in DRAWS:
            seconds = {method: fastest(sample, task.observation(1), draws) for method, sample in samplers.items()}
            ratio = seconds["sbi NPSE"] / seconds["ours"]
            figures = " | ".join(f"{value:.3f}" for value in seconds.values())
            lines.append(f"| {name} | {draws:,} | {figures} | {ratio:.0f}x |")
            print(lines[-1], flush=True)
    lines += ["", f"Machine: {machine()}. Date: {date.today().isoformat()}. Seed {SEED}.", ""]
    (RESULTS / "sampling.md").write_text("\n".join(lines))


if __name__ == "__main__":
    main()
