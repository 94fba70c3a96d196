r"""The truncated normal distribution, accurate even if the bounds are far in a tail.

.. math:: p(\theta) \propto \exp(-\tfrac12 (\theta - \mu)^2 / \sigma^2), \quad l \le \theta \le u

If the mean is between the bounds, normal draws are accepted if they are. Otherwise, with the mean :math:`a > 0`
standard deviations outside, the tail is close to exponential: the excess :math:`e \ge 0` over the nearer bound, in
standard deviations, is proposed with rate :math:`r = (a + \sqrt{a^2 + 4}) / 2` and accepted with probability
:math:`\exp(-\tfrac12 (e - 1/r)^2)`, at least 3/4 on average (Robert 1995, https://arxiv.org/abs/0907.4010).
"""

from __future__ import annotations

from math import erfc, expm1, hypot, log, log1p, pi, sqrt

import numpy as np

from propersbi.tasks.reference.rejection import sample_by_rejection

__all__ = ["log_mass_between", "sample_between"]

_ASYMPTOTIC = 30.0
"""Standard deviations above which ``erfc`` may underflow and its asymptotic series is accurate to eight digits."""


def sample_between(
    lower: float, upper: float, mean: float, scale: float, n: int, rng: np.random.Generator
) -> np.ndarray:
    """``n`` exact, independent draws ``(n,)`` between bounds that are not much closer than ``scale``.

    >>> sample_between(-1.0, 1.0, 1e6, 1.0, 3, np.random.default_rng(0)) > 0.9999
    array([ True,  True,  True])
    """
    if lower + upper < 2 * mean:
        return -sample_between(-upper, -lower, -mean, scale, n, rng)

    def inside(size: int, rng: np.random.Generator) -> np.ndarray:
        theta = rng.normal(mean, scale, size)
        return theta[(theta >= lower) & (theta <= upper)]

    def in_tail(size: int, rng: np.random.Generator) -> np.ndarray:
        excess = rng.standard_exponential(size) / rate
        accepted = rng.standard_exponential(size) > 0.5 * (excess - 1 / rate) ** 2
        theta = lower + scale * excess
        return theta[accepted & (theta <= upper)]

    distance = (lower - mean) / scale
    rate = (distance + hypot(distance, 2)) / 2
    return sample_by_rejection(inside if distance <= 0 else in_tail, n, rng)


def log_mass_between(lower: float, upper: float, mean: float, scale: float) -> float:
    """The logarithm of the probability that a normal variable lies between the bounds.

    >>> round(log_mass_between(-1.96, 1.96, 0.0, 1.0), 3), round(log_mass_between(100.0, 200.0, 0.0, 1.0), 3)
    (-0.051, -5005.524)
    """
    a, b = (lower - mean) / scale, (upper - mean) / scale
    if a + b < 0:
        a, b = -b, -a
    near, far = _log_tail(a), _log_tail(b)
    return near + log(-expm1(far - near))


def _log_tail(z: float) -> float:
    """The logarithm of the probability of more than ``z`` standard deviations above the mean."""
    if z < _ASYMPTOTIC:
        return log(erfc(z / sqrt(2)) / 2)
    return -z * z / 2 - log(z * sqrt(2 * pi)) + log1p(-1 / z**2 + 3 / z**4)
