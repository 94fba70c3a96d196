r"""Normalising flows, for the log score: samplers that also know their density.

A flow is an invertible map from noise to parameters. Bounded parameters are first mapped to the whole line, by a logit
between two bounds and a logarithm above or below one, so that draws lie inside and the density integrates to one there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from propersbi.networks.embeddings import EmbeddingSampler
from propersbi.networks.layers import check_sizes, embedded_features
from propersbi.samplers.base import DensitySampler
from propersbi.samplers.bounds import UNBOUNDED, Bounds
from propersbi.types import InputError

__all__ = ["Flow"]

MAX_WEIGHTS = 10**9


class Flow(EmbeddingSampler, DensitySampler):
    """A neural spline flow (zuko's).

    Arguments:
        theta_shape: The event shape of the parameters.
        x_shape: The event shape of the data.
        transforms: Autoregressive transformations, one after the other.
        width: Hidden units of each of the two layers of a transformation.
        bins: Pieces of the splines.
        embedding: An own network in front, ``(n, *x_shape) -> (n, features)``; else x is flattened.

    References:
        Durkan et al., Neural Spline Flows, 2019, https://arxiv.org/abs/1906.04032

    Examples:
        >>> flow = Flow((2,), (3,), transforms=1, width=8)
        >>> flow.sample(5, torch.zeros(4, 3)).shape, flow.log_prob(torch.zeros(4, 2), torch.zeros(4, 3)).shape
        (torch.Size([5, 4, 2]), torch.Size([4]))
    """

    lower: Tensor
    upper: Tensor

    def __init__(
        self,
        theta_shape: Sequence[int],
        x_shape: Sequence[int],
        *,
        transforms: int = 5,
        width: int = 64,
        bins: int = 8,
        embedding: nn.Module | None = None,
    ) -> None:
        import zuko

        super().__init__()
        check_sizes(theta_shape=theta_shape, x_shape=x_shape, width=[width])
        check_sizes(100, transforms=[transforms], bins=[bins])
        self.theta_shape, self.x_shape = tuple(theta_shape), tuple(x_shape)
        self.transforms, self.width, self.bins, self.embedding = transforms, width, bins, embedding
        dim = math.prod(self.theta_shape)
        features = math.prod(self.x_shape) if embedding is None else embedded_features(embedding, self.x_shape)
        count = transforms * width * (dim + features + width + dim * (3 * bins - 1))
        if count > MAX_WEIGHTS:
            raise InputError(
                f"A flow with about {count:.0e} weights is too large: at most {MAX_WEIGHTS:.0e} are allowed."
            )
        with torch.device("cpu"):  # its masks are computed, also where networks are built without memory
            self.flow = zuko.flows.NSF(dim, features, bins=bins, transforms=transforms, hidden_features=(width, width))
        self.register_buffer("lower", torch.full((dim,), -UNBOUNDED))
        self.register_buffer("upper", torch.full((dim,), UNBOUNDED))

    def prepare(self, theta: Float[Tensor, "n *theta"], x: Float[Tensor, "n *x"], bounds: Bounds) -> None:  # noqa: ARG002
        """Keep the bounds between which the parameters lie; bounds that move with the data cannot be kept."""
        self.prepare_regressors(x)
        if bounds.tilt is None:
            self.lower.copy_(bounds.lower.clamp_min(-UNBOUNDED))
            self.upper.copy_(bounds.upper.clamp_max(UNBOUNDED))

    def sample(self, m: int, x: Float[Tensor, "n *x"]) -> Float[Tensor, "m n *theta"]:
        """``m`` draws for each row of ``x``."""
        free = self.flow(self._context(x)).rsample((m,))
        low, high, both, above, below = self._bounds()
        theta = torch.where(both, low + (high - low) * torch.sigmoid(free), free)
        away = torch.where(above | below, free, 0.0).exp()
        theta = torch.where(above, low + away, torch.where(below, high - away, theta))
        return theta.unflatten(-1, self.theta_shape)

    def log_prob(self, theta: Float[Tensor, "*m n _"], x: Float[Tensor, "n *x"]) -> Float[Tensor, "*m n"]:
        """The logarithm of the density, minus infinity outside the bounds."""
        flat = theta.flatten(theta.ndim - len(self.theta_shape))
        low, high, both, above, below = self._bounds()
        inside = ((flat > self.lower) & (flat < self.upper)).all(-1)
        # Numbers on a bound would be infinitely far out: they stay a hair inside.
        share = torch.where(both, (flat - low) / (high - low), 0.5).clamp(1e-6, 1 - 1e-6)
        gap = torch.where(above, flat - low, torch.where(below, high - flat, 1.0)).clamp_min(1e-12)
        logit = share.log() - (-share).log1p()
        free = torch.where(both, logit, torch.where(above | below, gap.log(), flat))
        stretch = -(high - low).log() - logsigmoid(logit) - logsigmoid(-logit)
        stretch = torch.where(both, stretch, -gap.log()).sum(-1)  # the gap is 1 where there is no bound
        density = self.flow(self._context(x)).log_prob(free) + stretch
        return torch.where(inside, density, -torch.inf)

    def _bounds(self) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Bounds, with stand-ins where there are none, and which parameters have both, a lower or an upper one only."""
        left, right = self.lower > -UNBOUNDED, self.upper < UNBOUNDED
        low, high = torch.where(left, self.lower, 0.0), torch.where(right, self.upper, 1.0)
        return (
            low,
            torch.where(left & right, high, torch.where(right, high, low + 1)),
            left & right,
            left & ~right,
            right & ~left,
        )

    def _context(self, x: Tensor) -> Tensor:
        return (x if self.embedding is None else self.embedding(x)).flatten(1)
