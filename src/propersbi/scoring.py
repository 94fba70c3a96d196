r"""Scoring rules estimated from samples. Lower is better.

A scoring rule :math:`S(P, \theta)` says how well a distribution :math:`P` foretold what came true. It is *strictly
proper* when, in expectation over :math:`\theta \sim Q`, only :math:`P = Q` attains the lowest score. A network that
minimises such a score over pairs :math:`(\theta, x)` therefore has one target: the posterior of :math:`\theta` given
:math:`x`. No density is needed, only :math:`m > 1` draws :math:`\vartheta_1, \dots, \vartheta_m` per pair.

Both rules here compare draws with the truth and draws with each other,

.. math::

    S_k(P, \theta) = E\, k(\vartheta, \vartheta') - 2\, E\, k(\vartheta, \theta),

with the pairs :math:`i \neq j` only, so the estimate is unbiased for every :math:`m`. The energy score is the kernel
score of :math:`k(r) = -r^\beta`.

References:
    Gneiting & Raftery, Strictly Proper Scoring Rules, Prediction, and Estimation, 2007.
    Pacchiardi & Dutta, Likelihood-Free Inference with Generative Neural Networks via Scoring Rule Minimization, 2022,
    https://arxiv.org/abs/2205.15784
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from propersbi.kernels import Gaussian
from propersbi.types import InputError, Kernel

__all__ = ["EnergyScore", "KernelScore", "distances", "pair_mean", "resolved"]


def distances(
    samples: Float[Tensor, "m n *event"], theta: Float[Tensor, "n *event"]
) -> tuple[Float[Tensor, "n m"], Float[Tensor, "n m m"]]:
    """Euclidean distances from the draws to ``theta`` and between the draws, row by row.

    Differences are taken before they are squared: the usual shortcut through a matrix product loses all digits for
    draws that lie close together and far from the origin. The gradient at coinciding points is zero.

    Examples:
        >>> to_theta, between = distances(torch.tensor([[[3.0, 4.0]], [[0.0, 0.0]]]), torch.zeros(1, 2))
        >>> to_theta, between[0, 0, 1]
        (tensor([[5., 0.]]), tensor(5.))
    """
    if len(samples) < 2:
        raise InputError(f"A scoring rule needs m > 1 draws, got {len(samples)}.")
    if samples.shape[1:] != theta.shape:
        raise InputError(f"Draws of shape {tuple(samples.shape)} do not fit theta of shape {tuple(theta.shape)}.")
    rows = samples.flatten(2).transpose(0, 1).contiguous()
    to_theta = torch.linalg.vector_norm(rows - theta.flatten(1).unsqueeze(1), dim=-1)
    return to_theta, torch.cdist(rows, rows, compute_mode="donot_use_mm_for_euclid_dist")


def pair_mean(values: Float[Tensor, "n m m"]) -> Float[Tensor, " n"]:
    """The mean over pairs of different draws: the diagonal, a draw with itself, does not count.

    Examples:
        >>> pair_mean(torch.tensor([[[9.0, 1.0], [3.0, 9.0]]]))
        tensor([2.])
    """
    m = values.shape[-1]
    diagonal = values.diagonal(dim1=-2, dim2=-1).sum(-1)
    return (values.sum((-2, -1)) - diagonal) / (m * (m - 1))


@dataclass(frozen=True)
class EnergyScore:
    r"""The energy score, strictly proper for :math:`\beta \in (0, 2)` where moments of that order are finite.

    .. math:: S(P, \theta) = 2\, E\|\vartheta - \theta\|^\beta - E\|\vartheta - \vartheta'\|^\beta

    For :math:`\beta = 1` in one dimension this is twice the continuous ranked probability score.

    Arguments:
        beta: The power of the distance. Smaller values look at finer detail.

    References:
        Gneiting & Raftery, 2007, section 4.2 (with the factor 2 of the paper above).

    Examples:
        >>> draws = torch.tensor([[[0.0]], [[2.0]]])
        >>> EnergyScore()(draws, torch.tensor([[1.0]]))
        tensor([0.])
        >>> EnergyScore()(draws, torch.tensor([[4.0]]))
        tensor([4.])
    """

    beta: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.beta < 2:
            raise InputError(f"'beta' must lie in (0, 2), got {self.beta}.")

    def __call__(self, samples: Float[Tensor, "m n *event"], theta: Float[Tensor, "n *event"]) -> Float[Tensor, " n"]:
        to_theta, between = distances(samples, theta)
        return 2 * self._power(to_theta).mean(-1) - pair_mean(self._power(between))

    def _power(self, distance: Tensor) -> Tensor:
        if self.beta == 1:
            return distance
        # The slope of r**beta is infinite at 0 for beta < 1: below the floor it is cut to zero.
        return distance.clamp_min(torch.finfo(distance.dtype).eps ** 2) ** self.beta


@dataclass(frozen=True)
class KernelScore:
    r"""The kernel score, strictly proper for a characteristic kernel; its divergence is the squared MMD.

    .. math:: S(P, \theta) = E\, k(\vartheta, \vartheta') - 2\, E\, k(\vartheta, \theta)

    Arguments:
        kernel: A function of distance; a Gaussian with the median-heuristic bandwidth unless given.

    References:
        Gneiting & Raftery, 2007, section 5.1; Gretton et al., A Kernel Two-Sample Test, 2012.

    Examples:
        >>> draws = torch.tensor([[[0.0]], [[2.0]]])
        >>> KernelScore(Gaussian(bandwidth=1.0))(draws, torch.tensor([[1.0]]))
        tensor([-1.0777])
    """

    kernel: Kernel = Gaussian()  # noqa: RUF009

    def __call__(self, samples: Float[Tensor, "m n *event"], theta: Float[Tensor, "n *event"]) -> Float[Tensor, " n"]:
        to_theta, between = distances(samples, theta)
        return pair_mean(self.kernel(between)) - 2 * self.kernel(to_theta).mean(-1)

    def resolve(self, theta: Float[Tensor, "n *event"]) -> KernelScore:
        """The same score with the kernel's bandwidth found on training parameters."""
        return replace(self, kernel=resolved(self.kernel, theta))


def resolved(rule: Any, theta: Tensor) -> Any:
    """A rule or kernel with everything it has to learn from training parameters turned into numbers."""
    return rule.resolve(theta) if hasattr(rule, "resolve") else rule
