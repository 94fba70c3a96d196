"""Structured data from the simulator to the posterior: parts, varying lengths, missing entries."""

import warnings
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch

import propersbi as ps
from propersbi.layouts import Kind, Layout, PackedArray, Part, pack
from propersbi.networks import MLPGenerator, SeriesEmbedding
from propersbi.samplers import Standardize

RNG = np.random.default_rng(0)
N = 120
THETA = RNG.normal(size=(N, 2)).astype(np.float32)
SERIES = THETA[:, :1] + 0.1 * RNG.normal(size=(N, 70)).cumsum(1)
TRIALS = [THETA[i, 1] + RNG.normal(size=(RNG.integers(1, 13), 2)) for i in range(N)]
VECTOR = np.where(RNG.random((N, 5)) < 0.2, np.nan, THETA @ RNG.normal(size=(2, 5)) + RNG.normal(size=(N, 5)))
IMAGES = THETA[:, :1, None] + RNG.normal(size=(N, 9, 8))
SMALL = {"max_steps": 3, "network": partial(MLPGenerator, width=16)}
QUICK = {**SMALL, "progress": False}

DATA = {
    "series": (SERIES, SERIES[0], {}, "SeriesEmbedding"),
    "series of varying length": (TRIALS, TRIALS[0], {}, "SeriesEmbedding"),
    "set": (TRIALS, np.zeros((40, 2)), {"exchangeable": True}, "SetEmbedding"),
    "image": (IMAGES, IMAGES[0], {}, "ImageEmbedding"),
    "missing": (VECTOR, VECTOR[0], {"missing": "allow"}, "VectorEmbedding"),
    "hidden": (THETA @ np.ones((2, 3)), [np.nan, 1.0, 1.0], {"missing": ps.Missing(0.5)}, "VectorEmbedding"),
    "parts": (
        {"light": SERIES, "trials": TRIALS, "magnitude": THETA[:, 0]},
        {"magnitude": 0.1, "trials": TRIALS[3], "light": SERIES[3]},
        {"exchangeable": ["trials"]},
        "PartsEmbedding",
    ),
}


def rows(x, count):
    return {name: part[:count] for name, part in x.items()} if isinstance(x, dict) else x[:count]


@pytest.mark.parametrize("name", DATA)
def test_structured_data_train_save_load_and_sample(name, tmp_path):
    x, observation, options, embedding = DATA[name]
    posterior = ps.fit(THETA, x, **QUICK, **options)
    assert posterior.recipe.embedding.name == embedding
    assert posterior.recipe == ps.recipe(THETA, x, **SMALL, **options)
    assert ps.Recipe.from_json(posterior.recipe.to_json()) == posterior.recipe
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ps.UnlikeSimulations)
        samples = posterior.sample((4,), x=observation, seed=1)
        posterior.set_default_x(observation).save(tmp_path / "p")
        loaded = ps.Posterior.load(tmp_path / "p")
        assert torch.equal(loaded.sample((4,), seed=1), samples)
        assert torch.equal(loaded.sample((4,), x=observation, seed=1), samples)
        assert posterior.sample_batched((4,), rows(x, 3)).shape == (4, 3, 2)


def test_one_and_many_observations_give_the_same_draws():
    posterior = ps.fit(THETA, TRIALS, **QUICK, exchangeable=True)
    alone = [posterior.sample((5,), x=TRIALS[i], seed=3) for i in range(3)]
    padded, _ = pack(TRIALS[:3])
    for i in range(3):
        together = posterior.sample_batched((5,), padded[i : i + 1], seed=3)[:, 0]
        torch.testing.assert_close(together, alone[i], rtol=1e-4, atol=1e-4)


READS = {"left": 10**9}


def interrupted(x):
    """No noise; but a training that reads its data this often is cut off."""
    READS["left"] -= 1
    if not READS["left"]:
        raise KeyboardInterrupt
    return x


def test_training_with_hidden_entries_resumes_to_the_bit(tmp_path):
    x = THETA @ np.ones((2, 4)) + RNG.normal(size=(N, 4))
    options = {**QUICK, "max_steps": 6, "missing": ps.Missing(0.3), "validate_every": 2, "checkpoint_every": 0.0}
    whole = ps.fit(THETA, x, noise=interrupted, **options)
    READS["left"] = 7  # one is for the units, one for validation
    with pytest.raises(KeyboardInterrupt):
        ps.fit(THETA, x, noise=interrupted, folder=tmp_path, **options)
    READS["left"] = 10**9
    resumed = ps.fit(THETA, x, noise=interrupted, folder=tmp_path, **options)
    assert torch.equal(resumed.sample((3,), x=x[0], seed=0), whole.sample((3,), x=x[0], seed=0))


def test_missing_entries_are_data_if_many_rows_have_some():
    with pytest.warns(UserWarning, match="have missing entries, which are taken as data"):
        recipe = ps.recipe(THETA, VECTOR)
    assert recipe.missing == "allow"
    assert "found in the data" in str(recipe)
    with pytest.warns(UserWarning, match="are left out"):
        assert ps.recipe(THETA, VECTOR, missing="exclude").embedding is None
    masked = ps.recipe(THETA, np.ma.masked_invalid(VECTOR), missing="allow")
    table = ps.recipe(THETA, pd.DataFrame(VECTOR).convert_dtypes(), missing="allow")
    assert masked == table


