r"""Ridge regression, with its strength found on the data.

.. math:: A = (X^T X + n r I)^{-1} X^T \Theta, \qquad \hat\theta(x) = A^T (x - \bar x) + \bar\theta,

on centred data; :math:`r` has the lowest error of generalised cross-validation.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["ridge"]

STRONGEST = 100.0  # ridge that is tried, in variances of standardised data


def ridge(
    theta: Float[Tensor, "n *theta"], x: Float[Tensor, "n *x"], *, finest: float = 1e-6
) -> tuple[Float[Tensor, "features dim"], Float[Tensor, " dim"], Float[Tensor, " dim"]]:
    """Slope, intercept and the standard deviation of the residuals, all in double precision.

    Arguments:
        theta: Parameters.
        x: Data, standardised.
        finest: The weakest ridge that is tried, in variances of the data.

    >>> x = torch.linspace(-1, 1, 9).unsqueeze(1)
    >>> slope, shift, _ = ridge(3 * x + 1, x)
    >>> round(slope.item(), 2), round(shift.item(), 2)
    (3.0, 1.0)
    """
    theta, x = theta.flatten(1).double(), x.flatten(1).double()
    center, mean = x.mean(0), theta.mean(0)
    n = len(x)
    left, values, right = _directions(x - center)
    projected = left.T @ (theta - mean)  # (features, dim)
    ridges = torch.logspace(math.log10(finest), math.log10(STRONGEST), 33, dtype=torch.float64)
    shares = values**2 / (values**2 + n * ridges[:, None])  # (ridges, features): the share of each direction
    errors = (theta - mean).square().sum() - (shares * (2 - shares)) @ projected.square().sum(1)
    free = n - 1 - shares.sum(1)
    best = torch.where(free > 0, errors / free**2, torch.inf).argmin()
    slope = right.T @ ((shares[best] / values.clamp_min(torch.finfo(values.dtype).tiny))[:, None] * projected)
    residual = theta - mean - (x - center) @ slope
    scale = (residual.square().sum(0) / free[best].clamp_min(1)).sqrt()
    return slope, mean - center @ slope, scale


def _directions(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The singular value decomposition; of a tall matrix by that of its triangular part, which is much quicker."""
    if len(x) < 2 * x.shape[1]:
        return torch.linalg.svd(x, full_matrices=False)
    left, upper = torch.linalg.qr(x)
    inner, values, right = torch.linalg.svd(upper)
    return left @ inner, values, right
