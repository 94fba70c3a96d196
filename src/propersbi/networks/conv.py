r"""Generators of images from images of the same grid.

:class:`UNetGenerator` starts from a linear regression of the parameters on the data, which undoes much of a blur before
anything is learnt, and draws what the regression leaves over:

.. math:: \vartheta = \hat\theta(x) + \sigma \odot G(h(x), z).

A U-Net sees data and regression once and gives features :math:`h` at several resolutions; a small decoder, into which
noise enters at each of them, runs for every draw. As a step of a chain, a second U-Net is conditioned on the noisy
image :math:`\theta_s`, and draws start from the mean and the deviation that regression and noisy image have together,
:math:`\hat\theta + w\,(\theta_s - \hat\theta)` with :math:`w = \sigma^2 / (\sigma^2 + s^2)`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import interpolate, leaky_relu

from propersbi.networks.images import is_grid
from propersbi.networks.layers import FREQUENCIES, SLOPE, check_sizes, level_features
from propersbi.samplers.bounds import UNBOUNDED, Bounds
from propersbi.samplers.generator import ChainGenerator
from propersbi.samplers.regression import ridge
from propersbi.types import InputError

__all__ = ["UNetGenerator", "is_image_problem"]

MAX_REGRESSED = 1024  # numbers of theta and x up to which a regression on all of them is quick
SMALLEST_SCALE = 0.05  # of the residual of a pixel, in mean residual deviations


def is_image_problem(theta_shape: Sequence[int], x_shape: Sequence[int]) -> bool:
    """Whether parameters and data are images, perhaps with channels, on one grid of at least 8 x 8.

    >>> is_image_problem((28, 28), (1, 28, 28)), is_image_problem((2, 2), (2, 2)), is_image_problem((100,), (100,))
    (True, False, False)
    """
    both = tuple(theta_shape), tuple(x_shape)
    return all(map(is_grid, both)) and both[0][-2:] == both[1][-2:]


class UNetGenerator(ChainGenerator):
    """A U-Net run once per row, and a decoder with noise at every resolution run once per draw.

    Arguments:
        theta_shape: Rows and columns of the parameters, perhaps after a number of channels.
        x_shape: Likewise of the data, on the same grid.
        channels: Of the U-Net, at full resolution and at each half of it.
        head: Channels of the decoder; half of the U-Net's unless given.
        latent_maps: Noise maps at each resolution.
        blocks: Residual blocks of the U-Net at each resolution, on the way down and on the way up.
        finest: The weakest ridge of the regression, in variances of the data. Weaker ones undo more of a blur, and
            trust smaller numbers: with 1e-10, the last digits of single precision.
        regression: Whether a linear regression comes first; by default where theta and x have at most 1024 numbers.
        chain: Whether it is a step of a chain (:class:`~propersbi.samplers.refined.Refined`).

    Examples:
        >>> generator = UNetGenerator((12, 12), (12, 12), channels=(4, 8))
        >>> generator.sample(5, torch.zeros(3, 12, 12)).shape
        torch.Size([5, 3, 12, 12])
    """

    slope: Tensor
    shift: Tensor
    scale: Tensor
    lower: Tensor
    upper: Tensor

    def __init__(
        self,
        theta_shape: Sequence[int],
        x_shape: Sequence[int],
        *,
        channels: Sequence[int] = (16, 32, 64),
        head: Sequence[int] | None = None,
        latent_maps: int = 4,
        blocks: int = 1,
        finest: float = 1e-6,
        regression: bool | None = None,
        chain: bool = False,
    ) -> None:
        super().__init__()
        self.theta_shape, self.x_shape = tuple(theta_shape), tuple(x_shape)
        self.channels = tuple(channels)
        self.head = tuple(max(1, width // 2) for width in self.channels) if head is None else tuple(head)
        self.latent_maps, self.blocks, self.finest, self.chain = latent_maps, blocks, finest, chain
        if not 0 < finest <= 1:
            raise InputError(f"'finest' must lie between 0 and 1, got {finest}.")
        check_sizes(theta_shape=theta_shape, x_shape=x_shape)
        check_sizes(10**4, channels=self.channels, head=self.head, latent_maps=[latent_maps], blocks=[blocks])
        self._check_shapes()
        inputs, outputs = (math.prod(shape[:-2]) for shape in (self.x_shape, self.theta_shape))
        self.grids = _grids(self.theta_shape[-2:], len(self.channels))
        self.latent = latent_maps * sum(rows * columns for rows, columns in self.grids)
        self.trunk = _UNet(inputs + outputs, self.channels, blocks)
        if chain:
            self.step = _UNet(
                self.channels[0] + 2 * outputs, self.channels, blocks, conditions=1 + 2 * len(FREQUENCIES)
            )
        self.draw = _Decoder(self.channels, self.head, latent_maps, outputs)
        if chain:  # starts as the chain of a Gaussian posterior around the regression
            if latent_maps < outputs:
                raise InputError(
                    f"A step of a chain needs a noise map for each of {outputs} channels, got {latent_maps}."
                )
            nn.init.zeros_(self.draw.out.weight)
            nn.init.zeros_(self.draw.out.bias)  # type: ignore[arg-type]
        dim, features = math.prod(self.theta_shape), math.prod(self.x_shape)
        self.regression = max(dim, features) <= MAX_REGRESSED if regression is None else regression
        self.register_buffer("slope", torch.zeros(features if self.regression else 1, dim))
        self.register_buffer("shift", torch.zeros(dim))
        self.register_buffer("scale", torch.ones(dim))
        self.register_buffer("lower", torch.full((dim,), -UNBOUNDED))
        self.register_buffer("upper", torch.full((dim,), UNBOUNDED))

    def _check_shapes(self) -> None:
        if len(self.head) != len(self.channels):
            raise InputError(f"'head' must have {len(self.channels)} numbers, as 'channels', got {self.head}.")
        shapes = self.theta_shape, self.x_shape
        if not all(2 <= len(shape) <= 3 for shape in shapes) or shapes[0][-2:] != shapes[1][-2:]:
            raise InputError(
                f"A U-Net needs parameters and data on one grid of rows and columns, got {shapes[0]} and {shapes[1]}."
            )
        if min(self.theta_shape[-2:]) < 2 ** (len(self.channels) - 1):
            raise InputError(f"A grid of {self.theta_shape[-2:]} is too small for {len(self.channels)} resolutions.")

    def prepare(self, theta: Float[Tensor, "n *theta"], x: Float[Tensor, "n *x"], bounds: Bounds) -> None:
        """Find the regression, where there are enough pairs, and the bounds at which draws of one pass are clamped."""
        if self.regression and len(x) >= 2 * math.prod(self.x_shape):
            slope, shift, scale = ridge(theta, x, finest=self.finest)
            self.slope.copy_(slope)
            self.shift.copy_(shift)
            self.scale.copy_(scale.clamp_min(max(SMALLEST_SCALE * scale.mean().item(), 1e-3)))
        if bounds.point_masses and not self.chain:
            self.lower.copy_(bounds.lower.clamp_min(-UNBOUNDED))
            self.upper.copy_(bounds.upper.clamp_max(UNBOUNDED))

    def embed(self, x: Float[Tensor, "n *x"]) -> Float[Tensor, "n context"]:
        grid = self.theta_shape[-2:]
        guess = self.shift + (x.flatten(1) @ self.slope if self.regression else x.new_zeros(len(x), 1))
        image = torch.cat([x.reshape(len(x), -1, *grid), guess.reshape(len(x), -1, *grid)], 1)
        maps = self.trunk(image)
        if self.chain:
            return torch.cat([guess, maps[0].flatten(1)], 1)
        return torch.cat([guess, self.scale.expand_as(guess), *(one.flatten(1) for one in maps)], 1)

    def condition(
        self, context: Float[Tensor, "n context"], noisy: Float[Tensor, "n *theta"], level: Float[Tensor, " n"]
    ) -> Float[Tensor, "n conditioned"]:
        grid, dim = self.theta_shape[-2:], len(self.shift)
        guess, features = context[:, :dim], context[:, dim:].reshape(len(context), -1, *grid)
        s = level.unsqueeze(1)
        full = noisy.flatten(1) * (1 + s**2).sqrt()
        share = self.scale**2 / (self.scale**2 + s**2)
        mean, out = guess + share * (full - guess), s / (1 + s**2).sqrt()
        start, spread = (mean - full / (1 + s**2)) / out, self.scale * (1 - share).sqrt() / out
        image = [features, noisy.reshape(len(noisy), -1, *grid), mean.reshape(len(noisy), -1, *grid)]
        maps = self.step(torch.cat(image, 1), level_features(level))
        return torch.cat([start, spread, *(one.flatten(1) for one in maps)], 1)

    def forward(
        self, context: Float[Tensor, "n context"], z: Float[Tensor, "m n latent"]
    ) -> Float[Tensor, "m n *theta"]:
        dim, sizes = len(self.shift), [math.prod(grid) for grid in self.grids]
        start, spread, *flat = context.split(
            [dim, dim, *(width * size for width, size in zip(self.channels, sizes, strict=True))], 1
        )
        maps = [one.unflatten(1, (-1, *grid)) for one, grid in zip(flat, self.grids, strict=True)]
        noise = z.split([self.latent_maps * size for size in sizes], -1)
        noise = [one.unflatten(-1, (-1, *grid)) for one, grid in zip(noise, self.grids, strict=True)]
        raw = self.draw(maps, noise).flatten(2)
        if self.chain:
            raw = raw + noise[0].flatten(2)[..., :dim]
        theta = torch.addcmul(start, spread, raw)
        if not self.chain:
            theta = _Clamp.apply(theta, self.lower, self.upper)  # type: ignore[no-untyped-call]
        return theta.unflatten(-1, self.theta_shape)


class _Clamp(torch.autograd.Function):
    """Clamp to bounds; gradients pass inside them, and outside where a descent step leads back inside."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
        ctx.save_for_backward(values < lower, values > upper)
        return values.clamp(lower, upper)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        below, above = ctx.saved_tensors
        leads_out = (below & (gradient > 0)) | (above & (gradient < 0))
        return gradient.masked_fill(leads_out, 0), None, None


