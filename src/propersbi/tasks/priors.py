r"""The uniform prior on a box, :math:`p(\theta) = \prod_j (u_j - l_j)^{-1}` for :math:`l_j \le \theta_j \le u_j`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from propersbi.types import Array, InputError

__all__ = ["BoxUniform"]


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
        for name, bound in (("lower", lower.copy()), ("upper", upper.copy())):
            bound.flags.writeable = False
            object.__setattr__(self, name, bound)

    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """``n`` independent draws, ``(n, *event)``."""
        return rng.uniform(self.lower, self.upper, (n, *self.lower.shape))

    def contains(self, theta: Array) -> np.ndarray:
        """Whether each row lies in the box, ``(n,)``."""
        theta = np.asarray(theta)
        event = tuple(range(1, theta.ndim))
        return ((theta >= self.lower) & (theta <= self.upper)).all(event)

    def log_prob(self, theta: Array) -> np.ndarray:
        """The log density of each row, ``(n,)``: a constant in the box and minus infinity outside."""
        return np.where(self.contains(theta), -np.log(self.upper - self.lower).sum(), -np.inf)
