"""Latent variables follow the distribution they should, and what was not accepted is reported."""

import math

import pytest
import torch
from scipy.stats import kstest, norm

from propersbi.networks import MLPGenerator
from propersbi.samplers.latent import LatentCorrected, Metropolis, Rejection
from propersbi.types import InputError
from tests.laws.cases import LATENTS
from tests.laws.common import every

# The row's number is in the weight: each row has its own distribution, N(shift, scale).
SHIFT = torch.tensor([-0.8, 0.0, 0.5, 1.0])


def bell(z, rows):
    """exp(-(z - 2 s)^2 / 2) times N(0, 1) is N(s, 1/2)."""
    return -((z[..., 0] - 2 * SHIFT[rows]) ** 2) / 2


def noise(k):
    return torch.randn(k, 4, 1)


@every(LATENTS)
def test_latent_variables_follow_the_weighted_distribution(case):
    z, good, accepted = case(bell, noise, 1500)
    assert good.all()
    assert 0 < accepted < 1
    for row, shift in enumerate(SHIFT.tolist()):
        exact = norm(shift, math.sqrt(0.5)).cdf
        assert kstest(z[:, row, 0].numpy(), exact).pvalue > 1e-3
    assert kstest(z[:, 0, 0].numpy(), norm(0, 1).cdf).pvalue < 1e-9  # the test has power


@every(LATENTS)
def test_no_weight_leaves_the_normal_distribution(case):
    z, good, accepted = case(lambda z, rows: torch.zeros_like(z[..., 0]), noise, 1000)
    assert good.all()
    assert accepted == 1
    assert kstest(z.flatten().numpy(), norm(0, 1).cdf).pvalue > 1e-3


def far(z, rows):
    """A weight that no normal draw ever reaches, in the last row only."""
    spike = torch.where(z[..., 0] > 30, 0.0, -1e4 * torch.rand_like(z[..., 0]))
    return torch.where(rows < 3, torch.zeros_like(spike), spike)


@every({"rejection": Rejection(batch=40, tries=3), "metropolis": Metropolis(steps=30, least=0.2)})
def test_rows_without_accepted_draws_are_reported(case):
    _, good, _ = case(far, noise, 20)
    assert good.tolist() == [True, True, True, False]


def test_a_bound_that_does_not_hold_is_refused():
    with pytest.raises(InputError, match=r"exceeds the bound exp\(-1\)"):
        Rejection(log_bound=-1.0)(bell, noise, 5)


def test_an_early_draw_is_judged_by_the_bound_of_all():
    """The first candidates are the lowest: held against their own bound they would all be kept."""
    batches = iter([torch.zeros(50, 1, 1), torch.ones(50, 1, 1), torch.ones(50, 1, 1)])
    first = lambda k: next(batches) if k else torch.empty(0, 1, 1)  # noqa: E731
    z, good, _ = Rejection(batch=50)(lambda z, rows: 8 * z[..., 0], first, 55)
    assert good.all()
    assert (z[:, 0, 0] == 1).sum() >= 50


def test_only_rows_that_lack_draws_get_more():
    asked = []

    def log_weight(z, rows):
        asked.append(rows.tolist())
        return torch.where(rows < 3, torch.zeros_like(z[..., 0]), bell(z, rows) - 3 * z[..., 0])

    _, good, _ = Rejection(batch=20)(log_weight, noise, 20)
    assert good.all()
    assert asked[0] == [0, 1, 2, 3]
    assert all(rows == [3] for rows in asked[1:])
    assert len(asked) > 1


def test_a_row_without_good_noise_has_no_gradient_and_is_counted():
    generator = MLPGenerator((1,), (1,), width=8, depth=1)

    class Spoiling(Rejection):
        def __call__(self, log_weight, noise, m):
            return super().__call__(lambda z, rows: far(z, torch.where(rows == 1, 3, 0)), noise, m)

    sampler = LatentCorrected(generator, Spoiling(batch=30, tries=2), lambda theta: theta, lambda theta: theta)
    theta, x = torch.randn(4, 1), torch.randn(4, 1)
    samples, target = sampler.training_pair(10, theta, x)
    assert torch.equal(samples[:, 1], theta[1].expand(10, 1))
    assert torch.equal(target, theta)
    assert sampler.left_out.tolist() == [1, 4]
    assert sampler.left_out_share == 0.25
    sampler.eval().training_pair(10, theta, x)
    assert sampler.left_out.tolist() == [1, 4]  # counted in training only
    assert "left_out" in sampler.state_dict()
    samples[:, 1].sum().backward()
    assert all(weight.grad is None or not weight.grad.any() for weight in generator.parameters())


def test_only_one_pass_generators_have_their_noise_corrected(unchecked_shapes):
    with pytest.raises(InputError, match="refinement_steps=1"):
        LatentCorrected(object(), Rejection(), bell, lambda theta: theta)


@pytest.mark.parametrize("make", [lambda: Rejection(tries=0), lambda: Metropolis(steps=0)])
def test_counts_must_be_positive(make):
    with pytest.raises(InputError, match="must be a positive whole number, got 0"):
        make()


def test_reaches_must_be_shares():
    with pytest.raises(InputError, match=r"must lie in \(0, 1\]"):
        Metropolis(reaches=(1.5,))
