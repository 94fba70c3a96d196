r"""Gaussian Linear Uniform: the mean of a Gaussian distribution under a uniform prior, in ten dimensions.

.. math:: x \sim N(\theta, 0.1 I), \quad \theta \sim U(-1, 1)^{10}

The posterior is :math:`N(x, 0.1 I)` truncated to the box: its coordinates are independent truncated normals.
"""

from __future__ import annotations

import numpy as np

from propersbi.tasks.priors import BoxUniform
from propersbi.tasks.reference.truncation import sample_between
from propersbi.tasks.task import Task

__all__ = ["TASK"]

SCALE = 0.1**0.5
PRIOR = BoxUniform([-1.0] * 10, [1.0] * 10)


def simulate(theta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Data ``(n, 10)`` for parameters ``(n, 10)``.

    >>> simulate(np.zeros((1, 10)), np.random.default_rng(0)).shape
    (1, 10)
    """
    return rng.normal(theta, SCALE)


def reference_posterior(x: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    """``n`` exact, independent draws ``(n, 10)`` from the posterior of any observation ``(10,)``.

    >>> reference_posterior(np.full(10, 100.0), 3, np.random.default_rng(0)).min().round(1)
    np.float64(1.0)
    """
    return np.stack([sample_between(-1.0, 1.0, mean, SCALE, n, rng) for mean in x], axis=1)


TASK = Task(
    name="gaussian_linear_uniform",
    description="Gaussian linear uniform: the mean of a ten-dimensional Gaussian, uniform prior",
    prior=PRIOR,
    simulator=simulate,
    parameter_names=tuple(f"theta_{j}" for j in range(1, 11)),
    theta_shape=(10,),
    x_shape=(10,),
    posterior=reference_posterior,
)
