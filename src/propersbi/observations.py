"""The one place where observed data are checked: finite numbers of the shape of one observation, or rows of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from propersbi.types import InputError

__all__ = ["numbers", "observations", "one_observation"]


def observations(x: Any, shape: tuple[int, ...], *, name: str = "x") -> Tensor:
    """Rows ``(N, *shape)`` of finite numbers, in the precision given; plain numbers are rows of length one.

    >>> observations([0.5, 1.5], (1,)).shape
    torch.Size([2, 1])
    >>> observations([[0.5, float("nan")]], (2,))
    Traceback (most recent call last):
    propersbi.types.InputError: 'x' must be finite, got nan at (0, 1).
    """
    values = _floats(x, name)
    rows = values.reshape(-1, 1) if shape == (1,) and values.ndim == 1 else values
    if not rows.ndim or tuple(rows.shape[1:]) != shape:
        raise InputError(f"'{name}' must have shape (N, {str(shape)[1:]}, got {tuple(values.shape)}.")
    if not len(rows):
        raise InputError(f"There are no observations: '{name}' is empty.")
    _check_finite(rows, name)
    return rows


def one_observation(x: Any, shape: tuple[int, ...], *, name: str = "x") -> np.ndarray:
    """One observation ``(*shape,)`` of finite numbers, in the precision given, with or without its row axis.

    >>> one_observation([[1.0, 2.0]], (2,))
    array([1., 2.], dtype=float32)
    >>> one_observation([1.0, 2.0, 3.0], (2,))
    Traceback (most recent call last):
    propersbi.types.InputError: 'x' must have shape (2,), got (3,).
    """
    values = _floats(x, name)
    if tuple(values.shape) not in (shape, (1, *shape), shape[1:] if shape == (1,) else shape):
        raise InputError(f"'{name}' must have shape {shape}, got {tuple(values.shape)}.")
    values = values.reshape(shape)
    _check_finite(values, name)
    return _as_numpy(values)


def numbers(x: Any, *, name: str = "x") -> np.ndarray:
    """Finite numbers of any shape, in the precision given: for observations whose shape is not known yet.

    >>> numbers([1, 2]).dtype
    dtype('float32')
    """
    values = _floats(x, name)
    _check_finite(values, name)
    return _as_numpy(values)


def _floats(x: Any, name: str) -> Tensor:
    """Floating-point numbers, in the precision given."""
    if isinstance(x, np.ndarray) and not x.flags.writeable:
        x = x.copy()  # torch warns of memory that it might write to
    try:
        values = torch.as_tensor(x).detach()
    except (TypeError, ValueError, RuntimeError):
        raise InputError(f"'{name}' must be an array of numbers, got {type(x).__name__}.") from None
    if values.is_complex():
        raise InputError(f"'{name}' must hold real numbers, got {values.dtype}.")
    return values if values.is_floating_point() else values.float()


def _check_finite(values: Tensor, name: str) -> None:
    bad = ~torch.isfinite(values)
    if bad.any():
        at = tuple(bad.nonzero()[0].tolist())
        raise InputError(f"'{name}' must be finite, got {values[at].item()} at {at}.")


def _as_numpy(values: Tensor) -> np.ndarray:
    values = values.cpu()
    return (values.float() if values.dtype == torch.bfloat16 else values).numpy()
