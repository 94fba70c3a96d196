"""Parts that several networks share."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from propersbi.types import InputError

__all__ = ["FREQUENCIES", "SLOPE", "Intervals", "Modulation", "check_sizes", "embedded_features", "level_features"]

SLOPE = 0.1  # of the leaky rectifiers; sharp edges between modes need a piecewise linear network
FREQUENCIES = (0.5, 1.0, 2.0)  # of the sines and cosines that encode the logarithm of a noise level
NARROWEST = 1e-6  # interval between quantiles; those of numbers that occur again and again may be equal


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


class Intervals(nn.Module):
    r"""Numbers, and how far each has come through each of several intervals of equal probability.

    With the quantiles :math:`q_0, \dots, q_K` of a number, its features besides :math:`x` itself are

    .. math:: \min\Big(\max\Big(\frac{x - q_{k-1}}{q_k - q_{k-1}}, 0\Big), 1\Big) - \frac{2 (K - k) + 1}{2 K}.

    A linear layer of them is any function that is linear within the intervals, so that a network need not learn where
    the numbers are dense before it can tell apart those that are close together.

    Arguments:
        numbers: How many numbers there are.
        intervals: How many intervals for each.

    Examples:
        >>> layer = Intervals(1, 2)
        >>> layer.prepare(torch.tensor([[0.0], [1.0], [10.0]]))
        >>> layer(torch.tensor([[5.5]]))
        tensor([[5.5000, 0.2500, 0.2500]])
    """

    ends: Tensor

    def __init__(self, numbers: int, intervals: int) -> None:
        super().__init__()
        self.features = numbers * (1 + intervals)
        self.register_buffer("ends", torch.zeros(numbers, intervals + 1))

    def prepare(self, x: Float[Tensor, "n numbers"]) -> None:
        """Find the quantiles."""
        shares = torch.linspace(0, 1, self.ends.shape[1], dtype=torch.float64)
        self.ends.copy_(torch.from_numpy(np.quantile(x.double().cpu().numpy(), shares.numpy(), axis=0)).T)

    def forward(self, x: Float[Tensor, "n numbers"]) -> Float[Tensor, "n features"]:
        start, width = self.ends[:, :-1], self.ends.diff(dim=1).clamp_min(NARROWEST)
        inside = ((x.unsqueeze(2) - start) / width).clamp(0, 1)
        count = inside.shape[2]
        average = 1 - (torch.arange(count, device=x.device) + 0.5) / count
        return torch.cat([x, (inside - average).flatten(1)], 1)


def level_features(level: Float[Tensor, " n"]) -> Float[Tensor, "n features"]:
    """A noise level as the input of a network: its logarithm, and sines and cosines of it."""
    log_level = level.unsqueeze(1).log()
    waves = log_level * torch.tensor(FREQUENCIES, device=level.device)
    return torch.cat([log_level, waves.sin(), waves.cos()], 1)


def embedded_features(embedding: nn.Module, x_shape: tuple[int, ...]) -> int:
    """The number of features an embedding gives, found on one row of zeros."""
    tensors = itertools.chain(embedding.parameters(), embedding.buffers())
    device = next((tensor.device for tensor in tensors), torch.device("cpu"))
    was_training = embedding.training
    embedding.eval()  # batch normalisation refuses a single row in training
    try:
        with torch.no_grad():
            features = embedding(torch.zeros(1, *x_shape, device=device))
    except Exception as error:
        raise InputError(f"The embedding does not take data of shape {x_shape}: {error}") from error
    finally:
        embedding.train(was_training)
    if features.ndim < 2 or len(features) != 1:
        raise InputError(f"The embedding must give (n, features), got {tuple(features.shape)} for n = 1.")
    return features[0].numel()


def check_sizes(most: int = 10**7, **sizes: Sequence[int]) -> None:
    """Refuse sizes that are not positive whole numbers up to a limit."""
    for name, values in sizes.items():
        if not all(isinstance(value, int) and 0 < value <= most for value in values):
            raise InputError(f"'{name}' must hold positive whole numbers up to {most}, got {tuple(values)}.")
