"""Sets: exchangeable trials, in any number."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from propersbi.networks.embeddings import Embedding, check_shape
from propersbi.networks.layers import SLOPE
from propersbi.networks.statistics import correlations, moments, quantiles, split_missing

__all__ = ["AttentionPooling", "SetEmbedding"]

LEVELS = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
MANY_TRIALS = 8  # from which quantiles say more than noise
MAX_PAIRED = 8  # numbers per trial up to which all their correlations are computed


class AttentionPooling(nn.Module):
    r"""A weighted mean over places for each head: :math:`\sum_i w_{hi} v_{hi}`, weights by softmax, masked.

    Arguments:
        width: Numbers at each place.
        heads: Weighted means, each of ``width // heads`` numbers.
    """

    def __init__(self, width: int, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.score = nn.Linear(width, heads)
        self.value = nn.Linear(width, width)

    def forward(self, h: Float[Tensor, "n places width"], mask: Bool[Tensor, "n places"]) -> Float[Tensor, "n width"]:
        lowest = torch.finfo(h.dtype).min / 2
        scores = torch.where(mask.unsqueeze(2), self.score(h), lowest)
        weights = scores.softmax(1) * mask.unsqueeze(2)
        values = self.value(h).unflatten(2, (self.heads, -1))
        return torch.einsum("nph,nphv->nhv", weights, values).flatten(1)


class SetEmbedding(Embedding):
    """Features of a set of trials, whatever their number and order.

    The statistics are the logarithm of the number of trials, moments, correlations and, for sets of eight trials or
    more, quantiles. The learnt features are an attention-weighted mean of a small network of each trial.

    Arguments:
        x_shape: ``(trials, numbers)`` or ``(trials,)``; other numbers of trials are taken as well.
        width: Hidden units for each trial.
        learnt: Learnt features.

    Examples:
        >>> embedding = SetEmbedding((20, 2))
        >>> x = torch.randn(5, 20, 2)
        >>> bool((embedding(x) - embedding(x.flip(1))).abs().max() < 1e-4)
        True
        >>> embedding(x).shape == embedding(torch.randn(5, 30, 2)).shape
        True
    """

    def __init__(self, x_shape: Sequence[int], *, width: int = 64, learnt: int = 32) -> None:
        check_shape("A set's", x_shape, len(x_shape) in (1, 2), "(trials, numbers) or (trials,)")
        self.numbers = 1 if len(x_shape) == 1 else x_shape[1]
        self.levels = LEVELS if x_shape[0] >= MANY_TRIALS else ()
        super().__init__(x_shape, self._names())
        self.width, self.learnt = width, learnt
        self.trial = nn.Sequential(
            nn.Linear(2 * self.numbers, width), nn.LeakyReLU(SLOPE), nn.Linear(width, width), nn.LeakyReLU(SLOPE)
        )
        self.pool = AttentionPooling(width)
        self.last = nn.Linear(width, learnt)

    def _names(self) -> list[str]:
        d = range(self.numbers)
        pairs = [(i, j) for i in d for j in d if i < j] if self.numbers <= MAX_PAIRED else []
        kinds = ["mean", "log sd", "skewness", *(f"{100 * level:g} % quantile" for level in self.levels)]
        return [
            "log number of trials",
            *(f"{kind} of {i}" for kind in kinds for i in d),
            *(f"correlation of {i} and {j}" for i, j in pairs),
        ]

    def _trials(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return split_missing(x.unsqueeze(2) if x.ndim == 2 else x)

    def compute(self, x: Float[Tensor, "n *x"]) -> Float[Tensor, "n fixed"]:
        values, mask = self._trials(x)
        count = mask.any(2).sum(1, keepdim=True).clamp_min(1).float()
        parts = [count.log(), moments(values, mask)]
        if self.levels:
            parts.append(quantiles(values, mask, self.levels))
        if 1 < self.numbers <= MAX_PAIRED:
            parts.append(correlations(values, mask))
        return torch.cat(parts, 1)

    def learn(self, x: Float[Tensor, "n *x"]) -> Float[Tensor, "n learnt"]:
        values, mask = self._trials(x)
        return self.last(self.pool(self.trial(torch.cat([values, mask.float()], 2)), mask.any(2)))
