"""The energy score of many draws, estimated from one-dimensional projections."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from propersbi.scoring.pairs import check
from propersbi.scoring.rule import Rule
from propersbi.storage.checks import check_whole

__all__ = ["SlicedEnergyScore"]


@dataclass(frozen=True)
class SlicedEnergyScore(Rule):
    r"""The energy score (:math:`\beta = 1`) estimated on random directions, in :math:`O(m \log m)`, not :math:`O(m^2)`.

    The mean of :math:`|u \cdot v|` over unit vectors :math:`u` is :math:`c_d \|v\|` with :math:`c_d = \Gamma(\frac d2)
    / \sqrt\pi\, \Gamma(\frac{d+1}2)`. The score of the draws projected on a random direction, divided by :math:`c_d`,
    is therefore an unbiased estimate of the energy score, and strictly proper if first moments are finite. In one
    dimension, the mean distance over all pairs follows from sorting,

    .. math:: \frac{1}{m(m-1)} \sum_{i \neq j} |t_i - t_j| = \frac{2}{m(m-1)} \sum_i (2 i - m - 1)\, t_{(i)}.

    With one parameter there is one direction, and the score is twice the continuous ranked probability score.
    Directions are drawn at every call from torch's global random state.

    Arguments:
        slices: The number of directions.
        fair: Whether pairs of a draw with itself are excluded, which makes the estimator unbiased for every m.

    References:
        Gneiting & Raftery, 2007, section 4.2; Rabin et al., Wasserstein Barycenter and Its Application to Texture
        Mixing, 2011 (random directions).

    Examples:
        >>> draws = torch.tensor([[[0.0]], [[2.0]]])
        >>> SlicedEnergyScore()(draws, torch.tensor([[4.0]]))
        tensor([4.])
    """

    slices: int = 32
    fair: bool = True

    def __post_init__(self) -> None:
        check_whole("slices", self.slices, 1)

    def __call__(self, samples: Float[Tensor, "m n *event"], theta: Float[Tensor, "n *event"]) -> Float[Tensor, " n"]:
        check(samples, theta)
        offset = samples.flatten(2) - theta.flatten(1)  # distances are the same, with less cancellation
        m, _, d = offset.shape
        factor = 1.0
        if d > 1:
            # In double precision, so that the directions do not depend on the precision of the draws.
            normals = torch.randn(d, self.slices, dtype=torch.float64, device=offset.device)
            offset = offset @ (normals / normals.norm(dim=0)).to(offset.dtype)
            factor = math.exp(math.lgamma(d / 2) - math.lgamma((d + 1) / 2)) / math.sqrt(math.pi)
        rank = torch.arange(1 - m, m, 2, dtype=offset.dtype, device=offset.device)
        ordered = offset.transpose(0, -1).sort(-1).values  # (slices, n, m)
        between = 2 * (ordered @ rank) / (m * (m - 1) if self.fair else m * m)
        return (2 * offset.abs().mean(0).T - between).mean(0) / factor
