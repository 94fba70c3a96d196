r"""The support: the set in which the parameters lie, and how draws are brought into it.

A :class:`Support` has real coordinates, in which networks work; those of a :class:`Box` are the parameters themselves.
It brings draws inside by reflection at its bounds:

.. math:: \theta \mapsto a + |\theta - a| \quad\text{beyond a lower bound } a,

and the fold between both bounds of an interval. Inside it is the identity, its slope is :math:`\pm 1` everywhere, and
no draw is ever rejected. Where many parameters lie on a bound itself, as the black pixels of an image do, the posterior
has point masses there: draws are clamped to the bound instead.

:class:`Bounds` is what a sampler is shown of it, in its own units.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from propersbi.storage.checks import is_number
from propersbi.types import InputError

__all__ = ["UNBOUNDED", "Bounds", "Box", "Support", "as_bound", "inside_of", "side_by_side"]

UNBOUNDED = 1e30  # stands in for infinity in buffers, which are averaged
ROUNDING = 1e-4  # standard deviations of the parameters that rounding may move them out of their support
POINT_MASS_SHARE = 0.01  # of parameters on a bound above which the posterior is taken to have point masses there
Bound = float | None | tuple[float | None, ...]


@dataclass(frozen=True, eq=False)
class Bounds:
    r"""Bounds of the parameters in the units of a sampler; infinite where there is none.

    Arguments:
        lower: One for each parameter of the flattened event.
        upper: Likewise.
        tilt: Where the units depend on the data, the bounds move by ``x @ tilt``, ``(features, dim)``.
        point_masses: Whether parameters lie on their bounds with positive probability.
    """

    lower: Float[Tensor, " dim"]
    upper: Float[Tensor, " dim"]
    tilt: Float[Tensor, "features dim"] | None = None
    point_masses: bool = False

    @classmethod
    def none(cls, dim: int) -> Bounds:
        """No bounds at all."""
        return cls(torch.full((dim,), -math.inf), torch.full((dim,), math.inf))


class Support(ABC):
    r"""A set of parameters, with a map :math:`u = T(\theta)` to real coordinates and one back into the set.

    Coordinates lie between :meth:`bounds`; :meth:`from_real` reflects them there first, so that every draw of a network
    becomes a point of the set. Maps work on the flattened event: :math:`(\ldots, d) \to (\ldots, k)` and back.
    Subclasses are frozen dataclasses of plain numbers, which are saved with a posterior.
    """

    @property
    @abstractmethod
    def box(self) -> Box:
        """The smallest box that holds the set."""

    @property
    def bounded(self) -> bool:
        """Whether the set is anything less than the whole space."""
        return True

    @property
    def smooth(self) -> bool:
        """Whether the map is smooth and one-to-one, so that a density in coordinates is one of the parameters."""
        return True

    @abstractmethod
    def fits(self, shape: Sequence[int]) -> bool:
        """Whether events of this shape can lie in the set."""

    @abstractmethod
    def real_shape(self, theta_shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of the coordinates of an event of this shape."""

    @abstractmethod
    def theta_shape(self, real_shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of the event that has coordinates of this shape."""

    @abstractmethod
    def bounds(self, dim: int) -> Bounds:
        """Bounds of the ``dim`` coordinates."""

    @abstractmethod
    def to_real(self, theta: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch k"]:
        """The coordinates of parameters; of whole numbers with random noise added."""

    @abstractmethod
    def from_real(
        self, real: Float[Tensor, "*batch k"], dtype: torch.dtype = torch.float32
    ) -> Float[Tensor, "*batch d"]:
        """The point of the set with these coordinates, rounded to ``dtype``."""

    def log_volume(self, real: Float[Tensor, "*batch k"]) -> Float[Tensor, "*batch"]:
        r"""The logarithm of :math:`|\det \partial \theta / \partial u|`, zero by default."""
        return torch.zeros_like(real[..., 0])

    def __call__(self, theta: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """Bring parameters into the set: the identity inside."""
        return self.from_real(self.to_real(theta.double()), dtype)

    def outside(self, theta: Float[Tensor, "n d"]) -> Bool[Tensor, " n"]:
        """Which rows lie clearly outside the set, and not just by rounding."""
        scale = torch.maximum(theta.std(0, correction=0), 0.01 * theta.abs().amax(0))
        return ~((self(theta, torch.float64) - theta).abs() <= ROUNDING * torch.where(scale > 0, scale, 1.0)).all(1)

    def with_point_masses(self, theta: Tensor) -> Support:  # noqa: ARG002
        """The same set, with point masses at its bounds where the given parameters have any; only a box may have."""
        return self


@dataclass(frozen=True)
class Box(Support):
    """Lower and upper bounds, coordinate by coordinate; ``None`` is no bound. Intervals, half-lines and the whole line.

    Arguments:
        lower: One bound for all coordinates, or a tuple with one for each (of the flattened event).
        upper: Likewise.
        point_masses: For parameters that lie on their bounds with positive probability: draws beyond a bound, and those
            nearer to it than this distance, are moved onto it. ``None`` reflects.

    Examples:
        >>> Box(lower=(0.0, None), upper=(1.0, None))(torch.tensor([[1.25, 1.25], [-3.5, -3.5]]))
        tensor([[ 0.7500,  1.2500],
                [ 0.5000, -3.5000]])
        >>> Box(0.0, 1.0, point_masses=0.01)(torch.tensor([-0.5, 0.009, 0.5, 0.995]))
        tensor([0.0000, 0.0000, 0.5000, 1.0000])
    """

    lower: Bound = None
    upper: Bound = None
    point_masses: float | None = None

    def __post_init__(self) -> None:
        if self.point_masses is not None and not (is_number(self.point_masses) and self.point_masses >= 0):
            raise InputError(f"'point_masses' must be a distance of at least 0, got {self.point_masses!s:.80}.")
        low, high = np.broadcast_arrays(*(np.atleast_1d(b) for b in (self._ends(-math.inf), self._ends(math.inf))))
        if not (low < high).all():
            at = int(np.argmin(low < high))
            raise InputError(f"A lower bound must lie below its upper bound, got {low[at]} and {high[at]}.")

    @property
    def box(self) -> Box:
        """The box itself."""
        return self

    @property
    def bounded(self) -> bool:
        """Whether there is any bound at all."""
        return bool(np.isfinite(self._ends(-math.inf)).any() or np.isfinite(self._ends(math.inf)).any())

    def __call__(self, theta: Float[Tensor, "*batch"], dtype: torch.dtype = torch.float32) -> Float[Tensor, "*batch"]:
        """Fold ``theta`` ``(..., *event)`` into the box, rounded inwards to ``dtype``."""
        if not self.bounded:
            return theta.to(dtype)
        low, high = (self._tensor(end, theta) for end in (-math.inf, math.inf))
        if self.point_masses is not None:
            onto_low = torch.where(theta < low + self.point_masses, low, theta)
            folded = torch.where(theta > high - self.point_masses, high, onto_low)
            return folded.to(dtype).clamp(*_rounded(low, high, dtype))
        width = high - low
        position = torch.where(low.isfinite(), theta - low, high - theta)
        turn = torch.where(width.isfinite(), 2 * width, 1.0)
        folded = torch.where(width.isfinite(), position.remainder(turn), position.abs())
        folded = torch.where(width.isfinite(), torch.minimum(folded, turn - folded), folded)
        inside = torch.where(low.isfinite(), low + folded, high - folded)
        inside = torch.where(low.isfinite() | high.isfinite(), inside, theta).to(dtype)
        return inside.clamp(*_rounded(low, high, dtype))

    def with_point_masses(self, theta: Tensor) -> Box:
        """The same box, with point masses if more than one in a hundred of the given numbers lie on its bounds.

        Their width is half the distance from a bound to the nearest number that does not lie on it.

        Examples:
            >>> Box(0.0, 1.0).with_point_masses(torch.tensor([[0.0, 0.25, 0.5]]))
            Box(lower=0.0, upper=1.0, point_masses=0.125)
            >>> Box(0.0, 1.0).with_point_masses(torch.rand(100, 3))
            Box(lower=0.0, upper=1.0, point_masses=None)
        """
        if self.point_masses is not None or not self.bounded:
            return self
        low, high = (self._tensor(end, theta) for end in (-math.inf, math.inf))
        apart = torch.minimum((theta - low).abs(), (high - theta).abs())
        near = apart <= 1e-6 * torch.where(low.isfinite() & high.isfinite(), high - low, 1.0)
        if near.float().mean() <= POINT_MASS_SHARE:
            return self
        rest = apart[~near & apart.isfinite()]
        return replace(self, point_masses=0.5 * rest.min().item() if len(rest) else 0.0)

    def ends(self) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper bounds as numbers, infinite where there is none: one for all coordinates or one for each."""
        return self._ends(-math.inf), self._ends(math.inf)

    def bounds(self, dim: int) -> Bounds:
        """The same bounds, one for each of ``dim`` parameters, as a sampler in the user's units sees them."""
        low, high = (torch.as_tensor(end).expand(dim) for end in self.ends())
        return Bounds(low, high, point_masses=self.point_masses is not None)

    @classmethod
    def of(cls, bounds: Bounds) -> Box:
        """The box of some bounds; bounds that move with the data are no box."""
        if bounds.tilt is not None:
            return cls()
        return cls(as_bound(bounds.lower.cpu().numpy()), as_bound(bounds.upper.cpu().numpy()))

    def fits(self, shape: Sequence[int]) -> bool:
        """Whether the bounds are for events of this shape."""
        sizes = {len(bound) for bound in (self.lower, self.upper) if isinstance(bound, tuple)}
        return sizes <= {math.prod(shape)}

    def real_shape(self, theta_shape: Sequence[int]) -> tuple[int, ...]:
        """The same: coordinates of a box are the parameters themselves."""
        return tuple(theta_shape)

    def theta_shape(self, real_shape: Sequence[int]) -> tuple[int, ...]:
        """Likewise."""
        return tuple(real_shape)

    def to_real(self, theta: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d"]:
        """The parameters themselves."""
        return theta

    def from_real(
        self, real: Float[Tensor, "*batch d"], dtype: torch.dtype = torch.float32
    ) -> Float[Tensor, "*batch d"]:
        """Folded into the box."""
        return self(real, dtype)

    def _ends(self, missing: float) -> np.ndarray:
        bound = self.lower if missing < 0 else self.upper
        flat = bound if isinstance(bound, tuple) else (bound,)
        for end in flat:
            if end is not None and not (isinstance(end, Real) and not isinstance(end, bool) and end == end):
                raise InputError(f"A bound must be a number or None, got {end!s:.80}.")
        ends = np.array([missing if end is None else float(end) for end in flat])
        return ends if isinstance(bound, tuple) else ends.reshape(())

    def _tensor(self, missing: float, theta: Tensor) -> Tensor:
        ends = torch.as_tensor(self._ends(missing), dtype=torch.float64, device=theta.device)
        if not ends.ndim:
            return ends
        for axes in range(1, theta.ndim + 1):  # the event: the last axes that hold as many numbers as there are bounds
            if math.prod(theta.shape[-axes:]) == len(ends):
                return ends.reshape(theta.shape[-axes:])
        raise InputError(f"{len(ends)} bounds do not fit parameters of shape {tuple(theta.shape)}.")


def _rounded(low: Tensor, high: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Bounds rounded inwards."""
    return _inwards(low, math.inf, dtype), _inwards(high, -math.inf, dtype)


def _inwards(bound: Tensor, direction: float, dtype: torch.dtype) -> Tensor:
    """The number next to ``bound`` that does not lie beyond it, seen towards ``direction``."""
    rounded = bound.to(dtype)
    beyond = rounded.double() < bound if direction > 0 else rounded.double() > bound
    return torch.where(beyond, torch.nextafter(rounded, torch.full_like(rounded, direction)), rounded)


def inside_of(end: Any, direction: float) -> Any:
    """The next number inside: densities may be zero or infinite at the very end, even where it is included."""
    if end is None:
        return None
    value = torch.as_tensor(end, dtype=torch.float64)
    inside = torch.nextafter(value, torch.full_like(value, direction))
    tiny = torch.finfo(torch.float32).tiny  # the number next to 0 would be flushed back to it
    return torch.where(value.isinf(), value, torch.where(value == 0, math.copysign(tiny, direction), inside))


def as_bound(end: Any) -> Bound:
    """A bound as plain numbers: ``None`` where infinite, one number where all are equal."""
    if end is None:
        return None
    values = np.asarray(end, dtype=float).reshape(-1)
    bounds = tuple(None if math.isinf(value) else float(value) for value in values)
    return bounds[0] if len(set(bounds)) == 1 else bounds


def side_by_side(parts: Sequence[Box], lengths: Sequence[int]) -> Box:
    """The box of some parts, of so many parameters each.

    >>> side_by_side([Box(0.0, 1.0), Box(lower=2.0)], [2, 1])
    Box(lower=(0.0, 0.0, 2.0), upper=(1.0, 1.0, None), point_masses=None)
    """

    def joined(bounds: list[Bound]) -> tuple[float | None, ...]:
        spread = [b if isinstance(b, tuple) else (b,) * length for b, length in zip(bounds, lengths, strict=True)]
        return tuple(end for part in spread for end in part)

    return Box(joined([part.lower for part in parts]), joined([part.upper for part in parts]))
