"""The recipe: a value that says everything about a training, and why."""

import json
from dataclasses import FrozenInstanceError, replace
from functools import partial

import numpy as np
import pytest
import torch

import propersbi as ps
from propersbi.choices import Choices
from propersbi.networks import MLPGenerator
from propersbi.recipes import Factory, Own, Recipe
from propersbi.types import InputError


def pairs(n=200, d=2, features=2):
    rng = np.random.default_rng(0)
    theta = rng.uniform(-1, 1, size=(n, d))
    return theta, rng.normal(size=(n, features)) + theta.sum(1, keepdims=True)


def test_fit_follows_the_recipe_and_keeps_it(tmp_path):
    theta, x = pairs()
    changes = {"max_steps": 10, "validate_every": 5, "network": partial(MLPGenerator, width=16)}
    recipe = ps.recipe(theta, x, prior=(-1.0, 1.0), **changes)
    posterior = ps.fit(theta, x, prior=(-1.0, 1.0), progress=False, **changes)
    assert posterior.recipe == recipe
    again = ps.fit(theta, x, recipe=posterior.recipe, progress=False)
    assert torch.equal(again.sample((5,), x=x[0], seed=0), posterior.sample((5,), x=x[0], seed=0))
    posterior.save(tmp_path / "p")
    assert ps.Posterior.load(tmp_path / "p").recipe == recipe


def test_a_recipe_is_a_frozen_value():
    recipe = ps.recipe(*pairs())
    with pytest.raises(FrozenInstanceError):
        recipe.draws = 3
    assert recipe == ps.recipe(*pairs())
    assert recipe != recipe.change(draws=3)
    assert recipe.change(draws=3) == replace(recipe, draws=3)
    assert recipe.change(max_steps=3).training.max_steps == 3


RECIPES = {
    "default": {},
    "own options": {"rule": ps.KernelScore(), "draws": 7, "support": ps.Box(-1.0, (1.0, None)), "tail": None},
    "stopping": {"stopping": (ps.Patience(3), ps.FirstRise(100)), "keep": "last", "betas": [0.5, 0.9]},
    "adversarial": {"objective": partial(ps.Adversarial, divergence=ps.training.divergences.KL(), critic_steps=2)},
    "flow": {"objective": ps.MaximumLikelihood},
    "network": {"network": partial(MLPGenerator, width=16, places=(0, 1))},
    "simplex": {"support": ps.samplers.Simplex(2)},
    "integers": {"discrete": [1], "support": (0.0, 5.0)},
    "blocks": {"support": [ps.samplers.Categories(3), ps.samplers.Integers(lower=0.0)]},
    "built": {"network": MLPGenerator((2,), (2,), width=16)},
}


@pytest.mark.parametrize("changes", RECIPES.values(), ids=RECIPES)
def test_a_recipe_survives_json(changes):
    recipe = ps.recipe(*pairs(), **changes)
    twin = Recipe.from_json(json.loads(json.dumps(recipe.to_json())))
    assert twin == recipe
    assert str(twin) == str(recipe)


def test_objects_of_the_users_own_are_kept_by_name_and_must_be_passed_again():
    def rule(samples, theta):
        return (samples - theta).abs().mean((0, 2))

    theta, x = pairs()
    recipe = ps.recipe(theta, x, rule=rule, max_steps=2)
    twin = Recipe.from_json(recipe.to_json())
    assert isinstance(twin.rule, Own)
    with pytest.raises(InputError, match=r"scoring rule of your own, '.*rule': pass it again as 'rule'"):
        ps.fit(theta, x, recipe=twin, progress=False)
    assert ps.fit(theta, x, recipe=twin, rule=rule, progress=False).sample((2,), x=x[0]).shape == (2, 2)
    embedded = ps.recipe(theta, x, embedding=torch.nn.Linear(2, 3))
    with pytest.raises(InputError, match=r"own, 'torch.nn.modules.linear.Linear': pass it again as 'embedding'"):
        ps.fit(theta, x, recipe=embedded, progress=False)


