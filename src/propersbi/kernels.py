r"""Radial kernels :math:`k(r)` of the distance between two parameters, and how their bandwidth is found.

A kernel is a function of distance with :math:`k(0) = 1`. The kernel score of a *characteristic* kernel, such as the
Gaussian, is strictly proper: only the true distribution attains the lowest expected score.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from propersbi.types import InputError

__all__ = ["Gaussian", "MedianHeuristic"]


@dataclass(frozen=True)
class MedianHeuristic:
    """The bandwidth is the median distance between training parameters.

    Arguments:
        points: How many parameters are looked at, the first ones of those given.

    Examples:
        >>> MedianHeuristic()(torch.tensor([[0.0], [1.0], [3.0]]))
        2.0
    """

    points: int = 1000

    def __call__(self, theta: Float[Tensor, "n *event"]) -> float:
        few = theta[: self.points].flatten(1).double()
        if len(few) < 2:
            raise InputError(f"The median heuristic needs at least 2 parameters, got {len(few)}.")
        median = torch.pdist(few).median().item()
        if not median > 0:
            raise InputError("The median heuristic found most parameters equal; give the bandwidth as a number.")
        return median


@dataclass(frozen=True)
class Gaussian:
    r"""The Gaussian kernel :math:`k(r) = \exp(-r^2 / 2 b^2)`, characteristic.

    Arguments:
        bandwidth: The length :math:`b`, a positive number, or a heuristic that ``resolve`` turns into one.

    Examples:
        >>> Gaussian(bandwidth=2.0)(torch.tensor([0.0, 2.0]))
        tensor([1.0000, 0.6065])
    """

    bandwidth: float | MedianHeuristic = MedianHeuristic()

    def __post_init__(self) -> None:
        if not callable(self.bandwidth) and not self.bandwidth > 0:
            raise InputError(f"'bandwidth' must be positive, got {self.bandwidth}.")

    def __call__(self, distance: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        if callable(self.bandwidth):
            raise InputError("The kernel's bandwidth is still a heuristic; 'resolve(theta)' turns it into a number.")
        return torch.exp(-0.5 * (distance / self.bandwidth) ** 2)

    def resolve(self, theta: Float[Tensor, "n *event"]) -> Gaussian:
        """The same kernel with its bandwidth as a number, found on training parameters."""
        return replace(self, bandwidth=self.bandwidth(theta)) if callable(self.bandwidth) else self
