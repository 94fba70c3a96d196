"""The supports of torch distributions, by their constraints; those of pyro have the same names."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch.distributions import Categorical, Independent, TransformedDistribution, biject_to
from torch.distributions.constraints import Constraint

from propersbi.samplers.blocks import join
from propersbi.samplers.bounds import Box, Support, as_bound, inside_of
from propersbi.samplers.constraints import Bijection, Ordered, Simplex
from propersbi.samplers.discrete import Categories, Counts
from propersbi.samplers.matrices import Correlation, PositiveDefinite
from propersbi.types import InputError

__all__ = ["MAX_CATEGORIES", "Described", "beside", "of_constraint", "of_distribution"]

MAX_CATEGORIES = 50  # beyond, the number of a category is taken as a whole number: one-hot vectors would be too long

# By the name of a constraint: the axes of its events, and the support of one.
SHAPED: dict[str, tuple[int, Callable[[Sequence[int]], Support]]] = {
    "_Simplex": (1, lambda shape: Simplex(shape[-1])),
    "_OneHot": (1, lambda shape: Categories(shape[-1], one_hot=True)),
    "_OrderedVector": (1, lambda shape: Ordered(shape[-1])),
    "_PositiveOrderedVector": (1, lambda shape: Ordered(shape[-1], lower=0.0)),
    "_PositiveDefinite": (2, lambda shape: PositiveDefinite(shape[-1])),
    "_PositiveSemidefinite": (2, lambda shape: PositiveDefinite(shape[-1])),
    "_LowerCholesky": (2, lambda shape: PositiveDefinite(shape[-1], cholesky=True)),
    "_CorrCholesky": (2, lambda shape: Correlation(shape[-1], cholesky=True)),
    "_CorrMatrix": (2, lambda shape: Correlation(shape[-1])),
}
ANYTHING = ("_Real", "_RealVector", "_Square")


class Described(NamedTuple):
    """What is known of the parameters.

    Arguments:
        support: Where they lie.
        size: How many there are, where that is known.
        discrete: Which of them (of the flattened event) are whole numbers.
        known: Whether the support is known, or just nothing is.
        names: Of the columns of a table.
    """

    support: Support
    size: int | None = None
    discrete: tuple[int, ...] = ()
    known: bool = True
    names: tuple[str, ...] | None = None


def beside(parts: Sequence[Described], sizes: Sequence[int], shape: Sequence[int] | None = None) -> Described:
    """Parts side by side, of so many parameters each."""
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    discrete = tuple(start + i for start, part in zip(starts, parts, strict=True) for i in part.discrete)
    support = join([part.support for part in parts], sizes, shape)
    return Described(support, sum(sizes), discrete, all(part.known for part in parts))


def of_distribution(prior: Any) -> Described:
    """The support of a torch distribution, as far as it says."""
    shape = tuple(prior.batch_shape) + tuple(prior.event_shape) or (1,)
    size = math.prod(shape)
    base = prior
    while isinstance(base, Independent):
        base = base.base_dist
    if isinstance(base, Categorical) and base.probs.shape[-1] <= MAX_CATEGORIES:
        if base.probs.shape[-1] < 2:
            raise InputError("A categorical prior needs at least 2 categories.")
        parts = [Described(Categories(base.probs.shape[-1]), 1)] * size
        return beside(parts, [1] * size, shape)
    try:
        constraint = prior.support
    except NotImplementedError:
        constraint = None
    if constraint is None or torch.distributions.constraints.is_dependent(constraint):
        return Described(Box(), size, known=False)
    said = of_constraint(constraint, shape)
    if isinstance(base, TransformedDistribution) and not said.support.bounded:
        return said._replace(support=_transformed(base))
    return said


def _transformed(prior: TransformedDistribution) -> Box:
    """The box of a distribution that is mapped number by number: torch says that a shifted interval is the whole line.

    >>> scaled = torch.distributions.AffineTransform(torch.tensor(2.0), torch.tensor(-1.0))
    >>> _transformed(TransformedDistribution(torch.distributions.HalfNormal(1.0), [scaled]))
    Box(lower=None, upper=2.0, point_masses=None)
    """
    box = of_distribution(prior.base_dist).support
    if not isinstance(box, Box) or not all(map(_is_monotone, prior.transforms)):
        return Box()
    ends = [torch.as_tensor(end) for end in box.ends()]
    for transform in prior.transforms:
        ends = [transform(end) for end in ends]
    low, high = torch.minimum(*ends), torch.maximum(*ends)
    return Box(as_bound(low), as_bound(high)) if not (low.isnan() | high.isnan()).any() else Box()


def _is_monotone(transform: Any) -> bool:
    return transform.bijective and transform.domain.event_dim == 0


def of_constraint(constraint: Any, shape: Sequence[int] | None) -> Described:
    """The support that a torch constraint describes, for events of this shape.

    >>> of_constraint(torch.distributions.constraints.simplex, (3,)).support
    Simplex(size=3)
    >>> of_constraint(torch.distributions.constraints.nonnegative_integer, (1,))
    Described(support=Box(lower=0.0, upper=None, point_masses=None), size=1, discrete=(0,), known=True, names=None)
    """
    if hasattr(constraint, "base_constraint"):  # independent, mixtures
        return of_constraint(constraint.base_constraint, shape)
    if hasattr(constraint, "cseq"):  # concatenated or stacked
        return _of_parts(constraint, shape)
    name, size = type(constraint).__name__, None if shape is None else math.prod(shape)
    if name in ANYTHING:
        return Described(Box(), size)
    if name in SHAPED or name == "_Multinomial":
        return _of_shaped(constraint, name, shape)
    bounds = [getattr(constraint, end, None) for end in ("lower_bound", "upper_bound")]
    bounds = [0.0, 1.0] if name == "_Boolean" else bounds
    if all(bound is None for bound in bounds):
        return _of_bijection(constraint, shape)
    if constraint.is_discrete:
        if size is None:
            raise InputError(f"Give 'discrete' and the bounds in place of the constraint {constraint}.")
        return Described(Box(*map(_closed, bounds)), size, tuple(range(size)))
    low, high = (inside_of(end, direction) for end, direction in zip(bounds, (math.inf, -math.inf), strict=True))
    return Described(Box(as_bound(low), as_bound(high)), size)


def _of_parts(constraint: Any, shape: Sequence[int] | None) -> Described:
    """Of constraints that are concatenated, or stacked along the first axis."""
    parts = constraint.cseq
    each = 1 if shape is None else max(1, math.prod(shape) // len(parts))
    lengths = list(getattr(constraint, "lengths", [each] * len(parts)))
    return beside([of_constraint(part, (n,)) for part, n in zip(parts, lengths, strict=True)], lengths, shape)


def _of_shaped(constraint: Any, name: str, shape: Sequence[int] | None) -> Described:
    """Of vectors or matrices, perhaps several of them."""
    if shape is None:
        raise InputError(f"The support {constraint} needs a size: give for example samplers.Simplex(size=3).")
    axes, make = SHAPED.get(name, (1, lambda event: Counts(event[-1], _total(constraint))))
    if len(shape) < axes:
        raise InputError(f"The support {constraint} does not fit parameters of shape {tuple(shape)}.")
    event, count = math.prod(shape[-axes:]), math.prod(shape[:-axes])
    return beside([Described(make(shape), event)] * count, [event] * count, shape)


def _of_bijection(constraint: Any, shape: Sequence[int] | None) -> Described:
    try:
        biject_to(constraint)
    except NotImplementedError:
        shape = None
    if shape is None or not isinstance(constraint, Constraint):
        raise InputError(f"The prior's support {constraint} is not known: give 'support', for example Box(lower=0.0).")
    return Described(Bijection(constraint, tuple(shape)), math.prod(shape))


def _closed(end: Any) -> Any:
    return None if end is None else as_bound(torch.as_tensor(end).double())


def _total(constraint: Any) -> int:
    totals = torch.as_tensor(constraint.upper_bound).unique().tolist()
    if len(totals) > 1:
        raise InputError(f"Multinomial parameters must have one sum, got {totals[:10]}.")
    return int(totals[0])
