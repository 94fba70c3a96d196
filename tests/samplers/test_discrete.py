"""Integers and categories: posteriors that are known exactly."""

from functools import partial

import numpy as np
import pytest
import scipy.stats as st
import torch
from torch import distributions as dist

import propersbi as ps
from propersbi.building import TrainingSet, prepare_sampler
from propersbi.networks import MLPGenerator
from tests.simulation.test_priors import Frame

QUICK = {
    "network": partial(MLPGenerator, width=48, depth=1, step_depth=1),
    "max_steps": 600,
    "draws": 10,
    "batch_size": 128,
    "learning_rate": 2e-3,
    "progress": False,
}


def distance(draws, probabilities):
    """The total variation distance of draws 0, 1, 2, ... to their probabilities."""
    shares = np.bincount(draws.numpy().astype(int).ravel(), minlength=len(probabilities)) / len(draws)
    return 0.5 * np.abs(shares - np.pad(probabilities, (0, len(shares) - len(probabilities)))).sum()


@pytest.mark.parametrize("prior", [dist.Poisson(4.0), None], ids=["the prior says so", "the type says so"])
def test_a_count_that_was_thinned(prior):
    """k ~ Poisson(4) and x ~ Binomial(k, 1/2): what is not seen, k - x, is Poisson(2)."""
    rng = np.random.default_rng(0)
    k = rng.poisson(4.0, size=(3000, 1))
    x = rng.binomial(k, 0.5).astype(float)
    posterior = ps.fit(k if prior is None else k.astype(float), x, prior=prior, **QUICK)
    assert posterior.box.lower == 0
    assert posterior.recipe.discrete == (0,)
    assert ps.recipe(k.astype(float), x, prior=st.poisson(4.0)).discrete == (0,)
    for seen in (0, 2, 4):
        draws = posterior.sample((4000,), x=[seen], seed=0)
        assert torch.equal(draws, draws.round())
        assert (draws >= 0).all()
        assert distance(draws, st.poisson(2.0).pmf(np.arange(20) - seen)) < 0.12


def test_a_category():
    """Three components of a Gaussian mixture, of known means."""
    shares, means = np.array([0.5, 0.3, 0.2]), np.array([-1.0, 2.0, 0.5])
    prior = dist.Categorical(torch.as_tensor(shares))
    rng = np.random.default_rng(0)
    k = rng.choice(3, size=(3000, 1), p=shares)
    posterior = ps.fit(k.astype(float), means[k] + rng.normal(size=k.shape), prior=prior, **QUICK)
    assert posterior.recipe.support == ps.samplers.Categories(3)
    for x in (-1.0, 0.5, 2.0):
        exact = shares * st.norm(means, 1).pdf(x)
        draws = posterior.sample((4000,), x=[x], seed=0)
        assert distance(draws, exact / exact.sum()) < 0.1


def test_a_count_beside_a_number():
    """An urn: b ~ U(0, 1), k ~ Binomial(5, 1/2), and both are seen with noise."""
    prior = {"b": (0.0, 1.0), "k": dist.Binomial(5, torch.tensor(0.5))}
    rng = np.random.default_rng(0)
    theta = np.stack([rng.uniform(size=3000), rng.binomial(5, 0.5, size=3000)], 1)
    x = theta + rng.normal(size=theta.shape) * [0.2, 1.0]
    posterior = ps.fit(theta, x, prior=prior, **QUICK)
    assert posterior.parameter_names == ("b", "k")
    draws = posterior.sample((4000,), x=[0.5, 3.0], seed=0)
    exact = st.binom(5, 0.5).pmf(np.arange(6)) * st.norm(np.arange(6), 1).pdf(3.0)
    assert distance(draws[:, 1], exact / exact.sum()) < 0.12
    assert draws[:, 0].mean().item() == pytest.approx(0.5, abs=0.05)
    assert draws[:, 0].std().item() == pytest.approx(0.195, abs=0.04)
    assert ((draws[:, 0] >= 0) & (draws[:, 0] <= 1)).all()


