"""Supports that priors have: found, kept by posteriors, saved, and refused where they cannot be handled."""

import json
from functools import partial

import numpy as np
import pytest
import torch
from torch import distributions as dist
from torch.distributions import constraints

import propersbi as ps
from propersbi.networks import Flow, MLPGenerator
from propersbi.recipes import Own, Recipe
from propersbi.samplers import (
    Bijection,
    Blocks,
    Box,
    Categories,
    Correlation,
    Counts,
    Integers,
    Ordered,
    PositiveDefinite,
    Simplex,
    Standardized,
    Subset,
    support_of,
)
from propersbi.samplers.blocks import with_integers
from propersbi.samplers.subset import draw_inside
from propersbi.types import InputError

SHORT = {"max_steps": 4, "validate_every": 2, "progress": False, "network": partial(MLPGenerator, width=16)}
SMALL = float(np.finfo(np.float32).tiny)


class _OrderedVector(constraints.Constraint):
    """What pyro calls it."""

    event_dim = 1

    def check(self, value):
        return (value[..., 1:] > value[..., :-1]).all(-1)


class Above(constraints.Constraint):
    """A constraint of a user's own, with a map that is registered with torch."""

    def check(self, value):
        return value > 3


@dist.biject_to.register(Above)
def _map_above(constraint):
    return dist.transforms.ComposeTransform([dist.ExpTransform(), dist.AffineTransform(3.0, 1.0)])


class Unknown(constraints.Constraint):
    pass


@pytest.mark.parametrize(
    ("prior", "support"),
    [
        (dist.Dirichlet(torch.ones(3)), Simplex(3)),
        (dist.Dirichlet(torch.ones(2, 3)), Blocks((Simplex(3), Simplex(3)), (3, 3), (2, 3))),
        (dist.LKJCholesky(3), Correlation(3, cholesky=True)),
        (dist.Wishart(torch.tensor(3.0), torch.eye(2)), PositiveDefinite(2)),
        (dist.Categorical(torch.ones(3)), Categories(3)),
        (dist.Independent(dist.Categorical(torch.ones(2, 3)), 1), Blocks((Categories(3), Categories(3)), (1, 1))),
        (dist.Categorical(torch.ones(80)), Box(0.0, 79.0)),
        (dist.OneHotCategorical(torch.ones(3)), Categories(3, one_hot=True)),
        (dist.Multinomial(5, torch.ones(3)), Counts(3, total=5)),
        (dist.Poisson(2.0), Box(lower=0.0)),
        (dist.Bernoulli(0.5), Box(0.0, 1.0)),
        (dist.Binomial(7, torch.tensor(0.5)), Box(0.0, 7.0)),
        ([dist.MultivariateNormal(torch.zeros(2), torch.eye(2)), dist.Uniform(0.0, 1.0)], None),
        ([dist.Dirichlet(torch.ones(3)), (0.0, 2.0)], Blocks((Simplex(3), Box(0.0, 2.0)), (3, 1))),
        ({"a": (0.0, 1.0), "b": (2.0, 3.0)}, Box((0.0, 2.0), (1.0, 3.0))),
        ([(0, 1), (2, 3)], Box((0.0, 2.0), (1.0, 3.0))),
        (lambda rng: rng.normal(size=2), Box()),
        (dist.TransformedDistribution(dist.Normal(0.0, 1.0), dist.AffineTransform(2.0, 3.0)), Box()),
    ],
)
def test_the_support_of_a_prior(prior, support):
    if support is None:
        box = support_of(prior)
        assert box.fits((3,))
        assert box.lower[:2] == (None, None)
        assert 0 < box.lower[2] < box.upper[2] < 1
        return
    assert support_of(prior) == support


def test_a_scaled_interval_is_an_interval():
    shifts = dist.AffineTransform(torch.tensor([2.0, 0.0]), torch.tensor([3.0, -1.0]))
    box = support_of(dist.TransformedDistribution(dist.Beta(torch.ones(2), torch.ones(2)), shifts))
    np.testing.assert_allclose(box.ends(), [[2, -1], [5, 0]], atol=1e-6)
    independent = dist.TransformedDistribution(dist.Uniform(torch.zeros(2), torch.ones(2)), shifts)
    np.testing.assert_allclose(support_of(dist.Independent(independent, 1)).ends(), [[2, -1], [5, 0]], atol=1e-6)


