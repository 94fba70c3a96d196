"""The variogram score: a rule for the dependence between parameters."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from propersbi.scoring.pairs import check
from propersbi.scoring.rule import Rule
from propersbi.storage.checks import check_number
from propersbi.types import InputError

__all__ = ["VariogramScore"]

MAX_CELLS_PER_PIECE = 2**22  # numbers in an intermediate tensor, 16 MB; larger batches are split


@dataclass(frozen=True)
class VariogramScore(Rule):
    r"""The variogram score, which compares the differences between parameters.

    .. math:: S(P, \theta) = \frac{2}{d(d-1)} \sum_{i < j}
              \big( |\theta_i - \theta_j|^p - E|\vartheta_i - \vartheta_j|^p \big)^2

    It is more sensitive to wrong correlations than the energy score. It is proper where moments of order :math:`2p` are
    finite, but *not* strictly proper: it is invariant under a common shift of all parameters. Add it to a strictly
    proper rule: ``EnergyScore() + 0.5 * VariogramScore()``. Parameters are compared with each other, so they should
    have the same unit (``ps.fit`` standardises them).

    Arguments:
        p: The power of the difference.
        fair: Whether the square is estimated without bias, from pairs of different draws only.

    References:
        Scheuerer & Hamill, Variogram-Based Proper Scoring Rules for Probabilistic Forecasts of Multivariate
        Quantities, 2015 (where it is a sum over all pairs).

    Examples:
        >>> draws = torch.tensor([[[0.0, 1.0]], [[0.0, 3.0]]])
        >>> VariogramScore(p=1.0)(draws, torch.tensor([[0.0, 2.0]]))
        tensor([-1.])
        >>> VariogramScore(p=1.0, fair=False)(draws, torch.tensor([[0.0, 2.0]]))
        tensor([0.])
    """

    p: float = 0.5
    fair: bool = True

    def __post_init__(self) -> None:
        check_number("p", self.p, "be positive", 0)

    def __call__(self, samples: Float[Tensor, "m n *event"], theta: Float[Tensor, "n *event"]) -> Float[Tensor, " n"]:
        check(samples, theta)
        samples, theta = samples.flatten(2), theta.flatten(1)
        m, n, d = samples.shape
        if d < 2:
            raise InputError(f"The variogram score compares parameters with each other and needs at least 2, got {d}.")
        rows = max(1, MAX_CELLS_PER_PIECE // (m * d * (d - 1) // 2))
        if rows >= n:
            return self._score(samples, theta)
        pieces = zip(torch.split(samples, rows, dim=1), torch.split(theta, rows), strict=True)
        return torch.cat([checkpoint(self._score, *piece, use_reentrant=False) for piece in pieces])

    def _score(self, samples: Tensor, theta: Tensor) -> Tensor:
        first, second = torch.triu_indices(samples.shape[-1], samples.shape[-1], 1, device=theta.device)
        # The derivative of |t|**p is infinite at 0 for p < 1: below the floor it is set to zero.
        floor = torch.finfo(theta.dtype).eps ** 2
        of_draws = (samples[..., first] - samples[..., second]).abs().clamp_min(floor) ** self.p
        of_theta = (theta[..., first] - theta[..., second]).abs().clamp_min(floor) ** self.p
        error = of_draws - of_theta
        m = len(samples)
        if not self.fair:
            return error.mean(0).square().mean(-1)
        return ((error.sum(0).square() - error.square().sum(0)) / (m * (m - 1))).mean(-1)
