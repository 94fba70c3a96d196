import numpy as np
import pytest
import scoringrules
import torch

from propersbi.scoring import (
    Derived,
    EnergyScore,
    KernelScore,
    Patched,
    Scaled,
    SlicedEnergyScore,
    VariogramScore,
    WeightedSum,
)
from propersbi.scoring.kernels import (
    Gaussian,
    InverseMultiquadric,
    KernelMixture,
    Laplace,
    Matern,
    MedianHeuristic,
    RationalQuadratic,
)
from propersbi.storage.config import decode, encode
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


@pytest.mark.parametrize("rule", [EnergyScore, SlicedEnergyScore])
@pytest.mark.parametrize(("fair", "estimator"), [(True, "fair"), (False, "nrg")])
def test_energy_score_in_one_dimension_is_twice_the_crps(rule, fair, estimator):
    samples, theta = pairs(d=1)
    theirs = scoringrules.crps_ensemble(theta[:, 0].numpy(), samples[..., 0].T.numpy(), estimator=estimator)
    np.testing.assert_allclose(rule(fair=fair)(samples, theta).numpy(), 2 * theirs, rtol=1e-6)


@pytest.mark.parametrize("d", [2, 12])
def test_the_statistic_over_all_pairs_is_that_of_scoringrules(d):
    samples, theta = pairs(d=d)
    y, draws = theta.numpy(), samples.transpose(0, 1).numpy()
    energy = EnergyScore(fair=False)(samples, theta).numpy()
    np.testing.assert_allclose(energy, 2 * scoringrules.es_ensemble(y, draws, estimator="nrg"), rtol=1e-6)
    kernel = KernelScore(Gaussian(bandwidth=1.0), fair=False)(samples, theta).numpy()
    # theirs includes half of k(theta, theta) = 1
    np.testing.assert_allclose(kernel, 2 * scoringrules.gksmv_ensemble(y, draws, estimator="nrg") - 1, rtol=1e-6)
    for p in (0.5, 1.0):
        variogram = VariogramScore(p, fair=False)(samples, theta).numpy()
        theirs = scoringrules.vs_ensemble(y, draws, p=p) / (d * (d - 1))  # all ordered pairs of parameters, summed
        np.testing.assert_allclose(variogram, theirs, rtol=1e-6)


def test_sliced_energy_score_is_the_energy_score_on_average():
    samples, theta = pairs(m=20, n=4, d=5)
    sliced = SlicedEnergyScore(slices=200_000)(samples, theta)
    torch.testing.assert_close(sliced, EnergyScore()(samples, theta), rtol=0.01, atol=0)


def test_kernels_by_hand():
    r, b = torch.tensor([0.0, 3.0], dtype=torch.float64), 2.0
    by_hand = {
        Gaussian(b): np.exp(-9 / 8),
        Laplace(b): np.exp(-1.5),
        RationalQuadratic(b, alpha=2.0): (1 + 9 / 16) ** -2,
        InverseMultiquadric(b): 1 / np.sqrt(1 + 9 / 4),
        Matern(b, nu=0.5): np.exp(-1.5),
        Matern(b, nu=1.5): (1 + 3**0.5 * 1.5) * np.exp(-(3**0.5) * 1.5),
        Matern(b, nu=2.5): (1 + 5**0.5 * 1.5 + 5 * 2.25 / 3) * np.exp(-(5**0.5) * 1.5),
        KernelMixture(Laplace(b), factors=(1.0, 3.0)): (np.exp(-1.5) + np.exp(-0.5)) / 2,
    }
    for kernel, value in by_hand.items():
        np.testing.assert_allclose(kernel(r).numpy(), [1, value], rtol=1e-12)


# -- sums, scales, functions


def test_rules_add_and_multiply():
    samples, theta = pairs()
    custom = lambda samples, theta: theta.square().sum(-1)  # noqa: E731
    rule = 2 * (EnergyScore() + 0.5 * KernelScore(Gaussian(1.0))) + custom
    assert rule.weights == (2.0, 1.0, 1.0)
    expected = 2 * EnergyScore()(samples, theta) + KernelScore(Gaussian(1.0))(samples, theta) + custom(samples, theta)
    torch.testing.assert_close(rule(samples, theta), expected)
    assert (custom + EnergyScore()).rules == (custom, EnergyScore())


def test_sums_resolve_their_kernels():
    theta = pairs(n=50)[1]
    rule = (EnergyScore() + 0.5 * KernelScore()).resolve(theta)
    assert rule.rules[1].kernel.bandwidth == MedianHeuristic()(theta)
    scaled = Scaled(KernelScore(), scales=(2.0, 2.0, 2.0)).resolve(theta)
    assert scaled.rule.kernel.bandwidth == pytest.approx(2 * rule.rules[1].kernel.bandwidth)
    derived = Derived(KernelScore(), lambda theta: 3 * theta).resolve(theta)
    assert derived.rule.kernel.bandwidth == pytest.approx(3 * rule.rules[1].kernel.bandwidth)


