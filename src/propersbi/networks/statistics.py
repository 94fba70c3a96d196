r"""Fixed statistics of data with missing entries, computed in one pass and without weights.

Entries that a mask hides do not count, wherever they stand: padding further changes nothing. A statistic that cannot be
computed, such as the variance of a single number, is NaN. Scales are logarithms and shapes are bounded, so that a
linear function of the statistics already says much about parameters.

Arguments are rows ``(n, N, d)`` of ``d`` numbers at ``N`` places, or grids ``(n, channels, rows, columns)``, with zeros
where the mask of the same shape is false.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import avg_pool2d

__all__ = [
    "autocorrelations",
    "correlations",
    "log_increments",
    "log_second_differences",
    "log_spectrum",
    "log_waves",
    "masked_mean",
    "moments",
    "powers_of_two",
    "quantiles",
    "rings",
    "segment_means",
    "split_missing",
]

SMALL = 1e-12  # added to variances before their logarithm is taken, in squared units of the data

Places = Float[Tensor, "n places d"]
Mask = Bool[Tensor, "n places d"]
Row = Float[Tensor, "n k"]
Grid = Float[Tensor, "n channels rows columns"]
GridMask = Bool[Tensor, "n channels rows columns"]


def split_missing(x: Float[Tensor, "*shape"]) -> tuple[Float[Tensor, "*shape"], Bool[Tensor, "*shape"]]:
    """Data with zeros in place of NaN, and where they are not missing.

    >>> split_missing(torch.tensor([1.0, torch.nan]))
    (tensor([1., 0.]), tensor([ True, False]))
    """
    mask = ~torch.isnan(x)
    return torch.where(mask, x, 0.0), mask


def masked_mean(x: Places, mask: Mask) -> Float[Tensor, "n d"]:
    """The mean over the places, NaN where all are missing."""
    count = mask.sum(1)
    return torch.where(count > 0, (x * mask).sum(1) / count.clamp_min(1), torch.nan)


def moments(x: Places, mask: Mask) -> Row:
    """Mean, logarithm of the standard deviation and, from four numbers on, skewness of each of the ``d`` numbers."""
    count = mask.sum(1)
    mean = masked_mean(x, mask)
    centred = torch.where(mask, x - mean.nan_to_num().unsqueeze(1), 0.0)
    variance = centred.square().sum(1) / (count - 1).clamp_min(1)
    skewness = centred.pow(3).sum(1) / count.clamp_min(1) / (variance + SMALL).pow(1.5)
    return torch.cat([mean, _log_scale(variance, count > 1), torch.where(count > 3, skewness.asinh(), torch.nan)], 1)


def quantiles(x: Places, mask: Mask, levels: Sequence[float]) -> Row:
    """Order statistics nearest to these levels, of each of the ``d`` numbers."""
    ordered = torch.where(mask, x, torch.inf).sort(1).values
    count = mask.sum(1, keepdim=True)
    shares = torch.tensor(levels, device=x.device).reshape(1, -1, 1)
    places = (shares * (count - 1).clamp_min(0)).round().long()
    return torch.where(count > 0, ordered.gather(1, places), torch.nan).flatten(1)


def correlations(x: Places, mask: Mask) -> Row:
    """The inverse hyperbolic tangent of the correlation of each pair of the ``d`` numbers, from three places on."""
    d = x.shape[2]
    first, second = torch.triu_indices(d, d, 1, device=x.device)
    a, b, both = x[..., first], x[..., second], mask[..., first] & mask[..., second]
    a, b = (torch.where(both, v - masked_mean(v, both).nan_to_num().unsqueeze(1), 0.0) for v in (a, b))
    r = (a * b).sum(1) / (a.square().sum(1) * b.square().sum(1) + SMALL).sqrt()
    return torch.where(both.sum(1) > 2, torch.atanh(r.clamp(-0.9999, 0.9999)), torch.nan)


def autocorrelations(x: Places, mask: Mask, lags: Sequence[int]) -> Row:
    """The correlation with the same numbers so many places later."""
    mean = masked_mean(x, mask).nan_to_num().unsqueeze(1)
    centred = torch.where(mask, x - mean, 0.0)
    variance = centred.square().sum(1) / mask.sum(1).clamp_min(1) + SMALL
    found = []
    for lag in lags:
        products, both = centred[:, lag:] * centred[:, :-lag], mask[:, lag:] & mask[:, :-lag]
        found.append(_mean_of(products, both) / variance)
    return torch.cat(found, 1)


def log_increments(x: Places, mask: Mask, lags: Sequence[int]) -> Row:
    """The logarithm of the root mean square of increments over so many places, and of second differences."""
    found = [_log_square(x[:, lag:] - x[:, :-lag], mask[:, lag:] & mask[:, :-lag]) for lag in lags]
    twice = x[:, 2:] - 2 * x[:, 1:-1] + x[:, :-2]
    return torch.cat([*found, _log_square(twice, mask[:, 2:] & mask[:, 1:-1] & mask[:, :-2])], 1)


def log_waves(x: Places, mask: Mask, widths: Sequence[int]) -> Row:
    """The logarithm of the root mean square of Haar waves: the difference of the means of neighbouring windows.

    The power in each octave of the spectrum, found by running sums. More than half of each window must be there, and
    none may reach beyond the last number.
    """
    length = _lengths(mask)[:, None, None]
    sums, counts = _running(x * mask), _running(mask)
    found = []
    for width in widths:
        totals, seen = (values[:, width:] - values[:, :-width] for values in (sums, counts))
        ends = torch.arange(width, x.shape[1] + 1, device=x.device)[:, None]
        means, enough = (totals / seen.clamp_min(1)).float(), (2 * seen > width) & (ends <= length)
        found.append(_log_square(means[:, width:] - means[:, :-width], enough[:, width:] & enough[:, :-width]))
    return torch.cat(found, 1)


@cache
def rings(rows: int, columns: int) -> np.ndarray:
    """Weights ``(rings, coefficients)`` of a real Fourier transform in means over rings, two in each octave.

    >>> weights = rings(16, 16)
    >>> weights.shape, weights.sum(1).round(5).tolist()[:2]
    ((8, 144), [1.0, 1.0])
    """
    down, across = np.fft.fftfreq(rows)[:, None], np.fft.rfftfreq(columns)
    cycles = max(rows, columns) * np.hypot(down, across).ravel()
    twins = np.broadcast_to(np.where((across == 0) | (across == 0.5), 1.0, 2.0), (rows, len(across))).ravel()
    octaves = np.round(2 * np.log2(np.maximum(cycles, 0.5)))
    found = [twins * ((octaves == ring) & (cycles > 0)) for ring in np.unique(octaves[cycles > 0])]
    return np.stack([weights / weights.sum() for weights in found]).astype(np.float32)


def log_spectrum(x: Grid, mask: GridMask) -> Row:
    """The logarithm of the root mean power in each of the :func:`rings`, of each channel."""
    weights = torch.as_tensor(rings(*x.shape[2:]), device=x.device)
    count = mask.sum((2, 3), keepdim=True).clamp_min(1)
    centred = torch.where(mask, x - (x * mask).sum((2, 3), keepdim=True) / count, 0.0)
    power = torch.fft.rfft2(centred).abs().square().flatten(2) @ weights.T
    return _log_scale(power / count.squeeze(3), mask.any(3).any(2).unsqueeze(2)).flatten(1)


def log_second_differences(x: Grid, mask: GridMask, scales: int) -> Row:
    """The logarithm of the root mean square of second differences along rows and columns, of each channel.

    Found on the grid and on means over 2 x 2, 4 x 4, ... of its points, of which half must be there. Unlike a Fourier
    transform, they need no periodic boundaries.
    """
    found = []
    for _ in range(scales):
        for axis in (2, 3):
            inner = x.shape[axis] - 2
            parts, seen = ([v.narrow(axis, i, inner) for i in range(3)] for v in (x, mask))
            known = seen[0] & seen[1] & seen[2]
            twice = (parts[0] - 2 * parts[1] + parts[2]) * known
            count = known.sum((2, 3))
            found.append(_log_scale(twice.square().sum((2, 3)) / count.clamp_min(1), count > 0))
        total, share = avg_pool2d(x, 2), avg_pool2d(mask.float(), 2)
        x, mask = torch.where(share >= 0.5, total / share.clamp_min(0.25), 0.0), share >= 0.5
    return torch.cat(found, 1)


def segment_means(x: Places, mask: Mask, segments: int) -> Row:
    """Means over so many equal parts of the time between the first place and the last one that is not missing."""
    ends = torch.arange(segments + 1, device=x.device) * _lengths(mask).unsqueeze(1)
    places = torch.div(ends + segments - 1, segments, rounding_mode="floor").unsqueeze(2).expand(-1, -1, x.shape[2])
    total, count = (_running(values).gather(1, places).diff(dim=1) for values in (x * mask, mask))
    return torch.where(count > 0, total / count.clamp_min(1), torch.nan).float().flatten(1)


def _running(values: Tensor) -> Tensor:
    """Running sums over the places, from zero."""
    sums = values.cumsum(1, dtype=torch.float64 if values.is_floating_point() else torch.long)
    return torch.nn.functional.pad(sums, (0, 0, 1, 0))


def _lengths(mask: Mask) -> Tensor:
    """The number of places up to the last one that is not missing, ``(n,)``."""
    places = torch.arange(1, mask.shape[1] + 1, device=mask.device)
    return torch.where(mask.any(2), places, 0).amax(1)


def _mean_of(values: Tensor, mask: Tensor) -> Tensor:
    count = mask.sum(1)
    return torch.where(count > 0, (values * mask).sum(1) / count.clamp_min(1), torch.nan)


def _log_square(values: Tensor, mask: Tensor) -> Tensor:
    count = mask.sum(1)
    return _log_scale((values.square() * mask).sum(1) / count.clamp_min(1), count > 0)


def _log_scale(variance: Tensor, known: Tensor) -> Tensor:
    return torch.where(known, 0.5 * (variance + SMALL).log(), torch.nan)


def powers_of_two(most: int) -> tuple[int, ...]:
    """1, 2, 4, ... up to ``most``.

    >>> powers_of_two(10)
    (1, 2, 4, 8)
    """
    return tuple(2**k for k in range(int(math.log2(max(1, most))) + 1))
