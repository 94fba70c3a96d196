r"""Fixed statistics of data with missing entries, computed in one pass and without weights.

Entries that a mask hides do not count, wherever they stand: padding further changes nothing. A statistic that cannot be
computed, such as the variance of a single number, is NaN. Scales are logarithms and shapes are bounded, so that a
linear function of the statistics already says much about parameters.

Arguments are rows ``(n, N, d)`` of ``d`` numbers at ``N`` places, with zeros where the mask of the same shape is false.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

__all__ = [
    "autocorrelations",
    "correlations",
    "log_increments",
    "log_waves",
    "masked_mean",
    "moments",
    "powers_of_two",
    "quantiles",
    "segment_means",
    "split_missing",
]

SMALL = 1e-12  # added to variances before their logarithm is taken, in squared units of the data

Places = Float[Tensor, "n places d"]
Mask = Bool[Tensor, "n places d"]
Row = Float[Tensor, "n k"]


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
