"""The tasks: their definitions, and that their posterior samplers are exact."""

import dataclasses
import json
import math
import pickle
import subprocess
import sys

import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.stats import kstest, lognorm, multivariate_normal, multivariate_t, norm, truncnorm

from propersbi import tasks
from propersbi.metrics.calibration import sbc_p_values, sbc_ranks
from propersbi.metrics.scores import calibration_error, energy_score, energy_skill, nrmse, r2
from propersbi.samplers import Box, support_of
from propersbi.tasks import bernoulli_glm, lotka_volterra, sir, slcp, slcp_distractors, two_moons
from propersbi.tasks.populations import integrate_logarithms
from propersbi.tasks.priors import BoxUniform, Gaussian, LogNormal
from propersbi.tasks.reference.truncation import log_mass_between
from propersbi.types import InputError

CALIBRATION_PAIRS = {"bernoulli_glm": 150, "bernoulli_glm_raw": 60, "lotka_volterra": 10, "sir": 20}
CALIBRATION_PAIRS |= {"slcp_distractors": 100}
"""The number of posteriors sampled to check calibration, where sampling is slow."""

every_task = pytest.mark.parametrize("name", tasks.names())
SLOW = {"shallow_water"}  # its chains are tested separately
every_reference = pytest.mark.parametrize(
    "name", [name for name in tasks.names() if tasks.get(name).posterior and name not in SLOW]
)


def pairs(task, n, seed):
    rng = np.random.default_rng(seed)
    theta = task.prior.sample(n, rng)
    return theta, task.simulate(theta, rng), rng


def posterior_draws(task, m, x, rng):
    return np.stack([task.reference_posterior(row, m, rng) for row in x], axis=1)


# -- every task


@every_task
def test_shapes_and_determinism(name):
    task = tasks.get(name)
    theta, x, _ = pairs(task, 50, seed=3)
    again, x_again, _ = pairs(task, 50, seed=3)
    assert theta.shape == (50, *task.theta_shape)
    assert x.shape == (50, *task.x_shape)
    assert len(task.parameter_names) == math.prod(task.theta_shape)
    assert np.array_equal(theta, again)
    assert np.array_equal(x, x_again)


@every_reference
def test_the_reference_is_deterministic_and_in_the_support_of_the_prior(name):
    task = tasks.get(name)
    _, x, _ = pairs(task, 50, seed=3)
    first, second = (task.reference_posterior(x[0], 500, np.random.default_rng(1)) for _ in range(2))
    assert np.array_equal(first, second)
    assert len(np.unique(first, axis=0)) == 500
    assert np.all(np.isfinite(task.prior.log_prob(first)))


@every_task
def test_ten_observations(name):
    task = tasks.get(name)
    for i in range(1, 11):
        assert task.observation(i).shape == task.x_shape
        truth = task.true_parameters(i)
        assert truth.shape == task.theta_shape
        assert not hasattr(task.prior, "log_prob") or np.isfinite(task.prior.log_prob(truth[None])).all()
        assert np.array_equal(task.observation(i), task.observation(i))
    for i in (0, 11, 1.5):
        with pytest.raises(InputError, match=f"from 1 to 10, got {i}"):
            task.observation(i)


@every_task
def test_simulator_refuses_wrong_parameters(name):
    task = tasks.get(name)
    with pytest.raises(InputError, match=r"must have shape \(n, \d+(, \d+)?\), got \(3, 7\)"):
        task.simulate(np.zeros((3, 7)), np.random.default_rng(0))
    with pytest.raises(InputError, match=r"got \(\)"):
        task.simulate(0.0, np.random.default_rng(0))


