"""One place where numbers of users are checked."""

from decimal import Decimal

import numpy as np
import pytest
import torch

from propersbi.observations import as_numbers, numbers, observations, one_observation
from propersbi.types import InputError


class Table:
    """A table as pandas has it: an array by ``__array__``, with a shape and columns by name."""

    def __init__(self, values):
        self.values = np.asarray(values)
        self.shape = self.values.shape

    def __array__(self, dtype=None, copy=None):
        return np.array(self.values, dtype=dtype)

    def __getitem__(self, column):
        raise KeyError(column)


@pytest.mark.parametrize(
    ("x", "shape"),
    [
        ([1.0, 2.0], (2,)),
        ([[1.0, 2.0]], (2,)),
        ([[1.0], [2.0]], (2,)),
        (3.0, (1,)),
        ([3.0], (1,)),
        ([[3.0]], (1,)),
        (np.zeros((1, 2, 3)), (2, 3)),
        (np.zeros((28, 28)), (1, 28, 28)),
        (np.zeros(5), (5, 1)),
        (Table([[1.0, 2.0]]), (2,)),
    ],
)
def test_one_observation_may_come_with_or_without_axes_of_length_one(x, shape):
    found = one_observation(x, shape)
    assert isinstance(found, np.ndarray)
    assert found.shape == shape


def test_rows_and_plain_numbers():
    assert observations(np.zeros((5, 2, 3)), (2, 3)).shape == (5, 2, 3)
    assert observations([1, 2, 3], (1,)).shape == (3, 1)
    assert observations(Table(np.zeros((5, 2))), (2,)).shape == (5, 2)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_precision_is_kept(dtype):
    x = np.ones(3, dtype=dtype)
    assert one_observation(x, (3,)).dtype == dtype
    assert observations(x[None], (3,)).numpy().dtype == dtype
    assert numbers(x).dtype == dtype
    assert as_numbers(x, "x") is x
    assert numbers(torch.as_tensor(x)).dtype == dtype


def test_numbers_of_python_keep_their_digits():
    assert one_observation([1e9 + 0.125], (1,))[0] == 1e9 + 0.125
    assert one_observation(np.array([2**40 + 1]), (1,))[0] == 2**40 + 1


def test_integers_tensors_and_read_only_arrays_are_taken():
    x = np.arange(3)
    x.setflags(write=False)
    assert one_observation(x, (3,)).dtype == np.float64
    assert one_observation(np.arange(4.0)[::-1], (4,)).tolist() == [3, 2, 1, 0]
    assert one_observation(torch.ones(3, requires_grad=True), (3,)).sum() == 3
    assert one_observation(torch.ones(3, dtype=torch.bfloat16), (3,)).dtype == np.float32
    assert as_numbers(x, "x").dtype == x.dtype
    assert as_numbers([True, False], "x").dtype == bool
    assert as_numbers([torch.tensor(1.0), torch.tensor(2.0)], "x").tolist() == [1, 2]


@pytest.mark.parametrize("kind", [">f4", ">f8", ">i4", np.longdouble])
def test_other_byte_orders_and_longer_numbers_become_the_machines_own(kind):
    x = np.arange(3).astype(kind)
    for found in (as_numbers(x, "x"), numbers(x), observations(x[None], (3,)).numpy()[0]):
        assert found.tolist() == [0, 1, 2]
        assert found.dtype.isnative
        assert found.dtype.itemsize <= 8


def test_unmasked_arrays_and_objects_that_are_numbers_are_taken():
    assert as_numbers(np.ma.array([1.0, 2.0]), "x").tolist() == [1, 2]
    assert type(as_numbers(np.ma.array([1.0, 2.0]), "x")) is np.ndarray
    assert as_numbers(np.array([1, 2.5, Decimal("0.5")], dtype=object), "x").tolist() == [1, 2.5, 0.5]
    assert np.isnan(as_numbers([1.0, np.nan], "x")[1])


class NAType:
    """What pandas puts where a number is missing."""


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
        (lambda: numbers([]), r"'x' is empty: its shape is \(0,\)"),
        (lambda: numbers("abc"), "'x' must be an array of numbers, got str"),
        (lambda: numbers(["abc"]), "'x' must be an array of numbers, got <U3"),
        (lambda: numbers(None), "'x' must be an array of numbers, got NoneType"),
        (lambda: numbers({"a": 1.0}), "'x' must be an array of numbers, got dict"),
        (lambda: numbers([[1.0], [1.0, 2.0]]), "'x' must be an array of numbers, got list"),
        (lambda: numbers([1j]), "'x' must hold real numbers, got complex128"),
        (lambda: numbers(torch.ones(2, dtype=torch.complex64)), "'x' must hold real numbers, got complex64"),
        (lambda: numbers(np.array(["2024-01-01"], "datetime64[D]")), "must be an array of numbers, got datetime64"),
        (lambda: numbers(np.ma.array([1.0, 2.0], mask=[0, 1])), "'x' has missing entries: 1 of 2 are masked"),
        (lambda: numbers(np.array([1.0, None], dtype=object)), r"'x' has missing entries, the first at \(1,\)"),
        (lambda: numbers(Table(np.array([1.0, NAType()]))), r"'x' has missing entries, the first at \(1,\)"),
        (lambda: numbers(np.array([[1.0, "high"]], dtype=object)), r"must hold numbers, got 'high' at \(0, 1\)"),
        (lambda: numbers(np.array([1.0, 1j], dtype=object)), "'x' must hold numbers"),
    ],
)
def test_anything_else_is_a_sentence(check, message):
    with pytest.raises(InputError, match=message):
        check()
