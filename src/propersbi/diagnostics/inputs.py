"""What the user gives to a diagnosis: checked once, so that the rest of the work can rely on it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from propersbi.layouts import is_structured
from propersbi.observations import one_observation
from propersbi.posterior import Posterior
from propersbi.storage.checks import check_whole, is_number
from propersbi.training.batches import checked_pairs
from propersbi.types import InputError, Rows

__all__ = ["MIN_SAMPLES", "check_options", "checked_test_pairs", "parameter_rows", "to_numpy", "x_of"]

MIN_SAMPLES = 100  # fewer draws make ranks too coarse
MIN_PAIRS = 20  # fewer test pairs show nothing
SIMULATION_OPTIONS = ("batched", "timeout", "workers", "executor", "on_error", "max_failed")


def checked_test_pairs(theta: Any, x: Any, *posteriors: Any) -> tuple[np.ndarray, Rows]:
    """All true parameters, ``(n, *event)``, which are small beside the draws; and rows of data.

    They are packed as those that the posteriors were trained on, if these say so.
    """
    ours = [posterior for posterior in posteriors if isinstance(posterior, Posterior)]
    layouts = [posterior.layout for posterior in ours if posterior.layout is not None]
    if layouts and is_structured(x):
        x = layouts[0].pack_rows(x)
    allow = any(posterior.takes_missing for posterior in ours) or bool(layouts)
    theta, x = checked_pairs(theta, x, "allow" if allow else None)[:2]
    if len(theta) < MIN_PAIRS:
        raise InputError(
            f"There are {len(theta)} test pairs; at least {MIN_PAIRS} are needed, some hundred are better."
        )
    return parameter_rows("theta", theta[: len(theta)], tuple(theta.shape[1:])), x


def x_of(posterior: Any, observation: Any, shape: tuple[int, ...]) -> np.ndarray:
    """The observation, as the posterior takes it."""
    if not isinstance(posterior, Posterior) or posterior.layout is None:
        missing = isinstance(posterior, Posterior) and posterior.takes_missing
        observation = observation if missing else to_numpy(observation)
        return one_observation(observation, shape, name="observation", missing=missing)
    options: dict[str, Any] = {"layout": posterior.layout, "missing": posterior.takes_missing}
    return one_observation(observation, shape, name="observation", **options)


def parameter_rows(name: str, values: Any, event: tuple[int, ...]) -> np.ndarray:
    """Finite rows ``(n, *event)`` in their own precision; an :class:`InputError` says which row is not."""
    array = to_numpy(values)
    array = array[:, None] if array.ndim == 1 else array
    if array.shape[1:] != event or array.size == 0:
        raise InputError(f"'{name}' must have shape (n, {str(event)[1:]}, got {array.shape}.")
    if not np.isfinite(array).all():
        row = int(np.nonzero(~np.isfinite(array).reshape(len(array), -1).all(1))[0][0])
        raise InputError(f"'{name}' must be finite, row {row} is not.")
    return array


def check_options(
    num_samples: int, observation: Any, reference: Any, simulator: Any, simulation: Mapping[str, Any]
) -> None:
    """Enough draws, an observation where one is needed, and known options of the simulation."""
    for name in simulation:
        if name not in SIMULATION_OPTIONS:
            raise InputError(
                f"There is no option '{name}'; of the simulation there are {', '.join(SIMULATION_OPTIONS)}."
            )
    if not is_number(num_samples) or num_samples < MIN_SAMPLES:
        raise InputError(f"'num_samples' must be at least {MIN_SAMPLES}, got {num_samples!s:.80}.")
    check_whole("num_samples", num_samples, MIN_SAMPLES)
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