def test_scaled_and_derived_score_transformed_parameters():
    samples, theta = pairs()
    scale = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    expected = EnergyScore()(samples * scale, theta * scale)
    torch.testing.assert_close(Scaled(EnergyScore(), scales=(1, 2, 3))(samples, theta), expected)
    torch.testing.assert_close(Derived(EnergyScore(), lambda theta: theta * scale)(samples, theta), expected)


def test_a_custom_function_in_a_rule_must_be_passed_when_loading():
    saved = encode(EnergyScore() + Derived(EnergyScore(), torch.sin))
    with pytest.raises(InputError, match="saved with an object of your own"):
        decode(saved)
    assert decode(saved, {"function": torch.sin}) == EnergyScore() + Derived(EnergyScore(), torch.sin)


# -- patches


def windows_by_hand(values, size, step, batch):
    """Windows of the last axes, one by one."""
    starts = [range(0, length - s + 1, t) for length, s, t in zip(values.shape[-len(size) :], size, step, strict=True)]
    positions = torch.cartesian_prod(*(torch.tensor(list(start)) for start in starts)).reshape(-1, len(size)).tolist()
    windows = []
    for position in positions:
        window = values
        for axis, (start, s) in enumerate(zip(position, size, strict=True), values.ndim - len(size)):
            window = window.narrow(axis, start, s)
        windows.append(window.flatten(batch))
    return windows


@pytest.mark.parametrize(
    ("event", "size", "step"),
    [
        ((10,), (4,), (2,)),
        ((10,), (4,), (3,)),  # the last point is in no window
        ((6, 7), (3, 2), (2, 1)),
        ((2, 6, 6), (3, 3), (3, 3)),  # channels
        ((3, 4, 5), (2, 2, 2), (1, 2, 3)),
    ],
)
def test_patched_is_a_sum_over_windows(event, size, step):
    generator = torch.Generator().manual_seed(0)
    samples, theta = torch.randn(5, 3, *event, generator=generator), torch.randn(3, *event, generator=generator)
    rule = Patched(EnergyScore(), size=size, step=step, weight=0.3, full_weight=2.0)
    draws, truth = windows_by_hand(samples, size, step, 2), windows_by_hand(theta, size, step, 1)
    expected = sum(EnergyScore()(a, b) for a, b in zip(draws, truth, strict=True))
    torch.testing.assert_close(rule(samples, theta), 0.3 * expected + 2 * EnergyScore()(samples, theta))


def test_a_single_size_applies_to_all_axes_but_channels():
    samples, theta = torch.randn(4, 2, 3, 8, 8), torch.randn(2, 3, 8, 8)
    rule, same = (Patched(EnergyScore(), size=s, step=t, weight=1.0) for s, t in ((4, 2), ((4, 4), (2, 2))))
    torch.testing.assert_close(rule(samples, theta), same(samples, theta))


def test_patches_have_the_weight_of_the_full_field_by_default():
    samples, theta = torch.randn(3, 2, 28, 28), torch.randn(2, 28, 28)
    default, mean = (Patched(EnergyScore(), size=8, step=5, weight=weight) for weight in (None, 1 / 25))
    torch.testing.assert_close(default(samples, theta), mean(samples, theta))


def test_bandwidths_of_patches_are_the_median_over_patches():
    theta = torch.randn(200, 12, generator=torch.Generator().manual_seed(0)) * torch.arange(1.0, 13.0)
    rule = Patched(KernelScore(), size=4, step=4).resolve(theta)
    medians = [MedianHeuristic()(part) for part in theta.split(4, 1)]
    assert rule.rule.kernel.bandwidth == pytest.approx(sorted(medians)[1])
    assert rule.full.kernel.bandwidth == pytest.approx(MedianHeuristic()(theta))
    assert decode(encode(rule)) == rule


# -- precision and memory


