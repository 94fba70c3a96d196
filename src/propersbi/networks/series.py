"""Time series: regular in time, of one or several channels, of any length and with gaps."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import leaky_relu, max_pool1d

from propersbi.networks.embeddings import Embedding, check_shape
from propersbi.networks.layers import SLOPE
from propersbi.networks.sets import AttentionPooling
from propersbi.networks.statistics import (
    autocorrelations,
    correlations,
    log_increments,
    log_waves,
    moments,
    powers_of_two,
    quantiles,
    segment_means,
    split_missing,
)
from propersbi.types import InputError

__all__ = ["SeriesEmbedding"]

LEVELS = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
SEGMENTS = 16
MAX_PAIRED = 8  # channels up to which all their correlations are computed
SHORTEST = 8  # places
POSITIONS = 6  # sines and cosines that encode the time
FAR = 10_000.0  # places within which positions can be distinguished


class SeriesEmbedding(Embedding):
    """Features of a time series, whatever its length and gaps.

    The statistics are moments, quantiles, autocorrelations and increments at lags 1, 2, 4, ..., the power in each
    octave of the spectrum, means over sixteen segments and correlations between channels. The learnt features are an
    attention-weighted mean over the places of two strided convolutions.

    Arguments:
        x_shape: ``(times,)`` or ``(times, channels)``; series of other lengths are taken as well.
        channels: Of the two convolutions.
        learnt: Learnt features.

    Examples:
        >>> embedding = SeriesEmbedding((100,))
        >>> embedding(torch.randn(5, 100)).shape == embedding(torch.randn(5, 80)).shape
        True
    """

    def __init__(self, x_shape: Sequence[int], *, channels: Sequence[int] = (24, 48), learnt: int = 32) -> None:
        fits = len(x_shape) in (1, 2) and x_shape[0] >= SHORTEST
        check_shape("A series'", x_shape, fits, f"(times,) or (times, channels), with at least {SHORTEST} times")
        if len(channels) != 2 or min(*channels, learnt) < 1 or channels[1] % 4:
            raise InputError(f"Two positive 'channels' are needed, the second a multiple of 4, got {tuple(channels)}.")
        self.numbers = 1 if len(x_shape) == 1 else x_shape[1]
        self.lags = powers_of_two(x_shape[0] // 2)
        self.widths = powers_of_two(x_shape[0] // 4)
        super().__init__(x_shape, self._names())
        self.channels, self.learnt = tuple(channels), learnt
        first, second = self.channels
        self.near = nn.Conv1d(2 * self.numbers, first, 9, 8, 4)
        self.far = nn.Conv1d(first, second, 5, 4, 2)
        self.place = nn.Linear(2 * POSITIONS, second)
        self.pool = AttentionPooling(second)
        self.last = nn.Linear(second, learnt)

    def _names(self) -> list[str]:
        kinds = ["mean", "log sd", "skewness", *(f"{100 * level:g} % quantile" for level in LEVELS)]
        kinds += [f"autocorrelation at lag {lag}" for lag in self.lags]
        kinds += [f"log increment over {lag}" for lag in self.lags]
        kinds += ["log second difference", *(f"log wave of width {width}" for width in self.widths)]
        kinds += [f"mean of segment {i + 1}" for i in range(SEGMENTS)]
        d = range(self.numbers)
        pairs = [(i, j) for i in d for j in d if i < j] if self.numbers <= MAX_PAIRED else []
        names = [kind if self.numbers == 1 else f"{kind} of channel {i}" for kind in kinds for i in d]
        return ["log length", *names, *(f"correlation of channels {i} and {j}" for i, j in pairs)]

    def _places(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Values and mask ``(n, times, channels)``, padded if the series is shorter than the longest lag."""
        places = x.unsqueeze(2) if x.ndim == 2 else x
        short = max(self.lags[-1] + 1, 2 * self.widths[-1] + 1, 3) - places.shape[1]
        if short > 0:
            places = nn.functional.pad(places, (0, 0, 0, short), value=torch.nan)
        return split_missing(places)

    def compute(self, x: Float[Tensor, "n *x"]) -> Float[Tensor, "n fixed"]:
        values, mask = self._places(x)
        parts = [
            mask.any(2).sum(1, keepdim=True).clamp_min(1).float().log(),
            moments(values, mask),
            quantiles(values, mask, LEVELS),
            autocorrelations(values, mask, self.lags),
            log_increments(values, mask, self.lags),
            log_waves(values, mask, self.widths),
            segment_means(values, mask, SEGMENTS),
        ]
        if 1 < self.numbers <= MAX_PAIRED:
            parts.append(correlations(values, mask))
        return torch.cat(parts, 1)

    def learn(self, x: Float[Tensor, "n *x"]) -> Float[Tensor, "n learnt"]:
        values, mask = self._places(x)
        seen = mask.any(2).float().unsqueeze(1)
        h = torch.cat([values, mask.float()], 2).transpose(1, 2)
        for layer in (self.near, self.far):  # places without data are zero, as those beyond the end are
            seen = max_pool1d(seen, layer.stride[0], ceil_mode=True)
            h = leaky_relu(layer(h), SLOPE) * seen
        h = h.transpose(1, 2) + self.place(_positions(h.shape[2], h))
        return self.last(self.pool(h, seen[:, 0] > 0))


def _positions(count: int, like: Tensor) -> Float[Tensor, "count encoding"]:
    """Sines and cosines of the place, of periods in equal ratios."""
    periods = FAR ** torch.linspace(0.1, 1.0, POSITIONS, device=like.device)
    angles = 2 * torch.pi * torch.arange(count, device=like.device).unsqueeze(1) / periods
    return torch.cat([angles.sin(), angles.cos()], 1).to(like.dtype)
