"""Calibration: ranks are uniform for exact draws and only for them, and bands have their nominal coverage."""

import numpy as np
import pytest
from scipy.stats import poisson as poisson_law

from propersbi.metrics import calibration
from propersbi.types import InputError


def gaussian(m=99, n=1000, seed=0, width=1.0, shift=0.0):
    """theta ~ N(0, 1), x = theta + N(0, 1), posterior N(x / 2, 1 / 2), made wrong on request."""
    rng = np.random.default_rng(seed)
    theta = rng.normal(size=(n, 2))
    mean = (theta + rng.normal(size=(n, 2))) / 2
    return shift + mean + width * rng.normal(0, 0.5**0.5, (m, n, 2)), theta


WRONG = [{"width": 0.6}, {"width": 1.6}, {"shift": 0.2}]


# -- ranks


def test_ranks_count_draws_below():
    samples, theta = gaussian(9, 5)
    expected = [[sum(samples[k, i, j] < theta[i, j] for k in range(9)) for j in range(2)] for i in range(5)]
    assert np.array_equal(calibration.sbc_ranks(samples, theta), expected)


def test_ties_keep_ranks_uniform():
    """Discrete parameters that the data say nothing about: theta and draws are coins."""
    rng = np.random.default_rng(0)
    theta, samples = rng.integers(0, 2, 2000), rng.integers(0, 2, (19, 2000))
    ranks = calibration.sbc_ranks(samples, theta)
    assert calibration.sbc_p_values(ranks, 19) > 0.01
    assert calibration.sbc_p_values((samples < theta).sum(0), 19) < 1e-6
    assert np.array_equal(ranks, calibration.sbc_ranks(samples, theta))


def poisson(m=99, n=2000, seed=0, sharp=1.0):
    """theta ~ Poisson(2), x ~ Poisson(theta + 1); exact draws from the table of the posterior, too sharp on request."""
    rng = np.random.default_rng(seed)
    k = np.arange(30)
    theta = rng.poisson(2.0, n)
    x = rng.poisson(theta + 1)
    log = poisson_law.logpmf(k, 2.0) + poisson_law.logpmf(x[:, None], k + 1)
    weight = np.exp(sharp * (log - log.max(1, keepdims=True)))
    cdf = weight.cumsum(1) / weight.sum(1, keepdims=True)
    return (rng.random((m, n, 1)) > cdf).sum(-1).astype(float), theta.astype(float)


def test_ranks_of_an_exact_discrete_posterior_are_uniform_and_of_a_wrong_one_are_not():
    for seed in range(3):
        samples, theta = poisson(seed=seed)
        assert calibration.sbc_p_values(calibration.sbc_ranks(samples, theta, seed=seed), 99) > 0.01
        ranks = calibration.tarp_ranks(samples[..., None], theta[:, None], np.roll(theta, 1)[:, None], seed=seed)
        assert calibration.sbc_p_values(ranks, 99) > 0.01
    samples, theta = poisson(sharp=3.0)
    assert calibration.sbc_p_values(calibration.sbc_ranks(samples, theta), 99) < 1e-4


def test_exact_draws_pass_and_wrong_ones_fail():
    assert calibration.sbc_p_values(calibration.sbc_ranks(*gaussian()), 99).min() > 0.01
    for wrong in WRONG:
        assert calibration.sbc_p_values(calibration.sbc_ranks(*gaussian(**wrong)), 99).max() < 0.001


def test_p_values_are_never_too_small():
    ranks = np.random.default_rng(0).integers(0, 20, (500, 1000))
    p = calibration.sbc_p_values(ranks, 19)
    for level in (0.01, 0.05, 0.2):
        assert (p < level).mean() < level + 3 * (level / 1000) ** 0.5
    assert (p < 0.2).mean() > 0.05  # and yet not useless


def test_histogram_counts_every_rank_once():
    ranks = np.random.default_rng(0).integers(0, 100, (1000, 2, 3))
    counts = calibration.rank_histogram(ranks, 99, bins=20)
    assert counts.shape == (20, 2, 3)
    assert np.all(counts.sum(0) == 1000)
    assert np.array_equal(counts[:, 1, 2], np.histogram(ranks[:, 1, 2], bins=20, range=(0, 100))[0])
    assert calibration.rank_histogram(ranks[:, 0, 0], 99).shape == (20,)


# -- bands


def test_rank_band_covers():
    lower, upper = calibration.rank_band(1000, 20, level=0.95)
    counts = np.random.default_rng(0).binomial(1000, 1 / 20, 20_000)
    assert ((counts >= lower) & (counts <= upper)).mean() == pytest.approx(0.955, abs=0.015)


@pytest.mark.parametrize(("n", "level"), [(200, 0.9), (1000, 0.99)])
def test_ecdf_band_covers_whole_lines(n, level):
    z, lower, upper = calibration.ecdf_band(n, points=20, level=level)
    values = np.sort(np.random.default_rng(5).random((2000, n)), axis=1)
    lines = np.stack([np.searchsorted(row, z) for row in values]) / n
    inside = ((lines >= lower - 1e-9) & (lines <= upper + 1e-9)).all(1).mean()
    assert level - 0.02 < inside < level + 0.02
    assert upper[-1] == lower[-1] == 1


