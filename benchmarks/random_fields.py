"""Gaussian random fields of 64 x 64 points: amplitude and slope of the power spectrum, against exact posteriors.

    python -m benchmarks.random_fields          # writes results/random_fields.md and docs/figures/random_fields.png

The spectrum is ``sigma^2 (alpha k)^(-alpha)`` with ``log sigma ~ N(0, 0.3)`` and ``alpha ~ N(3, 0.5)``, where ``k`` is
in cycles per point: the problem of a review of diffusion models for simulation-based inference (arXiv:2512.20685),
whose figures are shown beside ours. Fourier coefficients are independent, so the exact posterior is found on a grid.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable
from datetime import date

import matplotlib.pyplot as plt
import numpy as np

import propersbi as ps
from benchmarks.accuracy import RESULTS, machine
from benchmarks.structured import inside_band, rounded
from benchmarks.structured_pictures import FIGURES

POINTS, PAIRS, DRAWS, SEED, GROUP, OBSERVATIONS = 64, 1000, 1000, 0, 250, 10
CENTER, SCALE, NAMES = np.array([0.0, 3.0]), np.array([0.3, 0.5]), ["log sigma", "alpha"]
GRID = CENTER[:, None] + SCALE[:, None] * np.linspace(-5, 5, 1000)
LEVELS = np.linspace(0.005, 0.995, 20)
K = np.hypot(np.fft.fftfreq(POINTS)[:, None], np.fft.rfftfreq(POINTS))
WEIGHTS = np.where(np.arange(POINTS // 2 + 1) % (POINTS // 2) == 0, 0.5, 1.0) * (K > 0)  # independent coefficients
PUBLISHED = {
    "EDM diffusion, published (78 000 simulations)": ((0.0221, 0.0211), (0.009, 0.014)),
    "consistency model, published (78 000 simulations)": ((0.0234, 0.0247), (0.011, 0.038)),
}


def prior(n: int, rng: np.random.Generator) -> np.ndarray:
    return np.asarray(CENTER + SCALE * rng.normal(size=(n, 2)))


def log_power(theta: np.ndarray) -> np.ndarray:
    """The logarithm of the spectrum ``(n, rows, columns)``; that of the mean of a field, which is zero, has no use."""
    sigma, alpha = (values[:, None, None] for values in theta.T)
    return np.asarray(2 * sigma - alpha * np.log(np.abs(alpha) * np.where(K > 0, K, 1.0)))


def simulate(theta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Fields ``(n, 64, 64)``, in parts that fit into memory."""
    fields = np.empty((len(theta), POINTS, POINTS), np.float32)
    for rows in np.array_split(np.arange(len(theta)), -(-len(theta) // 500)):
        noise = rng.normal(size=(2, len(rows), *K.shape))
        waves = np.where(K > 0, np.exp(0.5 * log_power(theta[rows])), 0.0) * (noise[0] + 1j * noise[1])
        fields[rows] = np.fft.irfftn(waves, s=(POINTS, POINTS), axes=(1, 2))
    return fields


def exact_posterior(x: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    """``n`` exact draws for each field, ``(n, fields, 2)``: cells of a grid by their probability, uniform within."""
    sigma, alpha = GRID
    level = log_power(np.column_stack([np.zeros_like(alpha), alpha]))  # for log sigma = 0
    squares = (np.abs(np.fft.rfft2(x.astype(float))) ** 2).reshape(len(x), -1)
    sums = 0.5 * squares @ np.where(K > 0, np.exp(-level), 0.0).reshape(len(alpha), -1).T
    fixed = (WEIGHTS * level).sum((1, 2)) + 0.5 * ((alpha - CENTER[1]) / SCALE[1]) ** 2
    log_prior = -0.5 * (sigma / SCALE[0]) ** 2
    draws = np.empty((n, len(x), 2))
    for i, found in enumerate(sums):
        scale = (log_prior - 2 * sigma * WEIGHTS.sum())[:, None]
        density = scale - fixed - np.exp(-2 * sigma)[:, None] * found
        share = np.exp(density - density.max()).ravel().cumsum()
        cells = np.searchsorted(share, share[-1] * rng.random(n))
        places = np.stack(np.unravel_index(cells, density.shape), 1) + rng.uniform(-0.5, 0.5, (n, 2))
        draws[:, i] = GRID[:, 0] + places * (GRID[:, 1] - GRID[:, 0])
    return draws


def errors(draws: np.ndarray, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """NRMSE of draws over the range of 250 true parameters, and the median error of the coverage over 20 levels."""
    groups = zip(np.split(draws, len(theta) // GROUP, 1), np.split(theta, len(theta) // GROUP), strict=True)
    nrmse = [np.sqrt(((d - t) ** 2).mean((0, 1))) / np.ptp(t, axis=0) for d, t in groups]
    low, high = (np.quantile(draws, 0.5 + sign * LEVELS / 2, axis=0) for sign in (-1, 1))
    covered = ((low <= theta) & (theta <= high)).mean(1)
    return np.mean(nrmse, 0), np.median(np.abs(covered - LEVELS[:, None]), 0)


def line(name: str, nrmse: Iterable[float], calibration: Iterable[float], rest: str = " | ") -> str:
    cells = [f"{value:.{digits}f}" for pair, digits in ((nrmse, 4), (calibration, 3)) for value in pair]
    return f"| {name} | {' | '.join(cells)} | {rest} |"


def picture(x: np.ndarray, theta: np.ndarray, draws: np.ndarray, exact: np.ndarray) -> None:
    """Four fields, and below each the draws for it."""
    figure, axes = plt.subplots(2, 4, figsize=(12, 5.6), layout="constrained")
    for i, (above, below) in enumerate(axes.T):
        above.imshow(x[i], cmap="RdBu_r")
        above.set_axis_off()
        for samples, colour, label in ((exact, "0.6", "exact"), (draws, "C0", "propersbi")):
            below.scatter(*samples[:, i].T, s=3, alpha=0.4, color=colour, label=label, linewidths=0)
        below.plot(*theta[i], "k+", markersize=10, label="true")
        below.set_xlabel(NAMES[0])
    axes[1, 0].set_ylabel(NAMES[1])
    axes[1, 0].legend(fontsize=8, markerscale=2)
    figure.savefig(FIGURES / "random_fields.png", dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--simulations", type=int, default=10_000)
    options = parser.parse_args()
    rng = np.random.default_rng(SEED)
    theta = prior(options.simulations + PAIRS, rng)
    x = simulate(theta, rng)
    test, fields = theta[-PAIRS:], x[-PAIRS:]
    started = time.process_time()
    posterior = ps.fit(theta[:-PAIRS], x[:-PAIRS], seed=SEED)
    seconds = time.process_time() - started
    draws = posterior.sample_batched((DRAWS,), fields, seed=SEED, show_progress_bars=False).numpy()
    exact = exact_posterior(fields, DRAWS, rng)
    scores = [ps.metrics.c2st(draws[:, i], exact[:, i]) for i in range(OBSERVATIONS)]
    ranks = ps.calibration.sbc_ranks(draws, test)
    ratio = np.exp(np.log(draws.std(0) / exact.std(0)).mean(0))
    shift = np.sqrt((((draws.mean(0) - exact.mean(0)) / exact.std(0)) ** 2).mean(0))
    cost = f"{seconds:.0f} | {options.simulations:,}"
    lines = [
        "# Gaussian random fields",
        "",
        "Fields of 64 x 64 points; by `python -m benchmarks.random_fields`, where the problem is",
        f"described, with the default recipe, seed {SEED}. {PAIRS} fresh fields with {DRAWS} draws each. NRMSE: root",
        "mean square difference between draws and true parameters over the range of 250 of these. Calibration error:",
        "median over 20 levels of |coverage - level|. The published figures are of their own test fields.",
        "",
        "| | NRMSE, log sigma | alpha | calibration error, log sigma | alpha | CPU seconds | simulations |",
        "|---|---|---|---|---|---|---|",
        line("propersbi", *errors(draws, test), cost),
        line("exact posterior", *errors(exact, test)),
        *(line(name, nrmse, calibration) for name, (nrmse, calibration) in PUBLISHED.items()),
        "",
        f"Against the exact posteriors: standard deviations {ratio[0]:.2f} and {ratio[1]:.2f} times theirs, means off",
        f"by {shift[0]:.2f} and {shift[1]:.2f} of their standard deviations (root mean square), C2ST",
        f"{np.mean(scores):.3f} over {OBSERVATIONS} fields ({DRAWS} draws; each: {rounded(scores)}). Ranks inside the",
        f"99 % band: {inside_band(ranks, DRAWS)}. {posterior.info['steps']} steps, weights of step",
        f"{posterior.info['kept_step']} kept.",
        "",
        f"Machine: {machine()}. Date: {date.today().isoformat()}.",
        "",
    ]
    (RESULTS / "random_fields.md").write_text("\n".join(lines))
    print("\n".join(lines))
    picture(fields, test, draws, exact)


if __name__ == "__main__":
    main()