def test_an_observation_with_gaps_needs_a_posterior_that_takes_them():
    complete = np.nan_to_num(VECTOR)
    posterior = ps.fit(THETA, complete, **QUICK)
    with pytest.raises(ps.InputError, match="'x' must be finite, got nan"):
        posterior.sample((2,), x=VECTOR[np.isnan(VECTOR).any(1)][0])
    allowed = ps.fit(THETA, VECTOR, missing="allow", **QUICK)
    with pytest.raises(ps.InputError, match="All entries of 'x' are missing"):
        allowed.sample((2,), x=np.full(5, np.nan))
    with pytest.raises(ps.InputError, match="'x' must be finite, got inf"):
        allowed.sample((2,), x=[np.inf, 0, 0, 0, 0])


def test_simulations_keep_their_layout_in_memory_and_on_disk(tmp_path):
    def simulator(theta, rng):
        trials = np.full((6, 1), np.nan)
        count = rng.integers(1, 7)
        trials[:count] = theta[0] + rng.normal(size=(count, 1))
        return {"trials": trials, "number": theta[1]}

    prior = [(-1.0, 1.0), (0.0, 1.0)]
    here = ps.simulate(prior, simulator, 60, missing="allow", progress=False)
    there = ps.simulate(prior, simulator, 60, missing="allow", progress=False, path=tmp_path)
    layout = Layout((Part("trials", (6, 1)), Part("number", ())))
    assert here.x.layout == there.x.layout == layout
    assert len(here) == len(there) == 60
    np.testing.assert_array_equal(np.asarray(here.x), np.asarray(there.x))
    recipe = ps.recipe(there.theta, there.x, exchangeable=["trials"])
    assert recipe.layout.parts[0].kind is Kind.SET
    posterior = ps.fit(here.theta, here.x, exchangeable=["trials"], **QUICK)
    assert posterior.sample((2,), x={"trials": [[0.5], [0.1]], "number": 0.3}).shape == (2, 2)
    diagnostics = ps.diagnose(posterior, there.theta, there.x, num_samples=100, progress=False)
    assert diagnostics.n == 60
    with pytest.raises(ps.InputError, match="at most 6, the longest of the simulations"):
        posterior.sample((2,), x={"trials": np.zeros((9, 1)), "number": 0.3})
    with pytest.raises(ps.InputError, match="must have the parts"):
        posterior.sample((2,), x={"trials": np.zeros((3, 1))})


def test_columns_of_packed_rows_have_no_layout():
    packed = PackedArray(np.zeros((4, 3)), Layout((Part("a", (2,)), Part("b", ()))))
    assert packed[:2].layout is not None
    assert packed[:, :2].layout is None
    parts = packed.layout.unpack(packed)
    assert parts["a"].shape == (4, 2)
    assert parts["b"].shape == (4,)


def test_rows_that_differ_in_more_than_their_length_are_refused():
    with pytest.raises(ps.InputError, match="may differ in their first axis only"):
        ps.recipe(THETA[:2], [np.zeros((2, 1)), np.zeros((3, 2))])


def test_the_recipe_says_what_it_takes_data_for():
    assert "a series of 70 times, since neighbours correlate" in str(ps.recipe(THETA, SERIES))
    assert "an image, by its shape (9, 8)" in str(ps.recipe(THETA, IMAGES))
    assert ps.recipe(THETA, RNG.normal(size=(N, 70))).embedding is None
    assert ps.recipe(THETA, SERIES, embedding=SeriesEmbedding((70,), learnt=3)).embedding.options["learnt"] == 3
    with pytest.raises(ps.InputError, match="'exchangeable' must be true, false or a list of parts"):
        ps.recipe(THETA, SERIES, exchangeable=["trials"])


def test_units_of_data_can_be_given_and_masks_stay():
    x = np.column_stack([100 + RNG.normal(size=N), RNG.random(N) < 0.5]).astype(float)
    found = ps.fit(THETA, x, **QUICK).sampler.x_units
    assert found.center[0] > 90
    assert (found.center[1], found.scale[1]) == (0, 1)
    raw = ps.fit(THETA, x, standardize=False, **QUICK).sampler.x_units
    assert (raw.center == 0).all()
    given = ps.fit(THETA, x, standardize=([100.0, 0.0], [2.0, 1.0]), **QUICK).sampler.x_units
    assert given.scale.tolist() == [2.0, 1.0]
    with pytest.raises(ps.InputError, match="Given units must be one number or 2"):
        ps.fit(THETA, x, standardize=([1.0, 2.0, 3.0], 1.0), **QUICK)


def test_numbers_of_one_channel_share_their_units():
    x = torch.randn(500, 6, 2) * torch.tensor([1.0, 10.0]) + torch.tensor([0.0, 5.0])
    units = Standardize((6, 2), tail=100.0, periods=((12, 2),)).fit(x)
    assert units.scale.shape == (2,)
    assert units(x).std((0, 1)).allclose(torch.ones(2), atol=0.1)
    assert units(torch.zeros(3, 9, 2)).shape == (3, 9, 2)


def test_a_regression_on_statistics_needs_no_training():
    x = torch.as_tensor(SERIES).float()
    generator = MLPGenerator((2,), (70,), chain=True, width=16, embedding=SeriesEmbedding((70,), learnt=4))
    sampler = ps.samplers.LinearResidual(ps.samplers.Refined(generator, refinement_steps=2))
    sampler.prepare(torch.as_tensor(THETA), x, ps.samplers.Bounds.none(2))
    mean = sampler.sample(200, x).mean(0)[:, 0]
    assert np.corrcoef(mean.detach(), THETA[:, 0])[0, 1] > 0.9
