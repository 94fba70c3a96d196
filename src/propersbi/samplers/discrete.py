r"""Whole numbers and categories, exactly, by noise that makes them continuous.

A whole number :math:`k` becomes :math:`u = k + \varepsilon` with :math:`\varepsilon` uniform on :math:`[0, 1)`, drawn
anew whenever it is read, and is recovered as :math:`\lfloor u \rfloor`: a sampler that draws from the posterior of
:math:`u` draws from that of :math:`k`. A category becomes its one-hot vector with such noise, and is recovered as the
largest entry.

References:
    Uria, Murray & Larochelle, RNADE: The real-valued neural autoregressive density-estimator, 2013,
    https://arxiv.org/abs/1306.0186
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import one_hot

from propersbi.samplers.bounds import Bound, Bounds, Box, Support, as_bound
from propersbi.samplers.constraints import Shaped, check_size
from propersbi.types import InputError

__all__ = ["Categories", "Counts", "Integers"]

WHOLE = 1e-3  # how far a number may be from a whole one


@dataclass(frozen=True)
class Integers(Support):
    """Whole numbers in a box, perhaps beside numbers that are not whole.

    Arguments:
        lower: One bound for all parameters, or a tuple with one for each (of the flattened event); ``None`` is none.
        upper: Likewise; both bounds can be reached.
        where: The whole ones among the parameters (of the flattened event); all of them unless given.

    Examples:
        >>> counts = Integers(lower=0.0, upper=3.0)
        >>> counts.from_real(torch.tensor([[0.2], [2.9], [4.5], [-0.1]])).flatten()
        tensor([0., 2., 3., 0.])
        >>> Integers(where=(1,))(torch.tensor([[0.5, 7.0]]))
        tensor([[0.5000, 7.0000]])
    """

    lower: Bound = None
    upper: Bound = None
    where: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if self.where is not None and not (
            isinstance(self.where, tuple | list | range) and all(isinstance(i, int) and i >= 0 for i in self.where)
        ):
            raise InputError(f"'where' must hold the numbers of parameters, from 0, got {self.where!r:.80}.")
        low, high = (_whole(end, up) for end, up in zip(self.box.ends(), (True, False), strict=True))
        if not (low <= high).all():
            raise InputError(f"There is no whole number between the bounds {self.lower} and {self.upper}.")

    @property
    def box(self) -> Box:
        """The bounds."""
        return Box(self.lower, self.upper)

    @property
    def smooth(self) -> bool:
        """Whole numbers have no density."""
        return False

    def fits(self, shape: Sequence[int]) -> bool:
        """Whether the bounds are for events of this shape."""
        return self.box.fits(shape) and max(self.where or (0,)) < math.prod(shape)

    def real_shape(self, theta_shape: Sequence[int]) -> tuple[int, ...]:
        """The same."""
        return tuple(theta_shape)

    def theta_shape(self, real_shape: Sequence[int]) -> tuple[int, ...]:
        """The same."""
        return tuple(real_shape)

    def bounds(self, dim: int) -> Bounds:
        """Those of the noisy numbers: wider by one above."""
        return self._noisy(dim).bounds(dim)

    def to_real(self, theta: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d"]:
        """Add noise to the whole numbers."""
        whole = torch.as_tensor(self._mask(theta.shape[-1]), device=theta.device)
        return torch.where(whole, theta.round() + torch.rand_like(theta), theta)

    def from_real(
        self, real: Float[Tensor, "*batch d"], dtype: torch.dtype = torch.float32
    ) -> Float[Tensor, "*batch d"]:
        """Round down."""
        dim = real.shape[-1]
        inside = self._noisy(dim)(real, dtype)
        whole, low, high = (torch.as_tensor(v, device=real.device) for v in (self._mask(dim), *self._ends(dim)))
        return torch.where(whole, inside.floor().clamp(low.to(dtype), high.to(dtype)), inside)

    def outside(self, theta: Float[Tensor, "n d"]) -> Bool[Tensor, " n"]:
        """Rows beyond the bounds, or with a number that should be whole and is not."""
        whole = torch.as_tensor(self._mask(theta.shape[1]), device=theta.device)
        apart = torch.where(whole, (self(theta, torch.float64) - theta).abs(), 0.0) > WHOLE
        return apart.any(1) | self._noisy(theta.shape[1]).outside(theta)

    def _mask(self, dim: int) -> np.ndarray:
        return np.isin(np.arange(dim), range(dim) if self.where is None else self.where)

    def _ends(self, dim: int) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper bounds; for whole numbers the last whole ones inside."""
        low, high = (np.broadcast_to(end, dim) for end in self.box.ends())
        whole = self._mask(dim)
        return np.where(whole, _whole(low, True), low), np.where(whole, _whole(high, False), high)

    def _noisy(self, dim: int) -> Box:
        low, high = self._ends(dim)
        return Box(as_bound(low), as_bound(high + self._mask(dim)))


