"""Supports of several parts: parameters side by side, and those of a box that are whole numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from propersbi.samplers.bounds import Bounds, Box, Support, side_by_side
from propersbi.samplers.constraints import Shaped
from propersbi.samplers.discrete import Integers
from propersbi.samplers.subset import Subset
from propersbi.types import InputError

__all__ = ["Blocks", "join", "with_integers"]


@dataclass(frozen=True)
class Blocks(Support):
    """Parts side by side, each in a support of its own.

    Arguments:
        parts: The supports.
        sizes: How many parameters (of the flattened event) each part has.
        event: The shape of an event; a vector unless given.

    Examples:
        >>> from propersbi.samplers import Simplex
        >>> blocks = Blocks((Simplex(3), Box(lower=0.0)), (3, 1))
        >>> blocks.from_real(torch.tensor([[0.5, 0.5, -2.0]]))
        tensor([[0.5000, 0.2500, 0.2500, 2.0000]])
    """

    parts: tuple[Support, ...]
    sizes: tuple[int, ...]
    event: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if not self.parts or len(self.parts) != len(self.sizes):
            raise InputError(f"Blocks need a size for each part, got {len(self.parts)} parts and sizes {self.sizes}.")
        for part, size in zip(self.parts, self.sizes, strict=True):
            matrix = isinstance(part, Shaped) and math.prod(part.shape) == size
            if isinstance(part, Subset) or not (part.fits((size,)) or matrix):
                raise InputError(f"A part of {size} parameters cannot lie in {part}.")
        if self.event is not None and math.prod(self.event) != sum(self.sizes):
            raise InputError(f"Parts of {sum(self.sizes)} parameters do not fit the shape {self.event}.")

    @property
    def box(self) -> Box:
        """The boxes of the parts."""
        return side_by_side([part.box for part in self.parts], self.sizes)

    @property
    def bounded(self) -> bool:
        """Whether any part is."""
        return any(part.bounded for part in self.parts)

    @property
    def smooth(self) -> bool:
        """Whether all parts are."""
        return all(part.smooth for part in self.parts)

    def fits(self, shape: Sequence[int]) -> bool:
        """Whether this is the shape of an event."""
        return tuple(shape) == self.theta_shape(())

    def theta_shape(self, real_shape: Sequence[int]) -> tuple[int, ...]:  # noqa: ARG002
        """The shape of an event."""
        return (sum(self.sizes),) if self.event is None else tuple(self.event)

    def real_shape(self, theta_shape: Sequence[int]) -> tuple[int, ...]:  # noqa: ARG002
        """Coordinates are a vector."""
        return (sum(self._counts()),)

    def bounds(self, dim: int) -> Bounds:  # noqa: ARG002
        """Those of the parts."""
        parts = [part.bounds(count) for part, count in zip(self.parts, self._counts(), strict=True)]
        return Bounds(torch.cat([p.lower for p in parts]), torch.cat([p.upper for p in parts]))

    def to_real(self, theta: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch k"]:
        """The coordinates of each part."""
        return torch.cat(self._each(lambda part, values: part.to_real(values), theta, self.sizes), -1)

    def from_real(
        self, real: Float[Tensor, "*batch k"], dtype: torch.dtype = torch.float32
    ) -> Float[Tensor, "*batch d"]:
        """Each part by its own coordinates."""
        return torch.cat(self._each(lambda part, values: part.from_real(values, dtype), real, self._counts()), -1)

    def log_volume(self, real: Float[Tensor, "*batch k"]) -> Float[Tensor, "*batch"]:
        """The product of the volumes."""
        return torch.stack(self._each(lambda part, values: part.log_volume(values), real, self._counts())).sum(0)

    def outside(self, theta: Float[Tensor, "n d"]) -> Bool[Tensor, " n"]:
        """Rows with any part outside."""
        return torch.stack(self._each(lambda part, values: part.outside(values), theta, self.sizes)).any(0)

    def _counts(self) -> list[int]:
        """Coordinates of each part."""
        return [math.prod(part.real_shape((size,))) for part, size in zip(self.parts, self.sizes, strict=True)]

    def _each(
        self, function: Callable[[Support, Tensor], Tensor], values: Tensor, sizes: Sequence[int]
    ) -> list[Tensor]:
        return [function(part, piece) for part, piece in zip(self.parts, values.split(list(sizes), -1), strict=True)]


def join(parts: Sequence[Support], sizes: Sequence[int], event: Sequence[int] | None = None) -> Support:
    """One support of several: a box where all parts are boxes, the part itself where there is one.

    >>> join([Box(0.0, 1.0), Box()], [1, 1])
    Box(lower=(0.0, None), upper=(1.0, None), point_masses=None)
    """
    boxes = [part for part in parts if isinstance(part, Box)]
    if len(boxes) == len(parts):
        return side_by_side(boxes, sizes)
    shape = tuple(event) if event is not None else (sum(sizes),)
    if len(parts) == 1 and parts[0].fits(shape):
        return parts[0]
    return Blocks(tuple(parts), tuple(sizes), None if len(shape) == 1 else shape)


def with_integers(support: Support, where: Sequence[int], size: int) -> Support:
    """The same support, with whole numbers at these places of the flattened event of ``size`` parameters.

    >>> with_integers(Box(0.0, 5.0), (0,), 2)
    Integers(lower=0.0, upper=5.0, where=(0,))
    """
    if not where:
        return support
    if isinstance(support, Subset):
        return replace(support, within=with_integers(support.within, where, size))
    if isinstance(support, Box | Integers):
        known = set(where) | ({*range(size)} if isinstance(support, Integers) and support.where is None else set())
        known |= set(support.where or ()) if isinstance(support, Integers) else set()
        return Integers(support.lower, support.upper, None if len(known) == size else tuple(sorted(known)))
    if isinstance(support, Blocks):
        return replace(support, parts=tuple(_parts_with_integers(support, where)))
    if not support.smooth:
        return support  # whole numbers already
    raise InputError(f"Parameters in {support} cannot be whole numbers.")


def _parts_with_integers(blocks: Blocks, where: Sequence[int]) -> list[Support]:
    parts, start = [], 0
    for part, size in zip(blocks.parts, blocks.sizes, strict=True):
        parts.append(with_integers(part, [i - start for i in where if start <= i < start + size], size))
        start += size
    return parts
