r"""Generators: :math:`\vartheta = g(z, x)`, split so that many draws cost little.

.. math:: c = \mathrm{embed}(x) \quad\text{once per observation}, \qquad
          \vartheta_i = \mathrm{forward}(c, z_i) \quad\text{once per draw}.

A generator is a sampler that needs one pass. A :class:`ChainGenerator` can also be one step of a refinement.
"""

from __future__ import annotations

from abc import abstractmethod

import torch
from jaxtyping import Float
from torch import Tensor

from propersbi.samplers.base import Sampler

__all__ = ["ChainGenerator", "Generator"]


class Generator(Sampler):
    """A network from data and latent noise to parameters; subclasses say how in :meth:`embed` and :meth:`forward`."""

    latent: int

    @abstractmethod
    def embed(self, x: Float[Tensor, "n *x"]) -> Float[Tensor, "n context"]:
        """What the draws depend on of the data, once per observation."""

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


class ChainGenerator(Generator):
    """A generator that can also be a step of a refinement, conditioned on a noisy parameter and its noise level."""

    chain: bool

    @abstractmethod
    def condition(
        self, context: Float[Tensor, "n context"], noisy: Float[Tensor, "n *theta"], level: Float[Tensor, " n"]
    ) -> Float[Tensor, "n conditioned"]:
        """What the draws of a step depend on: the data, the noisy parameter (of order one) and its noise level."""
