"""Drawing from anything that is accepted as a prior.

A prior is an object with ``sample(n, rng)``; a torch distribution; a list of either, whose columns are joined; or an
array of draws, which is resampled with replacement. Its draws are NumPy arrays or torch tensors, as it returns them.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from propersbi.simulation.calls import call, is_tensor, parameters
from propersbi.simulation.shards import StoredRows
from propersbi.types import Array, InputError, Prior

__all__ = ["draw"]


def draw(prior: Prior | Any, n: int, rng: np.random.Generator) -> Array:
    """``n`` draws ``(n, *event)`` from anything that is accepted as a prior, with at least one event axis.

    Torch distributions draw from torch's global state: see :func:`propersbi.storage.randomness.stream`.

    >>> draw(np.array([1.0, 2.0]), 3, np.random.default_rng(0))
    array([[2.],
           [2.],
           [2.]])
    """
    if isinstance(prior, (list, tuple)) and prior and all(hasattr(component, "sample") for component in prior):
        columns = [draw(component, n, rng).reshape(n, -1) for component in prior]
        if all(map(is_tensor, columns)):
            return sys.modules["torch"].cat(columns, 1)
        return np.concatenate([np.asarray(column) for column in columns], 1)
    theta = _sample(prior, n, rng) if hasattr(prior, "sample") else _resample(prior, n, rng)
    theta = theta if is_tensor(theta) else np.asarray(theta)
    if theta.ndim == 0 or len(theta) != n:
        raise InputError(f"The prior returned an array of shape {tuple(theta.shape)} for {n} draws.")
    return theta.reshape(n, 1) if theta.ndim == 1 else theta


def _sample(prior: Any, n: int, rng: np.random.Generator) -> Array:
    """Draws by ``sample(sample_shape)``, the signature of torch distributions, or by ``sample(n, rng)``."""
    torch = sys.modules.get("torch")
    if (torch and isinstance(prior, torch.distributions.Distribution)) or "sample_shape" in parameters(prior.sample):
        return prior.sample(torch.Size((n,)) if torch else (n,))
    return call(prior.sample, n, rng)


def _resample(prior: Any, n: int, rng: np.random.Generator) -> Array:
    """Rows of an array of draws, with replacement."""
    draws: Any = prior if is_tensor(prior) or isinstance(prior, StoredRows) else np.asarray(prior)
    if not is_tensor(draws) and draws.dtype.kind not in "fiub":
        raise InputError(
            f"A prior must have a method sample(n, rng), or be a distribution or an array of draws, got {prior!r:.80}."
        )
    if len(draws.shape) == 0 or len(draws) == 0:
        raise InputError(f"A prior given as an array needs at least 1 draw, got the shape {tuple(draws.shape)}.")
    rows = draws[rng.integers(len(draws), size=n)]
    if is_tensor(rows):
        return rows if rows.is_floating_point() else rows.float()
    return rows if rows.dtype.kind == "f" else rows.astype(float)
