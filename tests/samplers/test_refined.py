import math
from functools import partial

import numpy as np
import pytest
import torch

import propersbi as ps
from propersbi.networks import FieldGenerator, Flow, MLPGenerator
from propersbi.samplers import Bounds, ChainGenerator, Refined, Standardized
from propersbi.samplers.refined import PURE_NOISE
from propersbi.types import InputError


class Exact(ChainGenerator):
    """The exact conditional of theta ~ N(x, 0.3^2) given a noisy theta: what a perfect generator would have learnt."""

    theta_shape, x_shape, latent, chain, sd = (1,), (1,), 1, True, 0.3

    def __init__(self):
        super().__init__()
        self.unused = torch.nn.Parameter(torch.zeros(()))

    def embed(self, x):
        return x

    def condition(self, context, noisy, level):
        return torch.cat([context, noisy, level.unsqueeze(1)], 1)

    def forward(self, context, z):
        x, scaled, s = context.T
        noisy = scaled * (1 + s**2).sqrt()
        precision = 1 / self.sd**2 + 1 / s**2
        theta = (x / self.sd**2 + noisy / s**2) / precision + z[..., 0] / precision.sqrt()
        return ((theta - noisy / (1 + s**2)) / (s / (1 + s**2).sqrt())).unsqueeze(-1)


@pytest.mark.parametrize("steps", [1, 2, 3, 8, 30])
def test_the_chain_is_exact_for_any_number_of_steps(steps):
    draws = Refined(Exact()).sample(20_000, torch.tensor([[0.5], [-1.0]]), refinement_steps=steps)[..., 0]
    torch.testing.assert_close(draws.mean(0), torch.tensor([0.5, -1.0]), atol=0.01, rtol=0)
    torch.testing.assert_close(draws.std(0), torch.tensor([0.3, 0.3]), atol=0.01, rtol=0)
    correlation = torch.corrcoef(draws.T)[0, 1].item()
    assert abs(correlation) < 4 / math.sqrt(20_000)


def test_the_target_of_an_exact_generator_is_a_draw_from_the_same_distribution():
    """Draws and target are exchangeable: their difference to each other has the spread of two draws."""
    torch.manual_seed(0)
    x = torch.randn(50_000, 1)
    theta = x + 0.3 * torch.randn_like(x)
    draws, target = Refined(Exact()).training_pair(2, theta, x)
    between, to_target = draws[0] - draws[1], draws[0] - target
    assert to_target.mean().abs() < 0.01
    torch.testing.assert_close(to_target.var(), between.var(), rtol=0.03, atol=0)


def test_a_network_distinguishes_a_near_bound_from_a_far_one():
    network = MLPGenerator((1,), (2,), width=16, chain=True)
    context, level = network.embed(torch.randn(3, 2)), torch.full((3,), 0.1)
    noisy = torch.tensor([[-0.5], [0.0], [0.95]]) / (1 + level.unsqueeze(1) ** 2).sqrt()
    free = network.condition(context, noisy, level)
    network.prepare(noisy, torch.zeros(3, 2), Bounds(torch.tensor([-10.0]), torch.tensor([math.inf])))
    torch.testing.assert_close(network.condition(context, noisy, level), free)  # a hundred noise levels away
    network.prepare(noisy, torch.zeros(3, 2), Bounds(torch.tensor([-10.0]), torch.tensor([1.0])))
    moved = (network.condition(context, noisy, level) - free).abs().amax(1)
    assert moved[0] < 1e-4 < 1e-2 < moved[2]


def test_levels_go_down_in_equal_ratios_through_the_middle_of_the_range():
    sampler = Refined(Exact(), lowest=0.01, highest=1.0)
    assert sampler.levels(1) == [PURE_NOISE]
    assert sampler.levels(2) == pytest.approx([PURE_NOISE, 0.1])
    assert sampler.levels(3) == pytest.approx([PURE_NOISE, 10**-0.5, 10**-1.5])
    levels = np.array(sampler.levels(200))[1:]
    assert levels[[0, -1]] == pytest.approx([1.0, 0.01], rel=0.02)
    assert np.allclose(levels[1:] / levels[:-1], levels[1] / levels[0])


def test_mistakes_get_a_sentence(unchecked_shapes):
    with pytest.raises(InputError, match="chain=True"):
        Refined(MLPGenerator((2,), (3,)))
    with pytest.raises(InputError, match="chain=True"):
        Refined(FieldGenerator((10,), (8, 8), width=8))
    with pytest.raises(InputError, match="'refinement_steps' must be a positive whole number, got 0"):
        Refined(Exact(), refinement_steps=0)
    with pytest.raises(InputError, match=r"0 < lowest < highest < 1000, got 2.0 and 1.0"):
        Refined(Exact(), lowest=2.0, highest=1.0)
    with pytest.raises(InputError, match=r"0 < lowest < highest < 1000, got 0.02 and 1000000000.0"):
        Refined(Exact(), highest=1e9)


