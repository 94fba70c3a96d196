"""What metrics are given, as arrays of real numbers."""

from __future__ import annotations

import sys

import numpy as np

from propersbi.types import Array, InputError

__all__ = ["real_numbers"]


def real_numbers(name: str, values: Array) -> np.ndarray:
    """Real numbers as an array; tensors may need gradients.

    >>> real_numbers("theta", ["a"])
    Traceback (most recent call last):
    propersbi.types.InputError: 'theta' must be an array of numbers, got <U1.
    """
    torch = sys.modules.get("torch")
    try:
        array = np.asarray(values.detach().cpu() if torch and isinstance(values, torch.Tensor) else values)
        array = array.astype(float) if array.dtype.kind == "O" else array
    except (TypeError, ValueError, RuntimeError, OverflowError):
        raise InputError(f"'{name}' must be an array of numbers, got {type(values).__name__}.") from None
    if array.dtype.kind not in "fiub":
        raise InputError(f"'{name}' must be an array of numbers, got {array.dtype}.")
    return array
