r"""A support that only a function knows: draws outside are drawn again.

.. math:: q(\theta \mid x) \propto q_0(\theta \mid x)\, 1[\theta \in S].
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from propersbi.samplers.bounds import Bounds, Box, Support
from propersbi.storage.config import qualified_name
from propersbi.types import InputError

__all__ = ["Drawn", "Subset", "draw_inside"]

FEW_TRIED = 20_000  # draws after which the share accepted is known well enough
LEAST_ACCEPTED = 1e-3  # the share of them below which no more are tried
AT_ONCE = 5000  # draws that are tried at once


@dataclass(frozen=True)
class Subset(Support):
    """The points of a support for which a function holds.

    Arguments:
        support: ``theta (n, *event) -> bool (n,)``; it is saved by name only and must be passed again.
        within: A support that holds the set.

    Examples:
        >>> disc = Subset(lambda theta: (theta**2).sum(1) < 1, Box(-1.0, 1.0))
        >>> disc.accepts(torch.tensor([[0.5, 0.5], [0.9, 0.9]]))
        tensor([ True, False])
    """

    support: Any
    within: Support = Box()  # noqa: RUF009

    def __str__(self) -> str:
        name = qualified_name(self.support) if callable(self.support) else str(self.support)
        return f"where {name}" + (f" within {self.within}" if self.within.bounded else "")

    def accepts(self, theta: Float[Tensor, "n *event"]) -> Bool[Tensor, " n"]:
        """For which rows the function holds."""
        found = np.asarray(self._asked(theta.detach().cpu()))
        if found.shape != (len(theta),) or found.dtype.kind != "b":
            raise InputError(
                f"'support' must return a truth value for each of {len(theta)} rows, got {found.dtype} {found.shape}."
            )
        return torch.as_tensor(found, device=theta.device)

    def _asked(self, theta: Tensor) -> Any:
        """What the function says, which may be written for torch or for NumPy."""
        try:
            return self.support(theta)
        except Exception:
            try:
                return self.support(theta.numpy())
            except Exception as error:
                raise InputError(f"'support' failed on theta {tuple(theta.shape)}: {error}.") from error

    @property
    def box(self) -> Box:
        """That of what holds the set."""
        return self.within.box

    @property
    def smooth(self) -> bool:
        """The probability of the set is not known, so there is no density."""
        return False

    def fits(self, shape: Sequence[int]) -> bool:
        """Whether events of this shape can lie in what holds the set."""
        return self.within.fits(shape)

    def real_shape(self, theta_shape: Sequence[int]) -> tuple[int, ...]:
        """Coordinates are those of what holds the set."""
        return self.within.real_shape(theta_shape)

    def theta_shape(self, real_shape: Sequence[int]) -> tuple[int, ...]:
        """Likewise."""
        return self.within.theta_shape(real_shape)

    def bounds(self, dim: int) -> Bounds:
        """Likewise."""
        return self.within.bounds(dim)

    def to_real(self, theta: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch k"]:
        """Likewise."""
        return self.within.to_real(theta)

    def from_real(
        self, real: Float[Tensor, "*batch k"], dtype: torch.dtype = torch.float32
    ) -> Float[Tensor, "*batch d"]:
        """Likewise; whether the function holds is not asked."""
        return self.within.from_real(real, dtype)

    def outside(self, theta: Float[Tensor, "n d"]) -> Bool[Tensor, " n"]:
        """Rows outside of what holds the set."""
        return self.within.outside(theta)

    def with_point_masses(self, theta: Tensor) -> Subset:
        """With point masses at the bounds of what holds the set."""
        return replace(self, within=self.within.with_point_masses(theta))


class Drawn(NamedTuple):
    """Draws inside, and how many were tried and accepted."""

    theta: Tensor
    tried: int
    accepted: int


def draw_inside(
    theta: Float[Tensor, "m n *event"], again: Callable[[int, Tensor], Tensor], accepts: Callable[[Tensor], Tensor]
) -> Drawn:
    """Draws outside a set replaced by others; an error where hardly any lies inside.

    Arguments:
        theta: Draws.
        again: ``(k, rows) -> (k, rows, *event)``, further draws for some of the rows.
        accepts: ``(j, *event) -> bool (j,)``, which lie inside.
    """

    def inside(draws: Tensor) -> Tensor:
        return accepts(draws.flatten(0, 1)).unflatten(0, draws.shape[:2])

    good = inside(theta)
    theta, tried, accepted = theta.clone(), good.numel(), int(good.sum())
    before = 0, 0  # tried and accepted when the share was last looked at
    while True:
        lacking = (~good).sum(0)
        rows = lacking.nonzero().squeeze(1)
        if not len(rows):
            return Drawn(theta, tried, accepted)
        if tried - before[0] > FEW_TRIED:
            _check_share(tried - before[0], accepted - before[1])
            before = tried, accepted
        wanted = math.ceil(1.5 * int(lacking.max()) * tried / max(accepted, 1))
        new = again(max(1, min(wanted, AT_ONCE // len(rows))), rows)
        found = inside(new)
        tried, accepted = tried + found.numel(), accepted + int(found.sum())
        # As many of the good ones as fit, in their order, into the first of the bad ones of the same row.
        bad, count = ~good[:, rows], torch.minimum(found.sum(0), lacking[rows])
        into, source = bad & (bad.cumsum(0) <= count), found & (found.cumsum(0) <= count)
        part = theta[:, rows].transpose(0, 1).contiguous()
        part[into.T] = new.transpose(0, 1)[source.T]
        theta[:, rows] = part.transpose(0, 1)
        good[:, rows] |= into


def _check_share(tried: int, accepted: int) -> None:
    if accepted < LEAST_ACCEPTED * tried:
        raise InputError(
            f"Only {accepted} of {tried} draws lie in the support that was given: the posterior has not learnt it, or "
            "the observation is unlike the simulations."
        )
