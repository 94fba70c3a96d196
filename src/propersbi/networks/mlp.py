r"""The generator for parameters and data that are vectors (anything else is flattened).

:class:`MLPGenerator` has a residual trunk that sees the data once, then a small head that the noise modulates and that
alone runs for every draw.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from propersbi.networks.embeddings import Embedding, EmbeddingSampler
from propersbi.networks.layers import (
    FREQUENCIES,
    SLOPE,
    Intervals,
    Modulation,
    check_sizes,
    embedded_features,
    level_features,
)
from propersbi.samplers.bounds import UNBOUNDED, Bounds
from propersbi.samplers.generator import ChainGenerator
from propersbi.types import InputError

__all__ = ["GatedBlock", "MLPGenerator"]

NEAR_BOUND = 2.0  # noise levels from a bound within which a noisy parameter is seen to be near it


class MLPGenerator(EmbeddingSampler, ChainGenerator):
    """A residual trunk run once per row, and a head modulated by noise run once per draw.

    As a step of a chain the trunk has a second part that is also conditioned on the noisy parameter, its noise level
    and the distances to the bounds of the prior, in units of that level. Steps have less to do than a single pass, so
    their head is smaller.

    Arguments:
        theta_shape: The event shape of the parameters.
        x_shape: The event shape of the data.
        width: Hidden units of the trunk.
        depth: Residual blocks that see the data alone.
        step_depth: Residual blocks that also see a noisy parameter, in a chain.
        head: Hidden layers of the head: 1 in a chain, else 2.
        head_width: Hidden units of the head: half the trunk's in a chain, else as many.
        latent: Latent variables: 8, or more for more than 8 parameters, in a chain, where each parameter also has one
            added to it; as many as parameters in one pass, where more of them blur thin posteriors.
        places: Where noise enters: 0 is the trunk's output, k the output of the head's k-th hidden layer.
        chain: Whether it is a step of a chain (:class:`~propersbi.samplers.refined.Refined`).
        embedding: A network in front of the trunk, ``(n, *x_shape) -> (n, features)``; else x is flattened.
        intervals: Between quantiles of each number of x, for which the trunk also sees how far the number has come
            through each (:class:`~propersbi.networks.layers.Intervals`); 0 for none. Not with an ``embedding``.

    Examples:
        >>> generator = MLPGenerator((2,), (3,))
        >>> generator.sample(5, torch.zeros(4, 3)).shape
        torch.Size([5, 4, 2])
    """

    lower: Tensor
    upper: Tensor
    tilt: Tensor

    def __init__(
        self,
        theta_shape: Sequence[int],
        x_shape: Sequence[int],
        *,
        width: int = 256,
        depth: int = 2,
        step_depth: int = 2,
        head: int | None = None,
        head_width: int | None = None,
        latent: int | None = None,
        places: Sequence[int] = (0,),
        chain: bool = False,
        embedding: nn.Module | None = None,
        intervals: int = 0,
    ) -> None:
        super().__init__()
        self.theta_shape, self.x_shape = tuple(theta_shape), tuple(x_shape)
        dim = math.prod(self.theta_shape)
        self.width, self.depth, self.step_depth = width, depth, step_depth
        self.head = (1 if chain else 2) if head is None else head
        self.head_width = (-(-width // 2) if chain else width) if head_width is None else head_width
        self.latent = (max(8, dim) if chain else dim) if latent is None else latent
        self.places, self.chain, self.embedding, self.intervals = tuple(places), chain, embedding, intervals
        self._check()
        features = math.prod(self.x_shape) if embedding is None else embedded_features(embedding, self.x_shape)
        self.encoding = Intervals(features, intervals) if intervals else None
        features = features if self.encoding is None else self.encoding.features
        self.trunk = nn.Sequential(nn.Linear(features, width), *(GatedBlock(width) for _ in range(depth)))
        if chain:
            self.conditions = nn.Linear(3 * dim + 1 + 2 * len(FREQUENCIES), width)
            self.register_buffer("lower", torch.full((dim,), -UNBOUNDED))
            self.register_buffer("upper", torch.full((dim,), UNBOUNDED))
            self.register_buffer("tilt", torch.zeros(self.regressors, dim))
            self.step = nn.Sequential(*(GatedBlock(width) for _ in range(step_depth)))
        self.last = nn.Sequential(nn.LayerNorm(width), nn.LeakyReLU(SLOPE), nn.Linear(width, self.head_width))
        self.modulations = nn.ModuleDict({str(k): Modulation(self.head_width, self.latent) for k in self.places})
        self.hidden = nn.ModuleList(nn.Linear(self.head_width, self.head_width) for _ in range(self.head))
        self.out = nn.Linear(self.head_width, dim)
        if chain:  # starts as a chain that draws from the standard normal distribution
            nn.init.zeros_(self.out.weight)
            nn.init.zeros_(self.out.bias)

    def _check(self) -> None:
        check_sizes(theta_shape=self.theta_shape, x_shape=self.x_shape, width=[self.width])
        check_sizes(head_width=[self.head_width], latent=[self.latent])
        if self.chain and self.latent < math.prod(self.theta_shape):
            raise InputError(
                f"A step of a chain needs at least as many latent variables as parameters, got {self.latent}."
            )
        check_sizes(100, depth=[self.depth + 1], step_depth=[self.step_depth], head=[self.head])
        if self.intervals and (
            self.embedding is not None or not (isinstance(self.intervals, int) and self.intervals > 0)
        ):
            raise InputError("'intervals' must be a whole number, not negative, and 0 with an embedding.")
        if not self.places or not set(self.places) <= set(range(self.head + 1)):
            raise InputError(f"Noise must enter at places between 0 and {self.head}, got {self.places}.")

    def prepare(self, theta: Float[Tensor, "n *theta"], x: Float[Tensor, "n *x"], bounds: Bounds) -> None:  # noqa: ARG002
        """Condition a step on the bounds of the prior, so that it learns where its draws should end.

        Some will still leave them, and :class:`~propersbi.samplers.bounds.Box` brings them back.
        """
        self.prepare_regressors(x)
        if self.encoding is not None:
            self.encoding.prepare(x.flatten(1))
        if self.chain:
            self.lower.copy_(bounds.lower.clamp(-UNBOUNDED, UNBOUNDED))
            self.upper.copy_(bounds.upper.clamp(-UNBOUNDED, UNBOUNDED))
            if bounds.tilt is not None:
                self.tilt.copy_(bounds.tilt)

    def embed(self, x: Float[Tensor, "n *x"]) -> Float[Tensor, "n context"]:
        embedded = (x if self.embedding is None else self.embedding(x)).flatten(1)
        features = self.trunk(embedded if self.encoding is None else self.encoding(embedded))
        if not self.chain:
            return self.last(features)
        statistics = embedded[:, : self.regressors] if isinstance(self.embedding, Embedding) else x.flatten(1)
        return torch.cat([features, statistics @ self.tilt], 1)

    def condition(
        self, context: Float[Tensor, "n context"], noisy: Float[Tensor, "n *theta"], level: Float[Tensor, " n"]
    ) -> Float[Tensor, "n conditioned"]:
        features, moved = context.split([self.width, context.shape[1] - self.width], 1)
        s, noisy = level.unsqueeze(1), noisy.flatten(1)
        place = noisy * (1 + s**2).sqrt() - moved
        distances = torch.cat([place - self.lower, self.upper - place], 1).div_(NEAR_BOUND * s).tanh_()
        conditions = self.conditions(torch.cat([noisy, level_features(level), distances], 1))
        return self.last(self.step(features + conditions))

    def forward(
        self, context: Float[Tensor, "n context"], z: Float[Tensor, "m n latent"]
    ) -> Float[Tensor, "m n *theta"]:
        h = context
        for place in range(self.head + 1):
            if place:
                h = self.hidden[place - 1](h)
            if str(place) in self.modulations:
                h = self.modulations[str(place)](h, z)
            # A layer's output is a view, which autograd copies when it is changed in place.
            h = nn.functional.leaky_relu(h, SLOPE, inplace=str(place) in self.modulations)
        theta = self.out(h)
        if self.chain:
            theta = theta + z[..., : theta.shape[-1]]
        return theta.expand(*z.shape[:2], -1).unflatten(-1, self.theta_shape)


class GatedBlock(nn.Module):
    """Normalise, multiply one layer with another, rectified one, add.

    Products let few units compare data with each other and with a noisy parameter, where sums need many. The last layer
    starts at zero, so the block starts as the identity.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.wide = nn.Linear(width, 2 * width)
        self.last = nn.Linear(width, width)
        nn.init.zeros_(self.last.weight)
        nn.init.zeros_(self.last.bias)

    def forward(self, h: Tensor) -> Tensor:
        value, gate = self.wide(self.norm(h)).chunk(2, -1)
        return h + self.last(value * nn.functional.leaky_relu(gate, SLOPE))
