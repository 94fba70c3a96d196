r"""Is the posterior calibrated? Ranks, coverage and distances to random points, each with its confidence band.

If :math:`\theta` is drawn from the prior, :math:`x` from the simulator and :math:`m` draws from the true posterior of
:math:`x`, then :math:`\theta` and the draws are exchangeable: whichever number orders them, the rank of
:math:`\theta` is uniform on :math:`0, \dots, m`. Simulation-based calibration orders by one parameter, TARP by the
distance to a random point. A central interval of level :math:`\alpha` holds :math:`\theta` where its relative rank
:math:`u = (rank + 1/2) / (m + 1)` satisfies :math:`|2 u - 1| \le \alpha`.

Shapes: draws ``samples`` are ``(m, n, *event)``, parameters ``theta`` ``(n, *event)``, ranks ``(n, *event)``.
"""

from __future__ import annotations

import numpy as np

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
    """The rank of each parameter among its draws, from 0 to m: how many draws lie below it, ``(n, *event)``.

    Draws equal to the parameter, as discrete parameters or a clipped sampler make them, count as below or above at
    random, which keeps ranks uniform; ``seed`` is for them alone.

    References: Talts et al. 2018, https://arxiv.org/abs/1804.06788.

    >>> sbc_ranks([[[1.0]], [[2.0]], [[3.0]]], [[2.5]])
    array([[2]])
    """
    samples, theta = _draws(samples, theta)
    below = (samples < theta).sum(0)
    ties = (samples == theta).sum(0)
    if ties.any():
        # A stream of its own: the caller may well have drawn the samples from `default_rng(0)`.
        below = below + np.random.default_rng([seed, *b"ranks"]).integers(0, ties, endpoint=True)
    return below


