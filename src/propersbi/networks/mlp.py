r"""Generators for parameters and data that are vectors (anything else is flattened).

:class:`MLPGenerator` is the library's own: a residual trunk that sees the data once, then a small head that the noise
modulates and that alone runs for every draw. :class:`PaperMLP` is the network of Pacchiardi & Dutta (2022).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor, nn

from propersbi.samplers.generator import ChainGenerator, Generator, Modulation
from propersbi.types import InputError

__all__ = ["MLPGenerator", "PaperMLP"]

SLOPE = 0.1  # of the leaky rectifiers; sharp edges between modes need a piecewise linear network
WAVES = (0.5, 1.0, 2.0)  # frequencies at which the logarithm of a noise level is shown to the trunk
NEAR = 2.0  # noise levels from a wall within which a noisy parameter is seen to be near it
FREE = 1e30  # stands for infinity, of which no average can be taken
FEATURES = 1000  # numbers in x up to which a linear regression on them comes first, and walls move with them


class MLPGenerator(ChainGenerator):
    """A residual trunk run once per row, and a head modulated by noise run once per draw.

    As a step of a chain the trunk has a second part that also sees the noisy parameter, its level and, in units of that
    level, how far the walls of the prior are. Steps have less to do than a single pass, so their head is smaller.

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
        dropout: Share of the trunk's hidden units that are silenced at random in training.
        chain: Whether it is a step of a chain (:class:`~propersbi.samplers.refined.ReverseMarkov`).
        embedding: An own network in front of the trunk, ``(n, *x_shape) -> (n, features)``; else x is flattened.

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
        dropout: float = 0.0,
        chain: bool = False,
        embedding: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.theta_shape, self.x_shape = tuple(theta_shape), tuple(x_shape)
        dim = math.prod(self.theta_shape)
        self.width, self.depth, self.step_depth = width, depth, step_depth
        self.head = (1 if chain else 2) if head is None else head
        self.head_width = (-(-width // 2) if chain else width) if head_width is None else head_width
        self.latent = (max(8, dim) if chain else dim) if latent is None else latent
        self.places, self.dropout, self.chain, self.embedding = tuple(places), dropout, chain, embedding
        _check_sizes(theta_shape=theta_shape, x_shape=x_shape, width=[width])
        _check_sizes(head_width=[self.head_width], latent=[self.latent])
        if chain and self.latent < dim:
            raise InputError(
                f"A step of a chain needs at least as many latent variables as parameters, got {self.latent}."
            )
        _check_sizes(100, depth=[depth + 1], step_depth=[step_depth], head=[self.head])
        if not places or not set(places) <= set(range(self.head + 1)):
            raise InputError(f"Noise must enter at places between 0 and {self.head}, got {self.places}.")
        features = math.prod(self.x_shape) if embedding is None else _features(embedding, self.x_shape)
        self.trunk = nn.Sequential(nn.Linear(features, width), *(_Gated(width, dropout) for _ in range(depth)))
        if chain:
            self.told = nn.Linear(3 * dim + 1 + 2 * len(WAVES), width)
            self.register_buffer("lower", torch.full((dim,), -FREE))
            self.register_buffer("upper", torch.full((dim,), FREE))
            numbers = math.prod(self.x_shape)
            self.register_buffer("tilt", torch.zeros(numbers if numbers <= FEATURES else 0, dim))
            self.step = nn.Sequential(*(_Gated(width, dropout) for _ in range(step_depth)))
        self.last = nn.Sequential(nn.LayerNorm(width), nn.LeakyReLU(SLOPE), nn.Linear(width, self.head_width))
        self.modulations = nn.ModuleDict({str(k): Modulation(self.head_width, self.latent) for k in self.places})
        self.hidden = nn.ModuleList(nn.Linear(self.head_width, self.head_width) for _ in range(self.head))
        self.out = nn.Linear(self.head_width, dim)
        if chain:  # starts as a chain that draws from the standard normal distribution
            nn.init.zeros_(self.out.weight)
            nn.init.zeros_(self.out.bias)

    def bound(self, lower: Float[Tensor, " dim"], upper: Float[Tensor, " dim"], tilt: Tensor | None = None) -> None:
        """Show a step the walls of the prior, so that it learns where its draws should end.

        Some will still leave them, and :class:`~propersbi.samplers.bounds.Box` brings them back.
        """
        if self.chain:
            self.lower.copy_(lower.clamp(-FREE, FREE))
            self.upper.copy_(upper.clamp(-FREE, FREE))
            if tilt is not None:
                self.tilt.copy_(tilt)

    def embed(self, x: Float[Tensor, "n *x"]) -> Float[Tensor, "n context"]:
        features = self.trunk((x if self.embedding is None else self.embedding(x)).flatten(1))
        if not self.chain:
            return self.last(features)
        return torch.cat([features, x.flatten(1)[:, : len(self.tilt)] @ self.tilt], 1)

    def condition(
        self, context: Float[Tensor, "n context"], noisy: Float[Tensor, "n *theta"], level: Float[Tensor, " n"]
    ) -> Float[Tensor, "n conditioned"]:
        features, moved = context.split([self.width, context.shape[1] - self.width], 1)
        s, noisy = level.unsqueeze(1), noisy.flatten(1)
        waves = s.log() * torch.tensor(WAVES, device=level.device)
        place = noisy * (1 + s**2).sqrt() - moved
        walls = torch.cat([place - self.lower, self.upper - place], 1).div_(NEAR * s).tanh_()
        told = self.told(torch.cat([noisy, s.log(), waves.sin(), waves.cos(), walls], 1))
        return self.last(self.step(features + told))

    def forward(
        self, context: Float[Tensor, "n context"], z: Float[Tensor, "m n latent"]
    ) -> Float[Tensor, "m n *theta"]:
        h = context
        for place in range(self.head + 1):
            if place:
                h = self.hidden[place - 1](h)
            if str(place) in self.modulations:
                h = self.modulations[str(place)](h, z)
            h = nn.functional.leaky_relu(h, SLOPE, inplace=place > 0 or str(place) in self.modulations)
        theta = self.out(h)
        if self.chain:
            theta = theta + z[..., : theta.shape[-1]]
        return theta.expand(*z.shape[:2], -1).unflatten(-1, self.theta_shape)


class PaperMLP(Generator):
    r"""The network of the paper's benchmarks, for reproduction.

    Five linear layers of 128 units with leaky rectifiers, noise multiplied in before the third one,
    :math:`h \odot (1 + W z)` with standard normal :math:`W`, and a rectifier on the output too, which shrinks negative
    parameters tenfold before the last weights have learnt to undo it.

    Arguments:
        theta_shape: The event shape of the parameters.
        x_shape: The event shape of the data.
        latent: Latent variables; as many as parameters unless given.
        before: Linear layers before the noise, and
        after: after it; one each in the smaller network of its GAN for Two Moons.

    Examples:
        >>> sum(weight.numel() for weight in PaperMLP((2,), (2,)).parameters())
        50434
    """

    def __init__(
        self,
        theta_shape: Sequence[int],
        x_shape: Sequence[int],
        *,
        latent: int | None = None,
        before: int = 3,
        after: int = 2,
    ) -> None:
        super().__init__()
        _check_sizes(theta_shape=theta_shape, x_shape=x_shape)
        _check_sizes(100, before=[before], after=[after])
        self.theta_shape, self.x_shape = tuple(theta_shape), tuple(x_shape)
        dim = math.prod(self.theta_shape)
        self.latent = dim if latent is None else latent
        self.before, self.after = before, after
        self.trunk = nn.Sequential(*_alternating([math.prod(self.x_shape), *[128] * before], ends_linear=True))
        self.modulation = Modulation(128, self.latent, shift=False)
        nn.init.normal_(self.modulation.scale)
        self.head = nn.Sequential(nn.LeakyReLU(SLOPE), *_alternating([*[128] * after, dim], ends_linear=False))

    def embed(self, x: Float[Tensor, "n *x"]) -> Float[Tensor, "n context"]:
        return self.trunk(x.flatten(1))

    def forward(
        self, context: Float[Tensor, "n context"], z: Float[Tensor, "m n latent"]
    ) -> Float[Tensor, "m n *theta"]:
        return self.head(self.modulation(context, z)).unflatten(-1, self.theta_shape)


def _alternating(sizes: Sequence[int], *, ends_linear: bool) -> list[nn.Module]:
    """Linear layers, a leaky rectifier after each, or after each but the last."""
    layers: list[nn.Module] = []
    for pair in pairwise(sizes):
        layers += [nn.Linear(*pair), nn.LeakyReLU(SLOPE)]
    return layers[:-1] if ends_linear else layers


class _Gated(nn.Module):
    """Normalise, multiply one layer with another, rectified one, add.

    Products let few units compare data with each other and with a noisy parameter, where sums need many. The last layer
    starts at zero, so the block starts as the identity.
    """

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.wide = nn.Linear(width, 2 * width)
        self.dropout = nn.Dropout(dropout)
        self.last = nn.Linear(width, width)
        nn.init.zeros_(self.last.weight)
        nn.init.zeros_(self.last.bias)

    def forward(self, h: Tensor) -> Tensor:
        value, gate = self.wide(self.norm(h)).chunk(2, -1)
        return h + self.last(self.dropout(value * nn.functional.leaky_relu(gate, SLOPE)))


def _features(embedding: nn.Module, x_shape: tuple[int, ...]) -> int:
    """How many features an own embedding gives, by looking at one row of zeros."""
    device = next((weight.device for weight in embedding.parameters()), torch.device("cpu"))
    training = embedding.training
    embedding.eval()  # batch normalisation refuses a single row in training
    try:
        with torch.no_grad():
            features = embedding(torch.zeros(1, *x_shape, device=device))
    except Exception as error:
        raise InputError(f"The embedding does not take data of shape {x_shape}: {error}") from error
    finally:
        embedding.train(training)
    if features.ndim < 2 or len(features) != 1:
        raise InputError(f"The embedding must give (n, features), got {tuple(features.shape)} for n = 1.")
    return features[0].numel()


def _check_sizes(most: int = 10**7, **sizes: Sequence[int]) -> None:
    for name, values in sizes.items():
        if not all(isinstance(value, int) and 0 < value <= most for value in values):
            raise InputError(f"'{name}' must hold positive whole numbers up to {most}, got {tuple(values)}.")