@every_reference
def test_reference_refuses_what_is_not_one_observation(name):
    task, rng = tasks.get(name), np.random.default_rng(0)
    for x in (np.zeros(3), np.zeros((2, *task.x_shape)), np.full(task.x_shape, np.nan)):
        with pytest.raises(InputError, match="one finite observation"):
            task.reference_posterior(x, 10, rng)
    with pytest.raises(InputError, match="'n' must be at least 1, got 0"):
        task.reference_posterior(task.observation(1), 0, rng)
    assert task.reference_posterior(task.observation(1)[None], 10, rng).shape == (10, *task.theta_shape)


@every_reference
def test_reference_passes_sbc(name):
    task = tasks.get(name)
    theta, x, rng = pairs(task, CALIBRATION_PAIRS.get(name, 400), seed=11)
    samples = posterior_draws(task, 99, x, rng)
    assert sbc_p_values(sbc_ranks(samples, theta), 99).min() > 0.005
    # Magnitudes as well: some tasks are symmetric in the sign.
    assert sbc_p_values(sbc_ranks(np.abs(samples), np.abs(theta)), 99).min() > 0.005


@every_task
def test_a_task_can_be_sent_to_a_worker(name):
    task = pickle.loads(pickle.dumps(tasks.get(name)))
    assert task.simulate(task.prior.sample(4, np.random.default_rng(0)), np.random.default_rng(0)).shape[0] == 4


def test_unknown_task_suggests_the_nearest():
    with pytest.raises(InputError, match=r"no task 'slpc'; did you mean 'slcp'\? There are: .*slcp, .*two_moons\."):
        tasks.get("slpc")
    with pytest.raises(InputError, match=r"no task 'zzz'; there are: .*slcp, .*two_moons\."):
        tasks.get("zzz")


def test_a_task_without_a_reference_posterior_is_reported():
    task = tasks.get("two_moons")
    without = dataclasses.replace(task, name="plain", posterior=None)
    with pytest.raises(InputError, match="posterior of plain cannot be sampled"):
        without.reference_posterior(np.zeros(2), 1, np.random.default_rng(0))


def test_tasks_do_not_load_torch():
    code = "import sys; from propersbi import tasks; [tasks.get(n) for n in tasks.names()]; print(sorted(sys.modules))"
    modules = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert "'numpy'" in modules
    assert "'torch'" not in modules
    assert "'sklearn'" not in modules


# -- priors


def test_box_uniform():
    prior = BoxUniform([-1, 0], [1, 5])
    draws = prior.sample(20_000, np.random.default_rng(0))
    assert np.allclose(draws.mean(0), [0, 2.5], atol=0.05)
    assert np.allclose(prior.log_prob(draws), -np.log(10))
    assert np.array_equal(prior.log_prob([[0, 5.1], [-1.1, 1]]), [-np.inf, -np.inf])
    with pytest.raises(ValueError, match="read-only"):
        prior.lower[0] = 3
    with pytest.raises(InputError, match="below 'upper'"):
        BoxUniform([0, 1], [1, 1])


def test_gaussian_prior():
    covariance = np.array([[2.0, 0.9], [0.9, 1.0]])
    prior = Gaussian([1, -1], covariance)
    draws = prior.sample(20_000, np.random.default_rng(0))
    assert np.allclose(draws.mean(0), [1, -1], atol=0.05)
    assert np.allclose(np.cov(draws.T), covariance, atol=0.05)
    assert np.allclose(prior.log_prob(draws), multivariate_normal([1, -1], covariance).logpdf(draws))
    assert support_of(prior) == Box()
    with pytest.raises(InputError, match=r"'mean' of shape \(2,\) does not fit a covariance of \(3, 3\)"):
        Gaussian([0, 0], np.eye(3))
    for wrong in ([[1, 2], [0, 1]], [[1, 2], [2, 1]]):
        with pytest.raises(InputError, match="symmetric and positive definite"):
            Gaussian([0, 0], wrong)


