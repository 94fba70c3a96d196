"""Networks of images: the U-Net, how it starts and what it is clamped to."""

from functools import partial

import numpy as np
import pytest
import torch

import propersbi as ps
from propersbi.networks import MLPGenerator, UNetGenerator
from propersbi.networks.conv import _Clamp
from propersbi.samplers import Bounds, Refined
from propersbi.samplers.refined import PURE_NOISE
from propersbi.scoring import EnergyScore, Patched
from propersbi.types import InputError

SIDE = 8
TINY = partial(UNetGenerator, channels=(4, 6), latent_maps=2)
NO_BOUNDS = Bounds.none(SIDE**2)


def blurred_pairs(n=400, side=SIDE, seed=0, point_masses=True):
    """Blobs on black, and the same blurred by a little matrix, with noise."""
    rng = np.random.default_rng(seed)
    theta = np.kron(rng.uniform(-1, 1, (n, side // 2, side // 2)), np.ones((1, 2, 2)))
    theta = np.clip(theta, 0, 1) if point_masses else 0.5 + 0.5 * theta
    apart = np.subtract.outer(np.arange(side), np.arange(side))
    blur = np.exp(-0.5 * apart**2)
    x = blur @ theta @ blur + 0.01 * rng.normal(size=theta.shape)
    return theta.astype(np.float32), x.astype(np.float32)


def fit(theta, x, **options):
    options = {"network": TINY, "max_steps": 8, "draws": 3, "progress": False, "support": (0.0, 1.0), **options}
    return ps.fit(theta, x, **options)


# -- how it starts


def test_a_network_starts_from_the_regression():
    theta, x = blurred_pairs(2000, point_masses=False)
    truth, data = torch.from_numpy(theta), torch.from_numpy(x)
    network = TINY((SIDE, SIDE), (SIDE, SIDE))
    network.prepare(truth[:1500], data[:1500], NO_BOUNDS)
    draws = network.sample(200, data[1500:]).detach()
    unprepared = TINY((SIDE, SIDE), (SIDE, SIDE)).sample(200, data[1500:]).detach()
    error, larger = ((d.mean(0) - truth[1500:]).square().mean().sqrt() for d in (draws, unprepared))
    assert error < 0.05
    assert error < 0.2 * larger
    assert 0.03 < draws.std(0).mean() / network.scale.mean() < 3  # the residual sets the spread


def test_few_pairs_leave_the_regression_out():
    network = TINY((SIDE, SIDE), (SIDE, SIDE))
    network.prepare(torch.randn(100, SIDE, SIDE), torch.randn(100, SIDE, SIDE), NO_BOUNDS)
    assert not network.slope.any()


def test_a_chain_starts_as_that_of_a_gaussian_posterior():
    """Before training, a step draws exactly from p(theta | theta_s, x) of a linear model."""
    torch.manual_seed(0)
    network = TINY((SIDE, SIDE), (SIDE, SIDE), chain=True)
    network.slope.copy_(torch.eye(SIDE**2))
    network.scale.fill_(0.5)
    x = torch.randn(1, SIDE, SIDE)  # the regression: theta ~ N(x, 0.25)
    for level in (0.1, 1.0, PURE_NOISE):
        s = torch.tensor([level])
        theta = x + 0.5 * torch.randn(1, SIDE, SIDE)
        noisy = theta + s * torch.randn_like(theta)
        context = network.condition(network.embed(x), noisy / (1 + s**2).sqrt(), s)
        start, spread = context[:, :64], context[:, 64:128]
        mean = noisy.flatten(1) / (1 + s**2) + start * s / (1 + s**2).sqrt()
        deviation = spread * s / (1 + s**2).sqrt()
        precision = 1 / 0.25 + 1 / level**2
        expected = (x / 0.25 + noisy / level**2).flatten(1) / precision
        torch.testing.assert_close(mean, expected, rtol=1e-3, atol=1e-3)
        torch.testing.assert_close(deviation, torch.full_like(deviation, precision**-0.5), rtol=1e-3, atol=1e-4)
        draws = network(context, network.noise(4000, 1)).flatten(2)
        torch.testing.assert_close(draws.mean(0), start, rtol=0.1, atol=0.1)
        torch.testing.assert_close(draws.std(0), spread, rtol=0.1, atol=1e-3)


def test_a_chain_refines_images():
    sampler = Refined(TINY((SIDE, SIDE), (2, SIDE, SIDE), chain=True), refinement_steps=3)
    draws = sampler.sample(4, torch.randn(2, 2, SIDE, SIDE))
    assert draws.shape == (4, 2, SIDE, SIDE)
    samples, target = sampler.training_pair(5, torch.randn(2, SIDE, SIDE), torch.randn(2, 2, SIDE, SIDE))
    assert samples.shape == (5, *target.shape)


# -- bounds


def test_the_clamp_lets_gradients_lead_back_but_not_further_out():
    values = torch.tensor([-0.5, -0.5, 0.5, 1.5, 1.5], requires_grad=True)
    _Clamp.apply(values, torch.zeros(5), torch.ones(5)).backward(torch.tensor([1.0, -1.0, 1.0, 1.0, -1.0]))
    assert values.grad.tolist() == [0.0, -1.0, 1.0, 1.0, 0.0]


def test_images_with_black_pixels_are_clamped_and_others_reflected():
    theta, x = blurred_pairs()
    black = fit(theta, x)
    assert black.box.point_masses is not None
    draws = black.sample_batched((50,), x=x[:20], seed=0)
    assert (draws == 0).float().mean() > 0.1
    assert draws.min() == 0
    assert draws.max() <= 1
    theta, x = blurred_pairs(point_masses=False)
    grey = fit(theta, x)
    assert grey.box.point_masses is None
    draws = grey.sample_batched((50,), x=x[:20], seed=0)
    assert (draws == 0).float().mean() < 0.01
    assert ((draws >= 0) & (draws <= 1)).all()


def test_draws_lie_inside_the_bounds_when_they_are_scored():
    theta, x = blurred_pairs()
    sampler = fit(theta, x).sampler
    draws = sampler.theta_units.inverse(sampler.sampler.sample(20, sampler.x_units(torch.from_numpy(x[:20]))))
    assert draws.min() > -1e-5
    assert draws.max() < 1 + 1e-5


# -- fit


def test_fit_chooses_the_network_by_the_shapes():
    theta, x = blurred_pairs(100)
    posterior = ps.fit(theta, x, max_steps=1, progress=False)
    assert isinstance(posterior.sampler.sampler, UNetGenerator)
    assert posterior.info["draws"] == 5
    refined = ps.fit(theta, x, refinement_steps=2, max_steps=1, progress=False).sampler.sampler
    assert isinstance(refined.generator, UNetGenerator)
    assert ps.recipe(theta.reshape(100, -1)[:, :4], x).network.name == "MLPGenerator"
    own = ps.fit(theta, x, embedding=torch.nn.Flatten(), max_steps=1, draws=2, progress=False)
    assert any(isinstance(module, MLPGenerator) for module in own.sampler.modules())


@pytest.mark.parametrize("steps", [1, 2])
@pytest.mark.parametrize("rule", [EnergyScore(), Patched(EnergyScore(), size=4, step=2)], ids=["energy", "patched"])
def test_a_posterior_of_images_is_trained_saved_and_read(steps, rule, tmp_path):
    theta, x = blurred_pairs(300)
    posterior = fit(theta, x, rule=rule, refinement_steps=steps, max_steps=20)
    again = ps.Posterior.load(posterior.save(tmp_path / "p"))
    draws = posterior.sample((7,), x=x[0], seed=1)
    assert draws.shape == (7, SIDE, SIDE)
    assert torch.equal(again.sample((7,), x=x[0], seed=1), draws)
    assert again.box == posterior.box


@pytest.mark.parametrize("size", [(8, 5), (14, 7)])
def test_patches_of_the_paper_fit_the_camera(size):
    task = ps.tasks.get("camera")
    theta, x = ps.simulate(task.prior, task.simulate, 40, progress=False)
    posterior = fit(theta, x, rule=Patched(EnergyScore(), *size), max_steps=2, prior=task.prior)
    assert posterior.sample((3,), x=task.observation(1)).shape == (3, 28, 28)


def test_training_improves_images():
    theta, x = blurred_pairs(1200)
    before, after = (fit(theta[:1000], x[:1000], max_steps=steps, learning_rate=3e-3) for steps in (1, 80))
    skill = [
        ps.metrics.energy_score(p.sample_batched((40,), x=x[1000:], seed=0).numpy(), theta[1000:]).mean()
        for p in (before, after)
    ]
    assert skill[1] < 0.9 * skill[0]


class Correlation(torch.nn.Module):
    """A critic: how alike image and data are, with a learnt weight for each pixel."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(SIDE, SIDE))

    def forward(self, theta, x):
        return (self.weight * theta * x).mean((-2, -1))


def test_images_are_trained_against_a_critic():
    theta, x = blurred_pairs(60)
    objective = partial(ps.Adversarial, critic=Correlation(), validation_draws=3)
    draws = fit(theta, x, objective=objective, draws=None, max_steps=2, batch_size=20).sample((3,), x=x[0])
    assert draws.shape == (3, SIDE, SIDE)
    assert ((draws >= 0) & (draws <= 1)).all()


def test_wrong_shapes_are_reported():
    with pytest.raises(InputError, match=r"one grid of rows and columns, got \(8, 8\) and \(8, 9\)"):
        TINY((8, 8), (8, 9))
    with pytest.raises(InputError, match=r"grid of \(3, 3\) is too small for 3 resolutions"):
        UNetGenerator((3, 3), (3, 3))
    with pytest.raises(InputError, match="'head' must have 2 numbers"):
        TINY((8, 8), (8, 8), head=(3,))
