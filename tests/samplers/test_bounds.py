import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import distributions as dist

from propersbi.samplers import Box, support_of
from propersbi.samplers.standardized import Standardize
from propersbi.tasks.priors import BoxUniform
from propersbi.types import InputError

finite = st.floats(-1e6, 1e6, allow_nan=False)


@given(low=st.floats(-1e3, 1e3), width=st.floats(1e-3, 1e3), values=st.lists(finite, min_size=1, max_size=20))
def test_nothing_leaves_an_interval(low, width, values):
    theta = torch.tensor(values, dtype=torch.float64)[:, None]
    inside = Box(low, low + width)(theta)
    assert inside.dtype == torch.float32
    assert (inside.double() >= low).all()
    assert (inside.double() <= low + width).all()


@given(bound=st.floats(-1e3, 1e3), values=st.lists(finite, min_size=1, max_size=20))
def test_nothing_leaves_a_half_line(bound, values):
    theta = torch.tensor(values, dtype=torch.float64)[:, None]
    assert (Box(lower=bound)(theta).double() >= bound).all()
    assert (Box(upper=bound)(theta).double() <= bound).all()


def test_inside_it_is_the_identity_and_outside_a_reflection():
    theta = torch.tensor([[-0.2, 0.3, 1.4, 2.5, -7.75]], dtype=torch.float64)
    torch.testing.assert_close(Box(0.0, 1.0)(theta), torch.tensor([[0.2, 0.3, 0.6, 0.5, 0.25]]))
    torch.testing.assert_close(Box(lower=0.0)(theta), torch.tensor([[0.2, 0.3, 1.4, 2.5, 7.75]]))
    torch.testing.assert_close(Box()(theta), theta.float())


def test_products_of_all_kinds_over_any_event_shape():
    box = Box(lower=(0.0, None, 1.0, None), upper=(1.0, None, None, 0.0))
    theta = torch.tensor([[[1.5, 9.0], [0.0, 3.0]]], dtype=torch.float64)
    torch.testing.assert_close(box(theta), torch.tensor([[[0.5, 9.0], [2.0, -3.0]]]))
    draws = torch.randn(7, 5, 2, 2).double()
    torch.testing.assert_close(box(draws)[3, 4], box(draws[3, 4]))


def test_gradients_flow_through_the_walls():
    theta = torch.tensor([[-0.2, 0.3]], dtype=torch.float64, requires_grad=True)
    Box(0.0, 1.0)(theta).sum().backward()
    assert theta.grad.tolist() == [[-1.0, 1.0]]


@pytest.mark.parametrize(
    ("prior", "dim"),
    [
        (dist.Independent(dist.Uniform(torch.tensor([0.0, -2.0]), torch.tensor([0.1, 5.0])), 1), 2),
        (dist.Independent(dist.LogNormal(torch.zeros(3), 1.0), 1), 3),
        (dist.Independent(dist.Gamma(torch.ones(2), 1.0), 1), 2),
        (dist.Independent(dist.Beta(torch.ones(2), 1.0), 1), 2),
        (dist.MultivariateNormal(torch.zeros(2), torch.eye(2)), 2),
        ([dist.Uniform(0.0, 1.0), dist.Normal(0.0, 1.0), dist.Exponential(1.0)], 3),
        ([dist.Uniform(torch.zeros(1), torch.ones(1)), dist.HalfNormal(torch.ones(1))], 2),
    ],
)
def test_draws_have_a_density_under_the_torch_prior(prior, dim):
    """Whatever comes out of the network, the prior's own validation accepts it and its density is not zero."""
    box = support_of(prior)
    theta = torch.cat([10 * torch.randn(500, dim), torch.zeros(1, dim), torch.ones(1, dim)]).double()
    inside = box(theta)
    if isinstance(prior, list):
        density = sum(part.log_prob(inside[:, i]) for i, part in enumerate(prior))
    else:
        density = prior.log_prob(inside)
    assert torch.isfinite(density).all()


