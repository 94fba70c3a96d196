"""What the user gives to a diagnosis: checked once, so that the rest of the work can rely on it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from propersbi.types import InputError

__all__ = ["check_options", "events", "one_observation", "shape_of", "to_numpy", "true_parameters"]

DRAWS = 100  # fewer draws than this make ranks too coarse
PAIRS = 20  # fewer test pairs than this show nothing


def true_parameters(theta: Any, x: Any) -> np.ndarray:
    """All true parameters, ``(n, *event)``; they are small beside the draws."""
    n = shape_of(theta)[0]
    if n != shape_of(x)[0]:
        raise InputError(f"'theta' has {n} rows and 'x' has {shape_of(x)[0]}.")
    if n < PAIRS:
        raise InputError(f"There are {n} test pairs; at least {PAIRS} are needed, and some hundred are better.")
    return events("theta", theta[:n], shape_of(theta)[1:])


def events(what: str, values: Any, event: tuple[int, ...]) -> np.ndarray:
    """Finite rows ``(n, *event)``; an :class:`InputError` says which row is not."""
    array = to_numpy(values)
    array = array[:, None] if array.ndim == 1 else array
    if array.shape[1:] != event or array.size == 0:
        raise InputError(f"'{what}' must have shape (n, {str(event)[1:]}, got {array.shape}.")
    if not np.isfinite(array).all():
        row = int(np.nonzero(~np.isfinite(array).reshape(len(array), -1).all(1))[0][0])
        raise InputError(f"'{what}' must be finite, row {row} is not.")
    return array


def one_observation(x: Any, shape: tuple[int, ...]) -> np.ndarray:
    """One observation ``(*shape,)``, given with or without a row axis."""
    array = to_numpy(x)
    if array.shape not in (shape, (1, *shape), shape[1:] if shape == (1,) else shape):
        raise InputError(f"'observation' must have shape {shape}, as the rows of 'x', got {array.shape}.")
    return events("observation", array.reshape(1, *shape), shape)[0]


def check_options(draws: int, observation: Any, reference: Any, simulator: Any) -> None:
    """Enough draws, and an observation where one is needed."""
    if draws < DRAWS:
        raise InputError(f"'draws' must be at least {DRAWS}, got {draws}.")
    for name, value in (("reference", reference), ("simulator", simulator)):
        if value is not None and observation is None:
            raise InputError(f"A '{name}' is compared with an 'observation': give that too.")


def to_numpy(values: Any) -> np.ndarray:
    """Floating-point numbers in their own precision, on the CPU."""
    values = values.detach().cpu() if isinstance(values, torch.Tensor) else values
    try:
        array = np.asarray(values)
        return array if array.dtype.kind == "f" else array.astype(np.float32)
    except (TypeError, ValueError):
        raise InputError(f"Expected an array of numbers, got {type(values).__name__}.") from None


def shape_of(rows: Any) -> tuple[int, ...]:
    """The shape of rows, where plain numbers are vectors of length one."""
    shape = tuple(getattr(rows, "shape", None) or np.shape(rows))
    if not shape:
        raise InputError(f"Expected rows of numbers, got {type(rows).__name__}.")
    return shape if len(shape) > 1 else (*shape, 1)
