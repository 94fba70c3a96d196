import numpy as np
import pytest
import scoringrules
import torch

from propersbi.kernels import Gaussian, MedianHeuristic
from propersbi.scoring import EnergyScore, KernelScore, distances
from propersbi.types import InputError


def pairs(m=9, n=6, d=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    draw = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)  # noqa: E731
    return draw(m, n, d), draw(n, d)


def test_energy_score_by_hand():
    samples = torch.tensor([[[0.0, 0.0]], [[3.0, 4.0]], [[0.0, 4.0]]])
    # distances to (0, 0): 0, 5, 4; between: 5, 4, 3
    torch.testing.assert_close(EnergyScore()(samples, torch.zeros(1, 2)), torch.tensor([2 * 9 / 3 - 12 / 3]))


def test_energy_score_is_twice_that_of_scoringrules():
    samples, theta = pairs()
    theirs = scoringrules.es_ensemble(theta.numpy(), samples.transpose(0, 1).numpy(), estimator="fair")
    np.testing.assert_allclose(EnergyScore()(samples, theta).numpy(), 2 * theirs, rtol=1e-6)


def test_energy_score_in_one_dimension_is_twice_the_crps():
    samples, theta = pairs(d=1)
    theirs = scoringrules.crps_ensemble(theta[:, 0].numpy(), samples[..., 0].T.numpy(), estimator="fair")
    np.testing.assert_allclose(EnergyScore()(samples, theta).numpy(), 2 * theirs, rtol=1e-6)


@pytest.mark.parametrize("beta", [0.5, 1.0, 1.7])
def test_energy_score_is_the_kernel_score_of_a_negative_power(beta):
    samples, theta = pairs()
    kernel = KernelScore(lambda distance: -(distance**beta))
    torch.testing.assert_close(EnergyScore(beta)(samples, theta), kernel(samples, theta))


def test_kernel_score_leaves_out_each_draw_with_itself():
    samples, theta = pairs(m=2, n=1)
    kernel = Gaussian(bandwidth=0.7)
    between = kernel((samples[0] - samples[1]).norm(dim=-1))
    to_theta = (kernel((samples[0] - theta).norm(dim=-1)) + kernel((samples[1] - theta).norm(dim=-1))) / 2
    torch.testing.assert_close(KernelScore(kernel)(samples, theta), between - 2 * to_theta)


def test_no_tensor_of_all_differences_is_built():
    """The largest tensor of forward and backward is far below (n, m, m, d)."""
    samples, theta = pairs(m=64, n=2, d=500)
    samples = samples.float().requires_grad_()
    with torch.profiler.profile(profile_memory=True) as profile:
        EnergyScore()(samples, theta.float()).sum().backward()
    largest = max(event.cpu_memory_usage for event in profile.events())
    assert largest < 2 * 64 * 64 * 500 * 4 / 10


def test_gradient_reaches_theta_and_draws_alike():
    samples, theta = pairs()
    theta.requires_grad_()
    to_theta, _ = distances(samples, theta)
    assert torch.autograd.grad(to_theta.sum(), theta)[0].abs().sum() > 0


def test_median_heuristic_is_resolved_on_parameters():
    theta = torch.rand(4000, 2, generator=torch.Generator().manual_seed(0)) * 2 - 1
    score = KernelScore().resolve(theta)
    assert score.kernel.bandwidth == pytest.approx(1.03, abs=0.04)  # the prior of Two Moons
    assert score.resolve(10 * theta) == score  # a number stays


def test_bad_numbers_get_a_sentence(unchecked_shapes):
    with pytest.raises(InputError, match=r"'beta' must lie in \(0, 2\), got 2.5."):
        EnergyScore(beta=2.5)
    with pytest.raises(InputError, match="'bandwidth' must be positive, got -1"):
        Gaussian(bandwidth=-1)
    with pytest.raises(InputError, match="still a heuristic"):
        KernelScore()(*pairs())
    with pytest.raises(InputError, match="at least 2 parameters, got 1"):
        MedianHeuristic()(torch.zeros(1, 2))
    with pytest.raises(InputError, match="most parameters equal"):
        MedianHeuristic()(torch.zeros(10, 2))
