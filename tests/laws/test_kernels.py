"""Laws of kernels."""

import pytest
import torch

from propersbi.storage.config import decode, encode
from propersbi.types import InputError
from tests.laws.cases import KERNELS
from tests.laws.common import draws, every


@every(KERNELS)
def test_kernel_falls_from_one_to_zero(case):
    r = torch.linspace(0, 40, 400, dtype=torch.float64)
    k = case(r)
    assert k[0] == 1
    assert (k.diff() < 0).sum() > 100
    assert (k.diff() <= 0).all()
    assert (k > 0).sum() > 30
    assert k[-1] < 0.05


@every(KERNELS)
def test_kernel_is_positive_definite(case):
    points = draws(1, 60, 2)[0]
    assert torch.linalg.eigvalsh(case(torch.cdist(points, points))).min() > -1e-10


@every(KERNELS)
def test_kernel_survives_json_and_keeps_its_bandwidth(case):
    assert decode(encode(case)) == case
    assert case.resolve(draws(1, 50, 2)[0]) == case


@every(KERNELS)
def test_kernel_finds_its_bandwidth(case):
    kernel = type(case)()
    theta = draws(1, 500, 2)[0]
    found, larger = kernel.resolve(theta), kernel.resolve(10 * theta)
    r = torch.tensor([0.3, 1.0, 3.0], dtype=torch.float64)
    torch.testing.assert_close(larger(10 * r), found(r))
    with pytest.raises(InputError, match="still a heuristic"):
        kernel(r)
