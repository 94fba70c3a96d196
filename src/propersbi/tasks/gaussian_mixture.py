r"""Gaussian Mixture: a wide and a narrow Gaussian with the same mean (Sisson et al. 2007,
https://doi.org/10.1073/pnas.0607208104), one of which generates the data.

.. math:: x \sim \tfrac12 N(\theta, I) + \tfrac12 N(\theta, 0.01 I), \quad \theta \sim U(-10, 10)^2

The posterior is :math:`\tfrac12 N(x, I) + \tfrac12 N(x, 0.01 I)` truncated to the box. The weight of a component is
proportional to its mass inside, and given the component, coordinates are independent truncated normals.
"""

from __future__ import annotations

from math import exp

import numpy as np

from propersbi.tasks.priors import BoxUniform
from propersbi.tasks.reference.truncation import log_mass_between, sample_between
from propersbi.tasks.task import Task

__all__ = ["TASK"]

BOUND = 10.0
SCALES = (1.0, 0.1)
PRIOR = BoxUniform([-BOUND, -BOUND], [BOUND, BOUND])


def simulate(theta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Data ``(n, 2)`` for parameters ``(n, 2)``.

    >>> simulate(np.zeros((3, 2)), np.random.default_rng(0)).shape
    (3, 2)
    """
    return rng.normal(theta, rng.choice(SCALES, (len(theta), 1)))


def reference_posterior(x: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    """``n`` exact, independent draws ``(n, 2)`` from the posterior of any observation ``(2,)``.

    >>> reference_posterior(np.array([-9.5, -1.5]), 3, np.random.default_rng(0)).shape
    (3, 2)
    """
    num_wide = rng.binomial(n, _probability_of_wide(x))
    components = []
    for scale, size in zip(SCALES, (num_wide, n - num_wide), strict=True):
        if size:
            components.append(np.stack([sample_between(-BOUND, BOUND, mean, scale, size, rng) for mean in x], axis=1))
    return rng.permutation(np.concatenate(components))


def _probability_of_wide(x: np.ndarray) -> float:
    wide, narrow = (sum(log_mass_between(-BOUND, BOUND, float(mean), scale) for mean in x) for scale in SCALES)
    return 1 / (1 + exp(narrow - wide))


TASK = Task(
    name="gaussian_mixture",
    description="Gaussian mixture: the common mean of a wide and a narrow Gaussian in the plane",
    prior=PRIOR,
    simulator=simulate,
    parameter_names=("theta_1", "theta_2"),
    theta_shape=(2,),
    x_shape=(2,),
    posterior=reference_posterior,
)
