"""The one place where numbers that a user gives are checked: real ones, and observed data of the right shape."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from numbers import Integral
from typing import Any

import numpy as np
import torch
from torch import Tensor

from propersbi.layouts import Layout, is_structured
from propersbi.types import InputError

__all__ = ["as_numbers", "numbers", "observations", "one_observation", "sample_sizes"]


def as_numbers(values: Any, name: str, *, missing: bool = False) -> np.ndarray:
    """Real numbers as a NumPy array, from whatever holds them: an array, a tensor, a list, a table of pandas.

    Integers, and floating-point numbers of up to double precision, are kept as they are; longer ones become double, and
    the byte order is the machine's own. Complex numbers and text are refused. NaN and infinity are numbers here;
    entries that are masked, or missing in a table, become NaN where ``missing`` ones are allowed, and are refused
    otherwise.

    >>> as_numbers(np.array([1.5, 2.5], ">f8"), "x").dtype
    dtype('float64')
    >>> as_numbers(np.ma.masked_invalid([1.0, np.nan, 3.0]), "x")
    Traceback (most recent call last):
    propersbi.types.InputError: 'x' has missing entries: 1 of 3 are masked.
    """
    if isinstance(values, Tensor):
        values = _from_torch(values)
    if missing:
        values = _without_gaps(values)
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        masked = np.ma.getmaskarray(values).sum()
        raise InputError(f"'{name}' has missing entries: {masked} of {values.size} are masked.")
    try:
        array = np.asarray(values)
    except (TypeError, ValueError, RuntimeError):
        raise InputError(f"'{name}' must be an array of numbers, got {type(values).__name__}.") from None
    if array.dtype.kind == "O":
        array = _from_objects(array, values, name)
    if array.dtype.kind == "c":
        raise InputError(f"'{name}' must hold real numbers, got {array.dtype}: give real and imaginary parts apart.")
    if array.dtype.kind not in "fiub":
        got = array.dtype if array.ndim else type(values).__name__
        raise InputError(f"'{name}' must be an array of numbers, got {got}.")
    if array.dtype.kind == "f" and array.dtype.itemsize > 8:
        return array.astype(np.float64)
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def observations(
    x: Any, shape: tuple[int, ...], *, name: str = "x", layout: Layout | None = None, missing: bool = False
) -> Tensor:
    """Rows ``(N, *shape)`` of finite numbers, in the precision given; plain numbers are rows of length one.

    With a ``layout``, observations may be structured, and longer or shorter than ``shape`` says. Where entries may be
    ``missing`` they are NaN.

    >>> observations([0.5, 1.5], (1,)).shape
    torch.Size([2, 1])
    >>> observations([[0.5, float("nan")]], (2,))
    Traceback (most recent call last):
    propersbi.types.InputError: 'x' must be finite, got nan at (0, 1).
    """
    if is_structured(x) and layout is not None:
        x = layout.pack_rows(x, name)
    values = _floats(x, name, missing or layout is not None)
    rows = values.reshape(-1, 1) if shape == (1,) and values.ndim == 1 else values
    flexible = layout is not None and layout.flexible and rows.ndim == len(shape) + 1 and 0 not in rows.shape
    if not rows.ndim or tuple(rows.shape[1 + flexible :]) != shape[flexible:]:
        raise InputError(f"'{name}' must have shape (N, {str(shape)[1:]}, got {tuple(values.shape)}.")
    if not len(rows):
        raise InputError(f"There are no observations: '{name}' is empty.")
    _check_finite(rows, name, allowed=missing or (layout is not None and any(part.flexible for part in layout.parts)))
    return rows


def one_observation(
    x: Any, shape: tuple[int, ...], *, name: str = "x", layout: Layout | None = None, missing: bool = False
) -> np.ndarray:
    """One observation ``(*shape,)`` of finite numbers, in the precision given; axes of length one do not matter.

    A vector may therefore come as a row or as a column of a table. See :func:`observations` for the rest.

    >>> one_observation([[1.0, 2.0]], (2,)), one_observation([[1.0], [2.0]], (2,))
    (array([1., 2.]), array([1., 2.]))
    >>> one_observation([1.0, 2.0, 3.0], (2,))
    Traceback (most recent call last):
    propersbi.types.InputError: 'x' must have shape (2,), got (3,).
    """
    if layout is not None:
        packed = torch.from_numpy(np.array(layout.pack_one(x, name)))
        padded = any(part.flexible for part in layout.parts)
        _check_finite(packed, name, allowed=missing or padded)
        return _from_torch(packed)
    values = _floats(x, name, missing)
    if _long_axes(values.shape) != _long_axes(shape):
        raise InputError(f"'{name}' must have shape {shape}, got {tuple(values.shape)}.")
    values = values.reshape(shape)
    _check_finite(values, name, allowed=missing)
    return _from_torch(values)


def numbers(x: Any, *, name: str = "x", missing: bool = False) -> np.ndarray:
    """Finite numbers of any shape, in the precision given: for observations whose shape is not known yet.

    Where entries may be ``missing`` they are NaN.

    >>> numbers([1, 2]).dtype
    dtype('float64')
    """
    values = _floats(x, name, missing)
    if not values.numel():
        raise InputError(f"'{name}' is empty: its shape is {tuple(values.shape)}.")
    _check_finite(values, name, allowed=missing)
    return _from_torch(values)


def _floats(x: Any, name: str, missing: bool = False) -> Tensor:
    """Floating-point numbers, in the precision given; whole numbers become double."""
    if isinstance(x, Tensor) and x.is_floating_point():
        return x.detach()  # on its own device
    array = as_numbers(x, name, missing=missing)
    if array.dtype.kind != "f":
        array = array.astype(np.float64)
    return torch.from_numpy(np.require(array, requirements=["C", "W"]))  # torch warns of memory it must not write to


def _from_torch(values: Tensor) -> np.ndarray:
    values = values.detach().cpu().resolve_conj().resolve_neg()
    return (values.float() if values.dtype == torch.bfloat16 else values).numpy()


def _from_objects(array: np.ndarray, values: Any, name: str) -> np.ndarray:
    """Numbers that were stored as objects of Python, as tables of mixed columns are."""
    if not array.ndim:
        raise InputError(f"'{name}' must be an array of numbers, got {type(values).__name__}.")
    for at, entry in np.ndenumerate(array):
        if entry is None or type(entry).__name__ == "NAType":  # of pandas
            raise InputError(f"'{name}' has missing entries, the first at {at}.")
        if isinstance(entry, str | bytes):
            raise InputError(f"'{name}' must hold numbers, got {entry!r:.40} at {at}.")
    try:
        return array.astype(np.float64)
    except (TypeError, ValueError):
        raise InputError(f"'{name}' must hold numbers, got {array.flat[0]!r:.40}.") from None


def _long_axes(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(size for size in shape if size != 1)


def _without_gaps(values: Any) -> Any:
    """Masked entries, and missing ones of pandas, as NaN."""
    if isinstance(values, np.ma.MaskedArray):
        return np.ma.filled(values.astype(np.float64), np.nan)
    if callable(getattr(values, "to_numpy", None)):
        try:
            return values.to_numpy(dtype=float, na_value=np.nan)
        except (TypeError, ValueError):
            return values
    return values


def _check_finite(values: Tensor, name: str, *, allowed: bool = False) -> None:
    """Refuse infinite numbers, and missing ones unless they are allowed; something must be there."""
    bad = torch.isinf(values) if allowed else ~torch.isfinite(values)
    if allowed and values.numel() and bool(torch.isnan(values).all()):
        raise InputError(f"All entries of '{name}' are missing.")
    if bad.any():
        at = tuple(bad.nonzero()[0].tolist())
        raise InputError(f"'{name}' must be finite, got {values[at].item()} at {at}.")


def sample_sizes(sample_shape: int | Sequence[int], rows: int, event: tuple[int, ...]) -> tuple[int, ...]:
    """The sample shape as a tuple; an :class:`InputError` if it is none, or larger than the memory.

    >>> sample_sizes(5, rows=1, event=(2,)), sample_sizes((2, 3), rows=1, event=(2,))
    ((5,), (2, 3))
    """
    sizes: Any = (sample_shape,) if isinstance(sample_shape, Integral) else sample_shape
    whole = isinstance(sizes, Sequence) and all(isinstance(s, Integral) and not isinstance(s, bool) for s in sizes)
    if not whole:
        raise InputError(f"'sample_shape' must be a number of draws or a tuple of them, got {sample_shape!r:.80}.")
    shape = tuple(int(size) for size in sizes)
    if any(size < 1 for size in shape):
        raise InputError(f"The number of draws must be positive, got {sample_shape}.")
    needed, there = 4 * math.prod(shape) * rows * math.prod(event), _memory()
    if needed > there:
        raise InputError(
            f"{math.prod(shape):,} draws for {rows:,} observations take {needed / 1e9:,.0f} GB, but the memory "
            f"has {there / 1e9:,.0f} GB: ask for fewer at once."
        )
    return shape


def _memory() -> float:
    """Of the machine, in bytes, where it can be known."""
    if os.name != "posix":
        return math.inf
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