def test_other_ways_to_say_it():
    assert support_of(BoxUniform(np.array([-1.0, -1.0]), np.array([1.0, 1.0]))) == Box(-1.0, 1.0)
    assert support_of(((0.0, -math.inf), (1.0, math.inf))) == Box((0.0, None), (1.0, None))
    assert support_of(None) == Box()
    assert support_of(np.zeros((5, 2))) == Box()
    assert support_of(type("OnlySamples", (), {"sample": lambda self, n, rng: None})()) == Box()
    mixture = dist.MixtureSameFamily(dist.Categorical(torch.ones(2)), dist.Normal(torch.zeros(2), torch.ones(2)))
    assert support_of(mixture) == Box()


def test_bad_bounds_get_a_sentence():
    with pytest.raises(InputError, match=r"lower bound must lie below its upper bound, got 1.0 and 0.0"):
        Box(1.0, 0.0)
    with pytest.raises(InputError, match="got nan"):
        Box(math.nan)
    with pytest.raises(InputError, match="2 bounds do not fit"):
        Box((0.0, 1.0))(torch.zeros(4, 3).double())
    with pytest.raises(InputError, match=r"support .* is not known"):
        support_of(dist.constraints.symmetric)


def test_units_survive_wild_data():
    x = torch.from_numpy(np.random.default_rng(0).standard_cauchy((5000, 2)))
    x[0] = 1e30
    units = Standardize((2,), tail=5.0).fit(x)
    seen = units(x)
    assert torch.isfinite(seen).all()
    assert seen.abs().max() < 100
    order = x[:, 0].argsort()
    assert (seen[order, 0].diff() >= 0).all()
    assert seen[:, 0].quantile(0.8413) - seen[:, 0].quantile(0.1587) == pytest.approx(2, abs=0.05)


def test_units_of_constant_and_rare_data():
    x = torch.zeros(100, 3)
    x[:, 1] = 7
    x[:5, 2] = 1
    seen = Standardize((3,), tail=5.0).fit(x)(x)
    assert torch.isfinite(seen).all()
    assert (seen[:, :2] == 0).all()
    assert seen[:, 2].unique().numel() == 2


def test_units_keep_digits_far_from_zero():
    x = 1e9 + torch.rand(100, 1, dtype=torch.float64)
    units = Standardize((1,)).fit(x)
    torch.testing.assert_close(units.inverse(units(x)), x, rtol=0, atol=1e-6)


def test_fields_share_one_scale():
    x = torch.randn(50, 3, 4) * torch.arange(1, 5)
    units = Standardize((3, 4)).fit(x)
    assert units.center.shape == (1, 1)
    assert units(x).std() == pytest.approx(1, abs=1e-5)


@given(low=st.floats(-1e3, 1e3), width=st.floats(0.5, 1e3), values=st.lists(finite, min_size=1, max_size=20))
def test_point_masses_catch_what_lies_beyond_and_nothing_leaves(low, width, values):
    theta = torch.tensor(values, dtype=torch.float64)[:, None]
    inside = Box(low, low + width, point_masses=0.1)(theta).double()
    assert (inside >= low).all()
    assert (inside <= low + width).all()
    free = (theta > low + 0.1) & (theta < low + width - 0.1)
    torch.testing.assert_close(inside[free], theta[free], rtol=1e-6, atol=1e-6)


def test_point_masses_are_found_where_many_parameters_lie_on_a_bound():
    grey = torch.arange(1, 255).double() / 255
    image = torch.cat([torch.zeros(700).double(), grey, torch.ones(90).double()])[None]
    box = Box(0.0, 1.0).with_point_masses(image)
    assert box.point_masses == pytest.approx(0.5 / 255)
    assert torch.equal(box(image), image.float())
    assert Box(0.0, 1.0).with_point_masses(torch.rand(50, 20, dtype=torch.float64)).point_masses is None
    assert Box().with_point_masses(image).point_masses is None
    assert Box(lower=0.0).with_point_masses(torch.zeros(3, 4, dtype=torch.float64)).point_masses == 0
    rare = torch.rand(1000, 1, dtype=torch.float64)
    rare[:5] = 0
    assert Box(0.0, 1.0).with_point_masses(rare).point_masses is None
    with pytest.raises(InputError, match="'point_masses' must be a distance of at least 0, got -1"):
        Box(0.0, 1.0, point_masses=-1.0)
