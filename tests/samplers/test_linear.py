"""A sampler around a linear regression."""

import math

import numpy as np
import pytest
import torch

import propersbi as ps
from propersbi.networks import MLPGenerator
from propersbi.samplers import Bounds, LinearResidual, Sampler
from propersbi.samplers.refined import Refined


class Nothing(Sampler):
    """Draws no residual at all."""

    def __init__(self, dim, features):
        super().__init__()
        self.theta_shape, self.x_shape = (dim,), (features,)

    def sample(self, m, x):
        return torch.zeros(m, len(x), *self.theta_shape)


def residual_of(sampler, theta, x, bounds=None):
    residual = LinearResidual(sampler)
    residual.prepare(theta, x, bounds or Bounds.none(theta.shape[1]))
    return residual


def linear(n, features, dim=2, noise=0.5, seed=0):
    generator = torch.Generator().manual_seed(seed)
    slope = torch.randn(features, dim, generator=torch.Generator().manual_seed(9)) / math.sqrt(features)
    x = torch.randn(n, features, generator=generator)
    return x @ slope + 1 + noise * torch.randn(n, dim, generator=generator), x, slope


def test_the_regression_is_found():
    theta, x, slope = linear(20_000, 3)
    residual = residual_of(Nothing(2, 3), theta, x)
    torch.testing.assert_close(residual.slope, slope, atol=0.02, rtol=0)
    torch.testing.assert_close(residual.shift, torch.ones(2), atol=0.02, rtol=0)
    torch.testing.assert_close(residual.scale, torch.full((2,), 0.5), atol=0.02, rtol=0)
    torch.testing.assert_close(residual.sample(1, x)[0], x @ slope + 1, atol=0.1, rtol=0)


def test_the_target_is_the_standardised_residual():
    theta, x, _ = linear(5000, 3)
    _, target = residual_of(Nothing(2, 3), theta, x).training_pair(2, theta, x)
    assert target.mean(0).abs().max() < 1e-3
    assert (target.std(0) - 1).abs().max() < 0.01


def test_many_useless_features_do_no_harm():
    """Cross-validation holds the regression back where it has nothing to say."""
    generator = torch.Generator().manual_seed(1)
    theta, x = torch.randn(200, 2, generator=generator), torch.randn(200, 90, generator=generator)
    guess = residual_of(Nothing(2, 90), theta, x).sample(1, torch.randn(1000, 90, generator=generator))[0]
    assert guess.std() < 0.3


def test_repeated_and_constant_features_are_allowed():
    theta, x, _ = linear(300, 2)
    x = torch.cat([x, x, torch.zeros(300, 1)], 1)
    residual = residual_of(Nothing(2, 5), theta, x)
    assert torch.isfinite(residual.slope).all()
    assert (residual.sample(1, x)[0] - theta).std() < 0.55


def test_an_untrained_chain_is_the_linear_gaussian_posterior():
    """What is linear and Gaussian needs no training, only the regression."""
    theta, x, slope = linear(5000, 3)
    chain = Refined(MLPGenerator((2,), (3,), width=16, chain=True))
    draws = residual_of(chain, theta, x).eval().sample(20_000, torch.ones(1, 3))[:, 0]
    torch.testing.assert_close(draws.mean(0), slope.sum(0) + 1, atol=0.05, rtol=0)
    torch.testing.assert_close(draws.T.cov(), 0.25 * torch.eye(2), atol=0.02, rtol=0)


def test_a_step_is_conditioned_on_bounds_relative_to_the_regression():
    theta, x, _ = linear(500, 3)
    lower, upper = torch.tensor([-2.0, -math.inf]), torch.tensor([4.0, 5.0])
    chain = Refined(MLPGenerator((2,), (3,), width=16, chain=True))
    residual = residual_of(chain, theta, x, Bounds(lower, upper))
    network = residual.sampler.generator
    guess = x @ residual.slope + residual.shift
    for end, bound in ((lower, network.lower), (upper, network.upper)):
        moved = (bound + x @ network.tilt) * residual.scale + guess
        torch.testing.assert_close(moved[:, end.isfinite()], end[end.isfinite()].expand(len(x), -1), atol=1e-4, rtol=0)
    assert network.lower[1] < -1e5


def test_fit_uses_it_for_vectors_and_keeps_it_when_saved(tmp_path):
    rng = np.random.default_rng(0)
    theta = rng.normal(size=(100, 2))
    x = theta + rng.normal(size=(100, 2))
    posterior = ps.fit(theta, x, max_steps=2, progress=False)
    assert isinstance(posterior.sampler.sampler, LinearResidual)
    posterior.save(tmp_path / "p")
    loaded = ps.Posterior.load(tmp_path / "p")
    assert torch.equal(loaded.sample((5,), x=x[0], seed=1), posterior.sample((5,), x=x[0], seed=1))
    assert loaded.sample((5,), x=x[0], refinement_steps=2).shape == (5, 2)


def test_a_generator_of_many_inputs_can_be_inside():
    theta, x, _ = linear(50, 1500)
    sampler = residual_of(Refined(MLPGenerator((2,), (1500,), width=8, chain=True)), theta, x)
    assert sampler.sample(2, x[:3]).shape == (2, 3, 2)


@pytest.mark.parametrize(
    ("theta_shape", "x_shape", "options"),
    [
        ((2,), (60,), {}),  # hardly more rows than features
        ((2, 2), (2,), {}),  # a field
        ((2,), (2,), {"refinement_steps": 1}),
        ((2,), (2,), {"network": MLPGenerator((2,), (2,), width=16, chain=True)}),  # as it was given
    ],
)
def test_fit_leaves_it_where_it_does_not_fit(theta_shape, x_shape, options):
    rng = np.random.default_rng(0)
    theta, x = rng.normal(size=(100, *theta_shape)), rng.normal(size=(100, *x_shape))
    assert not isinstance(ps.fit(theta, x, max_steps=2, progress=False, **options).sampler.sampler, LinearResidual)
