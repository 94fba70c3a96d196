r"""Calibration of a posterior: ranks, coverage and distances to random points, each with its confidence band.

If :math:`\theta` is drawn from the prior, :math:`x` from the simulator and :math:`m` draws from the true posterior of
:math:`x`, then :math:`\theta` and the draws are exchangeable: under any ordering, the rank of
:math:`\theta` is uniform on :math:`0, \dots, m`. Simulation-based calibration orders by one parameter, TARP by the
distance to a random point. A central interval of level :math:`\alpha` contains :math:`\theta` if its relative rank
:math:`u = (rank + 1/2) / (m + 1)` satisfies :math:`|2 u - 1| \le \alpha`.

Shapes: draws ``samples`` are ``(m, n, *event)``, parameters ``theta`` ``(n, *event)``, ranks ``(n, *event)``.
"""

from __future__ import annotations

import numpy as np

from propersbi.metrics.numbers import real_numbers
from propersbi.storage.checks import check_number, check_seed, check_whole
from propersbi.types import Array, InputError

__all__ = [
    "coverage_band",
    "ecdf_band",
    "expected_coverage",
    "rank_band",
    "rank_histogram",
    "sbc_p_values",
    "sbc_ranks",
    "tarp",
    "tarp_ranks",
]


def sbc_ranks(samples: Array, theta: Array, *, seed: int = 0) -> np.ndarray:
    """The rank of each parameter among its draws, from 0 to m: the number of draws below it, ``(n, *event)``.

    Ties, which occur with discrete parameters or point masses at the bounds, are broken at random, so that ranks stay
    uniform; ``seed`` is used for ties only.

    References: Talts et al. 2018, https://arxiv.org/abs/1804.06788.

    >>> sbc_ranks([[[1.0]], [[2.0]], [[3.0]]], [[2.5]])
    array([[2]])
    """
    samples, theta = _draws(samples, theta)
    seed = check_seed(seed)
    below: np.ndarray = (samples < theta).sum(0)
    ties = (samples == theta).sum(0)
    if ties.any():
        # A separate stream: the caller may have drawn the samples from `default_rng(0)`.
        below = below + np.random.default_rng([seed, *b"ranks"]).integers(0, ties, endpoint=True)
    return below