def test_fit_trains_a_chain_and_the_steps_are_a_dial(tmp_path):
    """theta ~ N(0, 1), x = theta + N(0, 1): the posterior is N(x / 2, 1 / 2)."""
    rng = np.random.default_rng(0)
    theta = rng.normal(size=(3000, 2))
    x = theta + rng.normal(size=(3000, 2))
    network = partial(MLPGenerator, width=32, depth=1)
    posterior = ps.fit(theta, x, network=network, refinement_steps=4, max_steps=700, progress=False)
    assert posterior.sampler.refinement_steps == 4
    for steps in (None, 2, 12):
        draws = posterior.sample((4000,), x=[1.0, -1.0], refinement_steps=steps, seed=0)
        torch.testing.assert_close(draws.mean(0), torch.tensor([0.5, -0.5]), atol=0.15, rtol=0)
        torch.testing.assert_close(draws.std(0), torch.full((2,), 0.5**0.5), atol=0.12, rtol=0)
    posterior.save(tmp_path / "posterior")
    twin = ps.Posterior.load(tmp_path / "posterior")
    again = twin.sample_batched((50,), x=x[:3], seed=1)
    assert torch.equal(again, posterior.sample_batched((50,), x=x[:3], seed=1))


def test_a_one_pass_posterior_has_no_steps():
    theta = np.random.default_rng(0).normal(size=(100, 1))
    posterior = ps.fit(
        theta, theta, network=partial(MLPGenerator, width=16), refinement_steps=1, max_steps=5, progress=False
    )
    with pytest.raises(InputError, match="draws in one pass: it cannot take refinement_steps = 4"):
        posterior.sample((5,), x=[0.0], refinement_steps=4)


@pytest.mark.parametrize(
    ("network", "steps", "message"),
    [
        (lambda: MLPGenerator((1,), (1,)), 4, "draws in one pass: train it with refinement_steps=1"),
        (lambda: MLPGenerator((1,), (1,)), 8, "draws in one pass: train it with refinement_steps=1"),
        (lambda: Flow, 4, "cannot be built with {'chain': True}"),
        (lambda: MLPGenerator((1,), (1,), chain=True), 1, "ask for more 'refinement_steps' than 1"),
        (lambda: refined(3), 4, "has refinement_steps = 3, but 4 were asked for"),
        (lambda: refined(4), 8, "has refinement_steps = 4, but 8 were asked for"),
        (lambda: MLPGenerator, 0, "'refinement_steps' must be a whole number of at least 1, got 0"),
    ],
)
def test_steps_are_never_silently_ignored(network, steps, message, unchecked_shapes):
    theta = np.random.default_rng(0).normal(size=(50, 1))
    with pytest.raises(InputError, match=message):
        ps.fit(theta, theta, network=network(), refinement_steps=steps, max_steps=5, progress=False)


def refined(steps):
    return Refined(MLPGenerator((1,), (1,), width=16, chain=True), refinement_steps=steps)


def test_a_built_chain_is_trained_as_it_is_but_not_in_place():
    theta = np.random.default_rng(0).normal(size=(50, 1))
    built = MLPGenerator((1,), (1,), width=16, chain=True)
    before = {name: tensor.clone() for name, tensor in built.state_dict().items()}
    posterior = ps.fit(theta, theta, network=built, refinement_steps=3, max_steps=5, progress=False)
    assert posterior.sampler.refinement_steps == 3
    assert posterior.sampler.sampler.generator.width == 16
    assert ps.fit(theta, theta, network=refined(2), max_steps=5, progress=False).recipe.refinement_steps == 2
    assert all(torch.equal(before[name], tensor) for name, tensor in built.state_dict().items())


def test_what_fit_returns_can_be_given_to_fit():
    theta = np.random.default_rng(0).normal(size=(50, 1))
    first = ps.fit(theta, theta, network=partial(MLPGenerator, width=16), max_steps=5, progress=False)
    draws = first.sample((5,), x=[0.0], seed=0)
    again = ps.fit(theta, theta, network=first.sampler, max_steps=5, progress=False)
    assert isinstance(again.sampler, Standardized)
    assert not isinstance(again.sampler.sampler, Standardized)
    assert torch.equal(first.sample((5,), x=[0.0], seed=0), draws)
    assert not torch.equal(again.sample((5,), x=[0.0], seed=0), draws)
