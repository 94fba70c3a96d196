r"""Vectors under a constraint, by a one-to-one map to a box.

==================  =================================================================================================
:class:`Simplex`    :math:`u_k = \theta_k / (1 - \sum_{j<k} \theta_j)`, the share taken of what is left
:class:`Ordered`    :math:`u_1 = \theta_1`, :math:`u_k = \theta_k - \theta_{k-1}`; between two bounds, shares
:class:`Bijection`  any other torch constraint, by the map that ``torch.distributions.biject_to`` has for it
==================  =================================================================================================

Coordinates are bounded and draws reflected there, as in a box: no tails are stretched. Jacobians are triangular, so a
density in coordinates becomes one of the parameters, of a simplex of all but the last of them.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from propersbi.samplers.bounds import Bounds, Box, Support, inside_of
from propersbi.types import InputError

__all__ = ["OPEN_UNIT", "TINY", "Bijection", "Ordered", "Shaped", "Simplex", "check_size"]

TINY = torch.finfo(torch.float32).tiny
OPEN_UNIT = tuple(float(inside_of(end, direction)) for end, direction in ((0.0, math.inf), (1.0, -math.inf)))
MAX_SIZE = 1000


class Shaped(Support):
    """A set of events of one shape, with so many coordinates."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """The shape of an event."""

    @property
    @abstractmethod
    def count(self) -> int:
        """The number of coordinates."""

    @property
    @abstractmethod
    def reals(self) -> Box:
        """The bounds of the coordinates."""

    def fits(self, shape: Sequence[int]) -> bool:
        """Whether this is the shape of an event."""
        return tuple(shape) == self.shape

    def real_shape(self, theta_shape: Sequence[int]) -> tuple[int, ...]:  # noqa: ARG002
        """Coordinates are a vector."""
        return (self.count,)

    def theta_shape(self, real_shape: Sequence[int]) -> tuple[int, ...]:  # noqa: ARG002
        """The shape of an event."""
        return self.shape

    def bounds(self, dim: int) -> Bounds:
        """The bounds of the coordinates."""
        return self.reals.bounds(dim)


@dataclass(frozen=True)
class Simplex(Shaped):
    """Numbers between 0 and 1 that add up to one: the support of a Dirichlet distribution.

    Arguments:
        size: How many.

    Examples:
        >>> Simplex(3).to_real(torch.tensor([[0.5, 0.25, 0.25]]))
        tensor([[0.5000, 0.5000]])
        >>> Simplex(3).from_real(torch.tensor([[0.5, 1.5]]))  # reflected to 0.5
        tensor([[0.5000, 0.2500, 0.2500]])
    """

    size: int

    def __post_init__(self) -> None:
        check_size(self.size, 2)

    @property
    def box(self) -> Box:
        """From 0 to 1."""
        return Box(0.0, 1.0)

    @property
    def shape(self) -> tuple[int, ...]:
        """A vector."""
        return (self.size,)

    @property
    def count(self) -> int:
        """One less than there are numbers."""
        return self.size - 1

    @property
    def reals(self) -> Box:
        """Shares."""
        return Box(*OPEN_UNIT)

    def to_real(self, theta: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch k"]:
        """The share each one but the last takes of what those before have left."""
        left = 1 - theta.cumsum(-1) + theta
        return (theta / left.clamp_min(TINY))[..., :-1].clamp(0, 1)

    def from_real(
        self, real: Float[Tensor, "*batch k"], dtype: torch.dtype = torch.float32
    ) -> Float[Tensor, "*batch d"]:
        """Break the stick."""
        share = self.reals(real, dtype).double()
        left = torch.nn.functional.pad((1 - share).cumprod(-1), (1, 0), value=1.0)
        return (torch.nn.functional.pad(share, (0, 1), value=1.0) * left).to(dtype).clamp_min(TINY)

    def log_volume(self, real: Float[Tensor, "*batch k"]) -> Float[Tensor, "*batch"]:
        """The product of what is left at each break."""
        return (1 - real).clamp_min(TINY).log().cumsum(-1)[..., :-1].sum(-1)


@dataclass(frozen=True)
class Ordered(Shaped):
    """Increasing numbers.

    Arguments:
        size: How many.
        lower: A bound of the first, if any.
        upper: A bound of the last, if any.

    Examples:
        >>> Ordered(3).from_real(torch.tensor([[1.0, 0.5, -0.5]]))  # the last is reflected
        tensor([[1.0000, 1.5000, 2.0000]])
    """

    size: int
    lower: float | None = None
    upper: float | None = None

    def __post_init__(self) -> None:
        check_size(self.size, 2)
        Box(self.lower, self.upper)

    @property
    def box(self) -> Box:
        """The bounds."""
        return Box(self.lower, self.upper)

    @property
    def shape(self) -> tuple[int, ...]:
        """A vector."""
        return (self.size,)

    @property
    def count(self) -> int:
        """As many as numbers."""
        return self.size

    @property
    def reals(self) -> Box:
        """Differences are positive; the number they start from has the bound."""
        if self.lower is not None and self.upper is not None:
            return Simplex(self.size + 1).reals
        start = self.lower if self.upper is None else -self.upper
        return Box((start, *[TINY] * (self.size - 1)))

    def to_real(self, theta: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch k"]:
        """The first number and the differences; the last one, where only that has a bound; else shares of the whole."""
        if self.lower is not None and self.upper is not None:
            ends = [torch.full_like(theta[..., :1], end) for end in (self.lower, self.upper)]
            gaps = torch.cat([ends[0], theta, ends[1]], -1).diff(dim=-1) / (self.upper - self.lower)
            return Simplex(self.size + 1).to_real(gaps)
        rising = theta if self.upper is None else -theta.flip(-1)
        return torch.cat([rising[..., :1], rising.diff(dim=-1)], -1)

    def from_real(
        self, real: Float[Tensor, "*batch k"], dtype: torch.dtype = torch.float32
    ) -> Float[Tensor, "*batch d"]:
        """Add the differences up."""
        if self.lower is not None and self.upper is not None:
            gaps = Simplex(self.size + 1).from_real(real, dtype).double()[..., :-1]
            return self.box(self.lower + (self.upper - self.lower) * gaps.cumsum(-1), dtype)
        rising = self.reals(real, dtype).double().cumsum(-1)
        return (rising if self.upper is None else -rising.flip(-1)).to(dtype)

    def log_volume(self, real: Float[Tensor, "*batch k"]) -> Float[Tensor, "*batch"]:
        """That of the shares; sums have none."""
        if self.lower is None or self.upper is None:
            return super().log_volume(real)
        return Simplex(self.size + 1).log_volume(real) + self.size * math.log(self.upper - self.lower)


@dataclass(frozen=True)
class Bijection(Shaped):
    """A torch constraint for which ``torch.distributions.biject_to`` has a map, registered by another library.

    Arguments:
        support: The constraint; it is saved by name only and must be passed again.
        event: The shape of an event.
    """

    support: Any
    event: tuple[int, ...]

    @property
    def box(self) -> Box:
        """No bounds are known."""
        return Box()

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of an event."""
        return tuple(self.event)

    @property
    def count(self) -> int:
        """As many as the map takes."""
        return math.prod(self.map.inverse_shape(self.shape))

    @property
    def reals(self) -> Box:
        """All numbers."""
        return Box()

    @property
    def map(self) -> Any:
        """From coordinates to the set."""
        return torch.distributions.biject_to(self.support)

    def to_real(self, theta: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch k"]:
        """By the inverse map."""
        return self.map.inv(theta.unflatten(-1, self.shape)).flatten(theta.ndim - 1)

    def from_real(
        self, real: Float[Tensor, "*batch k"], dtype: torch.dtype = torch.float32
    ) -> Float[Tensor, "*batch d"]:
        """By the map."""
        return self.map(self._unflattened(real)).flatten(real.ndim - 1).to(dtype)

    def log_volume(self, real: Float[Tensor, "*batch k"]) -> Float[Tensor, "*batch"]:
        """That of the map."""
        inner = self._unflattened(real)
        volume = self.map.log_abs_det_jacobian(inner, self.map(inner))
        return volume.flatten(real.ndim - 1).sum(-1) if volume.ndim >= real.ndim else volume

    def _unflattened(self, real: Tensor) -> Tensor:
        return real.unflatten(-1, tuple(self.map.inverse_shape(self.shape)))


def check_size(size: Any, least: int) -> None:
    """Refuse sizes that are not whole numbers of at least ``least``."""
    if not isinstance(size, int) or isinstance(size, bool) or not least <= size <= MAX_SIZE:
        raise InputError(f"'size' must be a whole number from {least} to {MAX_SIZE}, got {size!r:.80}.")
