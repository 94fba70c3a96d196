r"""The quality of posterior draws. Plain arrays in, numbers out, so that any method can be evaluated.

Shapes: draws ``samples`` are ``(m, n, *event)``, true parameters ``theta`` are ``(n, *event)``; results per parameter
have the shape of the event. Samples of one distribution, ``samples`` and ``reference``, are ``(k, *event)``.

.. math::
    \text{energy score} &= 2 E\|\vartheta - \theta\| - E\|\vartheta - \vartheta'\| \\
    \text{CRPS} &= E|\vartheta_j - \theta_j| - \tfrac12 E|\vartheta_j - \vartheta'_j| \\
    \text{MMD}^2 &= E k(X, X') + E k(Y, Y') - 2 E k(X, Y)

Means over pairs exclude the diagonal (the fair estimators), so each of these is unbiased for any number of draws. Lower
is better; for the classifier two-sample test, 0.5 is best.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from propersbi.metrics.numbers import real_numbers
from propersbi.storage.checks import check_number, check_whole
from propersbi.types import Array, InputError

__all__ = [
    "c2st",
    "calibration_error",
    "crps",
    "energy_distance",
    "energy_score",
    "energy_skill",
    "mmd",
    "nrmse",
    "r2",
    "rmse",
]

MAX_CELLS_PER_BLOCK = 2**22  # numbers in an intermediate array, 32 MB; larger inputs are processed in blocks


def c2st(samples: Array, reference: Array, *, seed: int = 1, folds: int = 5) -> float:
    r"""The classifier two-sample test. 0.5: indistinguishable; 1.0: always distinguished.

    As defined by sbibm, so that values are comparable with published ones: both samples are standardised by the mean
    and standard deviation of the reference, and a perceptron with two hidden layers of :math:`10 d` units classifies
    them; its cross-validated accuracy is returned.

    References: Lopez-Paz & Oquab 2017, https://arxiv.org/abs/1610.06545; Lueckmann et al. 2021,
    https://arxiv.org/abs/2101.04653.

    Arguments:
        samples: Draws ``(k, *event)``.
        reference: Draws from the true posterior, as many as ``samples`` for a balanced test.
        seed: The seed of the folds and of the network; 1 in sbibm.
        folds: The number of folds; 5 in sbibm.

    >>> rng = np.random.default_rng(0)
    >>> c2st(rng.normal(0, 1, (100, 1)), rng.normal(20, 1, (100, 1)))
    1.0
    """
    # Loads torch, which no other metric needs.
    from propersbi.metrics.classifier import cross_validated_accuracy

    x, y = _two_samples(reference, samples)
    if not 2 <= check_whole("folds", folds, 2) <= len(x) + len(y) or check_whole("seed", seed, 0) >= 2**32:
        raise InputError(f"There must be at most as many folds as draws, and a seed below 2**32, got {folds}, {seed}.")
    mean, sd = x.mean(0), x.std(0, ddof=1)
    if not sd.all():
        raise InputError(f"{np.sum(sd == 0)} of the {len(sd)} parameters do not vary in 'reference'.")
    data = np.concatenate([(x - mean) / sd, (y - mean) / sd])
    label = np.repeat([0, 1], [len(x), len(y)])
    width = 10 * x.shape[1]
    return cross_validated_accuracy(data, label, hidden=(width, width), folds=folds, seed=seed)


def rmse(samples: Array, theta: Array) -> np.ndarray:
    """The root mean squared error of the posterior mean, per parameter.

    >>> rmse(np.zeros((10, 2, 1)), [[3.0], [-3.0]])
    array([3.])
    """
    samples, theta, event = _draws(samples, theta)
    error: np.ndarray = np.sqrt(((samples.mean(0, dtype=float) - theta) ** 2).mean(0))
    return error.reshape(event)


def nrmse(samples: Array, theta: Array) -> np.ndarray:
    """The root mean squared error of the posterior mean over the range of ``theta``, per parameter.

    >>> nrmse(np.zeros((10, 2, 1)), [[3.0], [-3.0]])
    array([0.5])
    """
    error = rmse(samples, theta)
    extent = np.ptp(real_numbers("theta", theta).astype(float), axis=0)
    _refuse_constant(extent)
    relative: np.ndarray = error / extent
    return relative


def r2(samples: Array, theta: Array) -> np.ndarray:
    """The fraction of the variance of ``theta`` explained by the posterior mean, per parameter.

    >>> r2(np.zeros((10, 2, 1)), [[3.0], [-3.0]])
    array([0.])
    """
    samples, theta, event = _draws(samples, theta)
    total = ((theta - theta.mean(0)) ** 2).mean(0)
    _refuse_constant(total)
    explained: np.ndarray = 1 - ((samples.mean(0, dtype=float) - theta) ** 2).mean(0) / total
    return explained.reshape(event)


def calibration_error(samples: Array, theta: Array) -> np.ndarray:
    r"""The median over levels :math:`\alpha` of \|coverage of the central interval - :math:`\alpha`\|, per parameter.

    Levels are 0.01, 0.02, ..., 1; intervals lie between empirical quantiles and are open. With 1000 observations,
    draws from the true posterior have an error of 0.01 on average and up to 0.025: smaller differences are not
    significant. A small number of draws m adds about 1 / m, because intervals between extreme quantiles are too short.

    References: Radev et al. 2020, https://arxiv.org/abs/2003.06281.

    >>> rng = np.random.default_rng(0)
    >>> calibration_error(rng.normal(size=(500, 500, 1)), rng.normal(size=(500, 1))).round(2)
    array([0.01])
    """
    samples, theta, event = _draws(samples, theta)
    alpha = np.linspace(0.01, 1, 100)
    tail = np.round((1 - alpha) / 2, 3)
    errors = []
    for columns in _blocks(theta.shape[1], 2 * len(alpha) * len(theta)):
        bounds = np.quantile(samples[..., columns], np.concatenate([tail, 1 - tail]), axis=0)
        lower, upper = np.split(bounds, 2)
        coverage = ((lower < theta[:, columns]) & (theta[:, columns] < upper)).mean(1)
        errors.append(np.median(np.abs(coverage - alpha[:, None]), axis=0))
    return np.concatenate(errors).reshape(event)


def crps(samples: Array, theta: Array) -> np.ndarray:
    """The continuous ranked probability score of every parameter of every row, ``(n, *event)``.

    The usual convention, half the energy score in one dimension; computed by sorting rather than over all pairs.

    >>> crps([[[0.0]], [[2.0]]], [[1.0]])
    array([[0.]])
    """
    samples, theta, event = _draws(samples, theta, at_least=2)
    m = len(samples)
    order = np.arange(1 - m, m, 2) / (m * (m - 1))  # pairs in which a draw is the larger, minus the smaller, one
    scores = []
    for rows in _blocks(len(theta), samples[:, 0].size):
        draws = samples[:, rows].astype(float)
        error = np.abs(draws - theta[rows]).mean(0)
        scores.append(error - np.tensordot(order, np.sort(draws, axis=0), axes=1))
    return np.concatenate(scores).reshape(-1, *event)


def energy_score(samples: Array, theta: Array) -> np.ndarray:
    r"""The energy score of each row, ``(n,)``: :math:`2 E\|\vartheta - \theta\| - E\|\vartheta - \vartheta'\|`.

    Computed over all pairs of draws: time is quadratic in their number, memory is not.

    References: Gneiting & Raftery 2007, https://doi.org/10.1198/016214506000001437.

    >>> energy_score([[[0.0]], [[2.0]]], [[1.0]])
    array([0.])
    """
    samples, theta, _ = _draws(samples, theta, at_least=2)
    between = [mean_pairwise_distance(samples[:, row]) for row in range(len(theta))]
    score: np.ndarray = 2 * mean_distance(samples, theta) - np.array(between)
    return score


def energy_skill(samples: Array, theta: Array, prior_samples: Array) -> float:
    """One minus the mean energy score relative to that of the prior. 0: no better than the prior; 1: exact.

    Arguments:
        samples: Posterior draws ``(m, n, *event)``.
        theta: True parameters, ``(n, *event)``.
        prior_samples: Prior draws ``(k, *event)``, the same for every row.

    >>> rng = np.random.default_rng(0)
    >>> theta, prior = rng.normal(size=(2, 500, 1))
    >>> mean = (theta + rng.normal(size=(500, 1))) / 2
    >>> samples = mean + rng.normal(0, 0.5**0.5, size=(100, 500, 1))
    >>> round(energy_skill(samples, theta, prior), 1)
    0.3
    """
    score = energy_score(samples, theta).mean()
    theta = real_numbers("theta", theta).astype(float)
    prior = real_numbers("prior_samples", prior_samples).astype(float)
    if prior.ndim == 0:
        raise InputError("'prior_samples' must be draws from the prior, got a single number.")
    if prior.shape[1:] != theta.shape[1:] or len(prior) < 2 or not np.isfinite(prior).all():
        raise InputError(f"'prior_samples' must be finite draws (k > 1, {theta.shape[1:]}), got {prior.shape}.")
    prior, theta = prior.reshape(len(prior), 1, -1), theta.reshape(len(theta), -1)
    baseline = 2 * mean_distance(prior, theta).mean() - mean_pairwise_distance(prior[:, 0])
    return float(1 - score / baseline)


def energy_distance(samples: Array, reference: Array) -> float:
    r"""The energy distance :math:`2 E\|X - Y\| - E\|X - X'\| - E\|Y - Y'\|`, unbiased; 0 for equal distributions.

    References: Székely & Rizzo 2013, https://doi.org/10.1016/j.jspi.2013.03.018.

    >>> rng = np.random.default_rng(0)
    >>> a, b = rng.normal(size=(2, 500, 2))
    >>> abs(energy_distance(a, b)) < 0.02, energy_distance(a, b + 3) > 2
    (True, True)
    """
    x, y = (points.astype(float) for points in _two_samples(samples, reference))
    within = (mean_distance(z[:, None], z).mean() * len(z) / (len(z) - 1) for z in (x, y))
    return float(2 * mean_distance(x[:, None], y).mean() - sum(within))


def mmd(samples: Array, reference: Array, *, bandwidth: float | None = None) -> float:
    r"""The squared maximum mean discrepancy, unbiased: zero on average, possibly negative, for equal distributions.

    The kernel is :math:`e^{-r^2 / 2 h^2}`; unless given, the bandwidth :math:`h` is the median distance between the
    first 1000 reference draws.

    References: Gretton et al. 2012, https://jmlr.org/papers/v13/gretton12a.html.

    >>> rng = np.random.default_rng(0)
    >>> a, b = rng.normal(size=(2, 500, 2))
    >>> abs(mmd(a, b)) < 0.01, mmd(a, b + 3) > 0.5
    (True, True)
    """
    from scipy.spatial.distance import cdist, pdist

    x, y = _two_samples(samples, reference)
    h = float(np.median(pdist(y[:1000]))) if bandwidth is None else bandwidth
    check_number("bandwidth", h, "be positive and less than 1e150", 0, 1e150)

    def mean_kernel(a: np.ndarray, b: np.ndarray) -> float:
        blocks = (cdist(a[rows], b, "sqeuclidean") for rows in _blocks(len(a), len(b)))
        total = sum(np.exp(block / (-2 * h**2)).sum() for block in blocks)
        return float((total - len(a)) / (len(a) * (len(a) - 1)) if a is b else total / (len(a) * len(b)))

    return float(mean_kernel(x, x) + mean_kernel(y, y) - 2 * mean_kernel(x, y))


def mean_distance(samples: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """The mean distance of draws ``(m, n or 1, d)`` from ``theta (n, d)``, ``(n,)``."""
    blocks = _blocks(len(theta), len(samples) * theta.shape[1])
    shared = samples.shape[1] == 1
    offsets = (samples[:, slice(None) if shared else rows] - theta[rows] for rows in blocks)
    return np.concatenate([np.linalg.norm(offset, axis=-1).mean(0) for offset in offsets])


def mean_pairwise_distance(draws: np.ndarray) -> float:
    """The mean distance between two different draws ``(m, d)``, over the upper triangle of their distances."""
    from scipy.spatial.distance import cdist, pdist

    m = len(draws)
    total = 0.0
    for rows in _blocks(m, m):
        total += pdist(draws[rows]).sum() + cdist(draws[rows], draws[rows.stop :]).sum()
    return float(total / (m * (m - 1) / 2))


def _blocks(count: int, cells: int) -> Iterator[slice]:
    """Slices of ``count`` items, ``cells`` numbers each, of at most 32 MB."""
    step = max(1, MAX_CELLS_PER_BLOCK // max(cells, 1))
    return (slice(start, start + step) for start in range(0, count, step))


def _draws(samples: Array, theta: Array, *, at_least: int = 1) -> tuple[np.ndarray, np.ndarray, tuple[int, ...]]:
    """Draws ``(m, n, d)`` in their own precision, parameters ``(n, d)`` and the shape of the event."""
    samples, theta = real_numbers("samples", samples), real_numbers("theta", theta).astype(float)
    if samples.shape[1:] != theta.shape or theta.ndim < 1 or theta.size == 0 or len(samples) < at_least:
        raise InputError(
            f"'samples' must have shape (m >= {at_least}, n, *event) and 'theta' (n, *event), neither empty, "
            f"got {samples.shape} and {theta.shape}."
        )
    if not (np.isfinite(samples).all() and np.isfinite(theta).all()):
        invalid = np.sum(~np.isfinite(samples)), np.sum(~np.isfinite(theta))
        raise InputError(f"'samples' and 'theta' must be finite, got {invalid[0]} and {invalid[1]} non-finite values.")
    event, n = theta.shape[1:], len(theta)
    return samples.reshape(len(samples), n, -1), theta.reshape(n, -1), event


def _two_samples(first: Array, second: Array) -> tuple[np.ndarray, np.ndarray]:
    """Two samples ``(k, d)``, each in its own precision."""
    a, b = real_numbers("first", first), real_numbers("second", second)
    if a.shape[1:] != b.shape[1:] or min(a.ndim, b.ndim) < 1 or min(len(a), len(b)) < 2 or a[0].size == 0:
        raise InputError(f"Two samples must both have shape (k > 1, *event), got {a.shape} and {b.shape}.")
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        invalid = np.sum(~np.isfinite(a)), np.sum(~np.isfinite(b))
        raise InputError(f"Two samples must be finite, got {invalid[0]} and {invalid[1]} non-finite values.")
    return a.reshape(len(a), -1), b.reshape(len(b), -1)


def _refuse_constant(extent: np.ndarray) -> None:
    if not np.all(extent > 0):
        raise InputError(f"{np.sum(~(extent > 0))} of the {extent.size} parameters do not vary in 'theta'.")
