"""Problems with structured data whose posteriors are known, exactly or by long chains."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

__all__ = [
    "OU_BOUNDS",
    "blob_images",
    "gaussian_posterior",
    "linear_gaussian",
    "normal_posterior",
    "normal_sets",
    "ou_posterior",
    "ou_series",
    "two_parts",
]

# rate, mean, stationary standard deviation, standard deviation of the measurement noise
OU_BOUNDS = np.array([[0.2, -2.0, 0.2, 0.05], [4.0, 2.0, 2.0, 0.5]])
OU_STEP, OU_TIMES = 0.1, 500
CHAINS, BURN_IN, KEPT_EVERY = 100, 300, 15


def ou_series(theta: np.ndarray, rng: np.random.Generator, times: int = OU_TIMES) -> np.ndarray:
    """An Ornstein-Uhlenbeck process, stationary, at regular times and with measurement noise: ``(n, times)``."""
    rate, mean, sd, noise = np.asarray(theta, float).T
    keep = np.exp(-rate * OU_STEP)
    y = sd * rng.normal(size=len(rate))
    series = np.empty((len(rate), times))
    for t in range(times):
        series[:, t] = y
        y = keep * y + sd * np.sqrt(1 - keep**2) * rng.normal(size=len(rate))
    return mean[:, None] + series + noise[:, None] * rng.normal(size=series.shape)


def ou_log_likelihood(theta: np.ndarray, x: np.ndarray) -> np.ndarray:
    """By the Kalman filter, for parameters ``(k, 4)`` and a series ``(k, times)`` each."""
    rate, mean, sd, noise = theta.T
    keep, variance = np.exp(-rate * OU_STEP), sd**2
    center, spread, total = np.zeros_like(rate), variance.copy(), np.zeros_like(rate)
    fresh = variance * (1 - keep**2)
    for value in (x - mean[:, None]).T:
        predicted = spread + noise**2
        error = value - center
        total -= 0.5 * (np.log(2 * np.pi * predicted) + error**2 / predicted)
        gain = spread / predicted
        center, spread = keep * (center + gain * error), keep**2 * spread * (1 - gain) + fresh
    return total


def ou_posterior(x: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    """``n`` draws for each of some series ``(k, times)``: ``(k, n, 4)``, by differential evolution chains."""
    low, high = OU_BOUNDS
    start = low + (high - low) * rng.random((len(x), 20 * CHAINS, 4))
    data = np.repeat(x, 20 * CHAINS, 0)
    level = ou_log_likelihood(start.reshape(-1, 4), data).reshape(len(x), -1)
    best = np.argsort(-level, 1)[:, :CHAINS]
    state, level = (np.take_along_axis(v, best[..., None] if v.ndim == 3 else best, 1) for v in (start, level))
    data, rows = np.repeat(x, CHAINS, 0), np.arange(len(x))[:, None]
    kept: list[np.ndarray] = []
    for step in range(BURN_IN + KEPT_EVERY * -(-n // CHAINS)):
        first, second = (rng.integers(CHAINS, size=(len(x), CHAINS)) for _ in range(2))
        reach = 1.0 if step % 10 == 0 else 2.38 / np.sqrt(8)
        moved = state + reach * (state[rows, first] - state[rows, second]) + 1e-4 * rng.normal(size=state.shape)
        inside = ((moved > low) & (moved < high)).all(2)
        safe = np.where(inside[..., None], moved, state)
        new = ou_log_likelihood(safe.reshape(-1, 4), data).reshape(level.shape)
        accept = inside & (np.log(rng.random(level.shape)) < new - level)
        state, level = np.where(accept[..., None], moved, state), np.where(accept, new, level)
        if step >= BURN_IN and step % KEPT_EVERY == 0:
            kept.append(state)
    return np.concatenate(kept, 1)[:, :n]


SHAPE, RATE, WEIGHT = 3.0, 2.0, 0.5  # of the normal-inverse-gamma prior of mean and variance


def normal_prior(n: int, rng: np.random.Generator) -> np.ndarray:
    """Mean and standard deviation, ``(n, 2)``."""
    variance = RATE / rng.gamma(SHAPE, size=n)
    return np.column_stack([rng.normal(size=n) * np.sqrt(variance / WEIGHT), np.sqrt(variance)])


def normal_sets(theta: np.ndarray, counts: np.ndarray, rng: np.random.Generator) -> list[np.ndarray]:
    """For each pair of parameters so many trials, ``(N_i, 1)``."""
    return [m + s * rng.normal(size=(count, 1)) for (m, s), count in zip(theta, counts, strict=True)]


def normal_posterior(x: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    """``n`` exact draws ``(n, 2)`` of mean and standard deviation."""
    count, mean = len(x), float(x.mean())
    weight = WEIGHT + count
    rate = RATE + 0.5 * ((x - mean) ** 2).sum() + 0.5 * count * WEIGHT * mean**2 / weight
    variance = rate / rng.gamma(SHAPE + count / 2, size=n)
    return np.column_stack([count * mean / weight + rng.normal(size=n) * np.sqrt(variance / weight), np.sqrt(variance)])


MIXING = np.random.default_rng(7).normal(size=(10, 10)) / np.sqrt(10)
NOISE = 0.3


def linear_gaussian(theta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Ten mixtures of ten standard normal parameters, with noise: ``(n, 10)``."""
    return np.asarray(theta @ MIXING.T + NOISE * rng.normal(size=(len(theta), 10)))


def gaussian_posterior(x: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    """``n`` exact draws ``(n, 10)`` given one observation with missing entries."""
    known = ~np.isnan(x)
    rows = MIXING[known] / NOISE
    covariance = np.linalg.inv(np.eye(10) + rows.T @ rows)
    return rng.multivariate_normal(covariance @ rows.T @ (x[known] / NOISE), covariance, size=n)


def two_parts(theta: np.ndarray, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """A series of 200 times, and three numbers about what it says little of: mean, rate and noise."""
    scale = np.array([0.15, 0.5, 0.05])
    return {
        "series": ou_series(theta, rng, times=200),
        "numbers": theta[:, [1, 0, 3]] + scale * rng.normal(size=(len(theta), 3)),
    }


def blob_images(shape: tuple[int, ...]) -> Callable[[np.ndarray, np.random.Generator], np.ndarray]:
    """Images of a bright spot at ``(row, column)`` of some width, with noise, channels last if there are any."""

    def simulate(theta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        row, column, width = (v[:, None, None] for v in np.asarray(theta, float).T)
        rows, columns = (np.arange(size)[:, None] / (size - 1) for size in shape[:2])
        square = (rows - row) ** 2 + (columns.T - column) ** 2
        image = np.exp(-square / (2 * width**2))
        image = image if len(shape) == 2 else image[..., None] * np.linspace(1.0, 0.5, shape[2])
        return image + 0.1 * rng.normal(size=image.shape)

    return simulate