def test_constraints_of_other_libraries():
    assert support_of(_OrderedVector(), (3,)) == Ordered(3)
    above = support_of(Above(), (2,))
    assert isinstance(above, Bijection)
    theta = above.from_real(torch.randn(50, 2).double())
    assert (theta > 3).all()
    torch.testing.assert_close(above(theta.double()), theta, rtol=1e-4, atol=1e-4)
    with pytest.raises(InputError, match="is not known: give 'support'"):
        support_of(Unknown(), (2,))
    joined = constraints.cat([constraints.simplex, constraints.positive], dim=-1, lengths=[3, 1])
    assert support_of(joined, (4,)) == Blocks((Simplex(3), Box(lower=SMALL)), (3, 1))
    with pytest.raises(InputError, match="needs a size"):
        support_of(constraints.simplex)


@pytest.mark.parametrize(
    ("prior", "count"),
    [
        (dist.Dirichlet(torch.tensor([0.5, 1.0, 3.0])), 2),
        (dist.LKJCholesky(4), 6),
        (dist.Wishart(torch.tensor(4.0), torch.eye(3)), 6),
        (dist.OneHotCategorical(torch.ones(3)), 3),
        (dist.Multinomial(5, torch.ones(3)), 2),
    ],
)
def test_torch_accepts_every_draw(prior, count):
    """Whatever comes out of the network, the prior's own validation accepts it and its density is not zero."""
    support = support_of(prior)
    real = torch.cat([5 * torch.randn(500, count), torch.zeros(1, count), torch.ones(1, count)]).double()
    theta = support.from_real(real).unflatten(-1, prior.event_shape)
    assert prior.support.check(theta).all()
    assert torch.isfinite(prior.log_prob(theta)).all()


def pairs(n=200):
    generator = torch.Generator().manual_seed(0)
    theta = torch.rand(n, 2, generator=generator)
    return theta, theta + 0.3 * torch.randn(n, 2, generator=generator)


PRIORS = {
    "simplex": dist.Dirichlet(torch.ones(3)),
    "two simplices": dist.Dirichlet(torch.ones(2, 3)),
    "correlations": dist.LKJCholesky(3),
    "categories": dist.Categorical(torch.ones(4)),
    "counts": dist.Multinomial(5, torch.ones(3)),
    "mixed": {"p": dist.Dirichlet(torch.ones(3)), "k": dist.Poisson(2.0), "s": (0.0, 1.0)},
}


@pytest.mark.parametrize("prior", PRIORS.values(), ids=PRIORS)
def test_a_posterior_stays_in_the_support_and_is_saved(prior, tmp_path):
    sims = ps.simulate(prior, lambda theta: theta.reshape(len(theta), -1).float(), 200, progress=False)
    posterior = ps.fit(sims.theta, sims.x, prior=prior, **SHORT)
    draws = posterior.sample((50,), x=sims.x[0], seed=0)
    assert draws.shape[1:] == sims.theta.shape[1:]
    assert not posterior.sampler.domain.outside(draws.double().flatten(1)).any()
    posterior.save(tmp_path / "p")
    twin = ps.Posterior.load(tmp_path / "p")
    assert torch.equal(twin.sample((50,), x=sims.x[0], seed=0), draws)
    assert twin.recipe == posterior.recipe
    assert Recipe.from_json(json.loads(json.dumps(posterior.recipe.to_json()))) == posterior.recipe
    again = ps.fit(sims.theta, sims.x, start=posterior, max_steps=2, validate_every=1, progress=False)
    assert again.sample((2,), x=sims.x[0]).shape == draws[:2].shape


def test_names_of_a_prior_are_those_of_the_posterior():
    prior = {"beta": dist.LogNormal(0.0, 1.0), "gamma": (0.1, 1.0)}
    sims = ps.simulate(prior, lambda theta: theta, 100, progress=False)
    posterior = ps.fit(sims.theta, sims.x, prior=prior, **SHORT)
    assert posterior.parameter_names == ("beta", "gamma")
    recipe = ps.recipe(sims.theta, sims.x, prior=prior, discrete=["gamma"])
    assert recipe.discrete == (1,)


def test_a_flow_on_a_simplex_has_a_density_that_integrates_to_one():
    uniform = dist.Dirichlet(torch.ones(3))
    theta = uniform.sample((300,))
    x = theta[:, :2] + 0.3 * torch.randn(300, 2)
    network = partial(Flow, transforms=1, width=16)
    options = {"objective": ps.MaximumLikelihood, "network": network, "max_steps": 50, "progress": False}
    posterior = ps.fit(theta, x, prior=uniform, **options)
    points = uniform.sample((20_000,))
    weight = (posterior.log_prob(points, x=x[0]) - uniform.log_prob(points)).exp()
    assert weight.mean().item() == pytest.approx(1, abs=0.05)
    assert posterior.log_prob(torch.tensor([[0.5, 0.5, 0.5]]), x=x[0]).item() == -np.inf


