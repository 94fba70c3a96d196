"""The paper's networks, critics and training: its sizes, its recipe, and what comes back from disk."""

import numpy as np
import pytest
import torch
from benchmarks import bench, cells
from benchmarks.paper import gatsbi
from benchmarks.paper.critics import PaperCritic, PaperFieldCritic, PaperImageCritic
from benchmarks.paper.networks import PaperCamera, PaperMLP, PaperShallowWater
from benchmarks.paper.recipes import paper_recipe
from benchmarks.paper.specs import factory
from benchmarks.paper.training import FreshBatches, fit

import propersbi as ps
from propersbi import tasks
from propersbi.recipes import Recipe
from propersbi.samplers import Box, Standardize
from propersbi.training import Evenness, FirstRise
from propersbi.training.batches import Batches
from propersbi.training.divergences import JensenShannon
from propersbi.types import InputError
from tests.benchmarks.test_bench import TINY

SHAPES = {name: (tasks.get(name).theta_shape, tasks.get(name).x_shape) for name in ("two_moons", "slcp", "camera")}
SHAPES["shallow_water"] = ((100,), (2, 100, 100))


def count(network):
    return sum(weight.numel() for weight in network.parameters())


@pytest.fixture
def tiny_cells(tmp_path):
    path = tmp_path / "tiny.toml"
    path.write_text(TINY + '\n[[methods]]\nname = "GAN"\nm = [1]\ngan = "two_moons_small"\n')
    return bench.read_spec(str(path)).within(0.5)


# -- networks


def test_the_networks_have_the_sizes_of_the_paper():
    assert count(PaperMLP((2,), (2,))) == 50_434
    assert count(PaperCamera((1, 28, 28), (1, 28, 28))) == 180_289
    water = PaperShallowWater((100,), (2, 100, 100))
    convolutions = 16 * (2 * 512 + 512 * 256 + 256 * 128 + 128 * 128 + 128)
    assert count(water) == convolutions + 2 * (512 + 256 + 128 + 128) + 25 * 36 + 36 * 100 == 2_908_564


def test_the_shallow_water_posterior_is_gaussian_with_one_covariance():
    torch.manual_seed(0)
    water = PaperShallowWater((5,), (2, 40, 40), width=2).eval()
    z = water.noise(7, 1)
    first, second = (water(water.embed(torch.randn(1, 2, 40, 40)), z) for _ in range(2))
    torch.testing.assert_close(first - first[:1], second - second[:1])


def test_the_camera_stays_strictly_between_its_bounds():
    network = PaperCamera((28, 28), (28, 28)).eval()
    network.prepare(torch.zeros(1, 28, 28), torch.zeros(1, 28, 28), Box(-0.5, 2.5).bounds(784))
    draws = network.sample(5, torch.randn(3, 28, 28))
    assert draws.min() > -0.5
    assert draws.max() < 2.5
    inputs = [(1, 28, 28), (8, 15, 15), (16, 8, 8), (32, 5, 5)]
    layers = zip(network.encoder, inputs, strict=True)
    assert [layer(torch.zeros(1, *shape)).shape[-1] for layer, shape in layers] == [15, 8, 5, 3]


def test_noise_hardly_reaches_the_images_of_an_untrained_camera():
    torch.manual_seed(0)
    network, x = PaperCamera((28, 28), (28, 28)), torch.randn(8, 28, 28)
    normalised = network.sample(100, x).std(0).mean()  # by the batch, as in training
    assert normalised > 1e-3
    assert network.eval().sample(100, x).std(0).mean() < 0.1 * normalised


def test_wrong_shapes_are_reported():
    with pytest.raises(InputError, match="images of 28 x 28 pixels"):
        PaperCamera((8, 8), (28, 28))
    with pytest.raises(InputError, match="channels and two grid axes"):
        PaperShallowWater((100,), (100,))
    camera = np.zeros((40, 28, 28))
    camera[:, 5:9] = np.random.default_rng(0).normal(size=(40, 4, 28))
    with pytest.raises(InputError, match="needs bounds of its pixels"):
        ps.fit(camera, camera, network=PaperCamera, max_steps=1, progress=False)


# -- critics


def test_the_critics_have_the_sizes_of_the_paper():
    assert count(PaperCritic((5,), (8,))) == pytest.approx(16.82e6, rel=1e-3)
    assert count(PaperCritic((2,), (2,), depth=3)) == pytest.approx(8.40e6, rel=1e-3)
    assert count(PaperImageCritic((1, 28, 28), (1, 28, 28))) == 437
    field = PaperFieldCritic((100,), (2, 100, 100))
    assert count(field) == pytest.approx(0.92e6, rel=0.01)
    assert field(torch.zeros(3, 2, 100), torch.zeros(2, 2, 100, 100)).shape == (3, 2)


@pytest.mark.parametrize("shape", [(28, 28), (1, 28, 28)])
def test_the_image_critic_keeps_draws_with_their_rows(shape):
    network = PaperImageCritic(shape, shape).eval()
    theta, x = torch.rand(3, 2, *shape), torch.rand(2, *shape)
    whole = network(theta, x)
    parts = [network(theta[:, i : i + 1], x[i : i + 1]) for i in range(2)]
    torch.testing.assert_close(torch.cat(parts, 1), whole)


