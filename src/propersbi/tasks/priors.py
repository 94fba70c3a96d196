r"""Priors with a density.

.. math::
    \text{box:} \quad & p(\theta) = \prod_j (u_j - l_j)^{-1} \quad (l_j \le \theta_j \le u_j) \\
    \text{Gaussian:} \quad & \theta = \mu + L z, \quad L L^T = \Sigma, \quad z \sim N(0, I) \\
    \text{log-normal:} \quad & \theta_j = \exp(m_j + s_j z_j), \quad z \sim N(0, I)
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from propersbi.types import Array, InputError

__all__ = ["BoxUniform", "Gaussian", "LogNormal"]


@dataclass(frozen=True, eq=False)
class BoxUniform:
    """Independent uniform parameters; ``lower`` and ``upper`` are the support.

    >>> prior = BoxUniform([-1, 0], [1, 5])
    >>> prior.sample(3, np.random.default_rng(0)).shape
    (3, 2)
    >>> prior.log_prob([[0, 1], [0, 6]])
    array([-2.30258509,        -inf])
    """

    lower: Array
    upper: Array

    def __post_init__(self) -> None:
        lower, upper = np.broadcast_arrays(np.array(self.lower, float), np.array(self.upper, float))
        if not np.all(lower < upper) or not np.isfinite(upper - lower).all():
            raise InputError(f"'lower' must be finite and below 'upper', got {lower} and {upper}.")
        _freeze(self, lower=lower, upper=upper)

    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """``n`` independent draws, ``(n, *event)``."""
        return rng.uniform(self.lower, self.upper, (n, *self.lower.shape))

    def contains(self, theta: Array) -> np.ndarray:
        """Whether each row lies in the box, ``(n,)``."""
        theta = np.asarray(theta)
        event = tuple(range(1, theta.ndim))
        inside: np.ndarray = ((theta >= self.lower) & (theta <= self.upper)).all(event)
        return inside

    def log_prob(self, theta: Array) -> np.ndarray:
        """The log density of each row, ``(n,)``: a constant in the box and minus infinity outside."""
        return np.where(self.contains(theta), -np.log(self.upper - self.lower).sum(), -np.inf)


@dataclass(frozen=True, eq=False)
class Gaussian:
    """Jointly Gaussian parameters ``(p,)`` with mean ``(p,)`` and covariance ``(p, p)``.

    >>> prior = Gaussian([0, 1], [[4, 0], [0, 1]])
    >>> prior.sample(3, np.random.default_rng(0)).shape
    (3, 2)
    >>> prior.log_prob([[0, 1]])
    array([-2.53102425])
    """

    mean: Array
    covariance: Array

    def __post_init__(self) -> None:
        _freeze(self, mean=np.array(self.mean, float), covariance=np.array(self.covariance, float))
        if self.mean.ndim != 1 or self.covariance.shape != 2 * self.mean.shape:
            raise InputError(f"'mean' of shape {self.mean.shape} does not fit a covariance of {self.covariance.shape}.")
        if not (np.array_equal(self.covariance, self.covariance.T) and np.linalg.eigvalsh(self.covariance).min() > 0):
            values = f"{self.covariance.tolist()}"
            raise InputError(f"'covariance' must be symmetric and positive definite, got {values:.80}.")

    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """``n`` independent draws, ``(n, p)``."""
        draws: np.ndarray = self.mean + rng.standard_normal((n, len(self.mean))) @ self._root.T
        return draws

    def log_prob(self, theta: Array) -> np.ndarray:
        """The log density of each row, ``(n,)``."""
        z = np.linalg.solve(self._root, (np.asarray(theta) - self.mean).T)
        log_density: np.ndarray = _log_standard_normal(z.T) - np.log(self._root.diagonal()).sum()
        return log_density

    @cached_property
    def _root(self) -> np.ndarray:
        return np.linalg.cholesky(self.covariance)


@dataclass(frozen=True, eq=False)
class LogNormal:
    """Independent log-normal parameters ``(p,)``: the logarithms have mean ``loc`` and standard deviation ``scale``.

    >>> prior = LogNormal([0, 1], 0.5)
    >>> prior.sample(3, np.random.default_rng(0)).shape
    (3, 2)
    >>> prior.log_prob([[1, np.e], [0, 1]])
    array([-1.45158271,        -inf])
    """

    loc: Array
    scale: Array

    def __post_init__(self) -> None:
        loc, scale = np.broadcast_arrays(np.array(self.loc, float), np.array(self.scale, float))
        if loc.ndim != 1 or not (np.isfinite(loc).all() and np.all(scale > 0) and np.isfinite(scale).all()):
            raise InputError(f"'loc' must be finite and 'scale' positive, one each per parameter, got {loc}, {scale}.")
        _freeze(self, loc=loc, scale=scale)

    @property
    def lower(self) -> np.ndarray:
        return np.zeros(self.loc.shape)

    @property
    def upper(self) -> np.ndarray:
        return np.full(self.loc.shape, np.inf)

    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """``n`` independent draws, ``(n, p)``."""
        return self.from_normal(rng.standard_normal((n, *self.loc.shape)))

    def from_normal(self, z: np.ndarray) -> np.ndarray:
        """Parameters from standard normal variables."""
        theta: np.ndarray = np.exp(self.loc + self.scale * z)
        return theta

    def log_prob(self, theta: Array) -> np.ndarray:
        """The log density of each row, ``(n,)``: minus infinity unless all parameters are positive."""
        theta = np.asarray(theta, dtype=float)
        positive = (theta > 0).all(1)
        log_theta = np.log(np.where(positive[:, None], theta, 1.0))
        z = (log_theta - self.loc) / self.scale
        log_density = _log_standard_normal(z) - np.log(self.scale).sum() - log_theta.sum(1)
        return np.where(positive, log_density, -np.inf)


def _log_standard_normal(z: np.ndarray) -> np.ndarray:
    log_density: np.ndarray = -0.5 * (z**2 + np.log(2 * np.pi)).sum(1)
    return log_density


def _freeze(prior: object, **values: np.ndarray) -> None:
    """Set read-only copies, since priors are shared."""
    for name, value in values.items():
        value = value.copy()
        value.flags.writeable = False
        object.__setattr__(prior, name, value)