def test_integers_have_no_density():
    theta = torch.randint(0, 5, (200, 1))
    x = theta + torch.randn(200, 1)
    options = {"network": partial(Flow, transforms=1, width=16), "max_steps": 2, "progress": False}
    posterior = ps.fit(theta, x, objective=ps.MaximumLikelihood, **options)
    with pytest.raises(InputError, match="can only be sampled"):
        posterior.log_prob(theta[:2], x=x[0])


def triangle(theta):
    return theta[:, 0] < theta[:, 1]


def test_a_function_restricts_the_draws(tmp_path):
    theta, x = pairs(400)
    theta, x = theta[triangle(theta)], x[triangle(theta)]
    posterior = ps.fit(theta, x, prior=[(0.0, 1.0), (0.0, 1.0)], support=triangle, **SHORT)
    assert "support where tests.samplers.test_supports.triangle within Box" in str(posterior.recipe)
    draws = posterior.sample_batched((100,), x=x[:7])
    assert triangle(draws.flatten(0, 1)).all()
    assert 0.2 < posterior.sampler.acceptance < 1
    twin = Recipe.from_json(posterior.recipe.to_json())
    assert isinstance(twin.support.support, Own)
    with pytest.raises(InputError, match=r"support of your own, '.*\.triangle': pass it again"):
        ps.fit(theta, x, recipe=twin, progress=False)
    again = ps.fit(theta, x, recipe=twin, support=triangle, progress=False)
    assert again.recipe.support == posterior.recipe.support
    posterior.save(tmp_path / "p")
    with pytest.raises(InputError, match="pass it again as 'support'"):
        ps.Posterior.load(tmp_path / "p")


def test_functions_may_be_written_for_numpy():
    support = Subset(lambda theta: np.linalg.norm(theta.astype(float), axis=1) < 1)
    assert support.accepts(torch.tensor([[0.1, 0.1], [1.0, 1.0]])).tolist() == [True, False]
    for function, sentence in (
        (lambda theta: theta, "must return a truth value for each of 2 rows"),
        (lambda theta: True, "must return a truth value for each of 2 rows"),
        (lambda theta: 1 / 0, "'support' failed on theta"),
    ):
        with pytest.raises(InputError, match=sentence):
            Subset(function).accepts(torch.zeros(2, 2))


def test_draws_outside_are_drawn_again():
    generator = torch.Generator().manual_seed(0)
    calls = []

    def again(k, rows):
        calls.append((k, rows.tolist()))
        return torch.randn(k, len(rows), 1, generator=generator) + torch.tensor([0.0, 1.0, -1.5])[rows, None]

    first = again(200, torch.arange(3))
    drawn = draw_inside(first, again, lambda theta: theta[:, 0] > 0)
    assert (drawn.theta > 0).all()
    kept = first > 0
    assert torch.equal(drawn.theta[kept], first[kept])  # those inside stay where they are
    assert drawn.tried == sum(k * len(rows) for k, rows in calls)
    for row, mean in enumerate((0.7979, 1.2876, 0.4390)):  # of a normal distribution above 0
        assert drawn.theta[:, row].mean().item() == pytest.approx(mean, abs=0.15)
    with pytest.raises(InputError, match=r"Only 0 of \d+ draws lie in the support that was given"):
        draw_inside(first, again, lambda theta: theta[:, 0] > 100)


def test_a_low_share_of_accepted_draws_is_said_once():
    x = torch.zeros(50, 1)
    generator = MLPGenerator((1,), (1,), width=16)
    high = generator.sample(100, x).quantile(0.9)
    sampler = Standardized(generator, support=Subset(lambda theta: theta[:, 0] > high))
    with pytest.warns(UserWarning, match=r"Only .* % of the draws lie in the support that was given"):
        sampler.sample(20, x)
    assert 0 < sampler.acceptance < 0.2
    sampler.sample(20, x)  # and not again


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"support": 5}, "'support' must be a Box or another support, .* got 5"),
        ({"support": "positive"}, "'support' must be"),
        ({"support": Simplex(3)}, r"do not fit parameters of shape \(2,\)"),
        ({"support": Unknown()}, "is not known"),
        ({"prior": 5}, "A prior must have a method sample"),
        ({"prior": dist.Dirichlet(torch.ones(3))}, "do not fit parameters of shape"),
        ({"discrete": [2]}, "'discrete' names the parameter 2; there are 2, from 0"),
        ({"discrete": ["a"]}, "'discrete' names the parameter 'a'; there are"),
        ({"discrete": 1}, "'discrete' must be a list of parameters"),
        ({"support": Simplex(2), "discrete": [0]}, "cannot be whole numbers"),
    ],
)
def test_what_cannot_be_handled_is_refused_before_training(changes, sentence):
    with pytest.raises(InputError, match=sentence):
        ps.recipe(*pairs(), **changes)


