r"""What a linear regression leaves over: a sampler that only has to learn the rest.

A ridge regression of the parameters on the data, :math:`\hat\theta(x) = A x + b`, is found in a moment and is hard to
overfit. The network then draws the standardised residual :math:`u = (\theta - \hat\theta(x)) / \sigma`, and

.. math:: \vartheta = \hat\theta(x) + \sigma\, u.

Where the posterior is close to linear and Gaussian nothing is left to learn, however few the simulations; where it is
not, the network does as much as before.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from propersbi.samplers.regression import ridge

__all__ = ["Residual"]


class Residual(nn.Module):
    """A sampler of parameters around their linear regression on the data.

    Arguments:
        sampler: A sampler of residuals.

    Examples:
        >>> from propersbi.networks import MLPGenerator
        >>> x = torch.linspace(-1, 1, 9).unsqueeze(1)
        >>> sampler = Residual(MLPGenerator((1,), (1,), width=16)).fit(3 * x + 0.01 * x**2, x)
        >>> abs(sampler.sample(1, x) - 3 * x).max() < 0.1
        tensor(True)
    """

    slope: Tensor
    shift: Tensor
    scale: Tensor

    def __init__(self, sampler: Any) -> None:
        super().__init__()
        self.sampler = sampler
        self.theta_shape, self.x_shape = tuple(sampler.theta_shape), tuple(sampler.x_shape)
        dim, features = math.prod(self.theta_shape), math.prod(self.x_shape)
        self.register_buffer("slope", torch.zeros(features, dim))
        self.register_buffer("shift", torch.zeros(dim))
        self.register_buffer("scale", torch.ones(dim))

    @property
    def steps(self) -> int:
        """How many steps the sampler takes, if it takes several."""
        return self.sampler.steps

    def fit(self, theta: Float[Tensor, "n *theta"], x: Float[Tensor, "n *x"]) -> Residual:
        """Find the regression; how much it is held back is chosen by generalised cross-validation."""
        slope, shift, scale = ridge(theta, x)
        self.slope.copy_(slope)
        self.shift.copy_(shift)
        self.scale.copy_(scale.clamp_min(1e-3))  # in standard deviations of the parameters
        return self

    def bound(self, lower: Float[Tensor, " dim"], upper: Float[Tensor, " dim"]) -> None:
        """Say where the walls of the prior are: seen from the regression, they move with the data."""
        if hasattr(self.sampler, "bound"):
            walls = ((end - self.shift) / self.scale for end in (lower, upper))
            self.sampler.bound(*walls, -self.slope / self.scale)

    def aim(
        self, m: int, theta: Float[Tensor, "n *theta"], x: Float[Tensor, "n *x"]
    ) -> tuple[Float[Tensor, "m n *theta"], Float[Tensor, "n *theta"]]:
        """The sampler's draws of the residual, and what they are scored against."""
        residual = (theta.flatten(1) - self._guess(x)) / self.scale
        return self.sampler.aim(m, residual.reshape(theta.shape), x)

    def sample(self, m: int, x: Float[Tensor, "n *x"], **options: Any) -> Float[Tensor, "m n *theta"]:
        """``m`` draws for each row of ``x``."""
        residual = self.sampler.sample(m, x, **options)
        return torch.addcmul(self._guess(x), residual.flatten(2), self.scale).unflatten(-1, self.theta_shape)

    def _guess(self, x: Tensor) -> Tensor:
        return x.flatten(1) @ self.slope + self.shift
