"""What simulators return, as numbers: arrays, tensors, lists, scalars, tables of pandas, and dicts of them.

Only values of users and of other libraries are examined here; neither torch nor pandas is imported.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from propersbi.layouts import Layout, Part
from propersbi.simulation.calls import is_tensor
from propersbi.types import Array, InputError

__all__ = ["ResultError", "Values", "as_floats", "format_theta", "read_result", "stored"]


PRECISION = 1e-4  # of the standard deviation of a number, which rounding may change
FEW, ROUGH = 20, 0.1  # rows that hardly show their standard deviation, and the precision for them
SINGLE_DIGITS = 2.0**-24  # the relative rounding error of single precision
DOUBLE_DIGITS = 1e-11  # relative differences below which numbers in double precision count as equal


class ResultError(InputError):
    """The simulator returned something that cannot be data: a mistake in the simulator, not a row that failed."""


class Values(NamedTuple):
    """Data as floating-point numbers, their names where the simulator gave any, and whether they were torch tensors.

    Data of several parts, of which one has more than one number, also have a layout.
    """

    numbers: np.ndarray
    names: tuple[str, ...] | None = None
    in_torch: bool = False
    layout: Layout | None = None


def read_result(value: Any, *, batched: bool, order: tuple[str, ...] | None = None) -> Values:
    """What a simulator returned, for one parameter or, with ``batched``, for rows of them.

    The entries of a dict are flattened and joined; their names are the keys, numbered for entries of several numbers.
    With ``order`` they are brought into the order of these names.

    >>> read_result({"mean": 0.5, "spectrum": [1.0, 2.0]}, batched=False)  # doctest: +ELLIPSIS +NORMALIZE_WHITESPACE
    Values(numbers=array([0.5, 1. , 2. ]), names=('mean', 'spectrum_1', 'spectrum_2'), in_torch=False,
           layout=Layout(parts=(Part(name='mean', ...), Part(name='spectrum', shape=(2,), kind=None, ragged=False))))
    """
    if isinstance(value, Mapping):
        values = _read_mapping(value, batched)
    elif callable(getattr(value, "to_numpy", None)):
        values = _read_table(value, batched)
    else:
        values = Values(as_floats(value), None, _holds_tensors(value))
    if values.names is None or order is None or values.names == order:
        return values
    if set(values.names) != set(order) or len(values.names) != len(order):
        other = sorted(set(values.names) ^ set(order))
        raise ResultError(f"The simulator does not always return the same names: '{other[0]}' is not always there")
    columns = [values.names.index(name) for name in order]
    return values._replace(numbers=values.numbers[..., columns], names=order)


def _read_mapping(value: Mapping[Any, Any], batched: bool) -> Values:
    """The entries side by side."""
    if not value:
        raise ResultError("The simulator returned an empty dict")
    parts = {str(key): read_result(entry, batched=batched).numbers for key, entry in value.items()}
    rows = {part.shape[:1] for part in parts.values()} if batched else {()}
    if len(rows) > 1 or (batched and rows == {()}):
        shapes = ", ".join(f"'{name}' {part.shape}" for name, part in parts.items())
        raise ResultError(f"The entries of the dict must have one row for each parameter, got the shapes {shapes}")
    flat = [part.reshape(*rows.copy().pop(), -1) for part in parts.values()]
    names = [name for name, part in zip(parts, flat, strict=True) for name in _numbered(name, part.shape[-1])]
    in_torch = any(map(_holds_tensors, value.values()))
    found = tuple(Part(name, part.shape[int(batched) :]) for name, part in parts.items())
    layout = None if all(part.size == 1 for part in found) else Layout(found)
    return Values(np.concatenate(flat, axis=-1), tuple(names), in_torch, layout)


def _read_table(value: Any, batched: bool) -> Values:
    """A Series or a DataFrame: with one row for each parameter, or for one parameter.

    For one parameter, a single row or column becomes a vector.
    """
    numbers = as_floats(value.to_numpy())
    labels = getattr(value, "columns", None)
    if batched or numbers.ndim < 2:
        labels = getattr(value, "index", None) if labels is None and not batched else labels
    elif 1 in numbers.shape:
        labels = labels if numbers.shape[0] == 1 else None
        numbers = numbers.ravel()
    names = () if labels is None else tuple(labels)
    is_named = bool(names) and numbers.ndim == 1 + batched and all(isinstance(name, str) for name in names)
    return Values(numbers, names if is_named else None)


def _numbered(name: str, size: int) -> list[str]:
    return [name] if size == 1 else [f"{name}_{i + 1}" for i in range(size)]


def _holds_tensors(value: Any) -> bool:
    return is_tensor(value) or (isinstance(value, (list, tuple)) and any(map(_holds_tensors, value)))


def as_floats(value: Any) -> np.ndarray:
    """A copy of an array, a tensor or a list, since simulators may reuse their arrays.

    It is in float32 where the numbers are in float32 or less, else in float64. Masked values become NaN.

    >>> as_floats([1, 2])
    array([1., 2.])
    """
    if value is None:
        raise ResultError("The simulator returned None instead of numbers")
    if isinstance(value, (list, tuple)) and any(map(_holds_tensors, value)):
        value = [as_floats(part) for part in value]
    if is_tensor(value):
        value = value.detach().cpu()
        value = value.float().numpy() if value.is_floating_point() and value.itemsize < 4 else value.numpy()
    try:
        array: Any = value if isinstance(value, np.ma.MaskedArray) else np.asarray(value)
    except ValueError as error:
        raise ResultError(f"The simulator returned a value that is not an array: {error}") from error
    if array.dtype.kind not in "fiub":
        found = type(value).__name__ if array.ndim == 0 else array.dtype
        raise ResultError(f"The simulator must return real numbers, got {found}")
    dtype = np.float32 if array.dtype.kind == "f" and array.dtype.itemsize <= 4 else np.float64
    with np.errstate(over="ignore"):  # overflow gives infinite values, which are counted as invalid
        if isinstance(value, np.ma.MaskedArray):
            array = array.astype(dtype).filled(np.nan)
        return np.array(array, dtype, order="C")


def stored(rows: np.ndarray) -> np.ndarray:
    """Rows as they are stored: in float32, or in float64 where float32 would lose digits.

    That is where rounding would change a number by more than a ten-thousandth of its standard deviation, as with
    numbers near a billion that differ by one, or would change a whole number. It is decided for each chunk by itself.

    >>> stored(np.array([[0.1], [0.2]])).dtype, stored(1e9 + np.array([[0.1], [0.2]])).dtype
    (dtype('float32'), dtype('float64'))
    """
    with np.errstate(over="ignore"):  # overflow gives infinite values, which are counted as invalid
        rounded = rows.astype(np.float32)
    if rows.dtype == np.float32:
        return rounded
    flat, finite = rows.reshape(len(rows), -1), np.isfinite(rounded).reshape(len(rows), -1)
    values, count = np.where(finite, flat, 0.0), np.maximum(finite.sum(0), 1)
    exact = (values == np.where(finite, rounded.reshape(flat.shape), 0.0)).all(0)
    whole = (values == values.round()).all(0)
    largest = np.abs(values).max(0)
    spread = np.sqrt((finite * (values - values.sum(0) / count) ** 2).sum(0) / count)
    spread = np.where(count > 1, spread, 1.0)
    precision = np.where(count >= FEW, PRECISION, ROUGH)
    varies = spread > DOUBLE_DIGITS * largest  # and not just by rounding
    lost = ~exact & (whole | (varies & (SINGLE_DIGITS * largest > precision * spread)))
    return rows if lost.any() else rounded


def format_theta(theta: Array) -> str:
    """A parameter on one line, with all digits; long ones are shortened.

    >>> format_theta(np.array([0.1, 2.0]))
    '[0.1, 2. ]'
    """
    theta = theta.detach().cpu().numpy() if is_tensor(theta) else theta
    text = np.array2string(np.asarray(theta), separator=", ", threshold=20, floatmode="unique")
    return " ".join(text.split())
