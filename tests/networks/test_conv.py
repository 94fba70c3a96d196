"""Networks of images: the U-Net, how it starts, what it is clamped to, and the paper's."""

from functools import partial

import numpy as np
import pytest
import torch

import propersbi as ps
from propersbi.networks import PaperCamera, PaperImageCritic, PaperShallowWater, UNetGenerator
from propersbi.networks.conv import _Clamp
from propersbi.samplers.refined import PURE, ReverseMarkov
from propersbi.scoring import EnergyScore, Patched
from propersbi.types import InputError

SIDE = 8
TINY = partial(UNetGenerator, channels=(4, 6), latent_maps=2)


def blurred_pairs(n=400, side=SIDE, seed=0, atoms=True):
    """Blobs on black, and the same blurred by a little matrix, with noise."""
    rng = np.random.default_rng(seed)
    theta = np.kron(rng.uniform(-1, 1, (n, side // 2, side // 2)), np.ones((1, 2, 2)))
    theta = np.clip(theta, 0, 1) if atoms else 0.5 + 0.5 * theta
    apart = np.subtract.outer(np.arange(side), np.arange(side))
    blur = np.exp(-0.5 * apart**2)
    x = blur @ theta @ blur + 0.01 * rng.normal(size=theta.shape)
    return theta.astype(np.float32), x.astype(np.float32)


def fit(theta, x, **options):
    options = {"network": TINY, "max_steps": 8, "m": 3, "progress": False, "support": (0.0, 1.0), **options}
    return ps.fit(theta, x, **options)


def count(network):
    return sum(weight.numel() for weight in network.parameters())


# -- how it starts


def test_a_network_starts_from_the_regression():
    theta, x = blurred_pairs(2000, atoms=False)
    truth, seen = torch.from_numpy(theta), torch.from_numpy(x)
    network = TINY((SIDE, SIDE), (SIDE, SIDE))
    network.prepare(truth[:1500], seen[:1500])
    draws = network.sample(200, seen[1500:]).detach()
    blind = TINY((SIDE, SIDE), (SIDE, SIDE)).sample(200, seen[1500:]).detach()
    error, unprepared = ((d.mean(0) - truth[1500:]).square().mean().sqrt() for d in (draws, blind))
    assert error < 0.05
    assert error < 0.2 * unprepared
    assert 0.03 < draws.std(0).mean() / network.scale.mean() < 3  # what is left over sets the spread


def test_few_pairs_leave_the_regression_out():
    network = TINY((SIDE, SIDE), (SIDE, SIDE))
    network.prepare(torch.randn(100, SIDE, SIDE), torch.randn(100, SIDE, SIDE))
    assert not network.slope.any()


def test_a_chain_starts_as_that_of_a_gaussian_posterior():
    """Before training, a step draws exactly from p(theta | theta_s, x) of a linear model."""
    torch.manual_seed(0)
    network = TINY((SIDE, SIDE), (SIDE, SIDE), chain=True)
    network.slope.copy_(torch.eye(SIDE**2))
    network.scale.fill_(0.5)
    x = torch.randn(1, SIDE, SIDE)  # the regression: theta ~ N(x, 0.25)
    for level in (0.1, 1.0, PURE):
        s = torch.tensor([level])
        theta = x + 0.5 * torch.randn(1, SIDE, SIDE)
        noisy = theta + s * torch.randn_like(theta)
        told = network.condition(network.embed(x), noisy / (1 + s**2).sqrt(), s)
        start, spread = told[:, :64], told[:, 64:128]
        mean = noisy.flatten(1) / (1 + s**2) + start * s / (1 + s**2).sqrt()
        deviation = spread * s / (1 + s**2).sqrt()
        precision = 1 / 0.25 + 1 / level**2
        expected = (x / 0.25 + noisy / level**2).flatten(1) / precision
        torch.testing.assert_close(mean, expected, rtol=1e-3, atol=1e-3)
        torch.testing.assert_close(deviation, torch.full_like(deviation, precision**-0.5), rtol=1e-3, atol=1e-4)
        draws = network(told, network.noise(4000, 1)).flatten(2)
        torch.testing.assert_close(draws.mean(0), start, rtol=0.1, atol=0.1)
        torch.testing.assert_close(draws.std(0), spread, rtol=0.1, atol=1e-3)


def test_a_chain_refines_images():
    sampler = ReverseMarkov(TINY((SIDE, SIDE), (2, SIDE, SIDE), chain=True), steps=3)
    draws = sampler.sample(4, torch.randn(2, 2, SIDE, SIDE))
    assert draws.shape == (4, 2, SIDE, SIDE)
    samples, target = sampler.aim(5, torch.randn(2, SIDE, SIDE), torch.randn(2, 2, SIDE, SIDE))
    assert samples.shape == (5, *target.shape)


# -- bounds


def test_the_clamp_lets_gradients_lead_back_but_not_further_out():
    values = torch.tensor([-0.5, -0.5, 0.5, 1.5, 1.5], requires_grad=True)
    _Clamp.apply(values, torch.zeros(5), torch.ones(5)).backward(torch.tensor([1.0, -1.0, 1.0, 1.0, -1.0]))
    assert values.grad.tolist() == [0.0, -1.0, 1.0, 1.0, 0.0]


def test_images_with_black_pixels_are_cut_off_and_others_reflected():
    theta, x = blurred_pairs()
    black = fit(theta, x)
    assert black.support.atoms is not None
    draws = black.sample_batched((50,), x=x[:20], seed=0)
    assert (draws == 0).float().mean() > 0.1
    assert draws.min() == 0
    assert draws.max() <= 1
    grey = fit(*blurred_pairs(atoms=False))
    assert grey.support.atoms is None
    draws = grey.sample_batched((50,), x=x[:20], seed=0)
    assert (draws == 0).float().mean() < 0.01
    assert ((draws >= 0) & (draws <= 1)).all()


def test_draws_are_scored_as_they_are_seen():
    theta, x = blurred_pairs()
    posterior = fit(theta, x)
    low = posterior.theta_units.inverse(posterior.sampler.sample(20, posterior.x_units(torch.from_numpy(x[:20]))))
    assert low.min() > -1e-5
    assert low.max() < 1 + 1e-5


# -- fit


def test_fit_chooses_the_network_by_the_shapes():
    theta, x = blurred_pairs(100)
    posterior = ps.fit(theta, x, max_steps=1, progress=False)
    assert isinstance(posterior.sampler, UNetGenerator)
    assert posterior.info["m"] == 5
    assert isinstance(ps.fit(theta, x, steps=2, max_steps=1, progress=False).sampler.generator, UNetGenerator)
    flat = ps.fit(theta.reshape(100, -1)[:, :4], x, max_steps=1, m=2, progress=False)
    assert "MLPGenerator" in str(type(getattr(flat.sampler, "generator", flat.sampler)))
    own = ps.fit(theta, x, embedding=torch.nn.Flatten(), max_steps=1, m=2, progress=False)
    assert not isinstance(own.sampler, UNetGenerator)


@pytest.mark.parametrize("steps", [1, 2])
@pytest.mark.parametrize("rule", [EnergyScore(), Patched(EnergyScore(), size=4, step=2)], ids=["energy", "patched"])
def test_a_posterior_of_images_is_trained_saved_and_read(steps, rule, tmp_path):
    theta, x = blurred_pairs(300)
    posterior = fit(theta, x, rule=rule, steps=steps, max_steps=20)
    again = ps.Posterior.load(posterior.save(tmp_path / "p"))
    draws = posterior.sample((7,), x=x[0], seed=1)
    assert draws.shape == (7, SIDE, SIDE)
    assert torch.equal(again.sample((7,), x=x[0], seed=1), draws)
    assert again.support == posterior.support


@pytest.mark.parametrize("size", [(8, 5), (14, 7)])
def test_patches_of_the_paper_fit_the_camera(size):
    task = ps.tasks.get("camera")
    theta, x = ps.simulate(task.prior, task.simulate, 40, progress=False)
    posterior = fit(theta, x, rule=Patched(EnergyScore(), *size, weight="paper energy"), max_steps=2, prior=task.prior)
    assert posterior.sample((3,), x=task.observation(1)).shape == (3, 28, 28)


def test_training_improves_images():
    theta, x = blurred_pairs(1200)
    before, after = (fit(theta[:1000], x[:1000], max_steps=steps, learning_rate=3e-3) for steps in (1, 80))
    skill = [
        ps.metrics.energy_score(p.sample_batched((40,), x=x[1000:], seed=0).numpy(), theta[1000:]).mean()
        for p in (before, after)
    ]
    assert skill[1] < 0.9 * skill[0]


def test_a_camera_is_trained_against_the_papers_critic():
    task = ps.tasks.get("camera")
    theta, x = ps.simulate(task.prior, task.simulate, 60, progress=False)
    for network in (TINY, PaperCamera):
        game = partial(ps.Adversarial, critic=PaperImageCritic((28, 28), (28, 28)), judged=3)
        posterior = ps.fit(
            theta, x, prior=task.prior, objective=game, network=network, max_steps=2, batch_size=20, progress=False
        )
        draws = posterior.sample((3,), x=task.observation(1))
        assert draws.shape == (3, 28, 28)
        assert ((draws >= 0) & (draws <= 1)).all()


def test_wrong_shapes_get_a_sentence():
    with pytest.raises(InputError, match=r"one grid of rows and columns, got \(8, 8\) and \(8, 9\)"):
        TINY((8, 8), (8, 9))
    with pytest.raises(InputError, match=r"grid of \(3, 3\) is too small for 3 resolutions"):
        UNetGenerator((3, 3), (3, 3))
    with pytest.raises(InputError, match="'head' must have 2 numbers"):
        TINY((8, 8), (8, 8), head=(3,))
    with pytest.raises(InputError, match="images of 28 x 28 pixels"):
        PaperCamera((8, 8), (28, 28))
    with pytest.raises(InputError, match="channels and two grid axes"):
        PaperShallowWater((100,), (100,))
    camera = np.zeros((40, 28, 28))
    camera[:, 5:9] = np.random.default_rng(0).normal(size=(40, 4, 28))
    with pytest.raises(InputError, match="needs bounds of its pixels"):
        ps.fit(camera, camera, network=PaperCamera, steps=1, max_steps=1, progress=False)


# -- the paper's


def test_the_papers_networks_have_the_papers_sizes():
    assert count(PaperCamera((1, 28, 28), (1, 28, 28))) == 180_289
    water = PaperShallowWater((100,), (2, 100, 100))
    convolutions = 16 * (2 * 512 + 512 * 256 + 256 * 128 + 128 * 128 + 128)
    assert count(water) == convolutions + 2 * (512 + 256 + 128 + 128) + 25 * 36 + 36 * 100 == 2_908_564


def test_the_papers_shallow_water_is_gaussian_with_one_covariance():
    torch.manual_seed(0)
    water = PaperShallowWater((5,), (2, 40, 40), width=2).eval()
    z = water.noise(7, 1)
    first, second = (water(water.embed(torch.randn(1, 2, 40, 40)), z) for _ in range(2))
    torch.testing.assert_close(first - first[:1], second - second[:1])


def test_the_papers_camera_stays_strictly_between_black_and_white():
    network = PaperCamera((28, 28), (28, 28)).eval()
    network.bound(torch.full((784,), -0.5), torch.full((784,), 2.5))
    draws = network.sample(5, torch.randn(3, 28, 28))
    assert draws.min() > -0.5
    assert draws.max() < 2.5
    sides = [layer(torch.zeros(1, *shape)).shape[-1] for layer, shape in zip(
        network.encoder, [(1, 28, 28), (8, 15, 15), (16, 8, 8), (32, 5, 5)], strict=True
    )]  # fmt: skip
    assert sides == [15, 8, 5, 3]


def test_the_papers_camera_hears_hardly_any_noise_before_training():
    torch.manual_seed(0)
    network, x = PaperCamera((28, 28), (28, 28)), torch.randn(8, 28, 28)
    normalised = network.sample(100, x).std(0).mean()  # by the batch, as in training
    assert normalised > 1e-3
    assert network.eval().sample(100, x).std(0).mean() < 0.1 * normalised
