r"""The generator seam: :math:`\vartheta = g(z, x)`, split so that many draws cost little.

.. math:: c = \mathrm{embed}(x) \quad\text{once per observation}, \qquad
          \vartheta_i = \mathrm{forward}(c, z_i) \quad\text{once per draw}.

A generator is a sampler that needs one pass. It is trained by scoring its draws against the parameter that made the
data.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from jaxtyping import Float
from torch import Tensor, nn

__all__ = ["ChainGenerator", "Generator", "Modulation"]


class Generator(nn.Module, ABC):
    """A network from data and latent noise to parameters; subclasses say how in :meth:`embed` and :meth:`forward`.

    Their constructors store each argument under its own name, so that the network can be saved as JSON.
    """

    theta_shape: tuple[int, ...]
    x_shape: tuple[int, ...]
    latent: int

    @abstractmethod
    def embed(self, x: Float[Tensor, "n *x"]) -> Float[Tensor, "n context"]:
        """What the draws need to know about the data, once per observation."""

    @abstractmethod
    def forward(
        self, context: Float[Tensor, "n context"], z: Float[Tensor, "m n latent"]
    ) -> Float[Tensor, "m n *theta"]:
        """One draw for each latent variable."""

    def noise(self, m: int, n: int) -> Float[Tensor, "m n latent"]:
        """Standard normal latent variables for ``m`` draws of ``n`` rows."""
        return torch.randn(m, n, self.latent, device=next(self.parameters()).device)

    def sample(self, m: int, x: Float[Tensor, "n *x"]) -> Float[Tensor, "m n *theta"]:
        """``m`` draws for each row of ``x``."""
        return self(self.embed(x), self.noise(m, len(x)))

    def aim(
        self, m: int, theta: Float[Tensor, "n *theta"], x: Float[Tensor, "n *x"]
    ) -> tuple[Float[Tensor, "m n *theta"], Float[Tensor, "n *theta"]]:
        """The draws and the parameter they are scored against."""
        return self.sample(m, x), theta


class ChainGenerator(Generator):
    """A generator that can also be one step of a chain: it is told a noisy parameter and how noisy it is."""

    chain: bool

    @abstractmethod
    def condition(
        self, context: Float[Tensor, "n context"], noisy: Float[Tensor, "n *theta"], level: Float[Tensor, " n"]
    ) -> Float[Tensor, "n conditioned"]:
        """What the draws of a step need to know: the data, the noisy parameter (of order one) and its level."""

    def bound(self, lower: Float[Tensor, " dim"], upper: Float[Tensor, " dim"], tilt: Tensor | None = None) -> None:
        """Say where the walls of the prior are; with a ``tilt (features, dim)`` they move by ``x @ tilt``."""


class Modulation(nn.Module):
    r"""Noise enters: :math:`h \mapsto h \odot (1 + W z) + V z`.

    The product lets the noise choose between branches of the network, so that draws can jump between modes; the sum
    spreads them. Both start at a size that gives every hidden unit noise of order one.

    Arguments:
        width: The number of hidden units.
        latent: The number of latent variables.
        shift: Whether to add :math:`V z`; the paper's network only multiplies.
    """

    def __init__(self, width: int, latent: int, *, shift: bool = True) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.randn(latent, width) / latent**0.5)
        self.shift = nn.Parameter(0.5 * torch.randn(latent, width) / latent**0.5) if shift else None

    def forward(self, h: Tensor, z: Float[Tensor, "m n latent"]) -> Float[Tensor, "m n width"]:
        """``h`` is ``(n, width)``, shared by all draws, or ``(m, n, width)``."""
        modulated = torch.addcmul(h, h, z @ self.scale)
        return modulated if self.shift is None else modulated.add_(z @ self.shift)
