r"""The sum over pairs behind the energy score and every kernel score, fast and with little memory.

For a function :math:`\varphi` of squared distance,

.. math:: D_\varphi = \frac2m \sum_i \varphi(\|\vartheta_i - \theta\|^2)
                    - \frac{1}{m(m-1)} \sum_{i \neq j} \varphi(\|\vartheta_i - \vartheta_j\|^2).

With :math:`\theta` as one more point :math:`p_{m+1}` this is a weighted sum over all pairs of points, and so is its
gradient:

.. math:: D_\varphi = \tfrac12 \sum_{a, b} w_{ab}\, \varphi(q_{ab}), \qquad
          \frac{\partial D_\varphi}{\partial p_a} = 2 \sum_b w_{ab}\, \varphi'(q_{ab})\, (p_a - p_b).

Both are computed together, in pieces of a few rows that fit the processor cache. Only one gradient of the size of the
draws is kept in memory, never the differences of all pairs.

In low dimension, squared distances are sums of squared differences. In high dimension they are
:math:`q_{ab} = \|p_a\|^2 + \|p_b\|^2 - 2\, p_a \cdot p_b` with the origin at :math:`\theta`, in double precision where
some points are so close that single precision would lose all digits. The gradient between coinciding points is zero.
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
"""``(squared distance > 0, with_slope) -> (value, slope)``.

Both may reuse the memory of the argument; without ``with_slope``, the slope may be any tensor.
"""

Piece = Callable[[Tensor, Tensor, Profile, Tensor | None], Tensor]
"""``(points (n, m + 1, d), weight, profile, slope) -> scores (n,)``; gradients are written into ``slope``."""

MAX_LOW_DIMENSION = 4  # coordinates up to which differences are taken explicitly
MAX_CELLS_PER_PIECE = 2**19  # numbers in an intermediate tensor: two megabytes fit the cache
CANCELLATION = 1e-3  # squared distances below this fraction of the largest are inaccurate in single precision


def check(samples: Tensor, theta: Tensor) -> None:
    """Raise an error unless the shapes of draws and parameters fit."""
    for name, values in (("samples", samples), ("theta", theta)):
        if not isinstance(values, Tensor) or not values.ndim or not (values.is_floating_point() or values.is_complex()):
            raise InputError(f"'{name}' must be a tensor of floating-point numbers, got {type(values).__name__}.")
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
        >>> pair_score(draws, torch.ones(1, 2), lambda square, with_slope: (square, torch.ones_like(square)))
        tensor([-10.])
    """
    check(samples, theta)
    score: Tensor = _PairScore.apply(samples.flatten(2), theta.flatten(1), profile, fair)  # type: ignore[no-untyped-call]
    return score