def test_coverage_band_covers_at_each_level():
    alphas = np.array([0.1, 0.5, 0.9])
    lower, upper = calibration.coverage_band(500, alphas, level=0.9)
    shares = np.random.default_rng(0).binomial(500, alphas, (5000, 3)) / 500
    inside = ((shares >= lower) & (shares <= upper)).mean(0)
    assert np.all((inside > 0.89) & (inside < 0.94))


# -- coverage


def test_coverage_is_the_level_for_exact_draws_only():
    alphas, coverage = calibration.expected_coverage(*gaussian(n=2000))
    assert coverage.shape == (51, 2)
    lower, upper = calibration.coverage_band(2000, alphas, level=0.9999)
    assert np.all((lower <= coverage.T) & (upper >= coverage.T))
    middle = [0.5]
    _, narrow = calibration.expected_coverage(*gaussian(n=2000, width=0.6), middle)
    _, wide = calibration.expected_coverage(*gaussian(n=2000, width=1.6), middle)
    assert np.all(narrow < 0.4)
    assert np.all(wide > 0.6)


def test_coverage_agrees_with_quantiles():
    samples, theta = gaussian(999, 500)
    lower, upper = np.quantile(samples, [0.25, 0.75], axis=0)
    _, coverage = calibration.expected_coverage(samples, theta, [0.5])
    assert coverage[0] == pytest.approx(((lower < theta) & (theta < upper)).mean(0), abs=0.01)


def test_tarp_is_the_level_for_exact_draws_only():
    def gap(**wrong):
        alphas, coverage = calibration.tarp(*gaussian(n=2000, **wrong), np.random.default_rng(1))
        return np.abs(coverage - alphas).max()

    assert gap() < 0.04
    assert gap(width=0.5) > 0.06
    assert gap(width=2.0) > 0.06
    assert gap(shift=0.5) > 0.06


def test_tarp_counts_as_its_definition_says():
    samples, theta = gaussian(49, 30)
    alphas, coverage = calibration.tarp(samples, theta, np.random.default_rng(1), alphas=[0.3, 0.6])
    unit = samples.std((0, 1))
    points = theta[(np.arange(30) + np.random.default_rng(1).integers(1, 30, 30)) % 30]
    inside = np.zeros(2)
    for i in range(30):
        to_draws = np.linalg.norm((samples[:, i] - points[i]) / unit, axis=1)
        to_theta = np.linalg.norm((theta[i] - points[i]) / unit)
        inside += (np.sum(to_draws < to_theta) + 0.5) / 50 <= alphas
    assert np.allclose(coverage, inside / 30)
    again = calibration.tarp(samples, theta, np.random.default_rng(1), alphas=[0.3, 0.6])[1]
    assert np.array_equal(coverage, again)


def test_tarp_takes_events_of_any_shape():
    rng = np.random.default_rng(0)
    samples, theta = rng.normal(size=(19, 40, 2, 3)), rng.normal(size=(40, 2, 3))
    flat = calibration.tarp(samples.reshape(19, 40, 6), theta.reshape(40, 6), np.random.default_rng(1))[1]
    assert np.array_equal(calibration.tarp(samples, theta, np.random.default_rng(1))[1], flat)


# -- invalid arguments


def test_wrong_draws_are_refused_with_their_shapes():
    for check in (calibration.sbc_ranks, calibration.expected_coverage):
        with pytest.raises(InputError, match=r"got \(9, 4, 2\) and \(5, 2\)"):
            check(np.zeros((9, 4, 2)), np.zeros((5, 2)))
        with pytest.raises(InputError, match=r"got \(0, 5, 2\)"):
            check(np.zeros((0, 5, 2)), np.zeros((5, 2)))
        with pytest.raises(InputError, match="must not be NaN, got 90 and 0 NaN values"):
            check(np.full((9, 5, 2), np.nan), np.zeros((5, 2)))


def test_wrong_ranks_bins_and_levels_are_refused():
    with pytest.raises(InputError, match="integers from 0 to 9, got int64 from 0 to 12"):
        calibration.sbc_p_values(np.array([0, 12]), 9)
    with pytest.raises(InputError, match="got float64"):
        calibration.rank_histogram(np.array([0.5]), 9)
    with pytest.raises(InputError, match=r"between 1 and num_samples \+ 1 = 10, got 20"):
        calibration.rank_histogram(np.array([1]), 9, bins=20)
    with pytest.raises(InputError, match=r"'alphas' must lie in \[0, 1\], got 0.5 to 1.5"):
        calibration.coverage_band(10, [0.5, 1.5])
    for band in (lambda: calibration.rank_band(0, 20), lambda: calibration.ecdf_band(10, level=1.0)):
        with pytest.raises(InputError, match=r"at least 1, got 0|lie in \(0, 1\), got 1.0"):
            band()


def test_tarp_holds_for_exact_draws_in_many_dimensions_with_few_rows():
    rng = np.random.default_rng(0)
    alphas, coverage = calibration.tarp(rng.normal(size=(99, 60, 500)), rng.normal(size=(60, 500)), rng)
    assert np.abs(coverage - alphas).max() < 0.21  # the 99 % limit of Kolmogorov and Smirnov for 60 rows