@pytest.mark.parametrize(
    ("support", "theta"),
    [
        (Simplex(2), [[0.5, 0.6]]),
        (Simplex(2), [[-0.5, 1.5]]),
        (Ordered(2), [[1.0, 0.0]]),
        (Integers(), [[0.0, 0.5]]),
        (Integers(lower=0.0), [[-1.0, 2.0]]),
        (Subset(triangle), [[1.0, 0.0]]),
        (Blocks((Integers(), Box(0.0, 1.0)), (1, 1)), [[0.5, 0.5]]),
    ],
)
def test_training_parameters_outside_are_refused(support, theta):
    inside = torch.tensor([[0.0, 1.0]] * 20)
    sampler = Standardized(MLPGenerator(support.real_shape((2,)), (2,), width=16), support=support)
    sampler.prepare(inside, torch.randn(20, 2), support.box.bounds(2))
    with pytest.raises(InputError, match="Training parameters lie outside the support"):
        sampler.prepare(torch.cat([inside, torch.tensor(theta)]), torch.randn(21, 2), support.box.bounds(2))


def test_matrices_outside_are_refused():
    support = PositiveDefinite(2)
    assert support.outside(torch.tensor([[1.0, 2.0, 2.0, 1.0], [2.0, 1.0, 1.0, 2.0]]).double()).tolist() == [
        True,
        False,
    ]
    corr = Correlation(2)
    assert corr.outside(torch.tensor([[2.0, 0.5, 0.5, 1.0], [1.0, 0.5, 0.5, 1.0]]).double()).tolist() == [True, False]


def test_ways_to_give_a_support():
    given = lambda support: ps.recipe(*pairs(), support=support).support  # noqa: E731
    assert given((0.0, 1.0)) == Box(0.0, 1.0)
    assert given(((0.0, None), (1.0, 2.0))) == Box((0.0, None), (1.0, 2.0))
    assert given([(0.0, None), (None, 1.0)]) == Box((0.0, None), (None, 1.0))
    assert given({"a": (0, 1), "b": Box()}) == Box((0.0, None), (1.0, None))
    assert given(constraints.simplex) == Simplex(2)
    assert given([Categories(3), Box(0.0, 1.0)]) == Blocks((Categories(3), Box(0.0, 1.0)), (1, 1))
    assert given(dist.Uniform(torch.zeros(2), torch.ones(2))).bounded
    assert ps.recipe(*pairs(), support=constraints.nonnegative_integer).discrete == (0, 1)
    recipe = ps.recipe(*pairs())
    assert "no bounds: none are known" in str(recipe)
    assert "no bounds: the prior's" in str(ps.recipe(*pairs(), prior=dist.Normal(torch.zeros(2), 1.0)))
    assert recipe.change(support=(0.0, 1.0)).support == Box(0.0, 1.0)
    assert recipe.change(support=(0.0, 1.0)).change(support=triangle).support == Subset(triangle, Box(0.0, 1.0))
    assert recipe.change(support=None).support == Box()


def test_whole_numbers_in_a_box():
    assert with_integers(Box(0.0, 5.0), (0, 1), 2) == Integers(0.0, 5.0)
    assert with_integers(Integers(where=(1,)), (0,), 3) == Integers(where=(0, 1))
    mixed = with_integers(Blocks((Simplex(3), Box(lower=0.0)), (3, 2)), (4,), 5)
    assert mixed == Blocks((Simplex(3), Integers(lower=0.0, where=(1,))), (3, 2))
    assert with_integers(Subset(triangle, Box()), (0,), 2) == Subset(triangle, Integers(where=(0,)))
    with pytest.raises(InputError, match="no whole number between"):
        Integers(0.2, 0.8)
    with pytest.raises(InputError, match="cannot lie in"):
        Blocks((Simplex(3),), (2,))
    with pytest.raises(InputError, match="need a size for each part"):
        Blocks((Simplex(3),), ())
    with pytest.raises(InputError, match="'size' must be a whole number"):
        Simplex(1)
