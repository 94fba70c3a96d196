"""Missing entries: hidden at random in training, so that any pattern of them can be conditioned on."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from propersbi.types import InputError

__all__ = ["Missing"]


@dataclass(frozen=True)
class Missing:
    """Hides entries of the data whenever they are read in training: each one with this probability.

    The posterior then takes observations with any entries missing.

    Arguments:
        rate: The probability.

    Examples:
        >>> hidden = Missing(0.3)(torch.zeros(1000, 10))
        >>> bool((hidden.isnan().float().mean() - 0.3).abs() < 0.03)
        True
    """

    rate: float

    def __post_init__(self) -> None:
        if not (isinstance(self.rate, int | float) and 0 < self.rate < 1):
            raise InputError(f"The rate of missing entries must lie in (0, 1), got {self.rate!r:.40}.")

    def __call__(self, x: Float[Tensor, "n *x"]) -> Float[Tensor, "n *x"]:
        return torch.where(torch.rand_like(x) < self.rate, torch.nan, x)
