"""What a prior says about its parameters: where they lie, and which of them are whole numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.distributions import Distribution
from torch.distributions.constraints import Constraint

from propersbi.samplers.bounds import Bound, Box, Support, as_bound, inside_of
from propersbi.samplers.constraints import Shaped, Simplex
from propersbi.samplers.discrete import Counts
from propersbi.samplers.matrices import Correlation, PositiveDefinite
from propersbi.samplers.subset import Subset
from propersbi.samplers.torch_support import Described, beside, of_constraint, of_distribution
from propersbi.simulation.calls import required_arguments
from propersbi.simulation.prior_kinds import Kind, components, is_discrete_scipy, is_ends, kind_of, table
from propersbi.simulation.priors import draw, event_shape
from propersbi.storage.randomness import stream
from propersbi.types import InputError

__all__ = ["UNKNOWN", "Known", "describe", "describe_columns", "given_support", "places", "support_of", "what_is_known"]

MANY = 10  # names that are listed in a sentence
UNKNOWN = Described(Box(), known=False)
WHOLE_SPACE = ("multivariate_normal_frozen", "multivariate_t_frozen", "matrix_normal_frozen", "gaussian_kde")


def support_of(prior: Any, shape: Sequence[int] | None = None) -> Support:
    """The support of ``prior``, as far as it says: ``.support``, or ``.lower`` and ``.upper``.

    Accepted also in place of a prior: a :class:`Support`, a torch constraint, a pair ``(lower, upper)``. A prior that
    can only be sampled says nothing and is taken as unbounded.

    Arguments:
        prior: Anything that is accepted as a prior.
        shape: The event shape of the parameters, which a constraint alone does not tell.

    Examples:
        >>> support_of(torch.distributions.Exponential(1.0)).lower > 0
        True
        >>> support_of((0.0, 1.0))
        Box(lower=0.0, upper=1.0, point_masses=None)
        >>> support_of(torch.distributions.Dirichlet(torch.ones(3)))
        Simplex(size=3)
    """
    return describe(prior, shape).support


def describe(prior: Any, shape: Sequence[int] | None = None) -> Described:
    """What ``prior`` says about its parameters.

    >>> describe({"rate": (0.0, 1.0), "count": torch.distributions.Poisson(3.0)}).discrete
    (1,)
    """
    if prior is None:
        return UNKNOWN
    if isinstance(prior, Support):
        return Described(prior)
    if isinstance(prior, Constraint):
        return of_constraint(prior, shape)
    if is_ends(prior):
        return Described(_box(prior))
    parts = components(prior)
    if parts is not None:
        found = [describe(part) for _, part in parts]
        return beside(found, [_size(part, said) for (_, part), said in zip(parts, found, strict=True)])
    if isinstance(prior, Distribution):
        return of_distribution(prior)
    return _of_attributes(prior) or _of_kind(prior)


def given_support(value: Any, shape: Sequence[int] | None, within: Support) -> Described:
    """What was given as ``support``: like a prior, a function of theta, or a list or dict of any but functions.

    Arguments:
        value: What was given.
        shape: The event shape of the parameters.
        within: For a function, a support that holds its set.

    >>> given_support([(0.0, None), (None, 1.0)], (2,), Box()).support
    Box(lower=(0.0, None), upper=(None, 1.0), point_masses=None)
    """
    if isinstance(value, tuple) and len(value) == 2 and all(_is_end(end) for end in value):
        return Described(_box(value))
    if isinstance(value, Support | Constraint | Distribution):
        return describe(value, shape)
    if isinstance(value, Mapping | list | tuple) and value:
        parts = list(value.values()) if isinstance(value, Mapping) else list(value)
        found = [given_support(part, None, Box()) for part in parts]
        return beside(found, [_size(part, said) for part, said in zip(parts, found, strict=True)])
    said = _of_attributes(value)
    if said is not None:
        return said
    if callable(value) and not isinstance(value, type):
        return Described(Subset(value, within))
    raise InputError(
        "'support' must be a Box or another support, a (lower, upper) pair, a torch constraint, a function of theta, "
        f"or a list or dict of them, got {value!r:.80}."
    )


class Known(NamedTuple):
    """Where the parameters lie and which of them are whole numbers, with a reason for both."""

    support: Support
    reason: str
    discrete: tuple[int, ...]
    discrete_reason: str


def what_is_known(shape: Sequence[int], given: Any, prior: Any, columns: Described) -> Known:
    """The support of parameters of this shape: as given, as the prior says, or by the type of the parameters.

    Arguments:
        shape: The event shape of the parameters.
        given: What was given as ``support``, if anything.
        prior: The prior, if there is one.
        columns: What the type of the training parameters says.
    """
    said = describe(prior, shape)
    if given is not None:
        found, reason = given_support(given, shape, said.support), "given"
    elif columns.discrete and not said.known:
        found, reason = columns, "the range of the integers in theta"
    else:
        found, reason = said, "the prior's" if said.known else "none are known"
    if not found.support.fits(shape):
        raise InputError(f"The bounds {found.support} do not fit parameters of shape {tuple(shape)}.")
    whole = tuple(sorted({*found.discrete, *said.discrete, *columns.discrete}))
    why = "given" if found.discrete and given is not None else "the prior's" if said.discrete else "the type of theta"
    return Known(found.support, reason, whole, why if whole else "")


def describe_columns(theta: Any) -> Described:
    """What the type of the training parameters says: integers are whole numbers, in the range that they have.

    >>> describe_columns(np.array([[0], [3]])).support
    Box(lower=0.0, upper=3.0, point_masses=None)
    """
    array = isinstance(theta, np.ndarray | torch.Tensor)
    typed = theta.ndim > 0 if array else hasattr(theta, "to_numpy")  # a DataFrame
    return describe(theta) if typed and len(theta) else UNKNOWN


def places(discrete: Any, names: Sequence[str] | None, size: int) -> tuple[int, ...]:
    """Parameters by number or by name, as numbers from 0.

    >>> places(["gamma", 0], ("beta", "gamma"), 2)
    (0, 1)
    """
    if isinstance(discrete, str) or not isinstance(discrete, Sequence | np.ndarray):
        raise InputError(f"'discrete' must be a list of parameters, by number or name, got {discrete!r:.80}.")
    known = list(names or ())
    found = set()
    for entry in discrete:
        if isinstance(entry, str) and entry not in known:
            raise InputError(f"'discrete' names the parameter '{entry}'; there are {known[:MANY]}.")
        place = known.index(entry) if isinstance(entry, str) else entry
        if isinstance(place, bool) or not isinstance(place, int | np.integer) or not 0 <= place < size:
            raise InputError(f"'discrete' names the parameter {entry!r:.80}; there are {size}, from 0.")
        found.add(int(place))
    return tuple(sorted(found))


def _of_attributes(prior: Any) -> Described | None:
    """What an object says by ``support``, a constraint, a box or a method, or by ``lower`` and ``upper``."""
    support = getattr(prior, "support", None)
    if isinstance(support, Support | Constraint):
        return describe(support, event_shape(prior) if isinstance(support, Constraint) else None)
    if is_ends(support):
        return describe(support)
    if callable(support) and not required_arguments(support):  # a method of SciPy's distributions of one dimension
        return _of_ends(prior, support())
    ends = [getattr(prior, name, None) for name in ("lower", "upper")]
    known = any(end is not None for end in ends) and not any(map(callable, ends))
    return Described(_box(ends)) if known else None


def _of_ends(prior: Any, ends: Any) -> Described:
    """The interval from which a distribution of SciPy draws."""
    shape = np.shape(ends[0]) or (1,)
    size = math.prod(shape)
    if is_discrete_scipy(prior):
        return Described(_box(ends), size, tuple(range(size)))
    low, high = (inside_of(end, direction) for end, direction in zip(ends, (math.inf, -math.inf), strict=True))
    return Described(Box(as_bound(low), as_bound(high)), size)


def _of_kind(prior: Any) -> Described:
    kind = kind_of(prior)
    if kind is Kind.SCIPY:
        return _of_scipy(prior)
    return _of_draws(prior) if kind is Kind.DRAWS else UNKNOWN


def _of_scipy(prior: Any) -> Described:
    """Distributions of several dimensions, by name; those of other names that draw whole numbers are discrete."""
    name, shape = type(prior).__name__, event_shape(prior)
    size = math.prod(shape)
    if name in WHOLE_SPACE:
        return Described(Box(), size)
    if name == "dirichlet_frozen":
        return Described(Simplex(size), size)
    if name in ("wishart_frozen", "invwishart_frozen"):
        return Described(PositiveDefinite(shape[-1]) if size > 1 else Box(lower=0.0), size)
    if name == "random_correlation_frozen":
        return Described(Correlation(shape[-1]), size)
    if name == "multinomial_frozen":
        return Described(Counts(size, int(prior.n)), size)
    with stream(0) as rng:
        whole = np.asarray(draw(prior, 2, rng)).dtype.kind in "iu"
    return Described(Box(), size, tuple(range(size)) if whole else (), known=False)


def _of_draws(prior: Any) -> Described:
    """Draws say no more than which parameters are whole numbers, and between which bounds these lie."""
    draws = table(prior)
    size = math.prod(draws.values.shape[1:])
    if not draws.integers:
        return Described(Box(), size, known=False, names=draws.names)
    return Described(_ranges(draws.values, draws.integers), size, draws.integers, names=draws.names)


def _ranges(values: Any, columns: Sequence[int]) -> Box:
    """From the least to the largest of the numbers in some columns."""
    flat = np.asarray(values).reshape(len(values), -1)
    low, high = np.full(flat.shape[1], -math.inf), np.full(flat.shape[1], math.inf)
    for i in columns:
        if flat[:, i].min() < flat[:, i].max():
            low[i], high[i] = flat[:, i].min(), flat[:, i].max()
    return Box(as_bound(low), as_bound(high))


def _size(part: Any, said: Described) -> int:
    """How many parameters a part has."""
    if said.size is not None:
        return said.size
    if isinstance(part, Shaped):
        return math.prod(part.shape)
    if isinstance(part, Support) or _is_end(part) or isinstance(part, tuple):
        sizes = [len(end) for end in (said.support.box.lower, said.support.box.upper) if isinstance(end, tuple)]
        return max(sizes, default=1)
    return math.prod(event_shape(part))


def _is_end(value: Any) -> bool:
    """Whether this is a bound, or a vector of bounds, any of which may be ``None``."""
    if value is None or isinstance(value, int | float | np.number):
        return True
    if isinstance(value, torch.Tensor | np.ndarray):
        return True
    return isinstance(value, list | tuple) and all(v is None or isinstance(v, int | float | np.number) for v in value)


def _box(ends: Sequence[Any]) -> Box:
    low, high = ends
    return Box(_end(low), _end(high))


def _end(value: Any) -> Bound:
    """A bound as plain numbers."""
    if isinstance(value, list | tuple):
        value = [math.inf if v is None else v for v in value]
    return as_bound(value)