def test_a_camera_is_trained_against_the_critic_of_the_paper():
    task = tasks.get("camera")
    theta, x = ps.simulate(task.prior, task.simulate, 60, progress=False)
    objective = gatsbi.objective(gatsbi.read_spec("camera"))
    changes = {"objective": objective, "network": PaperCamera, "max_steps": 2, "batch_size": 20}
    posterior = ps.fit(theta, x, prior=task.prior, progress=False, **changes)
    draws = posterior.sample((3,), x=task.observation(1))
    assert draws.shape == (3, 28, 28)
    assert ((draws >= 0) & (draws <= 1)).all()


# -- specifications of adversarial training


def test_every_specification_has_a_critic_and_a_divergence():
    for name in gatsbi.specs():
        for reduced in (False, True):
            spec = gatsbi.read_spec(name, reduced)
            theta_shape, x_shape = SHAPES[spec["task"]]
            made = gatsbi.objective(spec)
            if reduced or made.critic.name != "PaperCritic":  # the large ones are built above
                network = made.critic(theta_shape, x_shape)
                assert network(torch.zeros(2, 3, *theta_shape), torch.zeros(3, *x_shape)).shape == (2, 3)
            assert isinstance(made.divergence, JensenShannon)
    with pytest.raises(InputError, match="There is no specification 'x'"):
        gatsbi.read_spec("x")


def test_the_generator_of_the_tuned_configuration_is_tiny():
    assert count(factory(gatsbi.read_spec("two_moons_small")["generator"])((2,), (2,))) == 898


def test_a_reduced_specification_is_trained_in_standardised_units():
    task = tasks.get("two_moons")
    sims = ps.simulate(task.prior, task.simulate, 300, seed=0, progress=False)
    spec = gatsbi.read_spec("two_moons", reduced=True)
    posterior = gatsbi.fit(spec, sims.theta, sims.x, task.prior, 0, max_steps=10, validate_every=5, progress=False)
    assert posterior.info["objective"] == "Adversarial"
    assert posterior.recipe.training.stopping == (Evenness(0.001),)
    assert posterior.sample((5,), x=task.observation(1)).shape == (5, 2)


# -- training


def test_a_recipe_of_the_paper():
    spec = bench.read_spec("slcp-paper").content
    options = {"draws": 20, "simulations": 10_000}
    recipe = paper_recipe({"rule": {"class": "KernelScore"}}, spec["training"], (5,), **options)
    assert recipe.network == factory({"class": "PaperMLP"})
    assert (recipe.batch_size, recipe.validation_fraction, recipe.refinement_steps, recipe.regression) == (
        spec["training"]["batch_size"], spec["training"]["held_out"], 1, False,
    )  # fmt: skip
    training = recipe.training
    assert training.stopping == (FirstRise(spec["training"]["first_rise"]),)
    assert (training.keep, training.average, training.warmup, training.decay) == ("last", 0.0, 0, False)
    assert training.clip is None
    small, large = (
        paper_recipe({"gan": "slcp"}, {**spec["training"], "max_steps": 700}, (5,), reduced=reduced, **options)
        for reduced in (True, False)
    )
    assert small.training.max_steps == large.training.max_steps == 700  # the budget alone decides
    assert (small.batch_size, large.batch_size) == (250, 1000)
    for made in (recipe, small, large):
        assert Recipe.from_json(made.to_json()) == made


def test_batches_of_the_paper_are_independent():
    source = Batches(
        np.arange(40.0)[:, None], np.zeros((40, 1)), np.arange(30), 20, Standardize((1,)), Standardize((1,))
    )
    batches = FreshBatches(source)
    first, second = (set(batches[i].theta.flatten().tolist()) for i in (0, 1))
    assert len(first) == len(second) == 20  # without replacement within a batch
    assert first & second  # but not between batches
    assert max(first | second) < 30


def test_parameters_are_learnt_as_differences_to_the_centre():
    rng = np.random.default_rng(0)
    theta = 10 + rng.normal(size=(40, 2))
    training = {"network": {"class": "PaperMLP"}, "batch_size": 4, "held_out": 0.2, "max_steps": 2, "first_rise": 0}
    recipe = paper_recipe({"rule": {"class": "EnergyScore"}}, training, (2,), draws=3, simulations=40)
    far, near = (
        fit(theta - shift, theta, recipe, center=10.0 - shift, progress=False).sample((5,), x=theta[0], seed=0)
        for shift in (0.0, 10.0)
    )
    torch.testing.assert_close(far, near + 10)


@pytest.mark.parametrize("number", [0, 2], ids=["energy", "gan"])
def test_a_cell_and_its_posterior_come_back_from_disk(tiny_cells, number, tmp_path):
    cell = tiny_cells[number]
    result = cells.measure(cell, tmp_path, progress=False)
    assert cells.measure(cell, tmp_path, progress=False) == result
    folder, x = cell.folder(tmp_path), tasks.get("two_moons").observation(1)
    sims = cells.simulate(cell, tasks.get("two_moons"), tmp_path, False)
    limit = {"max_steps": result["metrics"]["stop_step"][0]}
    again = cells.train(cell, tasks.get("two_moons"), sims, folder, False, **limit)  # continues what is finished
    loaded = ps.Posterior.load(folder / "posterior")
    assert isinstance(loaded.sampler.sampler, PaperMLP)
    assert loaded.recipe == again.recipe
    assert loaded.history.validation == again.history.validation
    assert torch.equal(loaded.sample((7,), x=x, seed=0), again.sample((7,), x=x, seed=0))