def test_log_normal_prior():
    prior = LogNormal([0.5, -3], [0.5, 0.2])
    draws = prior.sample(20_000, np.random.default_rng(0))
    assert np.allclose(np.log(draws).mean(0), [0.5, -3], atol=0.02)
    assert np.allclose(np.log(draws).std(0), [0.5, 0.2], atol=0.02)
    assert np.allclose(prior.log_prob(draws), lognorm([0.5, 0.2], scale=np.exp([0.5, -3])).logpdf(draws).sum(1))
    assert np.array_equal(prior.log_prob([[0, 1], [1, -1]]), [-np.inf, -np.inf])
    assert support_of(prior) == Box(lower=0.0)
    with pytest.raises(InputError, match="'scale' positive"):
        LogNormal([0, 0], [1, 0])


# -- Bernoulli GLM


def test_glm_design_contains_the_stimulus_and_its_lags():
    stimulus = np.random.RandomState(42).randn(100)
    assert bernoulli_glm.DESIGN.shape == (100, 10)
    assert np.array_equal(bernoulli_glm.DESIGN[0], [1, stimulus[0], *[0] * 8])
    assert np.array_equal(bernoulli_glm.DESIGN[50], [1, *stimulus[50:41:-1]])
    assert stimulus[:3] == pytest.approx([0.49671, -0.13826, 0.64769], abs=1e-5)


def test_glm_prior_is_smooth():
    covariance = tasks.get("bernoulli_glm").prior.covariance
    assert covariance[0] == pytest.approx([2, *[0] * 9])
    precision = np.linalg.inv(covariance)[1:, 1:]
    bump = np.array([0, 0, 0, 1, 1, 1, 0, 0, 0])
    # D^2 takes second differences of what is zero before the first tap.
    second = np.convolve(bump, [1, -2, 1])[:9] + np.sqrt(np.arange(9) / 9) * bump
    assert bump @ precision @ bump == pytest.approx(second @ second)


def test_glm_data_have_their_expectation():
    task = tasks.get("bernoulli_glm")
    theta = task.true_parameters(1)
    x = task.simulate(np.repeat(theta[None], 20_000, axis=0), np.random.default_rng(0))
    probability = 1 / (1 + np.exp(-bernoulli_glm.DESIGN @ theta))
    error = np.sqrt((probability * (1 - probability)) @ bernoulli_glm.DESIGN**2)
    assert np.all(np.abs(x.mean(0) - probability @ bernoulli_glm.DESIGN) < 4 * error / np.sqrt(20_000))
    assert np.all(np.abs(task.observation(1) - probability @ bernoulli_glm.DESIGN) < 4 * error)


@pytest.mark.parametrize("spikes", [np.zeros(100), np.ones(100), np.arange(100) % 3 == 0])
def test_glm_posterior_has_a_score_of_mean_zero(spikes):
    """The expectation of the gradient of a log density is zero, and that of its products with theta is minus one."""
    x = spikes @ bernoulli_glm.DESIGN
    theta = tasks.get("bernoulli_glm").reference_posterior(x, 2500, np.random.default_rng(0))
    probability = 1 / (1 + np.exp(-theta @ bernoulli_glm.DESIGN.T))
    score = x - probability @ bernoulli_glm.DESIGN - theta @ bernoulli_glm.PRECISION
    for values in (score, score * theta + 1, score * theta**2 + 2 * theta):
        assert np.all(np.abs(values.mean(0)) < 4 * values.std(0) / 50)


def test_glm_impossible_observation():
    with pytest.raises(InputError, match="impossible under this task: no spike train has the summaries"):
        tasks.get("bernoulli_glm").reference_posterior(np.full(10, 101.0), 10, np.random.default_rng(0))


