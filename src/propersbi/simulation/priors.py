"""Drawing from anything that is accepted as a prior.

A prior is a torch distribution or one of SciPy; an object with ``sample(n, rng)``; a pair ``(low, high)``; a function
of one draw; an array or a DataFrame of draws, which is resampled with replacement; or a list or a dict of them, whose
columns are joined. Its draws are NumPy arrays or torch tensors, as it returns them.
"""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np

from propersbi.simulation.calls import call, is_tensor, parameters
from propersbi.simulation.prior_kinds import Kind, components, is_draws, kind_of, table, uniform_ends
from propersbi.storage.randomness import stream
from propersbi.types import Array, InputError, Prior

__all__ = ["check_prior", "draw", "event_shape", "parameter_names"]


def draw(prior: Prior | Any, n: int, rng: np.random.Generator) -> Array:
    """``n`` draws ``(n, *event)`` from anything that is accepted as a prior, with at least one event axis.

    Torch distributions draw from torch's global state: see :func:`propersbi.storage.randomness.stream`.

    >>> draw(np.array([1.0, 2.0]), 3, np.random.default_rng(0))
    array([[2.],
           [2.],
           [2.]])
    >>> draw({"beta": (0.0, 1.0), "gamma": (5.0, 6.0)}, 2, np.random.default_rng(0)).round(2)
    array([[0.64, 5.04],
           [0.27, 5.02]])
    """
    parts = components(prior)
    if parts is not None:
        columns = [draw(part, n, rng).reshape(n, -1) for _, part in parts]
        if all(map(is_tensor, columns)):
            return sys.modules["torch"].cat(columns, 1)
        return np.concatenate([np.asarray(column) for column in columns], 1)
    theta = _DRAW[kind_of(prior)](prior, n, rng)
    theta = theta if is_tensor(theta) else np.asarray(theta)
    if theta.ndim == 0 or len(theta) != n:
        raise InputError(f"The prior returned an array of shape {tuple(theta.shape)} for {n} draws.")
    if not is_tensor(theta) and theta.dtype.kind not in "fiub":
        raise InputError(f"The prior must return real numbers, got {theta.dtype}.")
    return theta.reshape(n, 1) if theta.ndim == 1 else theta


def parameter_names(prior: Any) -> tuple[str, ...] | None:
    """The names of the parameters, where the prior has any: the keys of a dict, the columns of a DataFrame.

    A part of dimension d gives d names, ``beta_1`` to ``beta_d``.

    >>> parameter_names({"beta": (0.0, 1.0), "gamma": [(0.0, 1.0), (0.0, 2.0)]})
    ('beta', 'gamma_1', 'gamma_2')
    >>> parameter_names((0.0, 1.0)) is None
    True
    """
    parts = components(prior)
    if parts is None:
        names = table(prior).names if is_draws(prior) else None
    else:
        found = [_part_names(name, part) for name, part in parts]
        names = None if any(part is None for part in found) else tuple(n for part in found for n in part or ())
    if names is not None and len(set(names)) < len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise InputError(f"The prior has more than one parameter named '{twice[0]}'.")
    return names


def event_shape(prior: Any) -> tuple[int, ...]:
    """The shape of one draw, found by drawing where the prior does not say; random states are left as they are.

    >>> event_shape([(0.0, 1.0), np.zeros((10, 2))])
    (3,)
    """
    parts = components(prior)
    if parts is not None:
        return (sum(math.prod(event_shape(part)) for _, part in parts),)
    with stream(0) as rng:
        return tuple(draw(prior, 2, rng).shape[1:])


def check_prior(prior: Any) -> None:
    """Refuse what is not a prior, with a sentence, before anything is simulated; nothing is drawn.

    >>> check_prior([(0.0, 1.0), 3.0])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    propersbi.types.InputError: A prior must have a method sample(n, rng), or be ..., got 3.0.
    """
    parts = components(prior)
    if parts is not None:
        for _, part in parts:
            check_prior(part)
    elif kind_of(prior) is Kind.DRAWS:
        table(prior)


def _part_names(name: str | None, part: Any) -> tuple[str, ...] | None:
    """Names of the numbers of one part, by its own name or that of its key."""
    if name is None:
        return parameter_names(part)
    size = math.prod(event_shape(part))
    return (name,) if size == 1 else tuple(f"{name}_{i + 1}" for i in range(size))


def _sample_torch(prior: Any, n: int, rng: np.random.Generator) -> Array:  # noqa: ARG001
    torch = sys.modules.get("torch")
    return prior.sample(torch.Size((n,)) if torch else (n,))


def _sample(prior: Any, n: int, rng: np.random.Generator) -> Array:
    return call(prior.sample, n, rng)


def _sample_scipy(prior: Any, n: int, rng: np.random.Generator) -> Array:
    """SciPy drops the row axis of a single draw, and needs the shape of a distribution with several parameters."""
    if hasattr(prior, "resample"):  # a kernel density estimate
        return prior.resample(n, seed=rng).T
    if "size" not in parameters(prior.rvs):
        return np.stack([prior.rvs(random_state=rng) for _ in range(n)])
    ends = prior.support() if callable(getattr(prior, "support", None)) else None
    batch = () if ends is None else np.shape(ends[0])
    rows = max(n, 2)
    try:
        theta = prior.rvs(size=(rows, *batch) if batch else rows, random_state=rng)
    except TypeError as error:
        raise InputError(f"The prior {prior!r:.80} cannot be drawn from: {error}.") from None
    return theta[:n]


def _sample_uniform(prior: Any, n: int, rng: np.random.Generator) -> Array:
    low, high = uniform_ends(prior)
    return rng.uniform(low, high, (n, *low.shape))


def _sample_function(prior: Any, n: int, rng: np.random.Generator) -> Array:
    """One draw at a time."""
    try:
        rows = [prior(rng) for _ in range(n)]
    except TypeError as error:
        raise InputError(f"The prior {prior!r:.80} cannot be called with a random generator: {error}.") from error
    if all(map(is_tensor, rows)):
        return sys.modules["torch"].stack(rows)
    try:
        return np.stack([np.asarray(row) for row in rows])
    except ValueError as error:
        raise InputError(f"The draws of a prior must have one shape: {error}.") from None


def _resample(prior: Any, n: int, rng: np.random.Generator) -> Array:
    """Rows of an array of draws, with replacement."""
    draws = table(prior).values
    rows = draws[rng.integers(len(draws), size=n)]
    if is_tensor(rows):
        return rows if rows.is_floating_point() else rows.float()
    return rows if rows.dtype.kind == "f" else rows.astype(float)


_DRAW = {
    Kind.TORCH: _sample_torch,
    Kind.SAMPLE: _sample,
    Kind.SCIPY: _sample_scipy,
    Kind.UNIFORM: _sample_uniform,
    Kind.FUNCTION: _sample_function,
    Kind.DRAWS: _resample,
}