def test_one_bit_of_a_flow():
    """theta ~ Bernoulli(1/2) and x ~ N(theta, 1): the log odds of theta are x - 1/2."""
    rng = np.random.default_rng(0)
    bit = rng.integers(2, size=(2000, 1)).astype(bool)
    network = partial(ps.networks.Flow, transforms=2, width=32)
    options = {"objective": ps.MaximumLikelihood, "network": network, "max_steps": 300, "progress": False}
    posterior = ps.fit(bit, bit + rng.normal(size=bit.shape), **options)
    for x in (0.0, 1.5):
        draws = posterior.sample((4000,), x=[x], seed=0)
        assert set(draws.unique().tolist()) == {0.0, 1.0}
        assert draws.mean().item() == pytest.approx(1 / (1 + np.exp(0.5 - x)), abs=0.06)


def test_floats_are_not_integers_unless_it_is_said():
    theta = np.random.default_rng(0).poisson(4.0, size=(200, 2)).astype(float)
    assert ps.recipe(theta, theta).discrete == ()
    assert ps.recipe(theta.astype(int), theta).discrete == (0, 1)
    assert ps.recipe(theta, theta, discrete=[1]).discrete == (1,)
    assert ps.recipe(theta.astype(int), theta, discrete=[]).discrete == ()
    assert "integers at place 1: chosen" in str(ps.recipe(theta, theta, discrete=[1]))
    assert "integers at places 0, 1: the type of theta" in str(ps.recipe(theta.astype(int), theta))
    assert "the range of the integers in theta" in str(ps.recipe(theta.astype(int), theta))
    said = str(ps.recipe(theta, theta, prior=[dist.Poisson(3.0), (0.0, 20.0)]))
    assert "integers at place 0: the prior's" in said


def test_integer_images_keep_their_shape():
    """Dequantised, pixels still make an image, for networks of images."""
    theta = np.random.default_rng(0).integers(256, size=(40, 8, 8)).astype(np.uint8)
    recipe = ps.recipe(theta, theta.astype(np.float32))
    assert recipe.network.name == "UNetGenerator"
    network = partial(ps.networks.UNetGenerator, channels=(4,))
    posterior = ps.fit(theta, theta.astype(np.float32), network=network, max_steps=2, progress=False)
    draws = posterior.sample((3,), x=theta[0].astype(np.float32))
    assert draws.shape == (3, 8, 8)
    assert torch.equal(draws, draws.round())


def test_parameters_in_a_table_are_integers_column_by_column():
    table = Frame(rate=np.linspace(0, 1, 50), count=np.arange(50) % 7)
    recipe = ps.recipe(table, np.random.default_rng(0).normal(size=(50, 2)))
    assert recipe.discrete == (1,)
    assert recipe.support == ps.Box((None, 0.0), (None, 6.0))
    assert ps.recipe(table, np.zeros((50, 2)), discrete=["rate"]).discrete == (0,)
    options = {**QUICK, "max_steps": 2}
    first, again = (ps.fit(table, np.random.default_rng(0).normal(size=(50, 2)), **options) for _ in range(2))
    assert first.parameter_names == ("rate", "count")
    assert torch.equal(first.sample((9,), x=[0, 0], seed=0), again.sample((9,), x=[0, 0], seed=0))


def test_a_training_that_was_cut_off_ends_as_the_uninterrupted_one(tmp_path):
    """The noise that makes integers continuous depends on the seed and the step alone."""
    theta = np.random.default_rng(0).poisson(4.0, size=(200, 1))
    options = {**QUICK, "batch_size": 64, "max_steps": 8, "validate_every": 2, "decay": False, "warmup": 2}
    whole = ps.fit(theta, theta.astype(float), **options)
    ps.fit(theta, theta.astype(float), folder=tmp_path, **options | {"max_steps": 4})
    continued = ps.fit(theta, theta.astype(float), folder=tmp_path, **options)
    assert continued.history.steps == 8
    assert continued.history.train["loss"] == whole.history.train["loss"]


@pytest.mark.parametrize("given", [{"discrete": [0]}, {"support": ps.samplers.Categories(4)}])
def test_the_noise_on_whole_numbers_is_new_in_each_pass(given):
    rng = np.random.default_rng(0)
    theta = rng.integers(0, 4, (100, 1)).astype(float)
    recipe = ps.recipe(theta, theta + rng.normal(size=theta.shape), batch_size=90, **given)
    batches = prepare_sampler(TrainingSet(theta, theta), recipe, {}, 0, None).batches
    first, second = (batches[number].theta[np.argsort(batches.places(number))] for number in (0, 1))
    assert not torch.isclose(first, second).any()
