r"""The sum over pairs behind the energy score and every kernel score, fast and in little memory.

For a function :math:`\varphi` of squared distance,

.. math:: D_\varphi = \frac2m \sum_i \varphi(\|\vartheta_i - \theta\|^2)
                    - \frac{1}{m(m-1)} \sum_{i \neq j} \varphi(\|\vartheta_i - \vartheta_j\|^2).

With :math:`\theta` as one more point :math:`p_{m+1}` this is a weighted sum over all pairs of points, and so is its
gradient:

.. math:: D_\varphi = \tfrac12 \sum_{a, b} w_{ab}\, \varphi(q_{ab}), \qquad
          \frac{\partial D_\varphi}{\partial p_a} = 2 \sum_b w_{ab}\, \varphi'(q_{ab})\, (p_a - p_b).

Both are found together, a few rows at a time, while they are in the cache. What stays in memory is one gradient of the
size of the draws, never the differences of all pairs.

Few coordinates: differences are taken and squared. Many: :math:`q_{ab} = \|p_a\|^2 + \|p_b\|^2 - 2\, p_a \cdot p_b`
of the points as seen from :math:`\theta`, in double precision if some lie so close together that single precision
would lose the digits. Points that coincide have no direction to part in: their gradient is zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from propersbi.types import InputError

__all__ = ["Profile", "check", "pair_score"]

Profile = Callable[[Tensor, bool], tuple[Tensor, Tensor]]
"""``(squared distance > 0, wanted) -> (value, slope)``, either in its memory; unwanted slopes may be anything."""

FEW = 4  # coordinates up to which differences are taken one by one
CELLS = 2**19  # numbers in an intermediate tensor: two megabytes stay in the cache
NEAR = 1e-3  # squares below this share of the largest have lost digits in single precision


def check(samples: Tensor, theta: Tensor) -> None:
    """Refuse what no rule can score."""
    if len(samples) < 2:
        raise InputError(f"A scoring rule needs m > 1 draws, got {len(samples)}.")
    if samples.shape[1:] != theta.shape:
        raise InputError(f"Draws of shape {tuple(samples.shape)} do not fit theta of shape {tuple(theta.shape)}.")


def pair_score(
    samples: Float[Tensor, "m n *event"], theta: Float[Tensor, "n *event"], profile: Profile, fair: bool = True
) -> Float[Tensor, " n"]:
    """The score :math:`D` of a function of squared distance; if not ``fair``, pairs ``i = j`` count too.

    Examples:
        >>> draws = torch.tensor([[[3.0, 4.0]], [[0.0, 0.0]]])
        >>> pair_score(draws, torch.ones(1, 2), lambda square, wanted: (square, torch.ones_like(square)))
        tensor([-10.])
    """
    check(samples, theta)
    return _PairScore.apply(samples.flatten(2), theta.flatten(1), profile, fair)


class _PairScore(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, samples: Tensor, theta: Tensor, profile: Profile, fair: bool) -> Tensor:
        m, n, d = samples.shape
        kind = torch.float64 if samples.dtype == torch.float64 else torch.float32
        like: dict[str, Any] = {"dtype": kind, "device": samples.device}
        wanted = any(ctx.needs_input_grad[:2])
        chunk, cells = _way(m, d)
        rows = max(1, CELLS // cells)
        weight = _weights(m, fair, **like)
        score, points = torch.empty(n, **like), torch.empty(min(n, rows), m + 1, d, **like)
        slope = torch.empty(n, m + 1, d, **like) if wanted else None
        with torch.autocast(samples.device.type, enabled=False):
            for start in range(0, n, rows):
                part = slice(start, min(n, start + rows))
                some = points[: part.stop - start]
                # As seen from theta: far from the origin, digits would be lost.
                draws, truth = samples[:, part].to(kind), theta[part].to(kind)
                torch.sub(draws.transpose(0, 1), truth.unsqueeze(1), out=some[:, :m])
                some[:, m] = 0
                score[part] = chunk(some, weight, profile, None if slope is None else slope[part])
            if not fair:  # a draw and itself
                score -= profile(torch.full_like(score, _tiny(score)), False)[0] / m
        ctx.save_for_backward(slope)
        ctx.kind = samples.dtype
        return score

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        (slope,) = ctx.saved_tensors
        gradient = (slope * upstream[:, None, None]).to(ctx.kind)
        return gradient[:, :-1].transpose(0, 1), gradient[:, -1], None, None


@lru_cache(maxsize=16)
def _weights(m: int, fair: bool, **like: Any) -> Tensor:
    """How much each pair of points counts: draws with each other, draws with theta, no point with itself."""
    weight = torch.full((m + 1, m + 1), -2 / (m * (m - 1) if fair else m * m), **like)
    weight[m, :] = weight[:, m] = 2 / m
    return weight.fill_diagonal_(0)


def _way(m: int, d: int) -> tuple[Callable[..., Tensor], int]:
    """What is fastest for so many points and coordinates, and how many numbers it needs for each row.

    All ways turn points ``(n, m + 1, d)`` into scores ``(n,)`` and write gradients into ``slope (n, m + 1, d)``.
    """
    if (d <= FEW and m <= 32) or (d <= 4 * FEW and m <= 4):
        return _listed, d * m * (m + 1) // 2
    if d <= FEW:
        return _crossed, d * (m + 1) ** 2
    return _multiplied, (m + 1) * (m + 1 + d)


@lru_cache(maxsize=16)
def _pairs(count: int, device: torch.device) -> Tensor:
    return torch.triu_indices(count, count, 1, device=device)


def _listed(points: Tensor, weight: Tensor, profile: Profile, slope: Tensor | None) -> Tensor:
    """Every pair once, for few points with few coordinates; rows come last, so that all work is on long vectors."""
    points = points.permute(1, 2, 0).contiguous()
    first, second = _pairs(len(points), points.device)
    apart = points[first].sub_(points[second])  # (pairs, d, n)
    square = _sum_of_squares(apart.unbind(1))
    value, rate = profile(square.clamp_min_(_tiny(square)), slope is not None)
    each = weight[first, second]
    if slope is not None:  # coinciding points: whatever the rate, their difference is zero
        apart *= rate.mul_((2 * each).unsqueeze(-1)).unsqueeze(1)
        pulls = torch.zeros_like(points).index_add_(0, first, apart).index_add_(0, second, apart, alpha=-1)
        slope.copy_(pulls.permute(2, 0, 1))
    return each @ value


def _crossed(points: Tensor, weight: Tensor, profile: Profile, slope: Tensor | None) -> Tensor:
    """Every point with every point, coordinate by coordinate."""
    columns = points.permute(2, 0, 1).contiguous()
    apart = columns.unsqueeze(-1) - columns.unsqueeze(-2)
    square = _sum_of_squares(apart.unbind())
    value, rate = profile(square.clamp_min_(_tiny(square)), slope is not None)
    if slope is not None:
        slope.copy_(apart.mul_(rate * (2 * weight)).sum(-1).permute(1, 2, 0))
    return value.flatten(1) @ weight.flatten() / 2


def _multiplied(points: Tensor, weight: Tensor, profile: Profile, slope: Tensor | None) -> Tensor:
    """Products of the points, for many coordinates."""
    square, largest = _squares(points)
    coinciding = None
    if square.amin() < NEAR * largest.amax():
        exact, largest = _squares(points.double())
        coinciding = exact < 1e-12 * largest[:, None, None]  # what is left of squares this small is rounding
        square = exact.to(points.dtype).masked_fill_(coinciding, 0)
    value, rate = profile(square.clamp_min_(_tiny(square)), slope is not None)
    score = value.flatten(1) @ weight.flatten() / 2
    if slope is not None:
        rate = rate.mul_(-2 * weight)
        if coinciding is not None:
            rate.masked_fill_(coinciding, 0)
        rate.diagonal(dim1=-2, dim2=-1).copy_(-(rate @ torch.ones_like(weight[0])))
        if points.shape[-1] > len(weight):
            torch.bmm(rate, points, out=slope)
        else:  # the same, since rates are symmetric, and faster for few coordinates
            slope.copy_(torch.bmm(points.mT, rate).mT)
    return score


def _sum_of_squares(apart: Sequence[Tensor]) -> Tensor:
    """Of the differences in each of few coordinates."""
    square = apart[0] * apart[0]
    for differences in apart[1:]:
        square.addcmul_(differences, differences)
    return square


def _squares(points: Tensor) -> tuple[Tensor, Tensor]:
    """Squared distances ``(n, m, m)`` of points ``(n, m, d)`` around zero and their scale in each row ``(n,)``."""
    length = points.square() @ points.new_ones(points.shape[-1])  # faster than a sum over a short axis
    square = (length.unsqueeze(-1) + length.unsqueeze(-2)).baddbmm_(points, points.mT, alpha=-2)
    largest = length.amax(-1)
    square.diagonal(dim1=-2, dim2=-1).copy_(largest.unsqueeze(-1))  # it has no weight, but must not look small
    return square, largest


def _tiny(like: Tensor) -> float:
    """A squared distance that counts as zero."""
    return torch.finfo(like.dtype).eps ** 4
