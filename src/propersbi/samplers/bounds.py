r"""Units and bounds: what stands between a user's numbers and the network's.

The network works on standardised numbers. :class:`Standardize` holds the centre and scale of each coordinate;
:class:`Box` brings the last draw into the support of the prior, by reflection at its walls:

.. math:: \theta \mapsto a + |\theta - a| \quad\text{beyond a lower bound } a,

and the fold between both bounds of an interval. Inside it is the identity, its slope is :math:`\pm 1` everywhere, and
no draw is ever rejected. Where many parameters lie on a bound itself, as the black pixels of an image do, draws are cut
off there instead, so that as many of them can.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from propersbi.types import InputError

__all__ = ["Box", "Standardize", "support_of"]

ATOMS = 0.01  # share of parameters on a bound that is no accident
Bound = float | None | tuple[float | None, ...]


class Standardize(nn.Module):
    r"""Centre and scale each coordinate: :math:`u = (v - \text{centre}) / \text{scale}`, single precision out.

    Vectors are scaled coordinate by coordinate, fields and images as a whole. Arithmetic is in double precision, so
    that data far from zero keep their digits.

    Arguments:
        shape: The event shape of what is standardised.
        tail: Beyond this many scales, values grow like a logarithm only; a single wild number in the data then
            neither drowns the others nor overflows. ``None`` leaves tails alone, and the map can be inverted.

    Examples:
        >>> units = Standardize((2,)).fit(torch.tensor([[1.0, 10.0], [3.0, 30.0]]))
        >>> units(torch.tensor([[2.0, 10.0]]))
        tensor([[ 0.0000, -0.7071]])
        >>> units.inverse(units(torch.tensor([[5.0, 7.0]]))).float()
        tensor([[5., 7.]])
    """

    center: Tensor
    scale: Tensor

    def __init__(self, shape: Sequence[int], tail: float | None = None) -> None:
        super().__init__()
        if tail is not None and not tail > 0:
            raise InputError(f"'tail' must be positive, got {tail}.")
        self.shape = tuple(shape)
        self.tail = tail
        size = self.shape if len(self.shape) == 1 else (1,) * len(self.shape)
        self.register_buffer("center", torch.zeros(size, dtype=torch.float64))
        self.register_buffer("scale", torch.ones(size, dtype=torch.float64))

    def fit(self, values: Tensor) -> Standardize:
        """Find centre and scale on ``values`` ``(n, *shape)``: moments, or quantiles where tails are compressed."""
        columns = values.detach().double().reshape(-1, self.center.numel()).cpu().numpy()
        spread = columns.std(0, ddof=1) if len(columns) > 1 else np.ones(columns.shape[1])
        center = columns.mean(0)
        if self.tail is not None:
            low, center, high = np.quantile(columns, [0.1587, 0.5, 0.8413], axis=0)
            # Data with most values equal have no quantile width; their standard deviation is the next best.
            spread = np.where(high > low, (high - low) / 2, spread)
        spread = np.where(np.isfinite(spread) & (spread > 0), spread, 1.0)
        self.center.copy_(torch.from_numpy(center).reshape(self.center.shape))
        self.scale.copy_(torch.from_numpy(spread).reshape(self.scale.shape))
        return self

    def forward(self, values: Tensor) -> Tensor:
        units = (values.double() - self.center) / self.scale
        if self.tail is not None:
            beyond = (units.abs() - self.tail).clamp_min(0)
            units = units.clamp(-self.tail, self.tail) + units.sign() * beyond.log1p()
        return units.float()

    def inverse(self, units: Tensor) -> Tensor:
        """Back to the user's numbers, in double precision while :class:`Box` still has to round them."""
        if self.tail is not None:
            raise InputError("Compressed tails cannot be inverted.")
        return units.double() * self.scale + self.center