class _UNet(nn.Module):
    """Features of an image at every resolution, coarse ones added to finer ones on the way back up."""

    def __init__(self, inputs: int, channels: Sequence[int], blocks: int, conditions: int = 0) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, channels[0], 3, padding=1)
        self.down = nn.ModuleList(nn.Conv2d(a, b, 3, stride=2, padding=1) for a, b in pairwise(channels))
        self.up = nn.ModuleList(nn.Conv2d(b, a, 1) for a, b in pairwise(channels))
        self.going = nn.ModuleList(nn.Sequential(*(_Block(c) for _ in range(blocks))) for c in channels)
        self.coming = nn.ModuleList(nn.Sequential(*(_Block(c) for _ in range(blocks))) for c in channels)
        self.conditions = nn.ModuleList(nn.Linear(conditions, c) for c in channels) if conditions else None

    def forward(self, image: Tensor, conditions: Tensor | None = None) -> list[Tensor]:
        h, maps = self.first(_interleaved(image)), []
        for level, blocks in enumerate(self.going):
            h = h if level == 0 else self.down[level - 1](h)
            if self.conditions is not None:
                h = h + self.conditions[level](conditions)[..., None, None]
            h = blocks(h)
            maps.append(h)
        maps[-1] = self.coming[-1](h)
        for level in reversed(range(len(self.up))):
            finer = maps[level]
            h = finer + interpolate(self.up[level](maps[level + 1]), size=finer.shape[-2:])
            maps[level] = self.coming[level](h)
        return maps