@pytest.mark.parametrize("d", [3, 60])
def test_tight_clusters_far_apart_are_scored_precisely(d):
    """Squared distances within a cluster are a hundred millionth of those between, beyond single precision."""
    generator = torch.Generator().manual_seed(0)
    tight = 1e-4 * torch.randn(20, 2, d, generator=generator)
    tight[10:] += 1.0
    theta = torch.zeros(2, d)
    scores, slopes = [], []
    for dtype in (torch.float32, torch.float64):
        samples = tight.to(dtype).requires_grad_()
        score = EnergyScore()(samples, theta.to(dtype))
        (slope,) = torch.autograd.grad(score.sum(), samples)
        scores.append(score.detach().double())
        slopes.append(slope.double())
    torch.testing.assert_close(*scores, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(*slopes, rtol=1e-2, atol=1e-3 * slopes[1].abs().max().item())


def test_scores_do_not_depend_on_the_size_of_pieces(monkeypatch):
    from propersbi.scoring import pairs as pair_scores
    from propersbi.scoring import variogram

    for d in (2, 30):
        samples, theta = pairs(m=6, n=50, d=d)
        rules = [EnergyScore(0.5), KernelScore(Laplace(1.0)), VariogramScore()]
        whole = [rule(samples, theta) for rule in rules]
        monkeypatch.setattr(pair_scores, "MAX_CELLS_PER_PIECE", 700)
        monkeypatch.setattr(variogram, "MAX_CELLS_PER_PIECE", 700)
        samples.requires_grad_()
        for rule, expected in zip(rules, whole, strict=True):
            torch.testing.assert_close(rule(samples, theta).detach(), expected)
            assert torch.isfinite(torch.autograd.grad(rule(samples, theta).sum(), samples)[0]).all()
        monkeypatch.undo()


def test_half_precision_draws_are_scored_in_single_precision():
    samples, theta = (values.to(torch.bfloat16) for values in pairs(d=20))
    samples.requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        score = EnergyScore()(samples, theta)
    score.sum().backward()
    assert samples.grad.dtype == torch.bfloat16
    torch.testing.assert_close(score, EnergyScore()(samples.detach().float(), theta.float()))


@pytest.mark.parametrize("beta", [0.5, 1.0, 1.7])
def test_energy_score_is_the_kernel_score_of_a_negative_power(beta):
    samples, theta = pairs()
    kernel = KernelScore(lambda distance: -(distance**beta))
    torch.testing.assert_close(EnergyScore(beta)(samples, theta), kernel(samples, theta))


def test_kernel_score_excludes_pairs_of_a_draw_with_itself():
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


def test_median_heuristic_is_resolved_on_parameters():
    theta = torch.rand(4000, 2, generator=torch.Generator().manual_seed(0)) * 2 - 1
    score = KernelScore().resolve(theta)
    assert score.kernel.bandwidth == pytest.approx(1.03, abs=0.04)  # the prior of Two Moons
    assert score.resolve(10 * theta) == score  # a number is not changed


def test_invalid_arguments_are_reported_with_their_value(unchecked_shapes):
    with pytest.raises(InputError, match=r"'beta' must lie in \(0, 2\), got 2.5."):
        EnergyScore(beta=2.5)
    with pytest.raises(InputError, match="'bandwidth' must be positive, got -1"):
        Gaussian(bandwidth=-1)
    with pytest.raises(InputError, match="'alpha' must be positive, got 0"):
        RationalQuadratic(alpha=0)
    with pytest.raises(InputError, match=r"'nu' must be 0.5, 1.5 or 2.5, got 2"):
        Matern(nu=2)
    with pytest.raises(InputError, match="'factors' must hold positive numbers"):
        KernelMixture(factors=())
    with pytest.raises(InputError, match="'p' must be positive, got 0"):
        VariogramScore(p=0)
    with pytest.raises(InputError, match="needs at least 2, got 1"):
        VariogramScore()(*pairs(d=1))
    with pytest.raises(InputError, match="'slices' must be a whole number of at least 1, got 0"):
        SlicedEnergyScore(slices=0)
    with pytest.raises(InputError, match=r"weights of a proper sum of scoring rules must be positive, got -1"):
        -1 * EnergyScore()
    with pytest.raises(InputError, match="one weight per rule, got 2 for 1 rules"):
        WeightedSum((EnergyScore(),), (1.0, 2.0))
    with pytest.raises(TypeError):
        EnergyScore() + 1
    with pytest.raises(InputError, match="2 scales do not fit parameters of shape"):
        Scaled(EnergyScore(), scales=(1.0, 2.0))(*pairs(d=3))
    with pytest.raises(InputError, match="'scales' must be positive, got 0"):
        Scaled(EnergyScore(), scales=(0,))
    with pytest.raises(InputError, match="'size' must hold positive whole numbers, got 0"):
        Patched(EnergyScore(), size=0, step=1)
    with pytest.raises(InputError, match=r"same number of axes, got \(1, 2\) and \(1,\)"):
        Patched(EnergyScore(), size=(1, 2), step=(1,))
    with pytest.raises(InputError, match="'weight' must be a positive number or None, got 'heavy'"):
        Patched(EnergyScore(), size=1, step=1, weight="heavy")
    with pytest.raises(InputError, match="A patch of 9 does not fit an axis of 3"):
        Patched(EnergyScore(), size=9, step=1)(*pairs())
    with pytest.raises(InputError, match="Patches over 2 axes do not fit parameters with 1"):
        Patched(EnergyScore(), size=(2, 2), step=1)(*pairs())
    with pytest.raises(InputError, match="still a heuristic"):
        KernelScore()(*pairs())
    with pytest.raises(InputError, match="at least 2 parameters, got 1"):
        MedianHeuristic()(torch.zeros(1, 2))
    with pytest.raises(InputError, match=r"median distance of 10 parameters is 0\.0: most are equal"):
        MedianHeuristic()(torch.zeros(10, 2))