@pytest.mark.parametrize("i", [1, 10])
def test_raw_spikes_have_the_sums_and_the_posterior_of_the_glm(i):
    sums, raw = tasks.get("bernoulli_glm"), tasks.get("bernoulli_glm_raw")
    np.testing.assert_allclose(raw.observation(i) @ bernoulli_glm.DESIGN, sums.observation(i), atol=1e-4)
    assert np.array_equal(raw.true_parameters(i), sums.true_parameters(i))
    draws = [task.reference_posterior(task.observation(i), 20, np.random.default_rng(0)) for task in (sums, raw)]
    np.testing.assert_allclose(*draws, atol=1e-3)
    with pytest.raises(InputError, match="0 or 1"):
        raw.reference_posterior(np.full(100, 0.5), 5, np.random.default_rng(0))


# -- Gaussian tasks


def test_gaussian_linear_posterior_has_the_known_moments():
    task = tasks.get("gaussian_linear")
    x = task.observation(1)
    draws = task.reference_posterior(x, 20_000, np.random.default_rng(0))
    assert np.allclose(draws.mean(0), x / 2, atol=0.01)
    assert np.allclose(np.cov(draws.T), 0.05 * np.eye(10), atol=0.002)


@pytest.mark.parametrize("shift", [0.0, 0.9, -3.0, 50.0])
def test_gaussian_linear_uniform_posterior_has_the_known_quantiles(shift):
    x = np.linspace(-0.3, 0.3, 10) + shift
    draws = tasks.get("gaussian_linear_uniform").reference_posterior(x, 2000, np.random.default_rng(1))
    assert np.abs(draws).max() <= 1
    scale = 0.1**0.5
    exact = truncnorm((-1 - x) / scale, (1 - x) / scale, loc=x, scale=scale)
    assert kstest(exact.cdf(draws).ravel(), "uniform").pvalue > 0.01


def test_gaussian_mixture_chooses_a_component_for_each_row():
    x = tasks.get("gaussian_mixture").simulate(np.ones((20_000, 2)), np.random.default_rng(0)) - 1
    far = np.abs(x) > 0.5  # five standard deviations of the narrow component
    assert far.mean() == pytest.approx(norm.sf(0.5), abs=0.01)
    assert (far[:, 0] & far[:, 1]).mean() == pytest.approx(2 * norm.sf(0.5) ** 2, abs=0.01)  # both, from one choice
    assert x.var() == pytest.approx(0.505, abs=0.02)


@pytest.mark.parametrize("x", [[0.0, 3.0], [-9.95, 9.9], [10.3, 0.0], [13.0, -11.0]])
def test_gaussian_mixture_posterior_agrees_with_a_grid(x):
    draws = tasks.get("gaussian_mixture").reference_posterior(np.array(x), 10_000, np.random.default_rng(0))
    assert np.abs(draws).max() <= 10
    grid = np.linspace(-10, 10, 4001)[:, None]
    wide, narrow = (norm.pdf(grid, x, scale) for scale in (1, 0.1))
    masses = np.array([component.sum(0).prod() for component in (wide, narrow)])
    marginal = sum(m * c / c.sum(0) for m, c in zip(masses / masses.sum(), (wide, narrow), strict=True) if m)
    expected = (marginal * grid).sum(0)
    deviation = np.sqrt((marginal * (grid - expected) ** 2).sum(0))
    assert np.all(np.abs(draws.mean(0) - expected) < 4 * deviation / 100 + 0.005)
    assert np.allclose(draws.std(0), deviation, rtol=0.05)


def test_masses_between_bounds_are_accurate_in_the_tails():
    for lower, upper in ((-1, 2), (-5, -4), (3, 40), (29.9, 50), (30.1, 50), (-90, -60)):
        expected = truncnorm(lower, upper).logpdf(lower)  # = log pdf - log mass
        assert log_mass_between(lower, upper, 0, 1) == pytest.approx(norm.logpdf(lower) - expected, rel=1e-9)
        assert log_mass_between(lower * 2 + 1, upper * 2 + 1, 1, 2) == log_mass_between(lower, upper, 0, 1)


# -- Two Moons