class _PairScore(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, samples: Tensor, theta: Tensor, profile: Profile, fair: bool) -> Tensor:
        m, n, d = samples.shape
        dtype = torch.float64 if samples.dtype == torch.float64 else torch.float32
        like: dict[str, Any] = {"dtype": dtype, "device": samples.device}
        with_slope = any(ctx.needs_input_grad[:2])
        score_piece, cells = _method(m, d)
        rows = max(1, MAX_CELLS_PER_PIECE // cells)
        weight = _weights(m, fair, **like)
        score, points = torch.empty(n, **like), torch.empty(min(n, rows), m + 1, d, **like)
        slope = torch.empty(n, m + 1, d, **like) if with_slope else None
        with torch.autocast(samples.device.type, enabled=False):
            for start in range(0, n, rows):
                piece = slice(start, min(n, start + rows))
                piece_points = points[: piece.stop - start]
                # The origin is theta: far from the origin, differences would cancel.
                draws, truth = samples[:, piece].to(dtype), theta[piece].to(dtype)
                torch.sub(draws.transpose(0, 1), truth.unsqueeze(1), out=piece_points[:, :m])
                piece_points[:, m] = 0
                score[piece] = score_piece(piece_points, weight, profile, None if slope is None else slope[piece])
            if not fair:  # pairs of a draw with itself
                score -= profile(torch.full_like(score, _tiny(score)), False)[0] / m
        ctx.save_for_backward(slope)
        ctx.dtype = samples.dtype
        return score

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        (slope,) = ctx.saved_tensors
        gradient = (slope * upstream[:, None, None]).to(ctx.dtype)
        return gradient[:, :-1].transpose(0, 1), gradient[:, -1], None, None


@lru_cache(maxsize=16)
def _weights(m: int, fair: bool, **like: Any) -> Tensor:
    """The weight of each pair of points: draws with each other, draws with theta, no point with itself."""
    weight = torch.full((m + 1, m + 1), -2 / (m * (m - 1) if fair else m * m), **like)
    weight[m, :] = weight[:, m] = 2 / m
    return weight.fill_diagonal_(0)


def _method(m: int, d: int) -> tuple[Piece, int]:
    """The fastest method for ``m`` draws of ``d`` coordinates, and the numbers it needs per row."""
    if (d <= MAX_LOW_DIMENSION and m <= 32) or (d <= 4 * MAX_LOW_DIMENSION and m <= 4):
        return _by_list_of_pairs, d * m * (m + 1) // 2
    if d <= MAX_LOW_DIMENSION:
        return _by_differences, d * (m + 1) ** 2
    return _by_products, (m + 1) * (m + 1 + d)


@lru_cache(maxsize=16)
def _pairs(count: int, device: torch.device) -> Tensor:
    return torch.triu_indices(count, count, 1, device=device)


def _by_list_of_pairs(points: Tensor, weight: Tensor, profile: Profile, slope: Tensor | None) -> Tensor:
    """Every pair once, for few points in low dimension; rows are the last axis, so that operations are vectorised."""
    points = points.permute(1, 2, 0).contiguous()
    first, second = _pairs(len(points), points.device)
    difference = points[first].sub_(points[second])  # (pairs, d, n)
    square = _sum_of_squares(difference.unbind(1))
    value, rate = profile(square.clamp_min_(_tiny(square)), slope is not None)
    pair_weight = weight[first, second]
    if slope is not None:  # the difference of coinciding points is zero, whatever the rate
        difference *= rate.mul_((2 * pair_weight).unsqueeze(-1)).unsqueeze(1)
        gradient = torch.zeros_like(points).index_add_(0, first, difference)
        slope.copy_(gradient.index_add_(0, second, difference, alpha=-1).permute(2, 0, 1))
    return pair_weight @ value


def _by_differences(points: Tensor, weight: Tensor, profile: Profile, slope: Tensor | None) -> Tensor:
    """All ordered pairs, coordinate by coordinate, for many points in low dimension."""
    columns = points.permute(2, 0, 1).contiguous()
    difference = columns.unsqueeze(-1) - columns.unsqueeze(-2)
    square = _sum_of_squares(difference.unbind())
    value, rate = profile(square.clamp_min_(_tiny(square)), slope is not None)
    if slope is not None:
        slope.copy_(difference.mul_(rate * (2 * weight)).sum(-1).permute(1, 2, 0))
    return value.flatten(1) @ weight.flatten() / 2


def _by_products(points: Tensor, weight: Tensor, profile: Profile, slope: Tensor | None) -> Tensor:
    """Inner products of the points, for high dimension."""
    square, largest = _squares(points)
    coinciding = None
    if square.amin() < CANCELLATION * largest.amax():
        exact, largest = _squares(points.double())
        coinciding = exact < 1e-12 * largest[:, None, None]  # squares this small are rounding errors
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
        else:  # the same, since rates are symmetric, and faster in low dimension
            slope.copy_(torch.bmm(points.mT, rate).mT)
    return score


def _sum_of_squares(differences: Sequence[Tensor]) -> Tensor:
    """The squared distance from the differences in each coordinate."""
    square = differences[0] * differences[0]
    for difference in differences[1:]:
        square.addcmul_(difference, difference)
    return square


def _squares(points: Tensor) -> tuple[Tensor, Tensor]:
    """Squared distances ``(n, m, m)`` of points ``(n, m, d)`` around zero and the largest squared norm ``(n,)``."""
    length = points.square() @ points.new_ones(points.shape[-1])  # faster than a sum over a short axis
    square = (length.unsqueeze(-1) + length.unsqueeze(-2)).baddbmm_(points, points.mT, alpha=-2)
    largest = length.amax(-1)
    square.diagonal(dim1=-2, dim2=-1).copy_(largest.unsqueeze(-1))  # of weight zero, but must not look close
    return square, largest


def _tiny(like: Tensor) -> float:
    """A squared distance that counts as zero."""
    return torch.finfo(like.dtype).eps ** 4