def rank_histogram(ranks: Array, draws: int, *, bins: int = 20) -> np.ndarray:
    """How many ranks fall into each of ``bins`` equal parts of 0, ..., ``draws``, ``(bins, *event)``.

    The parts are exactly equal when ``bins`` divides ``draws + 1``.

    >>> rank_histogram([[0], [1], [9]], draws=9, bins=5)
    array([[2],
           [0],
           [0],
           [0],
           [1]])
    """
    ranks = _ranks(ranks, draws)
    if not 1 <= bins <= draws + 1:
        raise InputError(f"'bins' must lie between 1 and draws + 1 = {draws + 1}, got {bins}.")
    return _count(ranks * bins // (draws + 1), bins)


def rank_band(n: int, bins: int, *, level: float = 0.99) -> tuple[int, int]:
    """Between which counts one bin of ``n`` uniform ranks lies with probability ``level`` (binomial).

    >>> rank_band(1000, 20)
    (33, 69)
    """
    from scipy.stats import binom

    _check_band(n, level)
    lower, upper = binom.ppf([(1 - level) / 2, (1 + level) / 2], n, 1 / bins)
    return int(lower), int(upper)


def ecdf_band(
    n: int, *, points: int = 50, level: float = 0.99, repeats: int = 4000, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Where the whole distribution line of ``n`` uniform ranks lies with probability ``level``.

    A binomial interval stands at each of ``points`` steps, all at one pointwise level; that level is found by
    simulating ``repeats`` lines, so that ``level`` of them stay inside everywhere.

    References: Säilynoja, Bürkner & Vehtari 2022, https://arxiv.org/abs/2103.10522.

    Returns:
        The relative ranks ``(points,)`` and the lower and upper end of the band there.

    >>> z, lower, upper = ecdf_band(1000, points=4)
    >>> z, lower.round(2), upper.round(2)
    (array([0.25, 0.5 , 0.75, 1.  ]), array([0.21, 0.45, 0.71, 1.  ]), array([0.29, 0.55, 0.79, 1.  ]))
    """
    from scipy.stats import binom

    _check_band(n, level)
    z = np.arange(1, points + 1) / points
    counts = np.random.default_rng(seed).multinomial(n, np.full(points, 1 / points), repeats).cumsum(1)
    below, above = binom.cdf(counts, n, z), binom.sf(counts - 1, n, z)
    rarest = 2 * np.minimum(below, above).min(1)
    tail = np.quantile(rarest, 1 - level, method="lower") / 2
    return z, binom.ppf(tail, n, z) / n, binom.isf(tail, n, z) / n


def sbc_p_values(ranks: Array, draws: int) -> np.ndarray:
    """The probability of ranks at least this far from uniform, per parameter (Kolmogorov-Smirnov).

    Distribution lines are compared at whole ranks only, which makes the values a little too large, never too small.

    >>> float(sbc_p_values(np.arange(100), draws=99))
    1.0
    >>> bool(sbc_p_values(np.zeros(100, int), draws=99) < 1e-9)
    True
    """
    from scipy.stats import kstwo

    ranks = _ranks(ranks, draws)
    n = len(ranks)
    line = _count(ranks, draws + 1).cumsum(0) / n
    uniform = np.arange(1, draws + 2).reshape(-1, *[1] * (line.ndim - 1)) / (draws + 1)
    return np.clip(kstwo.sf(np.abs(line - uniform).max(0), n), 0, 1)


def expected_coverage(samples: Array, theta: Array, alphas: Array | None = None) -> tuple[np.ndarray, np.ndarray]:
    """How often central intervals of each level hold the parameter: equal to the level if calibrated.

    Arguments:
        samples: Draws ``(m, n, *event)``.
        theta: What came true, ``(n, *event)``.
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
    return _distribution(centrality, alphas)


def coverage_band(n: int, alphas: Array, *, level: float = 0.99) -> tuple[np.ndarray, np.ndarray]:
    """Between which values the coverage of ``n`` calibrated rows lies with probability ``level``, level by level.

    >>> coverage_band(1000, [0.5])
    (array([0.459]), array([0.541]))
    """
    from scipy.stats import binom

    _check_band(n, level)
    alphas = _levels(alphas)
    tail = (1 - level) / 2
    return binom.ppf(tail, n, alphas) / n, binom.isf(tail, n, alphas) / n


def tarp(
    samples: Array, theta: Array, rng: np.random.Generator, *, alphas: Array | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """How often balls around random points, of each level, hold the parameter: tests all parameters jointly.

    The point of each row is the parameter of another row, drawn at random. Its ball of level alpha holds that share of
    the draws. Points that do not look at the data make this a necessary condition: the prior itself also passes.

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
    if n < 2:
        raise InputError(f"TARP needs at least 2 rows, got {n}.")
    others = (np.arange(n) + rng.integers(1, n, n)) % n
    return _distribution(_relative(tarp_ranks(samples, theta, theta[others]), m), alphas)


def tarp_ranks(samples: Array, theta: Array, points: Array) -> np.ndarray:
    """How many draws lie nearer to the point of their row than its parameter does, ``(n,)``.

    Distances are in units of the draws' spread. Neither points nor units may know the parameter of the row: in many
    dimensions even its share in the range of all parameters would bring it nearer, and exact posteriors would fail.

    >>> tarp_ranks(np.array([[[0.0]], [[1.0]], [[5.0]]]), np.array([[2.0]]), np.array([[0.0]]))
    array([2])
    """
    samples, theta = _draws(samples, theta)
    m, n = samples.shape[:2]
    unit = samples.reshape(m * n, -1).std(0)
    unit = np.where(unit > 0, unit, 1)
    to_draws = np.linalg.norm((samples - points).reshape(m, n, -1) / unit, axis=-1)
    to_theta = np.linalg.norm((theta - points).reshape(n, -1) / unit, axis=-1)
    return sbc_ranks(to_draws, to_theta)


def _relative(ranks: np.ndarray, draws: int) -> np.ndarray:
    return (ranks + 0.5) / (draws + 1)


def _distribution(values: np.ndarray, alphas: Array | None) -> tuple[np.ndarray, np.ndarray]:
    """The share of values up to each level, ``(k, *event)``."""
    alphas = np.linspace(0, 1, 51) if alphas is None else _levels(alphas)
    ordered = np.sort(values.reshape(len(values), -1), axis=0)
    shares = [np.searchsorted(column, alphas, side="right") / len(values) for column in ordered.T]
    return alphas, np.stack(shares, axis=-1).reshape(len(alphas), *values.shape[1:])


def _count(values: np.ndarray, bins: int) -> np.ndarray:
    """How often each of 0, ..., bins - 1 occurs along the first axis, ``(bins, *event)``."""
    flat = values.reshape(len(values), -1)
    d = flat.shape[1]
    return np.bincount((flat * d + np.arange(d)).ravel(), minlength=bins * d).reshape(bins, *values.shape[1:])


def _draws(samples: Array, theta: Array) -> tuple[np.ndarray, np.ndarray]:
    samples, theta = np.asarray(samples), np.asarray(theta)
    if samples.shape[1:] != theta.shape or theta.ndim < 1 or samples.size == 0:
        raise InputError(
            "'samples' must have shape (m, n, *event) and 'theta' (n, *event), none of it empty, "
            f"got {samples.shape} and {theta.shape}."
        )
    bad = int(np.isnan(samples).sum()), int(np.isnan(theta).sum())
    if any(bad):
        raise InputError(f"'samples' and 'theta' must be numbers, got {bad[0]} and {bad[1]} that are not.")
    return samples, theta


def _ranks(ranks: Array, draws: int) -> np.ndarray:
    ranks = np.asarray(ranks)
    if ranks.size == 0 or ranks.dtype.kind not in "iu" or ranks.min() < 0 or ranks.max() > draws:
        extent = f"from {ranks.min()} to {ranks.max()}" if ranks.size else "none"
        raise InputError(f"'ranks' must be integers from 0 to {draws}, got {ranks.dtype} {extent}.")
    return ranks


def _levels(alphas: Array) -> np.ndarray:
    alphas = np.atleast_1d(np.asarray(alphas, dtype=float))
    if not ((alphas >= 0) & (alphas <= 1)).all():
        raise InputError(f"'alphas' must lie in [0, 1], got {alphas.min()} to {alphas.max()}.")
    return alphas


def _check_band(n: int, level: float) -> None:
    if n < 1 or not 0 < level < 1:
        raise InputError(f"A band needs n >= 1 and 0 < level < 1, got n = {n} and level = {level}.")