def test_two_moons_observation_one():
    task = tasks.get("two_moons")
    assert np.allclose(task.observation(1), [-0.63967, 0.16235], atol=1e-5)
    assert np.allclose(task.true_parameters(1), [-0.81767, -0.57568], atol=1e-5)


def test_two_moons_exact_posterior_has_the_known_scores():
    task = tasks.get("two_moons")
    theta, x, rng = pairs(task, 3000, seed=43)
    samples = posterior_draws(task, 500, x, rng)
    assert energy_score(samples[:99], theta).mean() == pytest.approx(0.520, abs=0.015)
    assert r2(samples, theta) == pytest.approx(0.49, abs=0.03)
    assert nrmse(samples, theta) == pytest.approx(0.206, abs=0.006)
    assert calibration_error(samples, theta).max() < 0.02
    assert energy_skill(samples[:99], theta, task.prior.sample(500, rng)) == pytest.approx(0.5, abs=0.02)


def test_two_moons_posterior_has_two_equal_crescents_on_the_ring():
    x = tasks.get("two_moons").observation(1)
    theta = two_moons.reference_posterior(x, 4000, np.random.default_rng(0))
    assert (theta.sum(1) > 0).mean() == pytest.approx(0.5, abs=0.03)
    z0, z1 = np.abs(theta.sum(1)) / np.sqrt(2), (theta[:, 1] - theta[:, 0]) / np.sqrt(2)
    radius = np.hypot(x[0] + z0 - 0.25, x[1] - z1)
    assert radius.mean() == pytest.approx(0.1, abs=0.001)
    assert radius.std() == pytest.approx(0.01, abs=0.001)


def test_two_moons_posterior_is_exact_where_the_crescents_are_truncated():
    """At x_0 = 0.3 part of the noise has no solution; the posterior is then compared with a fine grid."""
    x = np.array([0.3, 0.05])
    draws = two_moons.reference_posterior(x, 20_000, np.random.default_rng(0))
    grid = np.linspace(-0.3, 0.3, 801)
    theta = np.stack(np.meshgrid(grid, grid), axis=-1).reshape(-1, 2)
    p = np.stack([x[0] - 0.25 + np.abs(theta.sum(1)) / 2**0.5, x[1] - (theta[:, 1] - theta[:, 0]) / 2**0.5])
    radius = np.hypot(*p)
    density = (p[0] > 0) * np.exp(-(((radius - 0.1) / 0.01) ** 2) / 2) / radius
    density /= density.sum()
    for statistic in (lambda t: t[:, 0], lambda t: np.abs(t.sum(1)), lambda t: t[:, 1] ** 2):
        values = statistic(theta)
        expected = density @ values
        error = np.sqrt(density @ (values - expected) ** 2 / len(draws))
        assert abs(statistic(draws).mean() - expected) < 4 * error


def test_two_moons_impossible_observation():
    with pytest.raises(InputError, match="impossible, or nearly so, under this task: 0 of 3"):
        tasks.get("two_moons").reference_posterior(np.array([2.0, 0.0]), 10, np.random.default_rng(0))


# -- SIR and Lotka-Volterra


def solve(task, theta, times):
    """The logarithms of both populations, integrated by SciPy."""
    if task == "sir":
        (beta, gamma), start = theta, [1 - 1e-6, 1e-6]
        rates = lambda t, u: [-beta * np.exp(u[1]), beta * np.exp(u[0]) - gamma]  # noqa: E731
    else:
        (alpha, beta, gamma, delta), start = theta, [30, 1]
        rates = lambda t, u: [alpha - beta * np.exp(u[1]), delta * np.exp(u[0]) - gamma]  # noqa: E731
    return solve_ivp(rates, (0, times[-1]), np.log(start), "DOP853", times, rtol=1e-9, atol=1e-9).y


def test_sir_agrees_with_scipy():
    theta = tasks.get("sir").prior.sample(30, np.random.default_rng(0))
    ours = sir.log_infected(theta)
    assert np.allclose(ours, [solve("sir", row, np.arange(0, 154, 17))[1] for row in theta], rtol=0, atol=1e-5)


