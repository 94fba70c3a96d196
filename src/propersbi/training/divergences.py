r"""Divergences: how the outputs of a critic :math:`v(\theta, x)` become the losses of critic and generator.

An f-divergence between the true joint distribution :math:`P` of :math:`(\theta, x)` and that of the generator's draws,
:math:`Q`, has the lower bound

.. math:: D_f(P \| Q) = \int q\, f(p / q) \ge E_P\, T - E_Q\, f^*(T), \qquad T = a(v),

with the conjugate :math:`f^*` and an activation :math:`a` that keeps :math:`T` where the conjugate is finite. The
critic raises the bound, the generator lowers it. Each divergence here is its activation and the conjugate of it:

====================== ============================ ============================ ==================================
divergence             :math:`f(u)`                 :math:`T = a(v)`             :math:`f^*(T)`
====================== ============================ ============================ ==================================
KL                     u log u                      v                            exp(v - 1)
reverse KL             -log u                       -exp(-v)                     v - 1
Pearson chi2           (u - 1)^2                    v                            v^2 / 4 + v
squared Hellinger      (sqrt(u) - 1)^2              1 - exp(-v)                  exp(v) - 1
Jensen-Shannon (twice) u log u - (1+u) log((1+u)/2) log 2 - softplus(-v)         softplus(v) - log 2
total variation        abs(u - 1) / 2               tanh(v) / 2                  tanh(v) / 2
====================== ============================ ============================ ==================================

:class:`Wasserstein` is no f-divergence: its critic has a bounded slope instead, by a penalty or by spectral norms.

References:
    Nowozin, Cseke & Tomioka, f-GAN, 2016, https://arxiv.org/abs/1606.00709
    Ramesh et al., GATSBI, 2022, https://arxiv.org/abs/2203.06481
    Gulrajani et al., Improved Training of Wasserstein GANs, 2017, https://arxiv.org/abs/1704.00028
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import softplus

from propersbi.types import InputError

__all__ = [
    "KL",
    "Divergence",
    "FDivergence",
    "Hellinger",
    "JensenShannon",
    "Pearson",
    "ReverseKL",
    "TotalVariation",
    "Wasserstein",
]


class Divergence(ABC):
    """How a critic's outputs for real parameters ``(n,)`` and for draws ``(m, n)`` become losses, row by row."""

    penalty: float = 0.0
    """The weight of a penalty on the critic's slope; 0 for none."""

    @abstractmethod
    def critic_loss(self, real: Float[Tensor, " n"], fake: Float[Tensor, "m n"]) -> Float[Tensor, " n"]:
        """What the critic descends, row by row."""

    @abstractmethod
    def generator_loss(self, fake: Float[Tensor, "m n"]) -> Float[Tensor, " n"]:
        """What the generator descends, row by row."""


@dataclass(frozen=True)
class FDivergence(Divergence):
    """A divergence by its activation and conjugate; subclasses say which.

    Arguments:
        saturating: Whether the generator lowers the bound itself, as the theory has it and GATSBI does. Else it raises
            the critic's output for its draws, which keeps gradients alive where the critic is confident.
    """

    saturating: bool = True

    @abstractmethod
    def activation(self, v: Tensor) -> Tensor:
        """The critic's output where the conjugate is finite."""

    @abstractmethod
    def conjugate(self, v: Tensor) -> Tensor:
        """The conjugate of the activation."""

    def critic_loss(self, real: Float[Tensor, " n"], fake: Float[Tensor, "m n"]) -> Float[Tensor, " n"]:
        """Minus the bound, row by row."""
        return self.conjugate(fake).mean(0) - self.activation(real)

    def generator_loss(self, fake: Float[Tensor, "m n"]) -> Float[Tensor, " n"]:
        """What the generator descends, row by row."""
        return -(self.conjugate(fake) if self.saturating else self.activation(fake)).mean(0)


@dataclass(frozen=True)
class JensenShannon(FDivergence):
    r"""Twice the Jensen-Shannon divergence: the divergence of the first GANs and of GATSBI, up to a constant.

    With :math:`D = \sigma(v)` the critic minimises cross entropy; the saturating generator lowers
    :math:`\log(1 - D)`, the other one raises :math:`\log D`.

    Examples:
        >>> bool(JensenShannon().critic_loss(torch.zeros(1), torch.zeros(1, 1)) == 0)
        True
    """

    def activation(self, v: Tensor) -> Tensor:
        return math.log(2) - softplus(-v)

    def conjugate(self, v: Tensor) -> Tensor:
        return softplus(v) - math.log(2)


@dataclass(frozen=True)
class KL(FDivergence):
    """The Kullback-Leibler divergence of the generator from the truth: it punishes missing modes."""

    def activation(self, v: Tensor) -> Tensor:
        return v

    def conjugate(self, v: Tensor) -> Tensor:
        return torch.exp(v - 1)


@dataclass(frozen=True)
class ReverseKL(FDivergence):
    """The Kullback-Leibler divergence of the truth from the generator: it punishes draws in empty places."""

    def activation(self, v: Tensor) -> Tensor:
        return -torch.exp(-v)

    def conjugate(self, v: Tensor) -> Tensor:
        return v - 1


@dataclass(frozen=True)
class Pearson(FDivergence):
    r"""Pearson's :math:`\chi^2` divergence."""

    def activation(self, v: Tensor) -> Tensor:
        return v

    def conjugate(self, v: Tensor) -> Tensor:
        return v.square() / 4 + v


@dataclass(frozen=True)
class Hellinger(FDivergence):
    """The squared Hellinger distance."""

    def activation(self, v: Tensor) -> Tensor:
        return 1 - torch.exp(-v)

    def conjugate(self, v: Tensor) -> Tensor:
        return torch.exp(v) - 1


@dataclass(frozen=True)
class TotalVariation(FDivergence):
    """The total variation distance."""

    def activation(self, v: Tensor) -> Tensor:
        return torch.tanh(v) / 2

    def conjugate(self, v: Tensor) -> Tensor:
        return torch.tanh(v) / 2


@dataclass(frozen=True)
class Wasserstein(Divergence):
    r"""The Wasserstein distance, :math:`\sup E_P v - E_Q v` over critics whose slope in :math:`\theta` is at most one.

    Arguments:
        penalty: The weight of :math:`(\|\nabla_\theta v\| - 1)^2` between real and drawn parameters; 0 for a critic
            with spectral norms, whose slope is bounded anyway.
    """

    penalty: float = 10.0

    def __post_init__(self) -> None:
        if not 0 <= self.penalty < math.inf:
            raise InputError(f"'penalty' must not be negative, got {self.penalty}.")

    def critic_loss(self, real: Float[Tensor, " n"], fake: Float[Tensor, "m n"]) -> Float[Tensor, " n"]:
        """Minus the difference the critic sees, row by row."""
        return fake.mean(0) - real

    def generator_loss(self, fake: Float[Tensor, "m n"]) -> Float[Tensor, " n"]:
        """What the generator descends, row by row."""
        return -fake.mean(0)
