"""Laws of samplers: of every network and of every wrapper, in several orders."""

import math

import pytest
import torch

from propersbi.samplers import Bounds, DensitySampler, RefinedSampler, Sampler, Standardized
from propersbi.samplers.base import has_density, log_density, refinement_steps_of, sample_with
from propersbi.storage.config import decode, encode
from propersbi.types import InputError
from tests.laws.cases import SAMPLERS, OwnModule, in_a_disc, parameters, prepared
from tests.laws.common import every

SAVED = {name: case for name, case in SAMPLERS.items() if name != "latent corrected"}  # holds functions


def data(sampler, n=4, seed=1):
    generator = torch.Generator().manual_seed(seed)
    theta = parameters(sampler, n, generator)
    return theta, torch.randn(n, *sampler.x_shape, generator=generator)


def trained_shape(sampler):
    """Of what is scored in training: where units change the shape, that of the sampler inside."""
    return tuple(sampler.sampler.theta_shape if isinstance(sampler, Standardized) else sampler.theta_shape)


@every(SAMPLERS)
def test_draws_and_training_pairs_have_their_shapes(case):
    sampler = prepared(case())
    theta, x = data(sampler)
    assert isinstance(sampler, Sampler)
    assert sampler.sample(3, x).shape == (3, 4, *sampler.theta_shape)
    samples, target = sampler.training_pair(3, theta, x)
    assert samples.shape == (3, 4, *trained_shape(sampler))
    assert target.shape == samples.shape[1:]
    assert torch.isfinite(samples).all()


@every(SAMPLERS)
def test_the_seed_decides_the_draws(case):
    sampler = prepared(case()).eval()
    _, x = data(sampler)
    drawn = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        drawn.append(sampler.sample(5, x))
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])


@every(SAMPLERS)
def test_draws_have_gradients_for_every_weight(case):
    sampler = prepared(case()).train()
    theta, x = data(sampler, n=16)
    samples, target = sampler.training_pair(4, theta, x)
    (samples - target).square().mean().backward()
    without = [name for name, weight in sampler.named_parameters() if weight.grad is None]
    assert not without


@every(SAMPLERS)
def test_preparing_again_on_the_same_data_changes_nothing(case):
    sampler = prepared(case())
    before = {name: tensor.clone() for name, tensor in sampler.state_dict().items()}
    prepared(sampler)
    assert all(torch.equal(before[name], tensor) for name, tensor in sampler.state_dict().items())


@every(SAVED)
def test_a_sampler_survives_json_and_weights(case):
    sampler = prepared(case()).eval()
    twin = decode(encode(sampler), {"module": OwnModule(), "support": in_a_disc}).eval()
    twin.load_state_dict(sampler.state_dict())
    _, x = data(sampler)
    torch.manual_seed(0)
    first = sampler.sample(3, x)
    torch.manual_seed(0)
    torch.testing.assert_close(twin.sample(3, x), first, rtol=0, atol=0)


@every(SAMPLERS)
def test_the_number_of_refinement_steps_can_be_changed_where_there_are_several(case):
    sampler = prepared(case()).eval()
    _, x = data(sampler)
    if refinement_steps_of(sampler) == 1:
        with pytest.raises(InputError, match="draws in one pass: it cannot take refinement_steps = 5"):
            sample_with(sampler, 2, x, 5)
        return
    assert isinstance(sampler, RefinedSampler)
    assert sampler.sample(2, x, refinement_steps=5).shape == (2, 4, *sampler.theta_shape)
    with pytest.raises(InputError, match="'refinement_steps' must be a positive whole number, got 0"):
        sampler.sample(2, x, refinement_steps=0)


@every(SAMPLERS)
def test_a_density_is_that_of_the_draws(case):
    """E over draws of q(theta) / q(theta) is the volume it is integrated over: check by importance sampling."""
    sampler = prepared(case()).eval()
    _, x = data(sampler, n=1)
    if not has_density(sampler):
        with pytest.raises(InputError, match="can only be sampled"):
            log_density(sampler, torch.zeros(1, 1, *sampler.theta_shape), x)
        return
    assert isinstance(sampler, DensitySampler)
    torch.manual_seed(0)
    with torch.no_grad():
        center, spread = (moment(sampler.sample(2000, x)[:, 0]) for moment in (lambda t: t.mean(0), lambda t: t.std(0)))
        proposal = torch.distributions.Independent(torch.distributions.Normal(center, 2 * spread), 1)
        theta = proposal.sample((40_000,))
        weight = (sampler.log_prob(theta.unsqueeze(1), x)[:, 0] - proposal.log_prob(theta)).exp()
    assert weight.mean().item() == pytest.approx(1.0, abs=0.05)


def in_a_box(sampler):
    return isinstance(sampler, Standardized) and sampler.support is None


@every({name: case for name, case in SAMPLERS.items() if in_a_box(case())})
def test_draws_stay_inside_the_bounds(case):
    sampler = case()
    dim = math.prod(sampler.theta_shape)
    generator = torch.Generator().manual_seed(0)
    theta = torch.rand(200, *sampler.theta_shape, generator=generator)
    x = torch.randn(200, *sampler.x_shape, generator=generator)
    sampler.prepare(theta, x, Bounds(torch.zeros(dim).double(), torch.ones(dim).double()))
    draws = sampler.sample(50, 10 * x)
    assert ((draws >= 0) & (draws <= 1)).all()
