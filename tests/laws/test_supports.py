"""Laws of supports: every draw becomes a point of the set, and points of the set come back as they were."""

import math

import pytest
import torch

from propersbi.samplers import Bijection, Correlation, PositiveDefinite, Simplex, Subset
from propersbi.storage.config import decode, encode
from tests.laws.cases import SUPPORTS, in_a_disc
from tests.laws.common import every


def points(support, shape, n=300, scale=2.0, seed=0):
    """Points of the set, as they come of draws of a network."""
    generator = torch.Generator().manual_seed(seed)
    real = scale * torch.randn(n, math.prod(support.real_shape(shape)), generator=generator, dtype=torch.float64)
    return support.from_real(real)


@every(SUPPORTS)
def test_shapes_fit_each_other(case):
    support, shape = case
    assert support.fits(shape)
    assert support.theta_shape(support.real_shape(shape)) == shape
    dim = math.prod(support.real_shape(shape))
    bounds = support.bounds(dim)
    assert bounds.lower.shape == bounds.upper.shape == (dim,)
    assert (bounds.lower < bounds.upper).all()
    assert support.box.fits(shape)


@every(SUPPORTS)
def test_points_come_back_as_they_were(case):
    support, shape = case
    theta = points(support, shape).double()
    assert theta.shape == (300, math.prod(shape))
    assert torch.isfinite(theta).all()
    torch.testing.assert_close(support(theta).double(), theta, rtol=1e-4, atol=1e-5)
    assert not support.outside(theta).any()
    torch.testing.assert_close(support.box(theta).double(), theta, rtol=1e-5, atol=1e-5)


@every(SUPPORTS)
def test_coordinates_lie_between_their_bounds(case):
    support, shape = case
    real = support.to_real(points(support, shape).double())
    bounds = support.bounds(real.shape[1])
    assert (real >= bounds.lower - 1e-6).all()
    assert (real <= bounds.upper + 1e-6).all()


@every(SUPPORTS)
def test_rows_are_mapped_one_by_one(case):
    support, shape = case
    theta = points(support, shape)
    torch.manual_seed(0)
    real = support.to_real(theta.double()).reshape(10, 30, -1)
    torch.testing.assert_close(support.from_real(real)[3, 4], support.from_real(real[3, 4]))


@every({name: case for name, case in SUPPORTS.items() if not isinstance(case[0], Bijection)})
def test_supports_survive_json(case):
    assert decode(encode(case[0]), {"support": in_a_disc}) == case[0]


def free(support, shape):
    """Which numbers of an event its density is one of."""
    if isinstance(support, PositiveDefinite | Correlation):
        rows, columns = torch.tril_indices(*shape, offset=-1 if isinstance(support, Correlation) else 0)
        return (rows * shape[1] + columns).tolist()
    return list(range(math.prod(shape) - isinstance(support, Simplex)))


SMOOTH = {name: case for name, case in SUPPORTS.items() if case[0].smooth and name not in ("blocks", "several")}


@every(SMOOTH)
def test_the_volume_is_that_of_the_map(case):
    support, shape = case
    for theta in points(support, shape, n=5, scale=0.7).double():
        real = support.to_real(theta)
        jacobian = torch.autograd.functional.jacobian(lambda u: support.from_real(u)[free(*case)], real)
        expected = torch.linalg.slogdet(jacobian.double()).logabsdet
        torch.testing.assert_close(support.log_volume(real), expected, rtol=1e-3, atol=1e-3)


def test_the_volume_of_blocks_is_the_sum():
    blocks, _ = SUPPORTS["blocks"]
    real = torch.rand(5, 7).double() + 0.1
    simplex, matrix = blocks.parts[0], blocks.parts[2]
    expected = simplex.log_volume(real[:, :2]) + matrix.log_volume(real[:, 4:])
    torch.testing.assert_close(blocks.log_volume(real), expected)


@every({name: case for name, case in SUPPORTS.items() if not case[0].smooth and not isinstance(case[0], Subset)})
def test_noise_is_drawn_anew_and_does_not_change_the_number(case):
    support, shape = case
    theta = points(support, shape).double()
    first, second = support.to_real(theta), support.to_real(theta)
    assert not torch.equal(first, second)
    torch.testing.assert_close(support.from_real(first), support.from_real(second))


@pytest.mark.parametrize("name", ["simplex", "positive definite", "correlation", "ordered between", "blocks"])
def test_large_draws_stay_inside(name):
    support, shape = SUPPORTS[name]
    theta = points(support, shape, scale=100.0)
    assert torch.isfinite(theta).all()
    assert not support.outside(theta.double()).any()
