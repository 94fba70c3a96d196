r"""Gaussian Linear: the mean of a Gaussian distribution under a Gaussian prior, in ten dimensions.

.. math:: x \sim N(\theta, 0.1 I), \quad \theta \sim N(0, 0.1 I) \quad\Rightarrow\quad
    \theta | x \sim N(x / 2, 0.05 I)
"""

from __future__ import annotations

import numpy as np

from propersbi.tasks.priors import Gaussian
from propersbi.tasks.task import Task

__all__ = ["TASK"]

VARIANCE = 0.1
PRIOR = Gaussian(np.zeros(10), VARIANCE * np.eye(10))


def simulate(theta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Data ``(n, 10)`` for parameters ``(n, 10)``.

    >>> simulate(np.zeros((1, 10)), np.random.default_rng(0)).shape
    (1, 10)
    """
    return rng.normal(theta, VARIANCE**0.5)


def reference_posterior(x: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    """``n`` exact, independent draws ``(n, 10)`` from the posterior of any observation ``(10,)``.

    >>> reference_posterior(np.zeros(10), 3, np.random.default_rng(0)).shape
    (3, 10)
    """
    return rng.normal(x / 2, (VARIANCE / 2) ** 0.5, (n, 10))


TASK = Task(
    name="gaussian_linear",
    description="Gaussian linear: the mean of a ten-dimensional Gaussian, Gaussian prior",
    prior=PRIOR,
    simulator=simulate,
    parameter_names=tuple(f"theta_{j}" for j in range(1, 11)),
    theta_shape=(10,),
    x_shape=(10,),
    posterior=reference_posterior,
)
