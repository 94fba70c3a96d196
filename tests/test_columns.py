"""Positive, skewed parameters and data are learnt as logarithms; uneven data are seen in intervals."""

import numpy as np
import pytest
import torch

import propersbi as ps
from propersbi.columns import uneven_columns
from propersbi.samplers import Standardize
from propersbi.types import InputError

QUICK = {"max_steps": 2, "progress": False}


def skewed(n=400):
    rng = np.random.default_rng(0)
    theta = np.exp(rng.normal(size=(n, 2)) * [1.5, 0.05])
    x = np.stack([theta[:, 0] * np.exp(0.1 * rng.normal(size=n)), theta[:, 1] + rng.normal(size=n)], 1)
    return theta, x


def prior():
    return torch.distributions.LogNormal(torch.zeros(2), torch.tensor([1.5, 0.05]))


def test_only_skewed_positive_columns_are_chosen():
    recipe = ps.recipe(*skewed(), prior=prior())
    assert recipe.log_theta == (0,)
    assert recipe.log_x == (0,)
    assert "logarithms of theta at place 0: positive" in str(recipe)


def test_parameters_without_a_known_bound_at_zero_or_with_an_upper_one_are_left_alone():
    assert ps.recipe(*skewed()).log_theta == ()
    assert ps.recipe(*skewed(), support=(0.0, 1e9)).log_theta == ()


def test_integers_are_left_alone():
    theta, x = skewed()
    assert ps.recipe(np.ceil(20 * theta), x, support=(0.0, None), discrete=[0]).log_theta in [(), (1,)]


def test_before_training_the_posterior_is_a_regression_of_logarithms():
    theta, x = skewed(2000)
    posterior = ps.fit(theta, x, prior=prior(), **QUICK)
    draws = posterior.sample((2000,), x=[3.0, 1.0], seed=0)
    assert (draws > 0).all()
    assert abs(draws[:, 0].log().mean() - np.log(3.0)) < 0.05
    assert abs(draws[:, 0].log().std() - 0.1) < 0.03


def test_data_that_are_not_positive_are_no_error():
    posterior = ps.fit(*skewed(), prior=prior(), **QUICK)
    with pytest.warns(UserWarning, match="unlike"):
        assert posterior.sample((5,), x=[-1.0, 1.0]).isfinite().all()


def test_logarithms_can_be_switched_off():
    recipe = ps.recipe(*skewed(), prior=prior(), log_theta=(), log_x=())
    assert (recipe.log_theta, recipe.log_x) == ((), ())


def test_units_are_inverted_exactly_and_have_a_volume():
    values = torch.tensor([[0.5, -1.0], [2.0, 3.0], [8.0, 1.0]], dtype=torch.float64)
    units = Standardize((2,), logarithms=(0,)).fit(values)
    torch.testing.assert_close(units.inverse(units(values)), values, rtol=1e-5, atol=1e-5)
    jacobian = torch.autograd.functional.jacobian(lambda v: (v.log() - units.center[0]) / units.scale[0], values[1, 0])
    expected = (jacobian / units.scale[1]).log()
    torch.testing.assert_close(units.log_volume(values[1]).double(), expected, rtol=1e-5, atol=1e-5)


def test_a_flow_of_logarithms_has_a_normalised_density():
    theta, x = skewed()
    theta, x = theta[:, :1], x[:, :1]
    positive = torch.distributions.LogNormal(torch.zeros(1), torch.ones(1))
    posterior = ps.fit(theta, x, prior=positive, objective=ps.MaximumLikelihood, log_theta=(0,), **QUICK)
    grid = torch.linspace(-12, 12, 6001).exp().unsqueeze(1)
    density = posterior.log_prob(grid, x=[1.0]).exp()
    assert abs(torch.trapezoid(density, grid[:, 0]) - 1) < 0.02


def test_columns_must_exist():
    with pytest.raises(InputError, match="Logarithms need a vector"):
        Standardize((2,), logarithms=(2,))


def counts(n=10_000):
    """Two rates, and six counts, most of them small."""
    rng = np.random.default_rng(0)
    theta = np.exp(rng.normal(size=(n, 2)) * 0.5)
    return theta, rng.poisson(np.exp(3 * rng.normal(size=(n, 6)) + theta[:, :1])).astype(float)


def test_uneven_numbers_are_seen_in_intervals():
    theta, x = counts()
    assert len(uneven_columns(torch.as_tensor(x))) == 6
    recipe = ps.recipe(theta, x)
    assert recipe.network.options["intervals"] == 16
    assert "x is dense in places" in str(recipe)
    assert "intervals" not in ps.recipe(theta, np.random.default_rng(0).normal(size=x.shape)).network.options
    half = np.concatenate([x[:, :3], np.random.default_rng(0).normal(size=(len(x), 3))], 1)
    assert "intervals" not in ps.recipe(theta, half).network.options


def test_intervals_need_many_pairs_simulated_or_emulated():
    theta, x = counts(1000)
    assert "intervals" not in ps.recipe(theta, x).network.options
    assert ps.recipe(theta, x, emulated=100_000).network.options["intervals"] == 16


def test_categories_and_logarithms_are_not_uneven():
    rng = np.random.default_rng(0)
    categories = rng.choice([0.0, 1.0, 2.0, 50.0], size=(1000, 3), p=[0.5, 0.3, 0.1, 0.1])
    assert uneven_columns(torch.as_tensor(categories)) == []
    assert uneven_columns(torch.as_tensor(rng.poisson(8.0, size=(2000, 3)).astype(float))) == []  # small counts
    theta, x = rng.normal(size=(10_000, 1)), np.exp(3 * rng.normal(size=(10_000, 2)))
    recipe = ps.recipe(theta, x)
    assert recipe.log_x == (0, 1)
    assert "intervals" not in recipe.network.options


def test_a_posterior_with_intervals_is_saved(tmp_path):
    theta, x = counts()
    posterior = ps.fit(theta, x, **QUICK)
    assert posterior.recipe.network.options["intervals"] == 16
    draws = posterior.sample((5,), x=x[0], seed=0)
    posterior.save(tmp_path / "p")
    assert torch.equal(ps.Posterior.load(tmp_path / "p").sample((5,), x=x[0], seed=0), draws)