def test_lotka_volterra_agrees_with_scipy():
    theta = tasks.get("lotka_volterra").prior.sample(30, np.random.default_rng(0))
    ours = lotka_volterra.log_populations(theta)
    saved = np.arange(201)[::21] / 10
    theirs = [solve("lotka_volterra", row, saved).ravel() for row in theta]
    assert np.allclose(ours, np.clip(theirs, np.log(1e-10), np.log(1e4)), rtol=0, atol=1e-4)


def test_diverging_populations_become_nan():
    growth, coupling = np.array([[400.0, 1.0], [1.0, -1.0]]), np.array([[1.0, 0.0], [1.0, 0.0]])
    logs = integrate_logarithms(growth, coupling, np.array([1.0, 1.0]), np.array([0.0, 10.0, 20.0]))
    assert np.isnan(logs[:, 1:, 0]).all()
    assert logs[:, :, 1] == pytest.approx(np.array([[0, 10, 20], [0, -10, -20]]))
    x = tasks.get("sir").simulate(np.array([[1e300, 0.2], [0.6, 0.2]]), np.random.default_rng(0))
    assert np.isfinite(x).tolist() == [[True] + 9 * [False], 10 * [True]]


def test_sir_observations_are_typical_of_their_parameters():
    task = tasks.get("sir")
    share = np.exp(sir.log_infected(np.stack([task.true_parameters(i) for i in range(1, 11)])))
    x = np.stack([task.observation(i) for i in range(1, 11)])
    errors = (x - 1000 * share) / np.sqrt(1000 * share * (1 - share) + 1)
    assert np.abs(errors).max() < 4
    assert 0.3 < (errors[share > 0.01] ** 2).mean() < 2


def test_lotka_volterra_observations_are_typical_of_their_parameters():
    task = tasks.get("lotka_volterra")
    logs = lotka_volterra.log_populations(np.stack([task.true_parameters(i) for i in range(1, 11)]))
    errors = np.log([task.observation(i) for i in range(1, 11)]) - logs
    assert errors.std() == pytest.approx(0.1, abs=0.015)
    assert abs(errors.mean()) < 0.03


@pytest.mark.parametrize("x", [[0, 1, 352, 40, 3, 0, 0, 0, 0, 0], [0] * 10, [0, 441, 42, 5, 0, 0, 0, 0, 0, 0]])
def test_sir_posterior_agrees_with_a_grid(x):
    """The second is flat, truncated where the epidemic would be visible; the third has two modes."""
    draws = np.log(tasks.get("sir").reference_posterior(np.array(x), 2500, np.random.default_rng(0)))
    centre, deviation = np.log([0.4, 0.125]), np.array([0.5, 0.2])
    lower, upper = draws.min(0) - 0.1 * np.ptp(draws, 0), draws.max(0) + 0.1 * np.ptp(draws, 0)
    grid = np.stack(np.meshgrid(*np.linspace(lower, upper, 150).T), axis=-1).reshape(-1, 2)
    log_share = sir.log_infected(np.exp(grid))
    density = (x * log_share + (1000 - np.array(x)) * np.log1p(-np.exp(log_share))).sum(1)
    density -= 0.5 * (((grid - centre) / deviation) ** 2).sum(1)
    density = np.exp(density - density.max())
    density /= density.sum()
    for power in (1, 2):
        expected = density @ grid**power
        error = np.sqrt(density @ (grid**power - expected) ** 2 / len(draws))
        assert np.all(np.abs((draws**power).mean(0) - expected) < 4 * error)


