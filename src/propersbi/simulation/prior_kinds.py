"""Recognising priors: what kind of object a prior is, which parts it has, and what a table of draws holds.

======================  ===========================================================================================
``Kind.TORCH``          a torch distribution, or anything with ``sample(sample_shape)``, as sbi's priors
``Kind.SAMPLE``         an object with ``sample(n, rng)``
``Kind.SCIPY``          a frozen distribution of ``scipy.stats``, of one or several dimensions, or a density estimate
``Kind.UNIFORM``        a pair ``(low, high)`` of numbers or of vectors
``Kind.FUNCTION``       ``(rng) -> theta``, one draw
``Kind.DRAWS``          an array, a DataFrame, or a dict of columns, one row for each draw
======================  ===========================================================================================

A list or a dict of them stands for independent parameters side by side. Only objects of users and of other libraries
are examined here; neither torch, SciPy nor pandas is imported.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from enum import Enum
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from propersbi.simulation.calls import is_tensor, parameters, required_arguments
from propersbi.simulation.stored_rows import StoredRows
from propersbi.types import Array, InputError

__all__ = [
    "Kind",
    "Table",
    "components",
    "is_discrete_scipy",
    "is_draws",
    "is_ends",
    "kind_of",
    "table",
    "uniform_ends",
]

ACCEPTED = (
    "have a method sample(n, rng), or be a torch or SciPy distribution, a (low, high) pair, a function of rng, "
    "an array of draws, or a list or dict of them"
)


class Kind(Enum):
    """What a prior of one part is."""

    TORCH = "torch"
    SAMPLE = "sample"
    SCIPY = "scipy"
    UNIFORM = "uniform"
    FUNCTION = "function"
    DRAWS = "draws"


class Table(NamedTuple):
    """Draws ``(n, *event)``, names of the columns where they have any, and the columns of whole numbers."""

    values: Array
    names: tuple[str, ...] | None
    integers: tuple[int, ...]


def components(prior: Any) -> tuple[tuple[str | None, Any], ...] | None:
    """The parts of a list or dict of priors, with their names; ``None`` for a prior of one part.

    >>> components({"beta": (0.0, 1.0), "gamma": (0.1, 2.0)})
    (('beta', (0.0, 1.0)), ('gamma', (0.1, 2.0)))
    >>> components(np.zeros((5, 2))) is None
    True
    """
    if isinstance(prior, Mapping):
        if not prior:
            raise InputError("A prior given as a dict needs at least 1 parameter, got {}.")
        return None if _is_table(prior) else tuple((str(name), part) for name, part in prior.items())
    if not isinstance(prior, list | tuple):
        return None
    if any(_is_source(part) for part in prior):
        return tuple((None, part) for part in prior)
    pairs = any(_is_pair(part) for part in prior) and not is_ends(prior)
    return tuple((None, part) for part in prior) if pairs else None


def kind_of(prior: Any) -> Kind:
    """The kind of a prior of one part; an :class:`InputError` if it is none.

    >>> kind_of((0.0, 1.0))
    <Kind.UNIFORM: 'uniform'>
    >>> kind_of("normal")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    propersbi.types.InputError: A prior must have a method sample(n, rng), or be ..., got 'normal'.
    """
    if isinstance(prior, type):
        _refuse(prior)
    if is_draws(prior):
        return Kind.DRAWS
    if hasattr(prior, "sample"):
        return Kind.TORCH if _is_torch(prior) or "sample_shape" in parameters(prior.sample) else Kind.SAMPLE
    if hasattr(prior, "rvs") or hasattr(prior, "resample"):
        if callable(prior) and not hasattr(prior, "resample") and getattr(prior, "numargs", 1) != 0:
            raise InputError(f"The prior {prior!r:.80} has no parameters: give them, as in scipy.stats.norm(0.0, 1.0).")
        return Kind.SCIPY
    if is_ends(prior):
        uniform_ends(prior)
        return Kind.UNIFORM
    if callable(prior):
        if "rng" in parameters(prior) or len(required_arguments(prior)) == 1:
            return Kind.FUNCTION
        raise InputError(f"A prior that is a function must take one argument, rng, and return one draw: {prior!r:.80}.")
    return Kind.DRAWS if _is_nested_list(prior) else _refuse(prior)


def table(prior: Any) -> Table:
    """The rows of a prior that is given by its draws."""
    if isinstance(prior, Mapping):
        return _joined({str(name): table(column) for name, column in prior.items()})
    if _is_frame(prior):
        kinds = [np.dtype(kind).kind if isinstance(kind, np.dtype | type) else "O" for kind in _dtypes(prior)]
        names = tuple(str(name) for name in prior.columns)
        return Table(_numeric(prior), names, tuple(i for i, kind in enumerate(kinds) if kind in "iub"))
    stored = is_tensor(prior) or isinstance(prior, StoredRows)
    values: Array = prior if stored else _numeric(prior)
    if len(values.shape) == 0 or len(values) == 0:
        raise InputError(f"A prior given as an array needs at least 1 draw, got the shape {tuple(values.shape)}.")
    size = int(np.prod(values.shape[1:]))
    name = getattr(prior, "name", None) if hasattr(prior, "to_numpy") else None
    whole = not values.is_floating_point() if is_tensor(values) else values.dtype.kind in "iub"
    # A list of Python's whole numbers says less than an array of integers: it may just be short for 1.0, 2.0.
    whole = whole and not isinstance(prior, list | tuple)
    return Table(values, None if name is None or size > 1 else (str(name),), tuple(range(size)) if whole else ())


def uniform_ends(prior: Any) -> tuple[np.ndarray, np.ndarray]:
    """The two ends of a uniform prior, numbers or vectors of them.

    >>> uniform_ends((0, 2))
    (array(0.), array(2.))
    >>> uniform_ends((2.0, 1.0))
    Traceback (most recent call last):
    propersbi.types.InputError: A uniform prior (low, high) needs finite numbers with low < high, got (2.0, 1.0).
    """
    try:
        low, high = np.broadcast_arrays(*(np.asarray(end, dtype=float) for end in prior))
    except (TypeError, ValueError):
        _refuse(prior)
    if low.ndim > 1 or not (np.isfinite(low) & np.isfinite(high) & (low < high)).all():
        raise InputError(f"A uniform prior (low, high) needs finite numbers with low < high, got {prior!r:.80}.")
    return low, high


def is_ends(value: Any) -> bool:
    """Whether this is a tuple of two ends, numbers or vectors; two pairs that can also be read as such are refused.

    >>> is_ends((0.0, 1.0)), is_ends(((0.0, 0.0), (1.0, 2.0))), is_ends([(0.0, 1.0), (2.0, 3.0)])
    (True, True, False)
    """
    if not (isinstance(value, tuple) and len(value) == 2):
        return False
    _check_unambiguous(value)
    return all(_is_number(end) or _is_vector(end) for end in value)


def is_discrete_scipy(prior: Any) -> bool:
    """Whether a distribution of ``scipy.stats`` has a probability mass in place of a density.

    >>> import scipy.stats
    >>> is_discrete_scipy(scipy.stats.poisson(3.0)), is_discrete_scipy(scipy.stats.norm(0.0, 1.0))
    (True, False)
    """
    if any(base.__name__ == "DiscreteDistribution" for base in type(prior).__mro__):
        return True  # of SciPy's newer kind, all of which have a method pmf
    return not hasattr(prior, "sample") and hasattr(prior, "pmf")


def is_draws(prior: Any) -> bool:
    """Whether a prior is an array, a DataFrame or a dict of columns, one row for each draw."""
    known = is_tensor(prior) or isinstance(prior, np.ndarray | StoredRows)
    return known or hasattr(prior, "to_numpy") or (isinstance(prior, Mapping) and _is_table(prior))


def _joined(columns: dict[str, Table]) -> Table:
    """Columns of draws side by side; their rows belong together."""
    flat = {name: np.asarray(part.values).reshape(len(part.values), -1) for name, part in columns.items()}
    names, integers, start = [], [], 0
    for name, values in flat.items():
        size = values.shape[1]
        names += [name] if size == 1 else [f"{name}_{i + 1}" for i in range(size)]
        integers += [start + i for i in columns[name].integers]
        start += size
    return Table(np.concatenate(list(flat.values()), 1), tuple(names), tuple(integers))


def _numeric(prior: Any) -> np.ndarray:
    try:
        values = prior.to_numpy() if hasattr(prior, "to_numpy") else np.asarray(prior)
    except ValueError:
        _refuse(prior)
    if values.dtype == object and _is_frame(prior):  # columns of several kinds
        try:
            return values.astype(float)
        except (TypeError, ValueError):
            raise InputError("A prior given as a DataFrame must hold numbers only.") from None
    return values if values.dtype.kind in "fiub" else _refuse(prior)


def _dtypes(frame: Any) -> list[Any]:
    """The NumPy types of the columns of a DataFrame, pandas' or another library's."""
    return [column.dtype for column in (frame[name].to_numpy() for name in frame.columns)]


def _is_source(part: Any) -> bool:
    """Whether a part of a list is a prior of its own, and not a number or a row of numbers."""
    draws = is_tensor(part) or isinstance(part, np.ndarray | StoredRows)
    return not draws and (any(hasattr(part, name) for name in ("sample", "rvs", "to_numpy")) or _is_other(part))


def _is_other(part: Any) -> bool:
    return isinstance(part, Mapping) or callable(part)


def _is_torch(prior: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(prior, torch.distributions.Distribution)


def _is_frame(prior: Any) -> bool:
    return hasattr(prior, "columns") and hasattr(prior, "to_numpy")


def _is_table(prior: Mapping[Any, Any]) -> bool:
    """Whether all parts of a dict are columns of draws, of one length: their rows belong together."""
    columns = list(prior.values())
    if not all(is_tensor(c) or isinstance(c, np.ndarray) or hasattr(c, "to_numpy") for c in columns):
        return False
    lengths = {len(column) if np.ndim(column) else 0 for column in columns}
    if len(lengths) > 1:
        raise InputError(f"The columns of draws in a prior must have one length, got {sorted(lengths)}.")
    return True


def _is_pair(part: Any) -> bool:
    return isinstance(part, tuple) and len(part) == 2 and all(_is_number(end) for end in part)


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool | np.bool_)


def _is_vector(value: Any) -> bool:
    array = is_tensor(value) or isinstance(value, np.ndarray)
    return len(value.shape) == 1 if array else isinstance(value, list | tuple) and all(map(_is_number, value))


def _is_nested_list(prior: Any) -> bool:
    """Whether a list holds draws: numbers, or rows of them. Two of each might as well be (low, high) pairs."""
    if not isinstance(prior, Sequence) or isinstance(prior, str | bytes):
        return False
    pairs = [part for part in prior if isinstance(part, list) and len(part) == 2]
    if (len(prior) == 2 and all(map(_is_number, prior))) or (pairs and len(pairs) == len(prior)):
        raise InputError(
            f"The prior {prior!r:.80} can be read in two ways: write a tuple (low, high) for each uniform parameter, "
            "or an array of draws."
        )
    return True


def _check_unambiguous(prior: Any) -> None:
    """Two pairs in a tuple may be two uniform parameters, or the lower and the upper ends of two."""
    if not (isinstance(prior, tuple) and len(prior) == 2 and all(_is_pair(part) for part in prior)):
        return
    ends = np.array(prior, dtype=float)
    if (ends[:, 0] < ends[:, 1]).all() and (ends[0] < ends[1]).all():
        raise InputError(
            f"The prior {prior!r:.80} can be read in two ways: write a list of a (low, high) pair for each parameter."
        )


def _refuse(prior: Any) -> Any:
    raise InputError(f"A prior must {ACCEPTED}, got {prior!r:.80}.")
