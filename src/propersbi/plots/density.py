"""Density estimates of draws for plots, whose smoothing adapts to the number and the concentration of the draws."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

__all__ = ["Limits", "density", "main_mode", "mass_levels"]

Limits = tuple[float, float]


def density(columns: list[np.ndarray], limits: list[Limits], bins: int) -> tuple[list[np.ndarray], np.ndarray]:
    """A density estimate: a histogram smoothed such that a kernel contains some hundred draws.

    The width thus adapts to the concentration of the draws, so that thin sets are not blurred.

    Examples:
        >>> (x,), height = density([np.random.default_rng(0).normal(size=5000)], [(-6.0, 6.0)], bins=100)
        >>> round(float(height.sum() * (x[1] - x[0])), 2), round(float(height.max()), 1)
        (1.0, 0.4)
    """
    counts, edges = np.histogramdd(np.stack(columns, axis=1), bins=bins, range=limits)
    n = counts.sum()
    same_bin = (counts * (counts - 1)).sum() / max(n * (n - 1), 1)  # unbiased for the sum of squared probabilities
    occupied = 1 / max(same_bin, 1 / counts.size)  # the effective number of bins
    volume = (250 if len(columns) == 1 else 150) * occupied / max(n, 1)
    width = volume / math.sqrt(4 * math.pi) if len(columns) == 1 else math.sqrt(volume / (4 * math.pi))
    radius = math.ceil(3 * (width := min(max(width, 0.9), bins / 30)))
    kernel = np.exp(-0.5 * (np.arange(-radius, radius + 1) / width) ** 2)
    norm = np.convolve(np.ones(bins), kernel, mode="same")  # smaller at the ends, where the kernel is truncated
    for axis in range(counts.ndim):
        counts = np.apply_along_axis(lambda line: np.convolve(line, kernel, mode="same") / norm, axis, counts)
    area = math.prod((high - low) / bins for low, high in limits)
    return [(edge[1:] + edge[:-1]) / 2 for edge in edges], counts / (len(columns[0]) * area)


def mass_levels(height: np.ndarray, masses: Sequence[float]) -> list[float]:
    """The density levels above which the given fractions of the mass lie."""
    ordered = np.sort(height.ravel())[::-1]
    mass = np.cumsum(ordered) / max(ordered.sum(), 1e-300)
    return [float(ordered[min(int(np.searchsorted(mass, fraction)), len(ordered) - 1)]) for fraction in masses]


def main_mode(centres: list[np.ndarray], height: np.ndarray) -> list[Limits]:
    """The bounding box of the connected component of the 98 % region that contains the highest density."""
    dense = height >= mass_levels(height, (0.98,))[0]
    component, size = np.zeros_like(dense), 0
    component[np.unravel_index(height.argmax(), height.shape)] = True
    while component.sum() > size:
        size = component.sum()
        for axis, step in ((0, 1), (0, -1), (1, 1), (1, -1)):
            component |= np.roll(component, step, axis) & dense  # no mass at the edges, so nothing wraps around
    occupied = [np.nonzero(component.any(axis))[0] for axis in (1, 0)]
    margins = [(values[1] - values[0]) * 2 for values in centres]
    return [
        (float(values[cells[0]] - margin), float(values[cells[-1]] + margin))
        for values, cells, margin in zip(centres, occupied, margins, strict=True)
    ]
