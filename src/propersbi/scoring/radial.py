"""Energy score and kernel score: sums of a function of distance over pairs of draws."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from propersbi.scoring.kernels import Gaussian
from propersbi.scoring.pairs import pair_score
from propersbi.scoring.rule import Rule, TrainingParameters, resolved
from propersbi.storage.checks import check_number
from propersbi.types import Kernel

__all__ = ["EnergyScore", "KernelScore"]


@dataclass(frozen=True)
class EnergyScore(Rule):
    r"""The energy score, strictly proper for :math:`\beta \in (0, 2)` where moments of that order are finite.

    .. math:: S(P, \theta) = 2\, E\|\vartheta - \theta\|^\beta - E\|\vartheta - \vartheta'\|^\beta

    For :math:`\beta = 1` in one dimension this is twice the continuous ranked probability score. For
    :math:`\beta = 2` it would compare means only.

    Arguments:
        beta: The power of the distance. Smaller values are more sensitive to fine detail.
        fair: Whether pairs of a draw with itself are excluded, which makes the estimator unbiased for every m.

    References:
        Gneiting & Raftery, 2007, section 4.2 (with the factor 2 of Pacchiardi & Dutta, 2022).

    Examples:
        >>> draws = torch.tensor([[[0.0]], [[2.0]]])
        >>> EnergyScore()(draws, torch.tensor([[1.0]]))
        tensor([0.])
        >>> EnergyScore()(draws, torch.tensor([[4.0]]))
        tensor([4.])
    """

    beta: float = 1.0
    fair: bool = True

    def __post_init__(self) -> None:
        check_number("beta", self.beta, "lie in (0, 2)", 0, 2)

    def __call__(self, samples: Float[Tensor, "m n *event"], theta: Float[Tensor, "n *event"]) -> Float[Tensor, " n"]:
        return pair_score(samples, theta, self._power, self.fair)

    def _power(self, square: Tensor, _: bool) -> tuple[Tensor, Tensor]:
        """``square**(beta / 2)`` and its derivative."""
        if self.beta == 1:
            slope = square.rsqrt()
        elif self.beta == 0.5:
            root = square.rsqrt().sqrt_()
            slope = root * root * root
        else:
            slope = square.pow(self.beta / 2 - 1)
        return square.mul_(slope), slope.mul_(self.beta / 2)  # in place: the square is not used again


@dataclass(frozen=True)
class KernelScore(Rule):
    r"""The kernel score, strictly proper for a characteristic kernel; its divergence is the squared MMD.

    .. math:: S(P, \theta) = E\, k(\vartheta, \vartheta') - 2\, E\, k(\vartheta, \theta)

    The energy score is the kernel score of :math:`k(r) = -r^\beta`.

    Arguments:
        kernel: A function of distance; a Gaussian with the median-heuristic bandwidth unless given.
        fair: Whether pairs of a draw with itself are excluded, which makes the estimator unbiased for every m.

    References:
        Gneiting & Raftery, 2007, section 5.1; Gretton et al., A Kernel Two-Sample Test, 2012.

    Examples:
        >>> draws = torch.tensor([[[0.0]], [[2.0]]])
        >>> KernelScore(Gaussian(bandwidth=1.0))(draws, torch.tensor([[1.0]]))
        tensor([-1.0777])
    """

    kernel: Kernel = Gaussian()  # noqa: RUF009
    fair: bool = True

    def __call__(self, samples: Float[Tensor, "m n *event"], theta: Float[Tensor, "n *event"]) -> Float[Tensor, " n"]:
        return -pair_score(samples, theta, self._profile, self.fair)

    def _profile(self, square: Tensor, with_slope: bool) -> tuple[Tensor, Tensor]:
        """The kernel and its derivative in squared distance, by automatic differentiation, so for any kernel."""
        if not with_slope:
            return self.kernel(square.sqrt()), square
        with torch.enable_grad():
            square = square.detach().requires_grad_()
            value = self.kernel(square.sqrt())
            (slope,) = torch.autograd.grad(value.sum(), square)
        return value.detach(), slope

    def resolve(self, theta: TrainingParameters) -> KernelScore:
        """The same score with the bandwidth of the kernel found on training parameters."""
        return replace(self, kernel=resolved(self.kernel, theta))
