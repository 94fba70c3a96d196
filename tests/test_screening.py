"""Numbers of the data that say nothing are found and ignored; those that matter only together with others are not."""

import json

import numpy as np
import pytest
import torch

import propersbi as ps
from propersbi.building import TrainingSet
from propersbi.emulation import emulate
from propersbi.recipes import Recipe
from propersbi.samplers import Standardize
from propersbi.screening import unrelated_numbers
from propersbi.types import InputError
from propersbi.typicality import UnlikeSimulations

PRIOR = [(-1.0, 1.0), (-1.0, 1.0)]


def noise_with(related, n=1000, size=60, seed=0):
    """Parameters, and data of noise except for what ``related(theta, rng)`` gives by place."""
    rng = np.random.default_rng(seed)
    theta, x = rng.uniform(-1, 1, (n, 2)), rng.normal(size=(n, size))
    for place, values in related(theta, rng).items():
        x[:, place] = values
    return theta, x


def two(theta, rng):
    return {7: theta[:, 0] + 0.1 * rng.normal(size=len(theta)), 30: theta[:, 1] + 0.1 * rng.normal(size=len(theta))}


def related_places(theta, x):
    return sorted(set(range(x.shape[1])) - set(unrelated_numbers(theta, x)))


@pytest.mark.parametrize("seed", range(3))
def test_the_distractors_of_slcp_are_found(seed):
    task = ps.tasks.get("slcp_distractors")
    sims = ps.simulate(task.prior, task.simulate, 1000, seed=seed, progress=False)
    assert related_places(sims.theta, sims.x) == [16, 21, 22, 23, 33, 42, 67, 90]
    recipe = ps.recipe(sims.theta, sims.x, prior=task.prior)
    assert len(recipe.ignored_x) == 92
    assert recipe.emulated > 0  # eight numbers are easy to emulate
    assert recipe.training.weight_decay == 0
    assert "92 numbers of x ignored: no dependence found" in str(recipe)


def test_dependence_need_not_be_in_the_mean():
    theta, x = noise_with(lambda theta, rng: {3: rng.normal(size=len(theta)) * np.exp(theta[:, 0])})
    assert related_places(theta, x) == [3]


def test_numbers_that_matter_only_together_with_others_are_related():
    def signed(theta, rng):
        sign, shared = rng.choice([-1.0, 1.0], len(theta)), rng.normal(size=len(theta))
        return {3: sign * theta[:, 0], 10: sign, 20: theta[:, 1] + shared, 30: shared}

    theta, x = noise_with(signed)
    assert abs(np.corrcoef(x[:, 10], theta[:, 0])[0, 1]) < 0.1  # the sign alone says nothing
    assert related_places(theta, x) == [3, 10, 20, 30]


def test_many_weak_numbers_are_not_ignored():
    """Each of them seems unrelated; together they are not."""
    theta, x = noise_with(lambda theta, rng: two(theta, rng))
    weak = x + 0.1 * theta[:, :1]
    assert len(unrelated_numbers(theta, x)) == 58
    assert unrelated_numbers(theta, weak) == []


def test_without_evidence_nothing_is_ignored():
    theta, x = noise_with(lambda *_: {})
    assert unrelated_numbers(theta, x) == []  # nothing is related
    theta, x = noise_with(two, n=30)
    assert unrelated_numbers(theta, x) == []  # few rows
    task = ps.tasks.get("bernoulli_glm_raw")
    sims = ps.simulate(task.prior, task.simulate, 1000, seed=0, progress=False)
    assert ps.recipe(sims.theta, sims.x, prior=task.prior).ignored_x == ()  # every number matters


def test_constant_numbers_are_unrelated():
    theta, x = noise_with(lambda theta, rng: {**two(theta, rng), 0: 1.0, 59: 0.0})
    assert related_places(theta, x) == [7, 30]


def test_screening_is_for_long_vectors_and_can_be_turned_off():
    theta, x = noise_with(two)
    assert len(ps.recipe(theta, x).ignored_x) == 58
    assert ps.recipe(theta, x[:, :40]).ignored_x == ()
    off = ps.recipe(theta, x, ignored_x=())
    assert off.ignored_x == ()
    assert off.training.weight_decay > 0
    assert ps.recipe(theta, x, ignored_x=3).ignored_x == (3,)
    mostly = x.copy()
    mostly[:, :31] += theta[:, :1]
    assert ps.recipe(theta, mostly).ignored_x == ()  # less than half of the numbers: not worth it
    with pytest.raises(InputError, match="Ignored numbers need a vector with numbers"):
        ps.fit(theta, x, ignored_x=(60,), max_steps=1, progress=False)
    with pytest.raises(InputError, match="'ignored_x' must hold the numbers of columns"):
        ps.recipe(theta, x, ignored_x=("a",))


def test_weights_and_noise_prevent_it():
    theta, x = noise_with(two)
    quick = {"max_steps": 2, "progress": False}
    assert len(ps.fit(theta, x, **quick).recipe.ignored_x) == 58
    assert ps.fit(theta, x, weight=np.ones(len(x)), **quick).recipe.ignored_x == ()
    assert ps.fit(theta, x, noise=lambda x: x, **quick).recipe.ignored_x == ()


def test_draws_do_not_depend_on_ignored_numbers_but_the_check_of_the_observation_does(tmp_path):
    theta, x = noise_with(two)
    posterior = ps.fit(theta, x, max_steps=20, progress=False)
    other = x[0].copy()
    other[[0, 59]] = 0.5
    draws = [posterior.sample((10,), x=row, seed=0) for row in (x[0], other)]
    assert torch.equal(*draws)
    posterior.save(tmp_path / "p")
    assert torch.equal(ps.Posterior.load(tmp_path / "p").sample((10,), x=x[0], seed=0), draws[0])
    assert Recipe.from_json(json.loads(json.dumps(posterior.recipe.to_json()))).ignored_x == posterior.recipe.ignored_x
    other[0] = 40.0
    with pytest.warns(UnlikeSimulations, match=r"x\[0\]"):
        assert torch.equal(posterior.sample((10,), x=other, seed=0), draws[0])


def test_the_emulator_learns_the_related_numbers_only():
    theta, x = noise_with(two)
    recipe = ps.recipe(theta, x, prior=PRIOR, emulated=1500, max_steps=300)
    data = emulate(TrainingSet(theta, x), recipe, PRIOR, folder=None, seed=0, device="cpu", progress=False)
    more, made = data.theta[1000:], data.x[1000:]
    assert np.abs(made[:, 7] - more[:, 0]).mean() < 0.2
    assert np.array_equal(made[:1000, 0], x[:, 0])  # ignored numbers are those of simulations
    assert "refused" not in data.emulator


def test_units_ignore_numbers():
    units = Standardize((3,), ignored=(1,)).fit(torch.randn(100, 3))
    assert units(torch.full((2, 3), 5.0))[:, 1].tolist() == [0.0, 0.0]
    assert units(torch.full((2, 3), 5.0))[0, 0] != 0
    with pytest.raises(InputError, match="ignored numbers cannot be inverted"):
        units.inverse(torch.zeros(1, 3))
