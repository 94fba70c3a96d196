"""Adversarial training beside score minimisation: the same generator, the same simulations, the same time.

    python -m benchmarks.collapse --seconds 120

Two problems: a posterior with two modes, and Two Moons. A generator that draws in one pass is trained adversarially and
by the energy score for equally long; a flow with the log score and the default (eight steps) are added for comparison.
Measured are the number of modes covered, the calibration (500 fresh pairs) and the C2ST against the true posterior
(three observations, 2 000 draws). Writes ``results/collapse.md`` and ``docs/figures/collapse.png``.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist

import propersbi as ps
from benchmarks.accuracy import RESULTS, machine
from propersbi.networks import MLPGenerator
from propersbi.training.divergences import JensenShannon, Wasserstein

SIMULATIONS, PAIRS, DRAWS, SEED = 10_000, 500, 2000, 0
FIGURE = Path(__file__).parent.parent / "docs" / "figures" / "collapse.png"
ONE_PASS = {"network": MLPGenerator, "refinement_steps": 1}
METHODS: dict[str, dict[str, Any]] = {
    "GAN (Jensen-Shannon)": {**ONE_PASS, "objective": partial(ps.Adversarial, critic_steps=5)},
    "GAN, non-saturating": {
        **ONE_PASS,
        "objective": partial(ps.Adversarial, divergence=JensenShannon(saturating=False), critic_steps=5),
    },
    "Wasserstein GAN": {**ONE_PASS, "objective": partial(ps.Adversarial, divergence=Wasserstein(), critic_steps=5)},
    "energy score, one pass": ONE_PASS,
    "energy score, eight steps": {},
    "flow, log score": {"objective": ps.MaximumLikelihood},
}


class TwoModes:
    """theta uniform on a square, x = (|theta_1|, theta_2) + noise: two modes, one on either side of zero."""

    prior = ps.tasks.get("two_moons").prior  # the square (-1, 1)^2
    noise = 0.05

    def simulate(self, theta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return np.stack([np.abs(theta[:, 0]), theta[:, 1]], 1) + rng.normal(0, self.noise, theta.shape)

    def observation(self, i: int) -> np.ndarray:
        return np.array([[0.6, 0.0], [0.4, -0.5], [0.8, 0.3]][i - 1])

    def reference_posterior(self, x: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
        draws = x + rng.normal(0, self.noise, (4 * n, 2))
        draws = draws[(draws[:, 0] > 0) & (np.abs(draws) < 1).all(1)][:n]
        draws[:, 0] *= rng.choice([-1, 1], n)
        return draws


PROBLEMS: dict[str, tuple[Any, Callable[[np.ndarray], np.ndarray]]] = {
    "two modes": (TwoModes(), lambda theta: theta[:, 0] > 0),
    "two moons": (ps.tasks.get("two_moons"), lambda theta: theta.sum(1) > 0),
}
"""The problem, and a function that says which of its two modes a parameter belongs to."""


def measure(problem: str, method: str, seconds: float) -> tuple[dict[str, Any], np.ndarray]:
    """A row of the table, and the draws for the first observation."""
    task, mode = PROBLEMS[problem]
    sims = ps.simulate(task.prior, task.simulate, SIMULATIONS, seed=SEED)
    train = partial(ps.fit, sims.theta, sims.x, prior=task.prior, seed=SEED, stopping=(), **METHODS[method])
    pace = processor_seconds(lambda: train(max_steps=60)) - processor_seconds(lambda: train(max_steps=10))
    steps = round(seconds / pace * 50)
    started = time.process_time()
    posterior = train(max_steps=steps)
    elapsed = time.process_time() - started
    test = ps.simulate(task.prior, task.simulate, PAIRS, seed=SEED + 1)
    draws = posterior.sample_batched((250,), x=test.x, seed=SEED, show_progress_bars=False).numpy()
    scores, covered = [], []
    for i in (1, 2, 3):
        samples = posterior.sample((DRAWS,), x=task.observation(i), seed=i, show_progress_bars=False).numpy()
        truth = task.reference_posterior(task.observation(i), DRAWS, np.random.default_rng(i))
        scores.append(ps.metrics.c2st(samples, truth))
        covered.append(modes_covered(samples, truth, mode))
    error = ps.metrics.calibration_error(draws, np.asarray(test.theta)).mean()
    row = {"steps": posterior.info["steps"], "seconds": elapsed, "modes": np.mean(covered)}
    row |= {"calibration": error, "c2st": np.mean(scores), "stopped": posterior.info["stopped"]}
    first = posterior.sample((DRAWS,), x=task.observation(1), seed=1, show_progress_bars=False).numpy()
    return row, first


def processor_seconds(work: Callable[[], Any]) -> float:
    """Processor time, which, unlike wall-clock time, hardly depends on other work of the machine."""
    started = time.process_time()
    work()
    return time.process_time() - started


def modes_covered(samples: np.ndarray, truth: np.ndarray, mode: Callable[[np.ndarray], np.ndarray]) -> int:
    """How many of the two modes get at least half of their share of the draws, counting draws near true ones only."""
    half = len(truth) // 2
    reach = 3 * np.quantile(cdist(truth[:half], truth[half:]).min(1), 0.95)
    near = cdist(samples, truth).min(1) < reach
    right, expected = mode(samples), mode(truth).mean()
    return int((near & right).mean() > 0.5 * expected) + int((near & ~right).mean() > 0.5 * (1 - expected))


def plot(samples_by_panel: dict[tuple[str, str], np.ndarray]) -> None:
    """One panel per problem and method: the draws over the true posterior."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(len(PROBLEMS), len(METHODS), figsize=(2.4 * len(METHODS), 2.6 * len(PROBLEMS)))
    for (problem, method), samples in samples_by_panel.items():
        row, column = list(PROBLEMS).index(problem), list(METHODS).index(method)
        axis, task = axes[row, column], PROBLEMS[problem][0]
        truth = task.reference_posterior(task.observation(1), DRAWS, np.random.default_rng(1))
        axis.plot(*truth.T, ".", ms=2, color="#bbbbbb", rasterized=True)
        axis.plot(*samples.T, ".", ms=2, color="#1f77b4", alpha=0.5, rasterized=True)
        axis.set(xlim=(-1.1, 1.1), ylim=(-1.1, 1.1), xticks=[], yticks=[], aspect="equal")
        if row == 0:
            axis.set_title(method, fontsize=9)
        if column == 0:
            axis.set_ylabel(problem)
    figure.tight_layout()
    FIGURE.parent.mkdir(exist_ok=True)
    figure.savefig(FIGURE, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=120.0, help="processor time for training, each")
    options = parser.parse_args()
    lines = [
        "# Adversarial training and scores",
        "",
        f"{SIMULATIONS:,} simulations, {options.seconds:.0f} s of processor time on one thread each, seed {SEED}.",
        "Modes covered: how many of the two modes get at least half of their share of the draws, counting draws near",
        "true ones only (within three times the distance between neighbours there; mean over three observations).",
        "Calibration error on 500 fresh pairs, C2ST over three observations with 2 000 draws. By",
        "`python -m benchmarks.collapse`.",
        "",
        "| problem | trained by | seconds | steps | modes covered | calibration error | C2ST | stopped by |",
        "|---|---|---|---|---|---|---|---|",
    ]
    samples = {}
    for problem in PROBLEMS:
        for method in METHODS:
            row, samples[problem, method] = measure(problem, method, options.seconds)
            lines.append(
                f"| {problem} | {method} | {row['seconds']:.0f} | {row['steps']} | {row['modes']:.1f} of 2 "
                f"| {row['calibration']:.3f} | **{row['c2st']:.3f}** | {row['stopped']} |"
            )
            print(lines[-1], flush=True)
    lines += ["", f"Machine: {machine()}. Date: {date.today().isoformat()}.", ""]
    (RESULTS / "collapse.md").write_text("\n".join(lines))
    plot(samples)


if __name__ == "__main__":
    main()
