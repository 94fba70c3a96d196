r"""Regions of the parameters, found from draws alone, and the prior restricted to them.

A region holds the points whose :math:`k`-th nearest draw is no farther than some radius,

.. math:: R = \{\theta : d_k(\theta) \le \rho\},

where :math:`\rho` is a quantile of :math:`d_k` over further draws: about that share of the distribution lies in
:math:`R`. The
distance :math:`d_k` is small where the density is high, so this is a highest-density region, of several pieces if need
be, and one that errs on the wide side where draws are sparse.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from propersbi.simulation import draw
from propersbi.storage.randomness import stream
from propersbi.types import InputError

__all__ = ["Region", "TruncatedPrior"]

NEIGHBOUR = 5  # its distance is less noisy than that to the nearest draw
REFERENCES = 4000
MAX_DISTANCES = 2**22  # distances held at once, 32 MB
MIN_TRIED = 2_000_000  # prior draws after which the acceptance rate is known well enough
MAX_DRAWS_PER_ACCEPTED = 100_000


@dataclass(frozen=True, eq=False)
class Region:
    """Where a distribution has its draws.

    Arguments:
        draws: Some of them, ``(k, d)``, in units of ``center`` and ``scale``.
        center: The mean of each coordinate, ``(d,)``.
        scale: The standard deviation of each coordinate, ``(d,)``.
        radius: How far the k-th nearest one may be.
        within: A region this one lies in.

    Examples:
        >>> rng = np.random.default_rng(0)
        >>> region = Region.around(rng.normal(size=(4000, 2)), 0.99)
        >>> region(np.array([[0.0, 0.0], [9.0, 0.0]]))
        array([ True, False])
    """

    draws: np.ndarray
    center: np.ndarray
    scale: np.ndarray
    radius: float
    within: Region | None = None

    @classmethod
    def around(cls, theta: np.ndarray, level: float, *, within: Region | None = None) -> Region:
        """The region that holds a share ``level`` of the distribution of these draws ``(n, *event)``."""
        flat = _flat(theta)
        if len(flat) < 100:
            raise InputError(f"A region is found from at least 100 draws, got {len(flat)}.")
        center, scale = flat.mean(0), flat.std(0)
        scale = np.where(scale > 0, scale, 1.0)
        units = (flat - center) / scale
        known = min(REFERENCES, len(flat) // 2)
        radius = np.quantile(_distance(units[known:], units[:known]), level)
        return cls(units[:known], center, scale, float(radius), within)

    def __call__(self, theta: Any) -> np.ndarray:
        """Which rows ``(n, *event)`` lie in the region, ``(n,)``."""
        flat = _flat(theta)
        units = (flat - self.center) / self.scale
        low, high = self.draws.min(0) - self.radius, self.draws.max(0) + self.radius
        inside = ((units >= low) & (units <= high)).all(1)  # what lies outside the box is done with
        near = [(block <= self.radius**2).sum(1) >= NEIGHBOUR for block in _squares(units[inside], self.draws)]
        inside[inside] = np.concatenate(near) if near else False
        if self.within is not None:
            inside[inside] = self.within(flat[inside])
        return inside


@dataclass(frozen=True, eq=False)
class TruncatedPrior:
    """The prior within a region: its draws are kept where they lie inside.

    Arguments:
        prior: Anything that is accepted as a prior.
        region: Where its draws are kept.
    """

    prior: Any
    region: Region

    def sample(self, n: int, rng: np.random.Generator) -> Any:
        """``n`` draws, of the kind the prior gives."""
        kept: list[Any] = []
        found, tried = 0, 0
        while found < n:
            if tried >= MIN_TRIED and tried > MAX_DRAWS_PER_ACCEPTED * found:
                raise InputError(
                    f"Only {found} of {tried} draws of the prior lie where the last posterior is: "
                    "take a correction whose proposals are the posterior itself, such as ImportanceWeights."
                )
            size = min(20_000, max(100, 2 * n, tried))
            theta = draw(self.prior, size, rng)
            inside = np.flatnonzero(self.region(theta))[: n - found]
            kept.append(theta[inside])
            found, tried = found + len(inside), tried + size
        if isinstance(kept[0], np.ndarray):
            return np.concatenate(kept)
        import torch

        return torch.cat(kept)

    def share(self, seed: int = 0, draws: int = 5000) -> float:
        """About what share of the prior lies in the region."""
        with stream(seed) as rng:
            return float(self.region(draw(self.prior, draws, rng)).mean())


def _flat(theta: Any) -> np.ndarray:
    """Rows ``(n, d)`` of an array ``(n, *event)`` that may have none."""
    values = np.asarray(theta, dtype=float)
    return values.reshape(len(values), math.prod(values.shape[1:]))


def _distance(points: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """The distance of each point ``(n, d)`` to the k-th nearest of the draws."""
    nearest = [np.partition(block, NEIGHBOUR - 1, axis=1)[:, NEIGHBOUR - 1] for block in _squares(points, draws)]
    return np.sqrt(np.maximum(np.concatenate(nearest), 0.0))


def _squares(points: np.ndarray, draws: np.ndarray) -> Iterator[np.ndarray]:
    """The squared distances of points ``(n, d)`` and draws ``(k, d)``, some rows ``(rows, k)`` at a time."""
    own, step = (draws**2).sum(1), max(1, MAX_DISTANCES // len(draws))
    for start in range(0, len(points), step):
        block = points[start : start + step]
        yield (block**2).sum(1)[:, None] + own - 2 * block @ draws.T
