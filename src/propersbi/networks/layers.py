"""Parts that several networks share."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from propersbi.types import InputError

__all__ = ["FREQUENCIES", "SLOPE", "Modulation", "check_sizes", "embedded_features", "level_features"]

SLOPE = 0.1  # of the leaky rectifiers; sharp edges between modes need a piecewise linear network
FREQUENCIES = (0.5, 1.0, 2.0)  # of the sines and cosines that encode the logarithm of a noise level


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