def test_lotka_volterra_posterior_has_a_score_of_mean_zero():
    """As for the GLM, with gradients by differences and in the coordinates of a standard normal prior."""
    task, rng = tasks.get("lotka_volterra"), np.random.default_rng(0)
    x = task.observation(1)
    z = (np.log(task.reference_posterior(x, 1000, rng)) - task.prior.loc) / 0.5
    for j, step in enumerate(1e-4 * np.eye(4)):
        ends = [lotka_volterra.log_populations(task.prior.from_normal(z + sign * step)) for sign in (-1, 1)]
        likelihood = [-50 * ((np.log(x) - end) ** 2).sum(1) for end in ends]
        score = (likelihood[1] - likelihood[0]) / 2e-4 - z[:, j]
        for values in (score, score * (z[:, j] - z[:, j].mean()) + 1):
            assert abs(values.mean()) < 4 * values.std() / np.sqrt(len(z))


def test_impossible_epidemics_and_populations():
    rng = np.random.default_rng(0)
    for x in ([-1.0, *[0.0] * 9], [0.5] * 10, [1001.0] * 10):
        with pytest.raises(InputError, match="impossible under this task: counts are from 0 to 1000"):
            tasks.get("sir").reference_posterior(np.array(x), 10, rng)
    with pytest.raises(InputError, match="impossible under this task: not all values are positive"):
        tasks.get("lotka_volterra").reference_posterior(np.zeros(20), 10, rng)


# -- SLCP


def log_likelihood(theta, x):
    """The definition, with matrices."""
    s1, s2, rho = theta[:, 2] ** 2, theta[:, 3] ** 2, np.tanh(theta[:, 4])
    covariance = np.stack([s1**2, rho * s1 * s2, rho * s1 * s2, s2**2], axis=1).reshape(-1, 2, 2) + 1e-6 * np.eye(2)
    offset = x.reshape(4, 2) - theta[:, None, :2]
    distance = np.einsum("nki,nij,nkj->n", offset, np.linalg.inv(covariance), offset)
    return -distance / 2 - 2 * np.linalg.slogdet(covariance)[1]


def assert_same_moments(draws, theta, x):
    """Exact draws against importance sampling of uniform proposals ``theta``, to four standard errors."""
    weight = log_likelihood(theta, x)
    weight = np.exp(weight - weight.max())
    weight /= weight.sum()
    assert 1 / (weight**2).sum() > 500
    for power in (1, 2):
        ours, values = np.abs(draws) ** power, np.abs(theta) ** power
        expected = weight @ values
        variance = weight**2 @ (values - expected) ** 2 + ours.var(0) / len(ours)
        assert np.all(np.abs(ours.mean(0) - expected) < 4 * np.sqrt(variance))


def test_slcp_simulator_has_the_moments_of_its_parameters():
    theta = np.array([[0.5, -1.0, 1.2, -0.8, 0.6]])
    x = slcp.simulate(np.repeat(theta, 100_000, axis=0), np.random.default_rng(0)).reshape(-1, 2)
    s1, s2, rho = 1.2**2, 0.8**2, np.tanh(0.6)
    assert np.allclose(x.mean(0), [0.5, -1.0], atol=0.01)
    assert np.allclose(np.cov(x.T), [[s1**2, rho * s1 * s2], [rho * s1 * s2, s2**2]], rtol=0.02)


@pytest.mark.parametrize("i", [3, 5])
def test_slcp_posterior_agrees_with_brute_force(i):
    x, rng = tasks.get("slcp").observation(i), np.random.default_rng(i)
    assert_same_moments(slcp.reference_posterior(x, 5000, rng), rng.uniform(-3, 3, (300_000, 5)), x)


def test_slcp_posterior_agrees_with_brute_force_where_the_scale_is_thin():
    """theta_3 near zero: there the 1e-6 on the diagonal matters. Compared inside a box, as brute force needs one."""
    x = slcp.simulate(np.array([[0.5, 0.5, 0.06, 0.5, 0.3]]), np.random.default_rng(3))[0]
    rng = np.random.default_rng(0)
    lower, upper = (
        np.array([*x.reshape(4, 2).mean(0), 0, 0, 0]) + sign * np.array([0.02, 0.6, 0.3, 1.2, 3]) for sign in (-1, 1)
    )
    draws = slcp.reference_posterior(x, 8000, rng)
    inside = BoxUniform(lower, upper).contains(draws)
    assert inside.mean() > 0.9
    assert (np.abs(draws[:, 2]) < 0.125).mean() > 0.5
    assert_same_moments(draws[inside], rng.uniform(lower, upper, (300_000, 5)), x)


