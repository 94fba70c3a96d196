"""Steps that start as truncated normal distributions."""

import numpy as np
import pytest
import scipy.stats as st
import torch

import propersbi as ps
from propersbi.networks import MLPGenerator
from propersbi.samplers import LinearResidual, Refined
from propersbi.samplers.bounds import Bounds
from propersbi.samplers.truncated import fit_truncated, truncate

INTERVALS = [(-1.0, 1.0), (0.0, 30.0), (3.0, 4.0), (7.5, 20.0), (-30.0, -7.0), (-20.0, 2.0), (-4.9, 4.9), (-6.0, 4.0)]


def spread(value, like):
    return torch.full_like(like, value)


@pytest.mark.parametrize(("low", "high"), INTERVALS)
def test_quantiles_become_those_of_the_truncated_normal(low, high):
    v = torch.linspace(-4, 4, 81).reshape(-1, 1, 1)
    one = torch.ones(1, 1)
    draws = truncate(v, 0 * one, one, low * one, high * one).flatten().numpy()
    exact = st.truncnorm.ppf(st.norm.cdf(v.double().flatten().numpy()), low, high)
    np.testing.assert_allclose(draws, exact, atol=2e-3)
    assert ((draws >= np.float32(low)) & (draws <= np.float32(high))).all()


@pytest.mark.parametrize(("low", "high"), INTERVALS)
def test_gradients_are_slopes(low, high):
    v = torch.linspace(-3, 3, 13, dtype=torch.float64).reshape(-1, 1, 1).requires_grad_()
    one = torch.ones(1, 1, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda v: truncate(v, 0 * one, one, low * one, high * one), v, atol=1e-4)


def test_a_mean_far_outside_the_bounds_gives_draws_next_to_them():
    v, one = torch.randn(1000, 1, 1), torch.ones(1, 1)
    draws = truncate(v, 1e4 * one, one, 0 * one, one)
    assert draws.isfinite().all()
    assert (draws <= 1).all()
    assert draws.min() > 0


def uniform_pairs(n=4000):
    """theta uniform on (-1, 1), x = theta + noise, as standardised residuals of the least-squares line."""
    rng = np.random.default_rng(0)
    theta = rng.uniform(-1, 1, (n, 1))
    x = theta + 0.3 * rng.normal(size=(n, 1))
    return torch.as_tensor(theta), torch.as_tensor(x)


def test_the_regression_with_truncated_errors_finds_the_likelihood():
    """Between its bounds the posterior is N(x, 0.3^2): least squares shrinks its mean, maximum likelihood does not."""
    theta, x = uniform_pairs()
    scale = theta.std()
    bounds = [spread(end, theta) / scale for end in (-1.0, 1.0)]
    slope, shift, sigma, described = fit_truncated(theta / scale, x, *bounds)
    assert described.all()
    assert abs(slope.item() * scale - 1) < 0.05
    assert abs(shift.item()) < 0.03
    assert abs(sigma.item() * scale - 0.3) < 0.02


def test_what_does_not_predict_better_is_not_used():
    rng = np.random.default_rng(0)
    theta, x = torch.as_tensor(rng.normal(size=(60, 2))), torch.as_tensor(rng.normal(size=(60, 40)))
    slope, shift, sigma, described = fit_truncated(theta, x, spread(-9.0, theta), spread(9.0, theta))
    assert not described.any()
    assert (slope == 0).all()
    assert (shift == 0).all()
    assert (sigma == 1).all()


def test_a_regression_that_is_flat_between_the_bounds_is_not_used():
    """The sign of theta is lost: the regression sees a flat distribution, the posterior has two modes."""
    rng = np.random.default_rng(0)
    theta = torch.as_tensor(rng.uniform(-1, 1, (2000, 1))) / 3**-0.5
    *_, described = fit_truncated(theta, theta.abs(), spread(-(3**0.5), theta), spread(3**0.5, theta))
    assert not described.any()


def test_before_training_a_chain_draws_the_truncated_regression():
    theta, x = (part.float() for part in uniform_pairs())
    sampler = LinearResidual(Refined(MLPGenerator((1,), (1,), chain=True, width=16), truncated=True))
    sampler.prepare(theta, x, Bounds(torch.tensor([-1.0]), torch.tensor([1.0])))
    for observed in (-1.2, 0.0, 0.9):
        draws = sampler.sample(4000, torch.tensor([[observed]])).flatten().detach().numpy()
        exact = st.truncnorm((-1 - observed) / 0.3, (1 - observed) / 0.3, observed, 0.3)
        assert abs(draws).max() <= 1 + 1e-6
        assert st.kstest(draws, exact.cdf).statistic < 0.06


def test_without_bounds_nothing_changes():
    torch.manual_seed(0)
    plain = Refined(MLPGenerator((2,), (3,), chain=True, width=16))
    torch.manual_seed(0)
    truncated = Refined(MLPGenerator((2,), (3,), chain=True, width=16), truncated=True)
    theta, x = torch.randn(50, 2), torch.randn(50, 3)
    for sampler in (plain, truncated):
        sampler.prepare(theta, x, Bounds.none(2))
    draws = []
    for sampler in (plain, truncated):
        torch.manual_seed(1)
        draws.append(sampler.sample(3, x))
    assert torch.equal(*draws)


def test_a_truncated_chain_is_saved(tmp_path):
    theta, x = uniform_pairs(200)
    posterior = ps.fit(theta, x, support=(-1.0, 1.0), max_steps=2, progress=False)
    posterior.save(tmp_path / "posterior")
    again = ps.Posterior.load(tmp_path / "posterior")
    assert torch.equal(posterior.sample((5,), x=[0.3], seed=1), again.sample((5,), x=[0.3], seed=1))