def rank_histogram(ranks: Array, num_samples: int, *, bins: int = 20) -> np.ndarray:
    """The number of ranks in each of ``bins`` equal parts of 0, ..., ``num_samples``, ``(bins, *event)``.

    The parts are exactly equal if ``bins`` divides ``num_samples + 1``.

    >>> rank_histogram([[0], [1], [9]], num_samples=9, bins=5)
    array([[2],
           [0],
           [0],
           [0],
           [1]])
    """
    ranks = _checked_ranks(ranks, num_samples)
    if not 1 <= check_whole("bins", bins, 1) <= num_samples + 1:
        raise InputError(f"'bins' must lie between 1 and num_samples + 1 = {num_samples + 1}, got {bins}.")
    return _counts(ranks * bins // (num_samples + 1), bins)


def rank_band(n: int, bins: int, *, level: float = 0.99) -> tuple[int, int]:
    """The lower and upper count between which a bin of ``n`` uniform ranks lies with probability ``level`` (binomial).

    >>> rank_band(1000, 20)
    (33, 69)
    """
    from scipy.stats import binom

    n, level = _checked_band(n, level)
    check_whole("bins", bins, 1)
    lower, upper = binom.ppf([(1 - level) / 2, (1 + level) / 2], n, 1 / bins)
    return int(lower), int(upper)


def ecdf_band(
    n: int, *, points: int = 50, level: float = 0.99, repeats: int = 4000, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The simultaneous band that contains the empirical distribution function of ``n`` uniform ranks.

    There is a binomial interval at each of ``points`` positions, all of the same pointwise level. That level is found
    by simulating ``repeats`` distribution functions, a fraction ``level`` of which stays inside everywhere.

    References: Säilynoja, Bürkner & Vehtari 2022, https://arxiv.org/abs/2103.10522.

    Returns:
        The relative ranks ``(points,)`` and the lower and upper limits of the band.

    >>> z, lower, upper = ecdf_band(1000, points=4)
    >>> z, lower.round(2), upper.round(2)
    (array([0.25, 0.5 , 0.75, 1.  ]), array([0.21, 0.45, 0.71, 1.  ]), array([0.29, 0.55, 0.79, 1.  ]))
    """
    from scipy.stats import binom

    n, level = _checked_band(n, level)
    points, repeats, seed = check_whole("points", points, 1), check_whole("repeats", repeats, 1), check_seed(seed)
    z = np.arange(1, points + 1) / points
    counts = np.random.default_rng(seed).multinomial(n, np.full(points, 1 / points), repeats).cumsum(1)
    below, above = binom.cdf(counts, n, z), binom.sf(counts - 1, n, z)
    least_probability = 2 * np.minimum(below, above).min(1)
    tail = np.quantile(least_probability, 1 - level, method="lower") / 2
    return z, binom.ppf(tail, n, z) / n, binom.isf(tail, n, z) / n


def sbc_p_values(ranks: Array, num_samples: int) -> np.ndarray:
    """The p-value of a Kolmogorov-Smirnov test of uniform ranks, per parameter.

    Distribution functions are compared at integer ranks only, so the test is slightly conservative.

    >>> float(sbc_p_values(np.arange(100), num_samples=99))
    1.0
    >>> bool(sbc_p_values(np.zeros(100, int), num_samples=99) < 1e-9)
    True
    """
    from scipy.stats import kstwo

    ranks = _checked_ranks(ranks, num_samples)
    n = len(ranks)
    ecdf = _counts(ranks, num_samples + 1).cumsum(0) / n
    uniform = np.arange(1, num_samples + 2).reshape(-1, *[1] * (ecdf.ndim - 1)) / (num_samples + 1)
    p_values: np.ndarray = np.clip(kstwo.sf(np.abs(ecdf - uniform).max(0), n), 0, 1)
    return p_values


def expected_coverage(samples: Array, theta: Array, alphas: Array | None = None) -> tuple[np.ndarray, np.ndarray]:
    """The fraction of central intervals of each level that contain the parameter: the level itself, if calibrated.

    Arguments:
        samples: Draws ``(m, n, *event)``.
        theta: True parameters, ``(n, *event)``.
        alphas: The levels; 0, 0.02, ..., 1 unless given.

    Returns:
        The levels ``(k,)`` and the coverage ``(k, *event)``.

    >>> rng = np.random.default_rng(0)
    >>> alphas, coverage = expected_coverage(rng.normal(size=(99, 2000, 1)), rng.normal(size=(2000, 1)), [0.5, 0.9])
    >>> coverage.round(1)
    array([[0.5],
           [0.9]])
    """
    ranks = sbc_ranks(samples, theta)
    centrality = np.abs(2 * _relative(ranks, len(np.asarray(samples))) - 1)
    return _ecdf(centrality, alphas)


def coverage_band(n: int, alphas: Array, *, level: float = 0.99) -> tuple[np.ndarray, np.ndarray]:
    """The limits of the coverage of ``n`` calibrated rows with probability ``level``, pointwise in ``alphas``.

    >>> coverage_band(1000, [0.5])
    (array([0.459]), array([0.541]))
    """
    from scipy.stats import binom

    n, level = _checked_band(n, level)
    alphas = _levels(alphas)
    tail = (1 - level) / 2
    return binom.ppf(tail, n, alphas) / n, binom.isf(tail, n, alphas) / n


def tarp(
    samples: Array, theta: Array, rng: np.random.Generator, *, alphas: Array | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The fraction of balls around random points, of each level, that contain the parameter: a joint test (TARP).

    The random point of a row is the parameter of another row. Its ball of level alpha contains that fraction of the
    draws. As the points do not depend on the data of the row, the test is necessary only: the prior also passes it.

    References: Lemos et al. 2023, https://arxiv.org/abs/2302.03026.

    Returns:
        The levels ``(k,)`` and the coverage ``(k,)``.

    >>> rng = np.random.default_rng(0)
    >>> alphas, coverage = tarp(rng.normal(size=(99, 2000, 2)), rng.normal(size=(2000, 2)), rng)
    >>> bool(np.abs(coverage - alphas).max() < 0.05)
    True
    """
    samples, theta = _draws(samples, theta)
    m, n = samples.shape[:2]
    if not isinstance(rng, np.random.Generator):
        raise InputError(f"'rng' must be a random generator of NumPy, got {type(rng).__name__}.")
    if n < 2:
        raise InputError(f"TARP needs at least 2 rows, got {n}.")
    others = (np.arange(n) + rng.integers(1, n, n)) % n
    return _ecdf(_relative(tarp_ranks(samples, theta, theta[others]), m), alphas)


def tarp_ranks(samples: Array, theta: Array, points: Array, *, seed: int = 0) -> np.ndarray:
    """The number of draws that are closer to the point of their row than the parameter is, ``(n,)``.

    Distances are in units of the standard deviations of the draws. Neither points nor units may depend on the parameter
    of the row: in high dimension even units from the range of all parameters would make exact posteriors fail. Ties are
    broken at random, with ``seed``.

    >>> tarp_ranks(np.array([[[0.0]], [[1.0]], [[5.0]]]), np.array([[2.0]]), np.array([[0.0]]))
    array([2])
    """
    samples, theta = _draws(samples, theta)
    m, n = samples.shape[:2]
    points = real_numbers("points", points)
    if points.shape != theta.shape:
        raise InputError(f"'points' must have the shape {theta.shape} of 'theta', got {points.shape}.")
    unit = samples.reshape(m * n, -1).std(0)
    unit = np.where(unit > 0, unit, 1)
    to_draws = np.linalg.norm((samples - points).reshape(m, n, -1) / unit, axis=-1)
    to_theta = np.linalg.norm((theta - points).reshape(n, -1) / unit, axis=-1)
    return sbc_ranks(to_draws, to_theta, seed=seed)


def _relative(ranks: np.ndarray, num_samples: int) -> np.ndarray:
    return (ranks + 0.5) / (num_samples + 1)


def _ecdf(values: np.ndarray, alphas: Array | None) -> tuple[np.ndarray, np.ndarray]:
    """The levels and the fraction of values up to each level, ``(k, *event)``."""
    alphas = np.linspace(0, 1, 51) if alphas is None else _levels(alphas)
    ordered = np.sort(values.reshape(len(values), -1), axis=0)
    fractions = [np.searchsorted(column, alphas, side="right") / len(values) for column in ordered.T]
    return alphas, np.stack(fractions, axis=-1).reshape(len(alphas), *values.shape[1:])


def _counts(values: np.ndarray, bins: int) -> np.ndarray:
    """The number of times each of 0, ..., bins - 1 occurs along the first axis, ``(bins, *event)``."""
    flat = values.reshape(len(values), -1)
    d = flat.shape[1]
    return np.bincount((flat * d + np.arange(d)).ravel(), minlength=bins * d).reshape(bins, *values.shape[1:])


def _draws(samples: Array, theta: Array) -> tuple[np.ndarray, np.ndarray]:
    samples, theta = real_numbers("samples", samples), real_numbers("theta", theta)
    if samples.shape[1:] != theta.shape or theta.ndim < 1 or samples.size == 0:
        raise InputError(
            "'samples' must have shape (m, n, *event) and 'theta' (n, *event), neither empty, "
            f"got {samples.shape} and {theta.shape}."
        )
    missing = int(np.isnan(samples).sum()), int(np.isnan(theta).sum())
    if any(missing):
        raise InputError(f"'samples' and 'theta' must not be NaN, got {missing[0]} and {missing[1]} NaN values.")
    return samples, theta


def _checked_ranks(values: Array, num_samples: int) -> np.ndarray:
    ranks, num_samples = real_numbers("ranks", values), check_whole("num_samples", num_samples, 1)
    if ranks.ndim == 0:
        raise InputError("'ranks' must have a row for each pair, got a single number.")
    if ranks.size == 0 or ranks.dtype.kind not in "iu" or ranks.min() < 0 or ranks.max() > num_samples:
        extent = f"from {ranks.min()} to {ranks.max()}" if ranks.size else "none"
        raise InputError(f"'ranks' must be integers from 0 to {num_samples}, got {ranks.dtype} {extent}.")
    return ranks


def _levels(alphas: Array) -> np.ndarray:
    levels = np.atleast_1d(real_numbers("alphas", alphas).astype(float))
    if not levels.size or levels.ndim > 1:
        raise InputError(f"'alphas' must be one list of levels, got an array of shape {levels.shape}.")
    if not ((levels >= 0) & (levels <= 1)).all():
        raise InputError(f"'alphas' must lie in [0, 1], got {levels.min()} to {levels.max()}.")
    return levels


def _checked_band(n: int, level: float) -> tuple[int, float]:
    check_number("level", level, "lie in (0, 1)", 0, 1)
    return check_whole("n", n, 1), float(level)
