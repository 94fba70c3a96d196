r"""A generator of fields along one axis, from data along the same axis: profiles, coasts, lines of sight.

What the data show at a place tells most about the field there. So one part of the network is the same at every place
and writes a mean and the size of local noise; the other sees everything and draws what places have in common:

.. math:: \vartheta(s) = \mu(s; x) + \sum_k I_k\big(\sigma_k(x) \odot \varepsilon_k\big)(s) + G(z, x)(s),

where :math:`\varepsilon_k` is white noise on grids from coarse to fine and :math:`I_k` interpolates between their
points. The local part sees as many examples in every datum as there are places, and so it is hard to overfit.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import adaptive_avg_pool1d, softplus

from propersbi.networks.images import GridEmbedding
from propersbi.networks.mlp import MLPGenerator
from propersbi.samplers.generator import Generator
from propersbi.types import InputError

__all__ = ["FieldGenerator"]

SCALES = (1, 2, 4)  # coarse columns of the embedding between two points of the grids of noise


class FieldGenerator(Generator):
    """Draws fields in one pass.

    Arguments:
        theta_shape: ``(points,)``.
        x_shape: ``(rows, columns)`` or ``(channels, rows, columns)``; the columns lie along the field.
        shared: Latent variables that all places share.
        width: Hidden units.
        spectrum: Whether the data are a spectrum; see :class:`~propersbi.networks.GridEmbedding`.
        lost: Rows of the spectrum that are not in the data.

    Examples:
        >>> FieldGenerator((100,), (20, 50), width=32).sample(5, torch.zeros(4, 20, 50)).shape
        torch.Size([5, 4, 100])
    """

    between: Tensor
    noises: Tensor

    def __init__(
        self,
        theta_shape: Sequence[int],
        x_shape: Sequence[int],
        *,
        shared: int = 32,
        width: int = 256,
        spectrum: bool = False,
        lost: int = 0,
    ) -> None:
        super().__init__()
        if len(theta_shape) != 1 or theta_shape[0] < 8:
            raise InputError(f"A field has one axis of at least 8 points, got the shape {tuple(theta_shape)}.")
        self.theta_shape, self.x_shape = tuple(theta_shape), tuple(x_shape)
        self.shared, self.width, self.spectrum, self.lost = shared, width, spectrum, lost
        (points,) = self.theta_shape
        self.embedding = GridEmbedding(x_shape, features=width, spectrum=spectrum, lost=lost)
        places = self.embedding.place.shape[1]
        self.sizes = [max(2, -(-places // scale)) for scale in SCALES]
        self.whole = MLPGenerator(theta_shape, (width,), width=width, depth=0, latent=shared)
        self.latent = shared + sum(self.sizes)
        self.local = nn.Conv1d(self.embedding.width, 2 + len(SCALES), 1)
        nn.init.constant_(self.local.bias[2:], -2.0)  # type: ignore[index]  # little noise at the start
        self.register_buffer("between", interpolation(2 * places, points))
        self.register_buffer("noises", torch.cat([interpolation(size, points) for size in self.sizes]))

    def embed(self, x: Float[Tensor, "n *x"]) -> Float[Tensor, "n context"]:
        along = self.embedding.along(x)
        local = self.local(along)  # two means and some sizes of noise for each column
        mean = local[:, :2].transpose(1, 2).flatten(1) @ self.between
        sizes = [softplus(adaptive_avg_pool1d(local[:, 2 + k], size)) for k, size in enumerate(self.sizes)]
        return torch.cat([mean, *sizes, self.whole.embed(self.embedding.joined(along))], 1)

    def forward(
        self, context: Float[Tensor, "n context"], z: Float[Tensor, "m n latent"]
    ) -> Float[Tensor, "m n *theta"]:
        points, noise = self.theta_shape[0], sum(self.sizes)
        mean, size, whole = context.split([points, noise, context.shape[1] - points - noise], 1)
        return mean + (size * z[..., :noise]) @ self.noises + self.whole(whole, z[..., noise:])


def interpolation(nodes: int, points: int) -> Float[Tensor, "nodes points"]:
    """The matrix from values at evenly spread nodes to all points, linear in between.

    >>> interpolation(2, 5)
    tensor([[1.0000, 0.7500, 0.5000, 0.2500, 0.0000],
            [0.0000, 0.2500, 0.5000, 0.7500, 1.0000]])
    """
    apart = torch.linspace(0, nodes - 1, points) - torch.arange(nodes).unsqueeze(1)
    return (1 - apart.abs()).clamp_min(0)
