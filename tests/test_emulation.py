"""Emulated pairs: what the emulator learns, what is held out, and what cannot be emulated."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

import propersbi as ps
from propersbi import schedule
from propersbi.building import TrainingSet, prepare_sampler
from propersbi.emulation import emulate
from propersbi.networks import MLPGenerator
from propersbi.training.batches import split
from propersbi.types import InputError

PRIOR = [(-2.0, 2.0), (-2.0, 2.0)]
small = partial(MLPGenerator, width=16, depth=1)
quick = partial(ps.fit, prior=PRIOR, network=small, max_steps=20, draws=4, progress=False)


def simulate(n=200, seed=0):
    return ps.simulate(PRIOR, noisy_square, n, seed=seed, progress=False)


def noisy_square(theta, rng):
    return theta**2 + 0.1 * rng.normal(size=theta.shape)


def emulated(theta, x, count, *, seed=0, prior=PRIOR, **changes):
    recipe = ps.recipe(theta, x, prior=prior, emulated=count, **changes)
    where = {"folder": None, "seed": seed, "device": "cpu", "progress": False}
    return emulate(TrainingSet(np.asarray(theta), np.asarray(x)), recipe, prior, **where), recipe


def test_an_emulator_imitates_the_simulator():
    sims = simulate(2000)
    data, _ = emulated(sims.theta, sims.x, 4000, max_steps=800)
    theta, x = data.theta[2000:], data.x[2000:]
    assert len(theta) == data.emulated == 4000
    assert np.abs(theta).max() <= 2.0
    assert len(np.intersect1d(theta[:, 0], np.asarray(sims.theta)[:, 0])) == 0  # new parameters, not the old ones
    error = x - theta**2
    assert np.abs(error.mean(0)).max() < 0.05
    assert np.allclose(error.std(0), 0.1, atol=0.06)
    assert data.emulator["c2st"] < 0.6


def test_emulated_pairs_lower_the_score_on_fresh_simulations():
    task = ps.tasks.get("two_moons")
    sims = ps.simulate(task.prior, task.simulate, 300, seed=0, progress=False)
    test = ps.simulate(task.prior, task.simulate, 500, seed=1, progress=False)
    scores = []
    for count in (0, 10_000):
        posterior = ps.fit(sims.theta, sims.x, prior=task.prior, emulated=count, max_steps=700, progress=False)
        draws = posterior.sample_batched((20,), x=test.x, seed=0, show_progress_bars=False)
        scores.append(ps.EnergyScore()(draws, torch.as_tensor(test.theta).float()).mean().item())
    assert scores[1] < 0.98 * scores[0]


def test_held_out_pairs_are_simulated_ones():
    sims = simulate(200)
    data, recipe = emulated(sims.theta, sims.x, 600, max_steps=5)
    prepared = prepare_sampler(data, recipe, {}, 0, None)
    _, held_out = split(200, 0.1, seed=0)
    assert len(prepared.validation) == 20
    assert not np.isin(held_out, prepared.batches.rows).any()
    assert len(prepared.batches.rows) == 180 + 600


@pytest.mark.filterwarnings("ignore:A classifier distinguishes")  # a hundred steps are few
# Few simulations have a poorer emulator, and data of many numbers are memorised.
@pytest.mark.parametrize(("n", "features", "alone"), [(200, 8, 15), (4000, 8, 5), (4000, 1, 15)])
def test_the_last_steps_are_on_simulations_alone(n, features, alone):
    sims = simulate(n)
    x = np.asarray(sims.x)[:, :1] + np.random.default_rng(0).normal(size=(n, features))
    data, recipe = emulated(sims.theta, x, 3 * n, max_steps=100)
    batches = prepare_sampler(data, recipe, {}, 0, None).batches
    steps = range(90 - alone, 100 - alone), range(100 - alone, 100)
    first, last = (np.concatenate([batches.places(i) for i in part]) for part in steps)
    assert first.max() >= n
    assert last.max() < n
    assert np.isin(last, split(n, 0.1, seed=0)[0]).all()


def test_counts_stay_counts_and_positive_data_positive():
    rng = np.random.default_rng(0)
    theta = rng.uniform(0.5, 3.0, (300, 1))
    x = np.concatenate([rng.poisson(theta), np.exp(rng.normal(np.log(theta), 0.5))], 1)
    data, _ = emulated(theta, x, 600, prior=(0.5, 3.0), max_steps=20)
    made = data.x[300:]
    assert np.array_equal(made[:, 0], np.round(made[:, 0]))
    assert not np.array_equal(made[:, 1], np.round(made[:, 1]))
    assert (made >= 0).all()


def test_the_emulator_is_kept_and_training_continues_to_the_same_posterior(tmp_path):
    sims = simulate()
    whole = quick(sims.theta, sims.x, emulated=400, folder=tmp_path)
    assert (tmp_path / "emulator" / "posterior").exists()
    assert whole.info["emulator"]["steps"] == 20
    assert whole.info["seconds"] > whole.info["emulator"]["seconds"] > 0
    assert ps.Posterior.load(tmp_path / "posterior").info["emulator"] == whole.info["emulator"]
    (tmp_path / "checkpoint.ckpt").unlink()  # as if killed after the emulator
    again = quick(sims.theta, sims.x, emulated=400, folder=tmp_path)
    plain = quick(sims.theta, sims.x, emulated=400)
    x_o = np.zeros(2)
    expected = whole.sample((5,), x=x_o, seed=0)
    assert torch.equal(again.sample((5,), x=x_o, seed=0), expected)
    assert torch.equal(plain.sample((5,), x=x_o, seed=0), expected)
    assert not torch.equal(quick(sims.theta, sims.x).sample((5,), x=x_o, seed=0), expected)


def test_an_emulator_takes_fewer_steps_and_an_optimiser_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setattr(schedule, "max_steps", lambda *_, emulated, **__: (150 if emulated else 100, "quick"))
    sims = simulate()
    posterior = ps.fit(sims.theta, sims.x, prior=PRIOR, emulated=30_000, stopping=(), folder=tmp_path, progress=False)
    assert (posterior.info["emulator"]["steps"], posterior.info["steps"]) == (25, 150)
    emulator = ps.Posterior.load(tmp_path / "emulator" / "posterior")
    optimizers = [part.recipe.training.optimizer for part in (posterior, emulator)]
    assert optimizers == ["soap", "adamw"]  # 200 simulations are few, 30 200 pairs are not
    assert emulator.recipe.batch_size == 180  # all of its training pairs, up to 256


def test_an_emulator_of_many_simulations_takes_half_of_the_usual_steps():
    usual = ps.recipe(*(np.zeros((10_000, 2)),) * 2).training.max_steps
    assert schedule.emulator_settings(9000, 4, "adamw")["max_steps"] == usual // 2
    assert schedule.emulator_settings(9000, 4, "soap")["max_steps"] == usual // 4


def test_data_that_never_vary_are_emulated_as_they_are():
    sims = simulate(200)
    x = np.concatenate([np.asarray(sims.x), np.full((200, 1), 3.5)], 1)
    data, _ = emulated(sims.theta, x, 500, max_steps=20)
    assert np.allclose(data.x[200:, 2], 3.5, atol=1e-3)
    assert np.isfinite(data.x).all()


def test_a_poor_emulator_is_reported():
    sims = simulate(1000)
    with pytest.warns(UserWarning, match="distinguishes emulated from simulated pairs"):
        emulated(sims.theta, sims.x, 1000, max_steps=2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prior": None}, "need the 'prior'"),
        ({"prior": (0.0, 1.0)}, "do not fit|shape"),
        ({"weight": np.ones(200)}, "cannot be combined"),
        ({"noise": torch.relu}, "cannot be combined"),
        ({"devices": 2}, "training on one device"),
        ({"emulated": 10**9}, "ask for fewer"),
        ({"emulated": -1}, "'emulated' must be a whole number of at least 0"),
    ],
)
def test_what_cannot_be_emulated_gets_a_sentence(options, message):
    sims = simulate()
    with pytest.raises(InputError, match=message):
        quick(sims.theta, sims.x, **{"emulated": 400, **options})


def test_structured_data_are_not_emulated():
    theta = np.random.default_rng(0).normal(size=(100, 1))
    with pytest.raises(InputError, match="where theta and x are vectors"):
        ps.fit(theta, np.zeros((100, 30, 2)) + theta[:, None], prior=(0.0, 1.0), emulated=400, progress=False)


def test_rounds_and_online_training_refuse_emulated_pairs():
    with pytest.raises(InputError, match=r"'emulated' is for ps\.fit on stored simulations"):
        ps.fit_online(PRIOR, noisy_square, simulations=100, max_steps=2, workers=0, emulated=400, progress=False)
    with pytest.raises(InputError, match=r"'emulated' is for ps\.fit on stored simulations"):
        ps.fit_sequential(PRIOR, noisy_square, np.zeros(2), simulations=50, rounds=2, emulated=400, progress=False)


def default_recipe(theta, x, emulated=2000, max_steps=20):
    """The recipe that ``fit`` takes by itself for so many pairs, but with fewer emulated ones and short trainings."""
    recipe = ps.recipe(theta, x, prior=PRIOR)
    assert recipe.emulated == 100_000
    return replace(recipe, emulated=emulated).change(max_steps=max_steps, network=small, draws=4)


def test_pairs_are_emulated_by_default_and_the_recipe_says_why():
    sims = simulate(1000)
    assert "1,000 simulations are few" in str(ps.recipe(sims.theta, sims.x, prior=PRIOR))
    recipe = default_recipe(sims.theta, sims.x, max_steps=250)
    posterior = ps.fit(sims.theta, sims.x, prior=PRIOR, recipe=recipe, progress=False)
    assert posterior.recipe.emulated == 2000
    assert posterior.info["emulator"]["c2st"] < 0.65
    again = ps.fit(sims.theta, sims.x, start=posterior, progress=False)  # with the prior of its start
    assert again.recipe.emulated == 2000
    assert again.prior is PRIOR


def test_where_the_prior_is_another_one_nothing_is_emulated_by_default():
    sims = simulate(1000)
    near = np.abs(np.asarray(sims.theta)[:, 0]) < 1.5
    theta, x = np.asarray(sims.theta)[near], np.asarray(sims.x)[near]
    recipe = default_recipe(sims.theta, sims.x)
    posterior = ps.fit(theta, x, prior=PRIOR, recipe=recipe, progress=False)
    assert posterior.recipe.emulated == 0
    assert "Parameter 1 of the simulations does not follow the prior" in posterior.info["emulator"]["refused"]
    assert "no emulated pairs: Parameter 1" in str(posterior.recipe)
    with pytest.warns(UserWarning, match="Parameter 1 of the simulations does not follow the prior"):
        emulated(theta, x, 1000, max_steps=20)


def test_a_poor_emulator_is_not_used_by_default():
    sims = simulate(1000)
    recipe = default_recipe(sims.theta, sims.x, max_steps=2)
    posterior = ps.fit(sims.theta, sims.x, prior=PRIOR, recipe=recipe, progress=False)
    assert posterior.recipe.emulated == 0
    assert "distinguishes emulated from simulated pairs" in posterior.info["emulator"]["refused"]


def test_a_recipe_with_emulated_pairs_by_default_trains_without_a_prior_too():
    sims = simulate(1000)
    with pytest.warns(UserWarning, match="trained on the simulations alone"):
        posterior = ps.fit(sims.theta, sims.x, recipe=default_recipe(sims.theta, sims.x), draws=3, progress=False)
    assert posterior.recipe.emulated == 0
    assert "need the 'prior'" in posterior.recipe.reasons["emulated"]
    assert posterior.recipe.draws == 3  # what was asked for besides


def test_a_refusal_leaves_the_recipe_of_simulations_alone(monkeypatch):
    monkeypatch.setattr(schedule, "max_steps", lambda *_, emulated, **__: (20 + emulated, "quick"))
    theta = np.random.default_rng(0).uniform(-1, 1, (1000, 2))  # not from the prior
    posterior = ps.fit(theta, theta**2, prior=PRIOR, progress=False)
    assert ps.recipe(theta, theta**2, prior=PRIOR).training.max_steps == 21
    assert posterior.recipe == ps.recipe(theta, theta**2, prior=PRIOR, emulated=0)
    assert posterior.info["emulator"].keys() == {"refused"}
    assert posterior.info["steps"] == 20


def test_where_the_prior_cannot_be_drawn_from_nothing_is_emulated_by_default(monkeypatch):
    monkeypatch.setattr(schedule, "max_steps", lambda *_, **__: (20, "quick"))
    sims = simulate(1000)
    prior = lambda n, rng: np.zeros((n, 2))  # noqa: E731
    posterior = ps.fit(sims.theta, sims.x, prior=prior, progress=False)
    assert "cannot be called" in posterior.info["emulator"]["refused"]
    with pytest.raises(InputError, match="cannot be called"):
        ps.fit(sims.theta, sims.x, prior=prior, emulated=100, progress=False)