class _Block(nn.Module):
    """Two convolutions added to their input; starts as the identity."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)
        nn.init.zeros_(self.second.weight)
        nn.init.zeros_(self.second.bias)  # type: ignore[arg-type]

    def forward(self, h: Tensor) -> Tensor:
        return h + self.second(leaky_relu(self.first(leaky_relu(h, SLOPE)), SLOPE))


class _Decoder(nn.Module):
    """From coarse to fine: add what the U-Net saw, let noise modulate it, convolve."""

    def __init__(self, channels: Sequence[int], head: Sequence[int], latent_maps: int, outputs: int) -> None:
        super().__init__()
        self.take = nn.ModuleList(nn.Conv2d(c, h, 1) for c, h in zip(channels, head, strict=True))
        self.noise = nn.ModuleList(nn.Conv2d(latent_maps, 2 * h, 1, bias=False) for h in head)
        self.mix = nn.ModuleList(nn.Conv2d(h, h, 3, padding=1) for h in head)
        self.up = nn.ModuleList(nn.Conv2d(b, a, 1) for a, b in pairwise(head))
        self.out = nn.Conv2d(head[0], outputs, 3, padding=1)
        for layer in self.noise:
            nn.init.normal_(layer.weight, std=(0.5 / latent_maps) ** 0.5)  # type: ignore[arg-type]

    def forward(self, maps: Sequence[Tensor], noise: Sequence[Tensor]) -> Tensor:
        """Maps ``(n, c, h, w)`` and noise ``(m, n, k, h, w)`` of every resolution to ``(m, n, outputs, h, w)``."""
        m, n = noise[0].shape[:2]
        h: Tensor | None = None
        for level in reversed(range(len(maps))):
            features = self.take[level](_interleaved(maps[level]))
            if h is not None:
                coarse = interpolate(self.up[level](h), size=features.shape[-2:])
                features = (coarse.unflatten(0, (m, n)) + features).flatten(0, 1)
            factor, shift = self.noise[level](_interleaved(noise[level].flatten(0, 1))).chunk(2, 1)
            if h is None:
                factor, shift = factor.unflatten(0, (m, n)), shift.unflatten(0, (m, n))
            h = torch.addcmul(features, features, factor) + shift
            h = h.flatten(0, 1) if h.ndim == 5 else h
            h = leaky_relu(self.mix[level](leaky_relu(h, SLOPE)), SLOPE)
        assert h is not None
        return self.out(h).unflatten(0, (m, n))


def _interleaved(image: Tensor) -> Tensor:
    """The same image with its channels side by side in memory: convolutions are quicker so on a CPU."""
    return image.contiguous(memory_format=torch.channels_last)


def _grids(grid: Sequence[int], levels: int) -> list[tuple[int, int]]:
    """The grid and its halves, rounded up.

    >>> _grids((28, 28), 4)
    [(28, 28), (14, 14), (7, 7), (4, 4)]
    """
    grids = [(int(grid[0]), int(grid[1]))]
    for _ in range(levels - 1):
        grids.append(((grids[-1][0] + 1) // 2, (grids[-1][1] + 1) // 2))
    return grids
