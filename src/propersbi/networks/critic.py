"""Critics: networks that distinguish the parameters that made the data from a generator's draws."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm

from propersbi.networks.layers import check_sizes, embedded_features

__all__ = ["MLPCritic", "critic_output", "perceptron"]


class MLPCritic(nn.Module):
    """A perceptron of the parameters and features of the data.

    Arguments:
        theta_shape: The event shape of the parameters.
        x_shape: The event shape of the data.
        width: Hidden units.
        depth: Hidden layers.
        spectral: Whether every layer has a slope of at most one.
        embedding: An own network in front, ``(n, *x_shape) -> (n, features)``; else x is flattened.

    Examples:
        >>> MLPCritic((2,), (3,))(torch.zeros(5, 4, 2), torch.zeros(4, 3)).shape
        torch.Size([5, 4])
    """

    def __init__(
        self,
        theta_shape: Sequence[int],
        x_shape: Sequence[int],
        *,
        width: int = 256,
        depth: int = 3,
        spectral: bool = False,
        embedding: nn.Module | None = None,
    ) -> None:
        super().__init__()
        check_sizes(theta_shape=theta_shape, x_shape=x_shape, width=[width])
        check_sizes(100, depth=[depth])
        self.theta_shape, self.x_shape = tuple(theta_shape), tuple(x_shape)
        self.width, self.depth, self.spectral, self.embedding = width, depth, spectral, embedding
        features = math.prod(x_shape) if embedding is None else embedded_features(embedding, self.x_shape)
        self.layers = perceptron([math.prod(theta_shape) + features, *[width] * depth, 1], 0.1, spectral)

    def forward(self, theta: Float[Tensor, "*m n _"], x: Float[Tensor, "n *x"]) -> Float[Tensor, "*m n"]:
        """One number for each parameter ``(n, *theta)`` or draw ``(m, n, *theta)``, however high."""
        features = (x if self.embedding is None else self.embedding(x)).flatten(1)
        return critic_output(self.layers, theta, features, len(self.theta_shape))


def perceptron(sizes: Sequence[int], slope: float, spectral: bool) -> nn.Sequential:
    """Linear layers of these sizes with leaky rectifiers between them, perhaps with spectral norms."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        layer = nn.Linear(inputs, outputs)
        layers += [spectral_norm(layer) if spectral else layer, nn.LeakyReLU(slope)]
    return nn.Sequential(*layers[:-1])


def critic_output(layers: nn.Module, theta: Tensor, features: Tensor, event: int) -> Tensor:
    """Parameters ``(*m, n, *theta)`` beside the features ``(n, features)`` of their data, through the layers."""
    flat = theta.flatten(theta.ndim - event)
    return layers(torch.cat([flat, features.expand(*flat.shape[:-1], -1)], -1)).squeeze(-1)
