"""The critics of the paper's adversarial baselines (GATSBI)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm

from propersbi.networks.critic import critic_output, perceptron
from propersbi.networks.layers import check_sizes, embedded_features

__all__ = ["PaperCritic", "PaperFieldCritic", "PaperImageCritic"]


class PaperCritic(nn.Module):
    """The critic of the paper's benchmarks: five layers of 2048 units, spectral norms throughout.

    Arguments:
        theta_shape: The event shape of the parameters.
        x_shape: The event shape of the data.
        width: Hidden units.
        depth: Hidden layers; 3 in the smaller critic of the paper for Two Moons.

    Examples:
        >>> sum(weight.numel() for weight in PaperCritic((2,), (2,)).parameters())
        16797697
    """

    def __init__(
        self, theta_shape: Sequence[int], x_shape: Sequence[int], *, width: int = 2048, depth: int = 5
    ) -> None:
        super().__init__()
        check_sizes(theta_shape=theta_shape, x_shape=x_shape, width=[width])
        check_sizes(100, depth=[depth])
        self.theta_shape, self.x_shape, self.width, self.depth = tuple(theta_shape), tuple(x_shape), width, depth
        sizes = [math.prod(theta_shape) + math.prod(x_shape), *[width] * depth, 1]
        self.layers = perceptron(sizes, 0.1, spectral=True)

    def forward(self, theta: Tensor, x: Tensor) -> Tensor:
        return critic_output(self.layers, theta, x.flatten(1), len(self.theta_shape))


class PaperFieldCritic(nn.Module):
    """The critic of the shallow-water experiment: a convolutional encoder of the data and a perceptron.

    Arguments:
        theta_shape: The event shape of the parameters, (100,) in the paper.
        x_shape: Channels and two grid axes, (2, 100, 100) in the paper.
        width: Channels of the last inner convolutions; the first has four times as many.
    """

    def __init__(self, theta_shape: Sequence[int], x_shape: Sequence[int], *, width: int = 64) -> None:
        super().__init__()
        check_sizes(theta_shape=theta_shape, x_shape=x_shape, width=[width])
        self.theta_shape, self.x_shape, self.width = tuple(theta_shape), tuple(x_shape), width
        channels = [self.x_shape[0], 4 * width, 2 * width, width, width]
        stack: list[nn.Module] = []
        for place, (inputs, outputs) in enumerate(pairwise(channels)):
            step, edge = (1, 0) if place == 0 else (2, 1)
            convolution = spectral_norm(nn.Conv2d(inputs, outputs, 4, step, edge, bias=False))
            stack += [convolution, nn.BatchNorm2d(outputs), nn.ReLU()]
        stack += [spectral_norm(nn.Conv2d(width, 1, 4, 2, 1, bias=False)), nn.Tanh(), nn.Flatten()]
        self.encoder = nn.Sequential(*stack)
        features = math.prod(theta_shape)
        self.encoder.append(spectral_norm(nn.Linear(embedded_features(self.encoder, self.x_shape), features)))
        self.layers = perceptron([2 * features, 256, 256, 256, 1], 0.2, spectral=True)

    def forward(self, theta: Tensor, x: Tensor) -> Tensor:
        return critic_output(self.layers, theta, self.encoder(x), len(self.theta_shape))


class PaperImageCritic(nn.Module):
    """The critic of the camera experiment: image and observation as two channels, through four small convolutions.

    Arguments:
        theta_shape: One channel of an image, (1, 28, 28) in the paper, or the image alone.
        x_shape: Likewise.

    Examples:
        >>> sum(weight.numel() for weight in PaperImageCritic((28, 28), (28, 28)).parameters())
        437
    """

    def __init__(self, theta_shape: Sequence[int], x_shape: Sequence[int]) -> None:
        super().__init__()
        check_sizes(theta_shape=theta_shape, x_shape=x_shape)
        self.theta_shape, self.x_shape = tuple(theta_shape), tuple(x_shape)
        stack: list[nn.Module] = []
        for inputs, outputs in pairwise([2, 4, 8, 4]):
            convolution = spectral_norm(nn.Conv2d(inputs, outputs, 2, 2, 1))
            stack += [convolution, nn.LeakyReLU(0.2), nn.BatchNorm2d(outputs)]
        self.layers = nn.Sequential(*stack, spectral_norm(nn.Conv2d(4, 1, 5)), nn.Flatten(0))

    def forward(self, theta: Tensor, x: Tensor) -> Tensor:
        image = theta.reshape(-1, 1, *self.theta_shape[-2:])
        data = x.reshape(len(x), 1, *self.x_shape[-2:]).repeat(len(image) // len(x), 1, 1, 1)
        output: Tensor = self.layers(torch.cat([image, data], 1))
        return output.reshape(theta.shape[: theta.ndim - len(self.theta_shape)])
