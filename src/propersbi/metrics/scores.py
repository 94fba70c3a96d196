r"""How good posterior draws are. Arrays in, number out: works on anybody's posterior.

Shapes: draws ``samples`` are ``(m, n, *event)``, the parameters that came true ``theta`` are ``(n, *event)``; results
per parameter have the event's shape. Two sets of draws of one law, ``samples`` and ``reference``, are ``(k, *event)``.

.. math::
    \text{energy score} &= 2 E\|\vartheta - \theta\| - E\|\vartheta - \vartheta'\| \\
    \text{CRPS} &= E|\vartheta_j - \theta_j| - \tfrac12 E|\vartheta_j - \vartheta'_j| \\
    \text{MMD}^2 &= E k(X, X') + E k(Y, Y') - 2 E k(X, Y)

Means over pairs leave the diagonal out (the fair estimators), so every one of these is unbiased in the number of draws.
Lower is better, for the classifier two-sample test as near one half as possible.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

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

_CELLS = 2**22
"""Numbers in one intermediate array, 32 MB: larger work goes in blocks."""


def c2st(samples: Array, reference: Array, *, seed: int = 1, folds: int = 5) -> float:
    r"""How well a classifier tells draws from reference draws: 0.5 when it cannot, 1 when it always can.

    The definition of sbibm, so that published values compare: both sets are standardised by the mean and standard
    deviation of the reference; a perceptron with two hidden layers of :math:`10 d` units, cross-validated accuracy.

    References: Lopez-Paz & Oquab 2017, https://arxiv.org/abs/1610.06545; Lueckmann et al. 2021,
    https://arxiv.org/abs/2101.04653.

    Arguments:
        samples: Draws ``(k, *event)``.
        reference: Draws of the true posterior, as many for a balanced test.
        seed: Of the folds and of the network; sbibm's is 1.
        folds: The number of folds; sbibm's is 5.

    >>> rng = np.random.default_rng(0)
    >>> c2st(rng.normal(0, 1, (100, 1)), rng.normal(20, 1, (100, 1)))
    1.0
    """
    # This loads torch, and nothing else here needs it.
    from propersbi.metrics.c2st import cross_validated_accuracy

    x, y = _two_sets(reference, samples)
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
    return np.sqrt(((samples.mean(0, dtype=float) - theta) ** 2).mean(0)).reshape(event)


def nrmse(samples: Array, theta: Array) -> np.ndarray:
    """The root mean squared error of the posterior mean over the range of ``theta``, per parameter.

    >>> nrmse(np.zeros((10, 2, 1)), [[3.0], [-3.0]])
    array([0.5])
    """
    extent = np.ptp(np.asarray(theta, dtype=float), axis=0)
    _refuse_constant(extent)
    return rmse(samples, theta) / extent


def r2(samples: Array, theta: Array) -> np.ndarray:
    """The share of the variance of ``theta`` that the posterior mean explains, per parameter.

    >>> r2(np.zeros((10, 2, 1)), [[3.0], [-3.0]])
    array([0.])
    """
    samples, theta, event = _draws(samples, theta)
    total = ((theta - theta.mean(0)) ** 2).mean(0)
    _refuse_constant(total)
    return (1 - ((samples.mean(0, dtype=float) - theta) ** 2).mean(0) / total).reshape(event)


def calibration_error(samples: Array, theta: Array) -> np.ndarray:
    r"""The median over levels :math:`\alpha` of \|coverage of the central interval - :math:`\alpha`\|, per parameter.

    Levels are 0.01, 0.02, ..., 1; intervals lie between empirical quantiles and are open. Exact draws score
    0.01 on average, and up to 0.025, with 1000 observations: less cannot be told apart from chance. Few draws
    add to it, about 1 / m, because intervals between extreme quantiles come out short.

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

    The usual convention, half the energy score in one dimension; the spread comes from sorting, not from all pairs.

    >>> crps([[[0.0]], [[2.0]]], [[1.0]])
    array([[0.]])
    """
    samples, theta, event = _draws(samples, theta, at_least=2)
    m = len(samples)
    order = np.arange(1 - m, m, 2) / (m * (m - 1))  # how often a draw is the larger, less the smaller, of a pair
    scores = []
    for rows in _blocks(len(theta), samples[:, 0].size):
        draws = samples[:, rows].astype(float)
        miss = np.abs(draws - theta[rows]).mean(0)
        scores.append(miss - np.tensordot(order, np.sort(draws, axis=0), axes=1))
    return np.concatenate(scores).reshape(-1, *event)


def energy_score(samples: Array, theta: Array) -> np.ndarray:
    r"""The energy score of each row, ``(n,)``: :math:`2 E\|\vartheta - \theta\| - E\|\vartheta - \vartheta'\|`.

    All pairs of draws count, so the time grows with their number squared; the memory does not.

    References: Gneiting & Raftery 2007, https://doi.org/10.1198/016214506000001437.

    >>> energy_score([[[0.0]], [[2.0]]], [[1.0]])
    array([0.])
    """
    samples, theta, _ = _draws(samples, theta, at_least=2)
    spreads = [_spread(samples[:, row]) for row in range(len(theta))]
    return 2 * _misses(samples, theta) - np.array(spreads)


def energy_skill(samples: Array, theta: Array, prior_samples: Array) -> float:
    """One minus the mean energy score over that of the prior: 0 when nothing was learnt, 1 when all is known.

    Arguments:
        samples: Posterior draws ``(m, n, *event)``.
        theta: What came true, ``(n, *event)``.
        prior_samples: Prior draws ``(k, *event)``, the same for every row.

    >>> rng = np.random.default_rng(0)
    >>> theta, prior = rng.normal(size=(2, 500, 1))
    >>> mean = (theta + rng.normal(size=(500, 1))) / 2
    >>> samples = mean + rng.normal(0, 0.5**0.5, size=(100, 500, 1))
    >>> round(energy_skill(samples, theta, prior), 1)
    0.3
    """
    score = energy_score(samples, theta).mean()
    theta = np.asarray(theta, dtype=float)
    prior = np.asarray(prior_samples, dtype=float)
    if prior.shape[1:] != theta.shape[1:] or len(prior) < 2 or not np.isfinite(prior).all():
        raise InputError(f"'prior_samples' must be finite draws (k > 1, {theta.shape[1:]}), got {prior.shape}.")
    prior, theta = prior.reshape(len(prior), 1, -1), theta.reshape(len(theta), -1)
    baseline = 2 * _misses(prior, theta).mean() - _spread(prior[:, 0])
    return float(1 - score / baseline)


def energy_distance(samples: Array, reference: Array) -> float:
    r"""The energy distance :math:`2 E\|X - Y\| - E\|X - X'\| - E\|Y - Y'\|` of two laws, unbiased; 0 if they are equal.

    References: Székely & Rizzo 2013, https://doi.org/10.1016/j.jspi.2013.03.018.

    >>> rng = np.random.default_rng(0)
    >>> a, b = rng.normal(size=(2, 500, 2))
    >>> abs(energy_distance(a, b)) < 0.02, energy_distance(a, b + 3) > 2
    (True, True)
    """
    x, y = (points.astype(float) for points in _two_sets(samples, reference))
    own = (_misses(z[:, None], z).mean() * len(z) / (len(z) - 1) for z in (x, y))
    return float(2 * _misses(x[:, None], y).mean() - sum(own))


def mmd(samples: Array, reference: Array, *, bandwidth: float | None = None) -> float:
    r"""The squared maximum mean discrepancy, unbiased and so about zero, also below, for equal laws.

    The kernel is :math:`e^{-r^2 / 2 h^2}`; the bandwidth :math:`h` is the median distance between reference draws (of
    the first 1000) unless given.

    References: Gretton et al. 2012, https://jmlr.org/papers/v13/gretton12a.html.

    >>> rng = np.random.default_rng(0)
    >>> a, b = rng.normal(size=(2, 500, 2))
    >>> abs(mmd(a, b)) < 0.01, mmd(a, b + 3) > 0.5
    (True, True)
    """
    from scipy.spatial.distance import cdist, pdist

    x, y = _two_sets(samples, reference)
    h = np.median(pdist(y[:1000])) if bandwidth is None else bandwidth
    if not h > 0:
        raise InputError(f"'bandwidth' must be positive, got {h}.")

    def mean_kernel(a: np.ndarray, b: np.ndarray) -> float:
        blocks = (cdist(a[rows], b, "sqeuclidean") for rows in _blocks(len(a), len(b)))
        total = sum(np.exp(block / (-2 * h**2)).sum() for block in blocks)
        return (total - len(a)) / (len(a) * (len(a) - 1)) if a is b else total / (len(a) * len(b))

    return float(mean_kernel(x, x) + mean_kernel(y, y) - 2 * mean_kernel(x, y))


def _misses(samples: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """The mean distance of the draws ``(m, n or 1, d)`` to ``theta (n, d)``, ``(n,)``."""
    blocks = _blocks(len(theta), len(samples) * theta.shape[1])
    shared = samples.shape[1] == 1
    offsets = (samples[:, slice(None) if shared else rows] - theta[rows] for rows in blocks)
    return np.concatenate([np.linalg.norm(offset, axis=-1).mean(0) for offset in offsets])


def _spread(draws: np.ndarray) -> float:
    """The mean distance between two different draws ``(m, d)``, from the upper triangle of their distances."""
    from scipy.spatial.distance import cdist, pdist

    m = len(draws)
    total = 0.0
    for rows in _blocks(m, m):
        total += pdist(draws[rows]).sum() + cdist(draws[rows], draws[rows.stop :]).sum()
    return total / (m * (m - 1) / 2)


def _blocks(count: int, cells: int) -> Iterator[slice]:
    """Cut ``count`` items of ``cells`` numbers each into slices of at most 32 MB."""
    step = max(1, _CELLS // max(cells, 1))
    return (slice(start, start + step) for start in range(0, count, step))


def _draws(samples: Array, theta: Array, *, at_least: int = 1) -> tuple[np.ndarray, np.ndarray, tuple[int, ...]]:
    """Draws ``(m, n, d)`` in their own precision, parameters ``(n, d)`` and the event's shape."""
    samples, theta = np.asarray(samples), np.asarray(theta, dtype=float)
    if samples.shape[1:] != theta.shape or theta.ndim < 1 or theta.size == 0 or len(samples) < at_least:
        raise InputError(
            f"'samples' must have shape (m >= {at_least}, n, *event) and 'theta' (n, *event), none of it empty, "
            f"got {samples.shape} and {theta.shape}."
        )
    if not (np.isfinite(samples).all() and np.isfinite(theta).all()):
        bad = np.sum(~np.isfinite(samples)), np.sum(~np.isfinite(theta))
        raise InputError(f"'samples' and 'theta' must be finite, got {bad[0]} and {bad[1]} values that are not.")
    event, n = theta.shape[1:], len(theta)
    return samples.reshape(len(samples), n, -1), theta.reshape(n, -1), event


def _two_sets(first: Array, second: Array) -> tuple[np.ndarray, np.ndarray]:
    """Two sets of points ``(k, d)`` in their own precision."""
    a, b = np.asarray(first), np.asarray(second)
    if a.shape[1:] != b.shape[1:] or min(a.ndim, b.ndim) < 1 or min(len(a), len(b)) < 2 or a[0].size == 0:
        raise InputError(f"Two sets of draws must both have shape (k > 1, *event), got {a.shape} and {b.shape}.")
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        bad = np.sum(~np.isfinite(a)), np.sum(~np.isfinite(b))
        raise InputError(f"Two sets of draws must be finite, got {bad[0]} and {bad[1]} values that are not.")
    return a.reshape(len(a), -1), b.reshape(len(b), -1)


def _refuse_constant(extent: np.ndarray) -> None:
    if not np.all(extent > 0):
        raise InputError(f"{np.sum(~(extent > 0))} of the {extent.size} parameters do not vary in 'theta'.")