@pytest.mark.parametrize(
    ("shapes", "lines"),
    [
        (
            ((2,), (2,)),
            [
                "10 draws per pair: more draws did not help",
                "learning rate 0.006: ",
                "8 refinement steps: ",
                "linear regression first: ",
            ],
        ),
        (((2,), (100,)), ["weight decay 0.3: 100 numbers in x"]),
        (((8, 8), (8, 8)), ["network UNetGenerator(): theta and x are images", "5 draws per pair: images are large"]),
        (((3,), (40, 40)), ["embedding ImageEmbedding(): x: an image, by its shape (40, 40)", "8 refinement steps: "]),
        (((3,), (120, 90)), ["embedding GridEmbedding(): 10800 numbers in x", "draws in one pass: 10800 numbers in x"]),
    ],
)
def test_every_choice_has_a_reason(shapes, lines):
    text = str(Choices(*shapes, 1000).recipe())
    for line in lines:
        assert line in text
    assert "chosen" not in text


def test_what_was_asked_for_is_marked_and_the_rest_follows_from_it():
    recipe = ps.recipe(*pairs(), refinement_steps=1)
    assert "draws in one pass: chosen" in str(recipe)
    assert recipe.draws == 10
    assert "10 draws per pair" in str(recipe)
    assert "max steps" not in str(recipe)
    assert "3 draws per pair: chosen" in str(recipe.change(draws=3))
    assert recipe.change(refinement_steps=8).draws == 10  # a complete recipe is taken as it is


def test_weights_decay_where_data_have_many_numbers():
    assert Choices((2,), (100,), 1).weight_decay(9000)[0] == 0.3
    assert Choices((2,), (100,), 1).weight_decay(90_000)[0] == pytest.approx(0.03)  # as much per pass
    others = [
        Choices((2,), (20,), 1),
        Choices((2,), (100,), 1, changes={"embedding": torch.nn.Linear(100, 3)}),
        Choices((2,), (60, 60), 1),
    ]
    assert [other.weight_decay(9000)[0] for other in others] == [0, 0, 0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_step": 3}, "There is no option 'max_step'; did you mean 'max_steps'?"),
        ({"m": 3}, "There is no option 'm'; did you mean 'draws'?"),
        ({"patience": 3}, "There is no option 'patience'; did you mean 'stopping'?"),
        ({"zzzzzz": 3}, "There is no option 'zzzzzz'; there are "),
        ({"ensemble": 0}, "'ensemble' must be a whole number of at least 1, got 0"),
        ({"draws": True}, None),
        ({"tail": -1.0}, "'tail' must be positive, got -1.0"),
        ({"support": 5}, "'support' must be a Box or another support"),
        ({"discrete": ["a"]}, "'discrete' names the parameter 'a'"),
        ({"objective": ps.Adversarial, "draws": 3}, "Give 'draws' to the objective itself"),
        ({"support": ((0.0, 0.0, 0.0), (1.0, 1.0, 2.0))}, "do not fit parameters of shape"),
    ],
)
def test_mistakes_get_a_sentence(changes, message):
    with pytest.raises(InputError, match=message):
        ps.recipe(*pairs(), **changes)


def test_a_damaged_recipe_is_refused():
    for data in (None, [], {"class": "EnergyScore"}, {"class": "Recipe", "network": 3, "shape": 4}):
        with pytest.raises(InputError):
            Recipe.from_json(data)


def test_a_factory_is_a_class_of_the_library_only():
    assert Factory.of(MLPGenerator) == Factory("MLPGenerator")
    assert Factory.of(lambda *shapes: None) is None
    assert Factory.of(partial(print)) is None
    with pytest.raises(InputError, match="not a class that can be loaded"):
        Factory("os.system")()


def test_a_recipe_and_simulations_are_tables_in_a_notebook():
    recipe = ps.recipe(*pairs())
    assert "<td>10 draws per pair</td><td>more draws did not help</td>" in recipe._repr_html_()
    sims = ps.simulate({"a": (0.0, 1.0)}, lambda theta, rng: theta + rng.normal(size=theta.shape), 50, progress=False)
    assert "50 simulations" in sims._repr_html_()
    assert "<td>parameters</td><td>a</td>" in sims._repr_html_()


