r"""Radial kernels :math:`k(r)` of the distance between two parameters, and the choice of their bandwidth.

Every kernel here is a function of distance with :math:`k(0) = 1` that decreases to zero, and *characteristic*: the mean
of :math:`k(\vartheta, \cdot)` over a distribution determines the distribution. The kernel score of a characteristic
kernel is strictly proper, for all distributions since the kernels are bounded.

They differ in the length scales they resolve. The Gaussian is sensitive to differences of about its bandwidth
:math:`b`; heavy tails (:class:`RationalQuadratic`, :class:`InverseMultiquadric`) and a kink at zero (:class:`Laplace`,
:class:`Matern`) widen this range, and a :class:`KernelMixture` averages over several bandwidths.

References:
    Sriperumbudur et al., Hilbert Space Embeddings and Metrics on Probability Measures, 2010 (characteristic kernels).
    Rasmussen & Williams, Gaussian Processes for Machine Learning, 2006, chapter 4 (the kernels).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from propersbi.scoring.rule import resolved
from propersbi.storage.checks import check_number, check_numbers, is_number
from propersbi.types import InputError, Kernel

__all__ = [
    "Gaussian",
    "InverseMultiquadric",
    "KernelMixture",
    "Laplace",
    "Matern",
    "MedianHeuristic",
    "RationalQuadratic",
]

R = TypeVar("R", bound="_Radial")


@dataclass(frozen=True)
class MedianHeuristic:
    """The bandwidth is the median distance between training parameters; of several sets, the median of their medians.

    Arguments:
        points: The maximum number of parameters per set; the first ones are used.

    Examples:
        >>> MedianHeuristic()(torch.tensor([[0.0], [1.0], [3.0]]))
        2.0
    """

    points: int = 1000

    def __call__(self, theta: Float[Tensor, "n *event"] | Sequence[Tensor]) -> float:
        if not isinstance(theta, Tensor):
            return torch.tensor([self._median(part) for part in theta]).double().median().item()
        return self._median(theta)

    def _median(self, theta: Tensor) -> float:
        subset = theta[: self.points].flatten(1).double()
        if len(subset) < 2:
            raise InputError(f"The median heuristic needs at least 2 parameters, got {len(subset)}.")
        median = torch.pdist(subset).median().item()
        if not median > 0:
            raise InputError(
                f"The median distance of {len(subset)} parameters is {median}: most are equal, so give the bandwidth "
                "as a number."
            )
        return median


@dataclass(frozen=True)
class _Radial(ABC):
    """A function of the distance in units of the bandwidth, which subclasses define in ``_profile``.

    Arguments:
        bandwidth: The length scale :math:`b`, a positive number, or a heuristic that ``resolve`` replaces by one.
    """

    bandwidth: float | MedianHeuristic = MedianHeuristic()

    def __post_init__(self) -> None:
        if not callable(self.bandwidth):
            _check_positive(bandwidth=self.bandwidth)

    def __call__(self, distance: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        if callable(self.bandwidth):
            raise InputError("The kernel's bandwidth is still a heuristic; 'resolve(theta)' replaces it by a number.")
        return self._profile(distance / self.bandwidth)

    @abstractmethod
    def _profile(self, ratio: Tensor) -> Tensor:
        """The kernel at a distance of ``ratio`` bandwidths."""

    def resolve(self: R, theta: Float[Tensor, "n *event"] | Sequence[Tensor]) -> R:
        """The same kernel with a numerical bandwidth, found on training parameters."""
        return replace(self, bandwidth=self.bandwidth(theta)) if callable(self.bandwidth) else self


@dataclass(frozen=True)
class Gaussian(_Radial):
    r"""The Gaussian kernel :math:`k(r) = \exp(-r^2 / 2 b^2)`.

    Arguments:
        bandwidth: The length scale :math:`b`, a positive number, or a heuristic that ``resolve`` replaces by one.

    Examples:
        >>> Gaussian(bandwidth=2.0)(torch.tensor([0.0, 2.0]))
        tensor([1.0000, 0.6065])
    """

    def _profile(self, ratio: Tensor) -> Tensor:
        return torch.exp(-0.5 * ratio**2)


@dataclass(frozen=True)
class Laplace(_Radial):
    r"""The Laplace kernel :math:`k(r) = \exp(-r / b)`; its kink at zero makes it sensitive to fine detail.

    Arguments:
        bandwidth: The length scale :math:`b`, a positive number, or a heuristic that ``resolve`` replaces by one.

    Examples:
        >>> Laplace(bandwidth=2.0)(torch.tensor([0.0, 2.0]))
        tensor([1.0000, 0.3679])
    """

    def _profile(self, ratio: Tensor) -> Tensor:
        return torch.exp(-ratio)


@dataclass(frozen=True)
class RationalQuadratic(_Radial):
    r"""The rational quadratic kernel :math:`k(r) = (1 + r^2 / 2 \alpha b^2)^{-\alpha}`, a scale mixture of Gaussians.

    Arguments:
        bandwidth: The length scale :math:`b`, a positive number, or a heuristic that ``resolve`` replaces by one.
        alpha: The decay of the tails; the larger, the closer to the Gaussian.

    Examples:
        >>> RationalQuadratic(bandwidth=1.0, alpha=0.5)(torch.tensor([0.0, 3.0**0.5]))
        tensor([1.0000, 0.5000])
    """

    alpha: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_positive(alpha=self.alpha)

    def _profile(self, ratio: Tensor) -> Tensor:
        return (1 + ratio**2 / (2 * self.alpha)) ** -self.alpha


@dataclass(frozen=True)
class InverseMultiquadric(_Radial):
    r"""The inverse multiquadric kernel :math:`k(r) = (1 + r^2 / b^2)^{-1/2}`; heavy-tailed.

    Arguments:
        bandwidth: The length scale :math:`b`, a positive number, or a heuristic that ``resolve`` replaces by one.

    Examples:
        >>> InverseMultiquadric(bandwidth=1.0)(torch.tensor([0.0, 3.0**0.5]))
        tensor([1.0000, 0.5000])
    """

    def _profile(self, ratio: Tensor) -> Tensor:
        return (1 + ratio**2).rsqrt()


@dataclass(frozen=True)
class Matern(_Radial):
    r"""The Matérn kernels, from rough to smooth.

    With :math:`t = \sqrt{2\nu}\, r / b`,

    .. math:: k_{1/2} = e^{-t}, \quad k_{3/2} = (1 + t)\, e^{-t}, \quad k_{5/2} = (1 + t + t^2/3)\, e^{-t}.

    Arguments:
        bandwidth: The length scale :math:`b`, a positive number, or a heuristic that ``resolve`` replaces by one.
        nu: 0.5 (which is :class:`Laplace`), 1.5 or 2.5.

    Examples:
        >>> Matern(bandwidth=3.0**0.5, nu=1.5)(torch.tensor([0.0, 1.0]))
        tensor([1.0000, 0.7358])
    """

    nu: float = 1.5
    _FACTORS: ClassVar[dict[float, tuple[float, ...]]] = {0.5: (1.0,), 1.5: (1.0, 1.0), 2.5: (1.0, 1.0, 1 / 3)}

    def __post_init__(self) -> None:
        super().__post_init__()
        if not is_number(self.nu) or self.nu not in self._FACTORS:
            raise InputError(f"'nu' must be 0.5, 1.5 or 2.5, got {self.nu!s:.80}.")

    def _profile(self, ratio: Tensor) -> Tensor:
        t = math.sqrt(2 * self.nu) * ratio
        factors = self._FACTORS[self.nu]
        polynomial: Tensor | int = sum(factor * t**power for power, factor in enumerate(factors))
        return polynomial * torch.exp(-t)


@dataclass(frozen=True)
class KernelMixture:
    r"""The mean of a kernel over several bandwidths, :math:`k(r) = \frac1J \sum_j k_0(r / f_j)`.

    Arguments:
        kernel: The kernel :math:`k_0`.
        factors: Multiples :math:`f_j` of its bandwidth.

    Examples:
        >>> KernelMixture(Laplace(bandwidth=1.0), factors=(1.0, 2.0))(torch.tensor([0.0, 2.0]))
        tensor([1.0000, 0.2516])
    """

    kernel: Kernel = Gaussian()
    factors: tuple[float, ...] = (0.1, 0.3, 1.0, 3.0)

    def __post_init__(self) -> None:
        check_numbers("factors", self.factors, "hold positive numbers", 0)

    def __call__(self, distance: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        return torch.stack([self.kernel(distance / factor) for factor in self.factors]).mean(0)

    def resolve(self, theta: Float[Tensor, "n *event"] | Sequence[Tensor]) -> KernelMixture:
        """The same mixture with a numerical bandwidth, found on training parameters."""
        return replace(self, kernel=resolved(self.kernel, theta))


def _check_positive(**numbers: float) -> None:
    for name, value in numbers.items():
        check_number(name, value, "be positive", 0)
