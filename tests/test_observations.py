"""One place where observed data are checked."""

import numpy as np
import pytest
import torch

from propersbi.observations import numbers, observations, one_observation
from propersbi.types import InputError


@pytest.mark.parametrize(
    ("x", "shape"),
    [
        ([1.0, 2.0], (2,)),
        ([[1.0, 2.0]], (2,)),
        (3.0, (1,)),
        ([3.0], (1,)),
        ([[3.0]], (1,)),
        (np.zeros((1, 2, 3)), (2, 3)),
    ],
)
def test_one_observation_may_come_with_or_without_its_row_axis(x, shape):
    found = one_observation(x, shape)
    assert isinstance(found, np.ndarray)
    assert found.shape == shape


def test_rows_and_plain_numbers():
    assert observations(np.zeros((5, 2, 3)), (2, 3)).shape == (5, 2, 3)
    assert observations([1, 2, 3], (1,)).shape == (3, 1)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_precision_is_kept(dtype):
    x = np.ones(3, dtype=dtype)
    assert one_observation(x, (3,)).dtype == dtype
    assert observations(x[None], (3,)).numpy().dtype == dtype
    assert numbers(x).dtype == dtype


def test_integers_tensors_and_read_only_arrays_are_taken():
    x = np.arange(3)
    x.setflags(write=False)
    assert one_observation(x, (3,)).dtype == np.float32
    assert one_observation(torch.ones(3, requires_grad=True), (3,)).sum() == 3
    assert one_observation(torch.ones(3, dtype=torch.bfloat16), (3,)).dtype == np.float32


@pytest.mark.parametrize(
    ("check", "message"),
    [
        (lambda: one_observation([1.0, 2.0], (3,)), r"'x' must have shape \(3,\), got \(2,\)"),
        (lambda: one_observation(np.zeros((2, 3)), (3,)), r"'x' must have shape \(3,\), got \(2, 3\)"),
        (lambda: observations(np.zeros(3), (3,)), r"'x' must have shape \(N, 3,\), got \(3,\)"),
        (lambda: observations(np.zeros((0, 3)), (3,)), "There are no observations: 'x' is empty"),
        (lambda: observations(1.0, (3,)), r"got \(\)"),
        (lambda: one_observation([1.0, np.nan], (2,), name="x_o"), r"'x_o' must be finite, got nan at \(1,\)"),
        (lambda: numbers([np.inf]), r"'x' must be finite, got inf at \(0,\)"),
        (lambda: numbers("abc"), "'x' must be an array of numbers, got str"),
        (lambda: numbers(None), "'x' must be an array of numbers, got NoneType"),
        (lambda: numbers([1j]), "'x' must hold real numbers"),
    ],
)
def test_anything_else_is_a_sentence(check, message):
    with pytest.raises(InputError, match=message):
        check()
