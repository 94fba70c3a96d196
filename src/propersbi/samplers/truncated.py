r"""Truncated normal distributions: where a step of a chain starts if the parameters have bounds.

With :math:`\Phi` the standard normal distribution function, the map

.. math:: g(v; a, b) = \Phi^{-1}\big(\Phi(a) + \Phi(v)\,(\Phi(b) - \Phi(a))\big)

takes a standard normal :math:`v` to one that is truncated to :math:`(a, b)`, and its slope is
:math:`(\Phi(b) - \Phi(a))\, \exp((g^2 - v^2) / 2)`. A network whose output starts as a standard normal then starts with
draws inside the bounds, and bounds that are far away change nothing.
"""

from __future__ import annotations

import math
from typing import Any, cast

import torch
from jaxtyping import Bool, Float
from torch import Tensor

__all__ = ["fit_truncated", "truncate"]

FAR = 5.0  # standard deviations from the mean beyond which bounds on both sides make no difference
OUTSIDE = 8.0  # standard deviations that the mean may lie outside the bounds; beyond, single precision underflows
WIDEST = 3.0  # standard deviations of what is regressed: a flat distribution between bounds has no finite one
NARROW = 0.25  # of the distance of the bounds: a wider regression says little of where the parameter lies between them
CHECKED_SHARE = 0.2  # of the rows that a regression is checked on
FITTED_NUMBERS = 2_000_000  # of x, at most, that a regression is found on


def truncate(
    v: Float[Tensor, "m n dim"],
    mean: Float[Tensor, "n dim"],
    sd: Float[Tensor, "n dim"],
    lower: Float[Tensor, "n dim"],
    upper: Float[Tensor, "n dim"],
) -> Float[Tensor, "m n dim"]:
    """Draws of a normal distribution truncated to its bounds, from standard normal ``v``.

    >>> ones = torch.ones(1, 1)
    >>> truncate(torch.tensor([[[-9.0]], [[0.0]], [[9.0]]]), 0 * ones, ones, 0 * ones, 1e30 * ones).flatten()
    tensor([0.0000, 0.6745, 9.0758])
    """
    mean = torch.minimum(torch.maximum(mean, lower - OUTSIDE * sd), upper + OUTSIDE * sd)
    low, high = (lower - mean) / sd, (upper - mean) / sd
    return mean + sd * cast(Tensor, _Truncate.apply(v, low, high))  # type: ignore[no-untyped-call]


class _Truncate(torch.autograd.Function):
    """The map g with its slope in v, computed from the side on which the interval has its mass."""

    @staticmethod
    def forward(context: Any, v: Tensor, low: Tensor, high: Tensor) -> Tensor:
        side = torch.where(low + high > 0, -1.0, 1.0)
        left, right = torch.where(side > 0, low, -high), torch.where(side > 0, high, -low)
        below = _probability(left)
        mass = _probability(right) - below
        limits = torch.finfo(v.dtype)
        share = torch.addcmul(below, _probability(side * v), mass).clamp(limits.tiny, 1 - limits.eps)
        found = torch.minimum(torch.maximum(side * torch.special.ndtri(share), low), high)
        free = (low < -FAR) & (high > FAR)
        found = torch.where(free, v, found)
        context.save_for_backward(torch.where(free, 1.0, mass * ((found**2 - v**2) / 2).clamp(max=50).exp()))
        return found

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        (slope,) = context.saved_tensors
        return gradient * slope, None, None


def _probability(v: Tensor) -> Tensor:
    """The standard normal distribution function; unlike ``torch.special.ndtr``, exact in the tail on the left."""
    return 0.5 * torch.erfc(v * -math.sqrt(0.5))


def fit_truncated(
    theta: Float[Tensor, "n dim"], x: Float[Tensor, "n features"], lower: Float[Tensor, "n dim"], upper: Tensor
) -> tuple[Float[Tensor, "features dim"], Float[Tensor, " dim"], Float[Tensor, " dim"], Bool[Tensor, " dim"]]:
    r"""Slope, intercept and scale of a linear regression with truncated normal errors, by maximum likelihood.

    .. math:: \theta \sim N\big(A^T x + b,\, \sigma^2\big) \text{ truncated to the bounds},

    parameter by parameter, and which parameters it describes. Zero, zero and one, which suit standardised residuals,
    are kept where they predict the parameters of other rows as well, or where the regression is nearly flat between
    the bounds.

    Arguments:
        theta: Parameters, in units in which they have mean 0 and standard deviation 1.
        x: Data, standardised.
        lower: Bounds of each parameter, which may depend on the data.
        upper: Likewise.
    """
    most = max(100, FITTED_NUMBERS // x.shape[1])
    theta, x, lower, upper = (part[:most].double() for part in (theta, x, lower, upper))
    far = WIDEST * 100.0
    lower, upper = lower.clamp_min(-far), upper.clamp_max(far)
    checked = max(1, round(CHECKED_SHARE * len(theta)))
    fitted = [part[checked:] for part in (theta, x, lower, upper)]
    weights = _maximise(*fitted)
    rest = [part[:checked] for part in (theta, x, lower, upper)]
    gain = _log_likelihood(weights, *rest) - _log_likelihood(torch.zeros_like(weights), *rest)
    better = gain.mean(0) > gain.std(0) / math.sqrt(checked)
    better &= weights.isfinite().all(0) & (_scale(weights) < NARROW * (upper - lower).mean(0))
    weights = torch.where(better, weights, 0.0)
    return weights[:-2], weights[-2], _scale(weights), better


def _maximise(theta: Tensor, x: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """The weights of highest likelihood: a slope for each number of x, an intercept and the logarithm of the scale."""
    weights = torch.zeros(x.shape[1] + 2, theta.shape[1], dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([weights], max_iter=100, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        value = -_log_likelihood(weights, theta, x, lower, upper).mean(0).sum()
        value.backward()
        return value

    with torch.enable_grad():
        optimizer.step(loss)
    return weights.detach()


def _scale(weights: Tensor) -> Tensor:
    return weights[-1].clamp(-7.0, math.log(WIDEST)).exp()


def _log_likelihood(weights: Tensor, theta: Tensor, x: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """Of each parameter of each row, up to a constant."""
    mean, scale = x @ weights[:-2] + weights[-2], _scale(weights)
    low, high = (lower - mean) / scale, (upper - mean) / scale
    left, right = torch.where(low + high > 0, -high, low), torch.where(low + high > 0, -low, high)
    mass = torch.special.log_ndtr(right)
    ratio = (torch.special.log_ndtr(left) - mass).clamp(max=-1e-12)
    return -0.5 * ((theta - mean) / scale) ** 2 - scale.log() - mass - torch.log1p(-ratio.exp())