@dataclass(frozen=True)
class Categories(Shaped):
    """One of several categories, without an order, by its number from 0 or by a one-hot vector.

    Arguments:
        categories: How many there are.
        one_hot: Whether parameters are one-hot vectors.

    Examples:
        >>> Categories(3).from_real(torch.tensor([[0.2, 1.4, 0.9]]))
        tensor([[1.]])
        >>> Categories(3, one_hot=True).from_real(torch.tensor([[0.2, 1.4, 0.9]]))
        tensor([[0., 1., 0.]])
    """

    categories: int
    one_hot: bool = False

    def __post_init__(self) -> None:
        check_size(self.categories, 2)

    @property
    def box(self) -> Box:
        """From the first to the last."""
        return Box(0.0, 1.0 if self.one_hot else float(self.categories - 1))

    @property
    def smooth(self) -> bool:
        """Categories have no density."""
        return False

    @property
    def shape(self) -> tuple[int, ...]:
        """One number, or a one-hot vector."""
        return (self.categories,) if self.one_hot else (1,)

    @property
    def count(self) -> int:
        """One coordinate for each category."""
        return self.categories

    @property
    def reals(self) -> Box:
        """Those of one-hot vectors with noise."""
        return Box(0.0, 2.0)

    def to_real(self, theta: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch k"]:
        """A one-hot vector with noise."""
        index = theta.argmax(-1) if self.one_hot else theta[..., 0].round().long().clamp(0, self.categories - 1)
        hot = one_hot(index, self.categories).to(theta)
        return hot + torch.rand_like(hot)

    def from_real(
        self, real: Float[Tensor, "*batch k"], dtype: torch.dtype = torch.float32
    ) -> Float[Tensor, "*batch d"]:
        """The largest entry."""
        index = self.reals(real).argmax(-1)
        return (one_hot(index, self.categories) if self.one_hot else index.unsqueeze(-1)).to(dtype)


@dataclass(frozen=True)
class Counts(Shaped):
    """Whole numbers from 0 with a known sum, as those of a multinomial distribution.

    Arguments:
        size: How many.
        total: Their sum.

    Examples:
        >>> Counts(3, total=5).from_real(torch.tensor([[2.5, 4.5]]))
        tensor([[2., 3., 0.]])
    """

    size: int
    total: int

    def __post_init__(self) -> None:
        check_size(self.size, 2)
        if not isinstance(self.total, int) or self.total < 1:
            raise InputError(f"'total' must be a positive whole number, got {self.total!r:.80}.")

    @property
    def box(self) -> Box:
        """From 0 to the sum."""
        return Box(0.0, float(self.total))

    @property
    def smooth(self) -> bool:
        """Counts have no density."""
        return False

    @property
    def shape(self) -> tuple[int, ...]:
        """A vector."""
        return (self.size,)

    @property
    def count(self) -> int:
        """The last one follows from the others."""
        return self.size - 1

    @property
    def reals(self) -> Box:
        """Those of counts with noise."""
        return Box(0.0, self.total + 1.0)

    def to_real(self, theta: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch k"]:
        """Add noise to all but the last."""
        counts = theta[..., :-1].round()
        return counts + torch.rand_like(counts)

    def from_real(
        self, real: Float[Tensor, "*batch k"], dtype: torch.dtype = torch.float32
    ) -> Float[Tensor, "*batch d"]:
        """Round down; no count is larger than what those before have left."""
        so_far = self.reals(real, dtype).floor().cumsum(-1).clamp_max(self.total)
        ends = torch.nn.functional.pad(so_far, (1, 0)), torch.full_like(so_far[..., :1], self.total)
        return torch.cat(ends, -1).diff(dim=-1)


def _whole(ends: np.ndarray, up: bool) -> np.ndarray:
    """The next whole numbers inside; bounds may be a hair off, as those of open intervals are."""
    return np.asarray((np.ceil(ends - WHOLE) if up else np.floor(ends + WHOLE)) + 0.0)  # and not -0.0