def test_emulated_pairs_allow_more_steps_of_many_numbers_but_do_not_count_as_simulations():
    adamw = {"optimizer": "adamw"}
    plain, more = (ps.recipe(*pairs(10_000, features=11), emulated=count, **adamw) for count in (0, 50_000))
    assert (plain.training.max_steps, more.training.max_steps) == (7000, 14_000)
    assert "50,000 emulated pairs besides: chosen" in str(more)
    few = ps.recipe(*pairs(10_000), emulated=50_000, **adamw)
    assert few.training.max_steps == 7000  # four numbers are learnt sooner
    plain, more = (ps.recipe(*pairs(1000), emulated=count, **adamw) for count in (0, 50_000))
    assert more.training.max_steps < plain.training.max_steps  # an emulator of so few has little more to teach
    assert (plain.batch_size, more.batch_size) == (128, 256)
    assert ps.recipe(*pairs(1000), emulated=50_000).batch_size == 512  # by SOAP
    assert more.training.settle is None  # a hundred simulations are held out, too few for the check


@pytest.mark.parametrize(
    ("n", "changes", "optimizer"),
    [
        (40_000, {}, "soap"),
        (10_000, {}, "adamw"),  # few pairs would be memorised sooner
        (1000, {"emulated": 50_000}, "soap"),
        (10_000, {"time_limit": 10.0}, "soap"),
        (10_000, {"time_limit": 30.0}, "adamw"),
        (1000, {"time_limit": 10.0}, "adamw"),
        (40_000, {"optimizer": "adamw"}, "adamw"),
        (40_000, {"network": MLPGenerator}, "adamw"),
        (40_000, {"refinement_steps": 1}, "adamw"),
        (40_000, {"objective": ps.MaximumLikelihood}, "adamw"),
    ],
)
def test_soap_trains_the_default_network_if_it_memorises_nothing(n, changes, optimizer):
    assert ps.recipe(*pairs(n), **changes).training.optimizer == optimizer


def test_soap_takes_larger_batches_and_fewer_steps():
    soap, adamw = (ps.recipe(*pairs(40_000), optimizer=name) for name in ("soap", "adamw"))
    assert (soap.batch_size, adamw.batch_size) == (512, 256)
    assert soap.training.max_steps == adamw.training.max_steps // 2
    assert "512 pairs per step: 36,000 training pairs and SOAP" in str(soap)


@pytest.mark.parametrize(
    ("n", "changes"), [(1000, {"emulated": 50_000}), (10_000, {"time_limit": 10.0}), (40_000, {"time_limit": 40})]
)
def test_where_soap_takes_few_steps_they_are_larger_and_start_sooner(n, changes):
    few = ps.recipe(*pairs(n), **changes).training
    usual = ps.recipe(*pairs(40_000)).training
    assert few.optimizer == usual.optimizer == "soap"
    assert few.learning_rate > usual.learning_rate
    assert few.warmup < usual.warmup
    assert few.warmup <= few.max_steps // 3


def test_small_counts_are_not_emulated_by_default():
    theta, x = pairs(1000)
    assert ps.recipe(theta, x, prior=[(-1.0, 1.0), (-1.0, 1.0)]).emulated == 100_000
    assert ps.recipe(theta, np.round(x), prior=[(-1.0, 1.0), (-1.0, 1.0)]).emulated == 0


@pytest.mark.parametrize(
    ("n", "features", "changes"),
    [
        (999, 2, {}),
        (40_000, 2, {}),
        (1000, 50, {}),
        (1000, 2, {"prior": None}),
        (1000, 2, {"max_steps": 100}),
        (1000, 2, {"time_limit": 10.0}),
        (1000, 2, {"refinement_steps": 1}),
        (1000, 2, {"network": MLPGenerator}),
        (1000, 2, {"standardize": False}),
        (1000, 2, {"emulated": 0}),
    ],
)
def test_pairs_are_emulated_by_default_only_where_that_was_found_to_help(n, features, changes):
    prior = {"prior": [(-1.0, 1.0), (-1.0, 1.0)]}
    assert ps.recipe(*pairs(1000), **prior).emulated == 100_000
    assert ps.recipe(*pairs(n, features=features), **{**prior, **changes}).emulated == 0
