r"""What a linear regression leaves over: a sampler that only has to learn the rest.

A ridge regression of the parameters on the data, :math:`\hat\theta(x) = A x + b`, takes a moment to find and is hard to
overfit. The wrapped sampler then draws the standardised residual :math:`u = (\theta - \hat\theta(x)) / \sigma`, and

.. math:: \vartheta = \hat\theta(x) + \sigma\, u.

Where the posterior is close to linear and Gaussian nothing is left to learn, however few the simulations; where it is
not, the network does as much as before.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from propersbi.samplers.base import Sampler, Wrapper, log_density, sample_with
from propersbi.samplers.bounds import Bounds
from propersbi.samplers.regression import ridge

__all__ = ["LinearResidual"]

SMALLEST_SCALE = 1e-3  # of the residuals, in standard deviations of the parameters


class LinearResidual(Wrapper):
    """A sampler of parameters around their linear regression on the data, or on fixed statistics of them.

    Arguments:
        sampler: A sampler of residuals.

    Examples:
        >>> from propersbi.networks import MLPGenerator
        >>> x = torch.linspace(-1, 1, 9).unsqueeze(1)
        >>> sampler = LinearResidual(MLPGenerator((1,), (1,), width=16))
        >>> sampler.prepare(3 * x + 0.01 * x**2, x, Bounds.none(1))
        >>> abs(sampler.sample(1, x) - 3 * x).max() < 0.1
        tensor(True)
    """

    slope: Tensor
    shift: Tensor
    scale: Tensor

    def __init__(self, sampler: Sampler) -> None:
        super().__init__(sampler)
        dim, features = math.prod(self.theta_shape), sampler.regressors
        self.register_buffer("slope", torch.zeros(features, dim))
        self.register_buffer("shift", torch.zeros(dim))
        self.register_buffer("scale", torch.ones(dim))

    def prepare(self, theta: Float[Tensor, "n *theta"], x: Float[Tensor, "n *x"], bounds: Bounds) -> None:
        """Find the regression; its strength is chosen by generalised cross-validation."""
        self.sampler.prepare_regressors(x)
        slope, shift, scale = ridge(theta, self.regress_on(x))
        self.slope.copy_(slope)
        self.shift.copy_(shift)
        self.scale.copy_(scale.clamp_min(SMALLEST_SCALE))
        self.sampler.prepare(self._residual(theta, x), x, self._moving(bounds))

    def training_pair(
        self, m: int, theta: Float[Tensor, "n *theta"], x: Float[Tensor, "n *x"]
    ) -> tuple[Float[Tensor, "m n *theta"], Float[Tensor, "n *theta"]]:
        """The wrapped sampler's draws of the residual, and their target."""
        return self.sampler.training_pair(m, self._residual(theta, x), x)

    def sample(
        self, m: int, x: Float[Tensor, "n *x"], *, refinement_steps: int | None = None
    ) -> Float[Tensor, "m n *theta"]:
        """``m`` draws for each row of ``x``."""
        residual = sample_with(self.sampler, m, x, refinement_steps)
        return torch.addcmul(self._mean(x), residual.flatten(2), self.scale).unflatten(-1, self.theta_shape)

    def log_prob(self, theta: Float[Tensor, "*m n _"], x: Float[Tensor, "n *x"]) -> Float[Tensor, "*m n"]:
        """The logarithm of the density."""
        flat = theta.flatten(theta.ndim - len(self.theta_shape))
        residual = ((flat - self._mean(x)) / self.scale).unflatten(-1, self.theta_shape)
        return log_density(self.sampler, residual, x) - self.scale.log().sum()

    def _mean(self, x: Tensor) -> Tensor:
        return self.regress_on(x) @ self.slope + self.shift

    def _residual(self, theta: Tensor, x: Tensor) -> Tensor:
        return ((theta.flatten(1) - self._mean(x)) / self.scale).reshape(theta.shape)

    def _moving(self, bounds: Bounds) -> Bounds:
        """Bounds of the residual: relative to the regression, they move with the data."""
        lower, upper = ((end - self.shift) / self.scale for end in (bounds.lower, bounds.upper))
        tilt = -self.slope if bounds.tilt is None else bounds.tilt - self.slope
        return Bounds(lower, upper, tilt / self.scale)
