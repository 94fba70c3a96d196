"""The mean and covariance of rows of numbers, as far as they are needed to see which row is unlike the others."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

__all__ = ["Spread"]

MAX_RANK = 100  # axes of a covariance that are kept
TAIL = 5.0  # standard deviations beyond which numbers count like a logarithm
FLOOR = 1e-6  # of a variance, in units of the variance of a number: what rounding may add


@dataclass(frozen=True, eq=False)
class Spread:
    """The mean and covariance of rows of numbers, in units in which each has mean 0 and standard deviation 1.

    Arguments:
        center: Of each number, ``(d,)``: the median.
        scale: Half the width of the central 68 %.
        mean: Of each number in these units, with tails compressed.
        deviation: Likewise the standard deviation.
        axes: The leading axes of the covariance, ``(d, k)``.
        variances: Along them, ``(k,)``.
        rest: The mean variance along all other axes, ``()``.
    """

    center: Tensor
    scale: Tensor
    mean: Tensor
    deviation: Tensor
    axes: Tensor
    variances: Tensor
    rest: Tensor

    @classmethod
    def of(cls, rows: Tensor, floor: float = FLOOR) -> Spread:
        """The spread of rows ``(n, d)``; variances below the floor, in units of that of a number, are raised to it."""
        rows = rows.double()
        low, center, high = (torch.from_numpy(q) for q in np.quantile(rows.numpy(), [0.1587, 0.5, 0.8413], axis=0))
        scale = torch.where(high > low, (high - low) / 2, rows.std(0))
        varies = scale > 1e-6 * center.abs()
        usual = scale[varies].median() if varies.any() else torch.tensor(1.0).double()
        constant = torch.where(center == 0, usual, 1e-3 * center.abs())
        scale = torch.where(varies, scale, constant)
        units = _compressed((rows - center) / scale)
        mean, deviation = units.mean(0), units.std(0).clamp_min(math.sqrt(FLOOR))
        return cls(center, scale, mean, deviation, *_leading_axes((units - mean) / deviation, floor))

    def __call__(self, rows: Tensor) -> Tensor:
        """Rows ``(n, d)`` in standard units."""
        return (_compressed((rows.double() - self.center) / self.scale) - self.mean) / self.deviation

    def whitened(self, units: Tensor) -> Tensor:
        """The inverse covariance times rows in standard units."""
        return (units - (units @ self.axes * (1 - self.rest / self.variances)) @ self.axes.T) / self.rest

    @property
    def precisions(self) -> Tensor:
        """The diagonal of the inverse covariance."""
        return ((1 - self.axes**2 @ (1 - self.rest / self.variances)) / self.rest).clamp_min(1e-12)


def _compressed(units: Tensor) -> Tensor:
    beyond = (units.abs() - TAIL).clamp_min(0)
    return units.clamp(-TAIL, TAIL) + units.sign() * beyond.log1p()


def _leading_axes(units: Tensor, floor: float) -> tuple[Tensor, Tensor, Tensor]:
    """The leading axes of the covariance of centred rows, the variances along them, and that along the rest."""
    n, d = units.shape
    rank = min(d, MAX_RANK, max(1, n // 10))
    if d <= n:
        values, vectors = torch.linalg.eigh(units.T @ units / n)
    else:
        values, left = torch.linalg.eigh(units @ units.T / n)
        vectors = units.T @ left / (n * values.clamp_min(1e-12)).sqrt()
    variances = values.flip(0)[:rank].clamp_min(floor)
    axes = vectors.flip(1)[:, :rank].float().double()  # they are saved in single precision
    rest = (units.square().sum() / n - variances.sum()) / (d - rank) if rank < d else variances[-1]
    return axes, variances, rest.clamp_min(floor)