def test_slcp_posterior_agrees_with_brute_force_where_the_points_are_nearly_collinear():
    x = np.array([-1.5, -1.5, 0.0, 0.001, 0.5, 0.499, 1.5, 1.501]) * 3
    rng = np.random.default_rng(0)
    theta = rng.uniform([-3, -3, 1, 1, 1.5], [3, 3, 3, 3, 3], (300_000, 5))
    draws = slcp.reference_posterior(x, 5000, rng)
    inside = (np.abs(draws[:, 2:4]) > 1).all(1) & (draws[:, 4] > 1.5)
    assert inside.mean() > 0.9
    assert_same_moments(draws[inside], theta, x)


def test_slcp_signs_of_scales_are_equally_likely():
    draws = slcp.reference_posterior(tasks.get("slcp").observation(1), 4000, np.random.default_rng(0))
    modes = (draws[:, 2] > 0) * 2 + (draws[:, 3] > 0)
    assert np.all(np.abs(np.bincount(modes, minlength=4) / 4000 - 0.25) < 0.03)


def test_slcp_points_that_agree_in_a_coordinate_are_refused():
    with pytest.raises(InputError, match="must differ in both coordinates"):
        tasks.get("slcp").reference_posterior(np.array([1.0, 0, 1, 1, 1, 2, 1, 3]), 10, np.random.default_rng(0))


# -- SLCP with distractors


@pytest.mark.parametrize("i", range(1, 11))
def test_distractors_hide_the_observations_of_slcp(i):
    task, plain = tasks.get("slcp_distractors"), tasks.get("slcp")
    assert np.array_equal(slcp_distractors.find(task.observation(i)), plain.observation(i))
    assert np.array_equal(task.true_parameters(i), plain.true_parameters(i))


def test_the_posterior_does_not_depend_on_the_distractors():
    x = tasks.get("slcp").observation(1)
    noise = np.random.default_rng(3).standard_cauchy((2, 92))
    first, second = slcp_distractors.hide(np.stack([x, x]), noise)
    draws = [slcp_distractors.reference_posterior(row, 50, np.random.default_rng(0)) for row in (first, second)]
    assert np.array_equal(*draws)
    assert np.array_equal(draws[0], slcp.reference_posterior(x, 50, np.random.default_rng(0)))


def test_distractors_have_the_scale_of_their_mixture():
    """Against the same mixture drawn one component at a time; quantiles, as the distributions have no variance."""
    theta = np.ones((20_000, 5))
    x = tasks.get("slcp_distractors").simulate(theta, np.random.default_rng(0))
    locations, roots, permutation = slcp_distractors._constants()
    distractors = x[:, permutation.argsort()][:, 8:]
    t = multivariate_t(np.zeros(92), df=2, seed=1).rvs(1000)
    expected = np.concatenate([m + t @ root.T for m, root in zip(locations, roots, strict=True)])
    for level in (0.25, 0.5, 0.75):
        assert np.allclose(np.quantile(distractors, level, axis=0), np.quantile(expected, level, axis=0), atol=3)


def test_observations_state_their_origin_and_licence():
    from importlib.resources import files

    folder = files("propersbi.tasks")
    assert "sbibm 1.1.0" in json.loads(folder.joinpath("observations.json").read_text(encoding="utf-8"))["origin"]
    assert "Permission is hereby granted" in folder.joinpath("observations.LICENSE.txt").read_text(encoding="utf-8")