@dataclass(frozen=True)
class Box:
    """Lower and upper bounds, coordinate by coordinate; ``None`` is no bound. Intervals, half-lines and the whole line.

    Arguments:
        lower: One bound for all coordinates, or a tuple with one for each (of the flattened event).
        upper: Likewise.
        atoms: For parameters that lie on their bounds with positive probability: draws beyond a bound, and those nearer
            to it than this distance, are put onto it. ``None`` reflects.

    Examples:
        >>> Box(lower=(0.0, None), upper=(1.0, None))(torch.tensor([[1.25, 1.25], [-3.5, -3.5]]))
        tensor([[ 0.7500,  1.2500],
                [ 0.5000, -3.5000]])
        >>> Box(0.0, 1.0, atoms=0.01)(torch.tensor([-0.5, 0.009, 0.5, 0.995]))
        tensor([0.0000, 0.0000, 0.5000, 1.0000])
    """

    lower: Bound = None
    upper: Bound = None
    atoms: float | None = None

    def __post_init__(self) -> None:
        if self.atoms is not None and not 0 <= self.atoms < math.inf:
            raise InputError(f"'atoms' must be a distance of at least 0, got {self.atoms}.")
        low, high = np.broadcast_arrays(*(np.atleast_1d(b) for b in (self._ends(-math.inf), self._ends(math.inf))))
        if not (low < high).all():
            at = int(np.argmin(low < high))
            raise InputError(f"A lower bound must lie below its upper bound, got {low[at]} and {high[at]}.")

    @property
    def bounded(self) -> bool:
        """Whether there is any bound at all."""
        return bool(np.isfinite(self._ends(-math.inf)).any() or np.isfinite(self._ends(math.inf)).any())

    def __call__(self, theta: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
        """Fold ``theta`` ``(..., *event)`` into the box; single precision out, rounded inwards."""
        if not self.bounded:
            return theta.float()
        low, high = (self._tensor(end, theta) for end in (-math.inf, math.inf))
        if self.atoms is not None:
            onto_low = torch.where(theta < low + self.atoms, low, theta)
            return torch.where(theta > high - self.atoms, high, onto_low).float().clamp(*_rounded(low, high))
        width = high - low
        position = torch.where(low.isfinite(), theta - low, high - theta)
        turn = torch.where(width.isfinite(), 2 * width, 1.0)
        folded = torch.where(width.isfinite(), position.remainder(turn), position.abs())
        folded = torch.where(width.isfinite(), torch.minimum(folded, turn - folded), folded)
        inside = torch.where(low.isfinite(), low + folded, high - folded)
        inside = torch.where(low.isfinite() | high.isfinite(), inside, theta).float()
        return inside.clamp(*_rounded(low, high))

    def with_atoms(self, theta: Tensor) -> Box:
        """The same box, with atoms if more than one in a hundred of the given numbers lie on its bounds.

        Their width is half the distance from a bound to the nearest number that does not lie on it.

        Examples:
            >>> Box(0.0, 1.0).with_atoms(torch.tensor([[0.0, 0.25, 0.5]]))
            Box(lower=0.0, upper=1.0, atoms=0.125)
            >>> Box(0.0, 1.0).with_atoms(torch.rand(100, 3))
            Box(lower=0.0, upper=1.0, atoms=None)
        """
        if self.atoms is not None or not self.bounded:
            return self
        low, high = (self._tensor(end, theta) for end in (-math.inf, math.inf))
        apart = torch.minimum((theta - low).abs(), (high - theta).abs())
        near = apart <= 1e-6 * torch.where(low.isfinite() & high.isfinite(), high - low, 1.0)
        if near.float().mean() <= ATOMS:
            return self
        rest = apart[~near & apart.isfinite()]
        return replace(self, atoms=0.5 * rest.min().item() if len(rest) else 0.0)

    def ends(self) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper bounds as numbers, infinite where there is none: one for all coordinates or one for each."""
        return self._ends(-math.inf), self._ends(math.inf)

    def fits(self, shape: Sequence[int]) -> bool:
        """Whether the bounds are for events of this shape."""
        sizes = {len(bound) for bound in (self.lower, self.upper) if isinstance(bound, tuple)}
        return sizes <= {math.prod(shape)}

    def _ends(self, missing: float) -> np.ndarray:
        bound = self.lower if missing < 0 else self.upper
        flat = bound if isinstance(bound, tuple) else (bound,)
        ends = np.array([missing if end is None else float(end) for end in flat])
        if np.isnan(ends).any():
            raise InputError("A bound must be a number or None, got nan.")
        return ends if isinstance(bound, tuple) else ends.reshape(())

    def _tensor(self, missing: float, theta: Tensor) -> Tensor:
        ends = torch.as_tensor(self._ends(missing), dtype=torch.float64, device=theta.device)
        if not ends.ndim:
            return ends
        for axes in range(1, theta.ndim + 1):  # the event: the last axes that hold as many numbers as there are bounds
            if math.prod(theta.shape[-axes:]) == len(ends):
                return ends.reshape(theta.shape[-axes:])
        raise InputError(f"{len(ends)} bounds do not fit parameters of shape {tuple(theta.shape)}.")


def _rounded(low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """Bounds in single precision, rounded inwards."""
    return _inwards(low, math.inf), _inwards(high, -math.inf)


def _inwards(bound: Tensor, direction: float) -> Tensor:
    """The single-precision number next to ``bound`` that does not lie beyond it, seen towards ``direction``."""
    rounded = bound.float()
    beyond = rounded.double() < bound if direction > 0 else rounded.double() > bound
    return torch.where(beyond, torch.nextafter(rounded, torch.full_like(rounded, direction)), rounded)


def support_of(prior: Any) -> Box:
    """The box that holds the support of ``prior``, as far as it says: ``.support``, or ``.lower`` and ``.upper``.

    Accepted also in place of a prior: a :class:`Box`, a torch constraint, a pair ``(lower, upper)``. A prior that can
    only be sampled says nothing and is taken as unbounded.

    Examples:
        >>> support_of(torch.distributions.Exponential(1.0)).lower > 0
        True
        >>> support_of((0.0, 1.0))
        Box(lower=0.0, upper=1.0, atoms=None)
    """
    if isinstance(prior, Box):
        return prior
    if isinstance(prior, torch.distributions.constraints.Constraint):
        return _from_constraint(prior)
    if isinstance(prior, Sequence) and prior and all(isinstance(p, torch.distributions.Distribution) for p in prior):
        return _side_by_side([support_of(p) for p in prior])
    if isinstance(prior, tuple) and len(prior) == 2:
        return Box(_bound(prior[0]), _bound(prior[1]))
    try:
        support = getattr(prior, "support", None)
    except NotImplementedError:
        support = None
    if support is not None:
        return support_of(support)
    return Box(_bound(getattr(prior, "lower", None)), _bound(getattr(prior, "upper", None)))


def _from_constraint(constraint: Any) -> Box:
    if hasattr(constraint, "base_constraint"):  # independent, mixtures
        return _from_constraint(constraint.base_constraint)
    if hasattr(constraint, "cseq"):  # concatenated or stacked
        lengths = getattr(constraint, "lengths", [1] * len(constraint.cseq))
        return _side_by_side([_from_constraint(part) for part in constraint.cseq], lengths)
    low, high = (getattr(constraint, name, None) for name in ("lower_bound", "upper_bound"))
    if low is None and high is None and constraint is not torch.distributions.constraints.real:
        raise InputError(f"The prior's support {constraint} is not known: give 'support', for example Box(lower=0.0).")
    return Box(_bound(_opened(low, math.inf)), _bound(_opened(high, -math.inf)))


def _opened(end: Any, direction: float) -> Any:
    """The next number inside: torch's densities may be zero or infinite at the very end, even where it is included."""
    if end is None:
        return None
    value = torch.as_tensor(end, dtype=torch.float32)
    inside = torch.nextafter(value, torch.full_like(value, direction))
    tiny = torch.finfo(torch.float32).tiny  # the number next to 0 would be flushed back to it
    return torch.where(value == 0, math.copysign(tiny, direction), inside)


def _bound(end: Any) -> Bound:
    """A bound as plain numbers: ``None`` where infinite, one number where all are equal."""
    if end is None:
        return None
    values = np.asarray(end, dtype=float).reshape(-1)
    bounds = tuple(None if math.isinf(value) else float(value) for value in values)
    return bounds[0] if len(set(bounds)) == 1 else bounds


def _side_by_side(parts: list[Box], lengths: Sequence[int] | None = None) -> Box:
    lengths = lengths or [1] * len(parts)

    def joined(bounds: list[Bound]) -> tuple[float | None, ...]:
        spread = [b if isinstance(b, tuple) else (b,) * length for b, length in zip(bounds, lengths, strict=True)]
        return tuple(end for part in spread for end in part)

    return Box(joined([part.lower for part in parts]), joined([part.upper for part in parts]))
