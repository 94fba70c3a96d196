"""The generators of the paper's experiments (Pacchiardi & Dutta 2022)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor, nn

from propersbi.networks.layers import SLOPE, Modulation, check_sizes, embedded_features
from propersbi.samplers.bounds import Bounds
from propersbi.samplers.generator import Generator
from propersbi.types import InputError

__all__ = ["PaperCamera", "PaperMLP", "PaperShallowWater"]

SIDE = 28
MAPS = ((8, 15), (16, 8), (32, 5), (64, 3))  # channels and side of the encoder's feature maps, from fine to coarse
DECODER = ((32, 3), (16, 2), (8, 3), (4, 2))  # channels out and kernel, from coarse to fine


class PaperCamera(Generator):
    r"""The network of the camera experiment: a small U-Net with noise at its lowest resolution.

    Four convolutions down to 64 channels of 3 x 3; 200 latent variables are spread over the same shape, multiplied
    with it and concatenated, :math:`[h, h \odot W z]`; four transposed convolutions back up, each but the last
    concatenated with the encoder's features at its resolution. A sigmoid keeps pixels strictly between black and white.
    Batch normalisation comes after the activations; in training its statistics are pooled over all draws.

    Arguments:
        theta_shape: One channel of an image, (1, 28, 28) in the paper, or the image alone.
        x_shape: Likewise.
        latent: Latent variables.

    Examples:
        >>> sum(weight.numel() for weight in PaperCamera((28, 28), (28, 28)).parameters())
        180289
    """

    low: Tensor
    high: Tensor

    def __init__(self, theta_shape: Sequence[int], x_shape: Sequence[int], *, latent: int = 200) -> None:
        super().__init__()
        check_sizes(theta_shape=theta_shape, x_shape=x_shape, latent=[latent])
        self.theta_shape, self.x_shape, self.latent = tuple(theta_shape), tuple(x_shape), latent
        for shape in (self.theta_shape, self.x_shape):
            if shape not in ((SIDE, SIDE), (1, SIDE, SIDE)):
                raise InputError(f"The paper's camera takes images of {SIDE} x {SIDE} pixels, got {shape}.")
        widths = [1, *(channels for channels, _ in MAPS)]
        kernels = ((2, 2, 1), (2, 2, 1), (2, 2, 1), (3, 1, 0))
        self.encoder = nn.ModuleList(
            nn.Sequential(nn.Conv2d(inputs, outputs, *kernel), nn.LeakyReLU(0.2), nn.BatchNorm2d(outputs))
            for (inputs, outputs), kernel in zip(pairwise(widths), kernels, strict=True)
        )
        self.noisy = nn.ConvTranspose2d(latent, 64, 3, bias=False)
        inputs = (128, 64, 32, 16)
        self.decoder = nn.ModuleList(
            nn.Sequential(nn.ConvTranspose2d(wide, out, kernel, 2, 1), nn.ReLU(), nn.BatchNorm2d(out))
            for wide, (out, kernel) in zip(inputs, DECODER, strict=True)
        )
        self.out = nn.ConvTranspose2d(4, 1, 1)
        self.register_buffer("low", torch.zeros(()))
        self.register_buffer("high", torch.ones(()))

    def prepare(self, theta: Tensor, x: Tensor, bounds: Bounds) -> None:  # noqa: ARG002
        """Keep the bounds of the pixels; the sigmoid lies between them."""
        lower, upper = bounds.lower, bounds.upper
        if not (lower[0].isfinite() and upper[0].isfinite()):
            raise InputError("The paper's camera needs bounds of its pixels: give 'support', for example (0.0, 1.0).")
        self.low.copy_(lower[0])
        self.high.copy_(upper[0])

    def embed(self, x: Float[Tensor, "n *x"]) -> Float[Tensor, "n context"]:
        h, maps = x.reshape(len(x), 1, SIDE, SIDE), []
        for layer in self.encoder:
            h = layer(h)
            maps.append(h.flatten(1))
        return torch.cat(maps, 1)

    def forward(
        self, context: Float[Tensor, "n context"], z: Float[Tensor, "m n latent"]
    ) -> Float[Tensor, "m n *theta"]:
        m, n = z.shape[:2]
        rows = context.expand(m, *context.shape).flatten(0, 1)
        flat = torch.split(rows, [c * side**2 for c, side in MAPS], 1)
        *finer, h = (one.reshape(-1, c, side, side) for one, (c, side) in zip(flat, MAPS, strict=True))
        h = torch.cat([h, h * self.noisy(z.reshape(m * n, -1, 1, 1))], 1)
        for place, layer in enumerate(self.decoder):
            h = layer(h)
            h = torch.cat([h, finer[-1 - place]], 1) if place < len(finer) else h
        image = torch.lerp(self.low, self.high, self.out(h).sigmoid())
        return image.reshape(m, n, *self.theta_shape)


class PaperShallowWater(Generator):
    r"""The network of the shallow-water experiment: five convolutions to 36 features, noise added, one linear layer.

    As the noise enters linearly before a linear layer, :math:`\vartheta = A (f(x) + W z)`, its posterior is always
    Gaussian, with one covariance for all data.

    Arguments:
        theta_shape: The event shape of the parameters, (100,) in the paper.
        x_shape: Channels and two grid axes, (2, 100, 100) in the paper.
        width: Channels of the last inner convolutions; the first has four times as many.
        latent: Latent variables.
    """

    def __init__(
        self, theta_shape: Sequence[int], x_shape: Sequence[int], *, width: int = 128, latent: int = 25
    ) -> None:
        super().__init__()
        check_sizes(theta_shape=theta_shape, x_shape=x_shape, width=[width], latent=[latent])
        self.theta_shape, self.x_shape, self.width, self.latent = tuple(theta_shape), tuple(x_shape), width, latent
        if len(self.x_shape) != 3:
            raise InputError(f"The paper's network takes channels and two grid axes, got data of shape {self.x_shape}.")
        stack: list[nn.Module] = []
        for place, (inputs, outputs) in enumerate(pairwise([self.x_shape[0], 4 * width, 2 * width, width, width])):
            step, edge = (1, 0) if place == 0 else (2, 1)
            stack += [nn.Conv2d(inputs, outputs, 4, step, edge, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
        self.encoder = nn.Sequential(*stack, nn.Conv2d(width, 1, 4, 2, 1, bias=False), nn.Tanh(), nn.Flatten())
        features = embedded_features(self.encoder, self.x_shape)
        self.noisy = nn.Parameter(torch.randn(latent, features))
        self.out = nn.Linear(features, math.prod(self.theta_shape), bias=False)

    def embed(self, x: Float[Tensor, "n *x"]) -> Float[Tensor, "n context"]:
        return self.encoder(x)

    def forward(
        self, context: Float[Tensor, "n context"], z: Float[Tensor, "m n latent"]
    ) -> Float[Tensor, "m n *theta"]:
        return self.out(context + z @ self.noisy).unflatten(-1, self.theta_shape)


class PaperMLP(Generator):
    r"""The network of the paper's benchmarks, for reproduction.

    Five linear layers of 128 units with leaky rectifiers, noise multiplied in before the third one,
    :math:`h \odot (1 + W z)` with standard normal :math:`W`, and a rectifier on the output too, which shrinks negative
    parameters tenfold until the last weights have learnt to compensate.

    Arguments:
        theta_shape: The event shape of the parameters.
        x_shape: The event shape of the data.
        latent: Latent variables; as many as parameters unless given.
        before: Linear layers before the noise; one in the smaller network of the paper's GAN for Two Moons.
        after: Linear layers after it, likewise.

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
        check_sizes(theta_shape=theta_shape, x_shape=x_shape)
        check_sizes(100, before=[before], after=[after])
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
