"""The energy score for many draws, in one dimension at a time."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from propersbi.scoring.pairs import check
from propersbi.scoring.rule import Rule
from propersbi.types import InputError

__all__ = ["SlicedEnergyScore"]


@dataclass(frozen=True)
class SlicedEnergyScore(Rule):
    r"""The energy score (:math:`\beta = 1`) estimated on random lines, in :math:`O(m \log m)`, not :math:`O(m^2)`.

    The mean of :math:`|u \cdot v|` over directions :math:`u` is :math:`c_d \|v\|` with :math:`c_d = \Gamma(\frac d2)
    / \sqrt\pi\, \Gamma(\frac{d+1}2)`. So the score of the draws projected on a random line, divided by :math:`c_d`, is
    an unbiased estimate of the energy score and strictly proper with it (where first moments are finite). On a line,
    the mean distance of all pairs follows from sorting,

    .. math:: \frac{1}{m(m-1)} \sum_{i \neq j} |t_i - t_j| = \frac{2}{m(m-1)} \sum_i (2 i - m - 1)\, t_{(i)}.

    With one parameter there is only one line, and the score is exactly twice the continuous ranked probability score.
    Lines are drawn anew at every call from torch's own random numbers.

    Arguments:
        slices: How many lines.
        fair: Whether a draw is left out of the pairs with itself, which makes the estimate unbiased for every m.

    References:
        Gneiting & Raftery, 2007, section 4.2; Rabin et al., Wasserstein Barycenter and Its Application to Texture
        Mixing, 2011 (random lines).

    Examples:
        >>> draws = torch.tensor([[[0.0]], [[2.0]]])
        >>> SlicedEnergyScore()(draws, torch.tensor([[4.0]]))
        tensor([4.])
    """

    slices: int = 32
    fair: bool = True

    def __post_init__(self) -> None:
        if not self.slices >= 1:
            raise InputError(f"'slices' must be at least 1, got {self.slices}.")

    def __call__(self, samples: Float[Tensor, "m n *event"], theta: Float[Tensor, "n *event"]) -> Float[Tensor, " n"]:
        check(samples, theta)
        offset = samples.flatten(2) - theta.flatten(1)  # distances do not change, and digits are kept
        m, _, d = offset.shape
        factor = 1.0
        if d > 1:
            lines = torch.randn(d, self.slices, dtype=torch.float64, device=offset.device)  # the same in any precision
            offset = offset @ (lines / lines.norm(dim=0)).to(offset.dtype)
            factor = math.exp(math.lgamma(d / 2) - math.lgamma((d + 1) / 2)) / math.sqrt(math.pi)
        rank = torch.arange(1 - m, m, 2, dtype=offset.dtype, device=offset.device)
        ordered = offset.transpose(0, -1).sort(-1).values  # (slices, n, m)
        between = 2 * (ordered @ rank) / (m * (m - 1) if self.fair else m * m)
        return (2 * offset.abs().mean(0).T - between).mean(0) / factor
