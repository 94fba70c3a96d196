"""Trials and the other scripts: every change they make is a recipe that can be built and trained."""

from importlib import import_module

import numpy as np
import pytest
import torch
from benchmarks import bench, camera, collapse, shallow_water, trials

import propersbi as ps
from propersbi.building import TrainingSet, build_objective, build_sampler, prepare_sampler
from propersbi.samplers import Standardized

SCRIPTS = sorted(path.stem for path in bench.HERE.glob("*.py") if not path.stem.startswith("__"))


@pytest.fixture(scope="module")
def pairs():
    task = ps.tasks.get("two_moons")
    return ps.simulate(task.prior, task.simulate, 200, seed=0, progress=False)


@pytest.mark.parametrize("script", SCRIPTS)
def test_every_script_can_be_imported(script):
    assert import_module(f"benchmarks.{script}").__doc__


@pytest.mark.parametrize("trial", [trial for trial in trials.TRIALS if trial != "defaults"])
def test_a_trial_changes_the_recipe_and_can_be_trained(pairs, trial):
    prior = ps.tasks.get("two_moons").prior
    default = trials.recipe_of("defaults", pairs.theta, pairs.x, prior)
    recipe = trials.recipe_of(trial, pairs.theta, pairs.x, prior)
    same = trial == trials.PROBITS or trial not in trials.SHORT  # other parameters; and what long data have
    assert (recipe == default) == same
    prepared = prepare_sampler(TrainingSet(pairs.theta, pairs.x), recipe, {}, 0, None)
    loss = build_objective(recipe, prepared, None, 0).loss(prepared.batches[0])
    loss.backward()
    assert torch.isfinite(loss)


def test_blocks_of_another_kind_have_the_same_weights():
    torch.manual_seed(0)
    usual = trials.MLPGenerator((2,), (3,), chain=True, width=16)
    torch.manual_seed(0)
    other = trials.OtherBlocks((2,), (3,), chain=True, width=16, block=trials.SumBlock)
    assert sum(isinstance(module, trials.SumBlock) for module in other.modules()) == 4
    for name, weight in usual.state_dict().items():
        assert torch.equal(other.state_dict()[name], weight)


@pytest.mark.parametrize(
    ("options", "shapes"),
    [
        *((options, ((28, 28), (28, 28))) for options in camera.TRIALS.values()),
        *((options, ((2,), (2,))) for options in collapse.METHODS.values()),
        *((options, ((100,), (2, 100, 100))) for options in shallow_water.METHODS.values()),
    ],
)
def test_what_other_scripts_compare_can_be_built(options, shapes):
    recipe = ps.recipe(*(np.zeros((10, *shape)) for shape in shapes), **options)
    assert isinstance(build_sampler(recipe, shapes, {}, 0), Standardized)
