r"""SIR: an epidemic among a million people, observed by testing a thousand on ten days (Kermack & McKendrick 1927).

.. math::
    \dot S = -\beta S I, \quad \dot I = \beta S I - \gamma I, \quad S_0 = 1 - 10^{-6}, \; I_0 = 10^{-6} \\
    x_k \sim \text{Binomial}(1000, I(17 k)), \; k = 0, \dots, 9, \quad
    \beta \sim \text{LogNormal}(\log 0.4, 0.5), \; \gamma \sim \text{LogNormal}(\log 1/8, 0.2)

with the fractions :math:`S` of the susceptible and :math:`I` of the infected; the rest have recovered. The likelihood
is a product of binomials; the posterior is sampled by chains.
"""

from __future__ import annotations

import numpy as np

from propersbi.tasks.populations import integrate_logarithms
from propersbi.tasks.priors import LogNormal
from propersbi.tasks.reference.chains import sample_by_population
from propersbi.tasks.task import Task
from propersbi.types import InputError

__all__ = ["TASK"]

PRIOR = LogNormal(np.log([0.4, 0.125]), [0.5, 0.2])
DAYS = 17.0 * np.arange(10)
NUM_TESTED = 1000
_START = np.array([1 - 1e-6, 1e-6])


def simulate(theta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Data ``(n, 10)``, the number of infected among a thousand tested, for parameters ``(n, 2)``.

    >>> simulate(np.array([[0.6, 0.2]]), np.random.default_rng(0))
    array([[  0.,   0., 266.,  66.,   6.,   0.,   0.,   0.,   0.,   0.]])
    """
    fraction = np.exp(log_infected(theta))
    return np.where(np.isnan(fraction), np.nan, rng.binomial(NUM_TESTED, np.nan_to_num(fraction)))


def reference_posterior(x: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    """``n`` independent draws ``(n, 2)`` from the posterior of any observation ``(10,)``.

    >>> x = simulate(np.array([[0.6, 0.2]]), np.random.default_rng(0))[0]
    >>> reference_posterior(x, 1000, np.random.default_rng(0)).mean(0).round(1)
    array([0.6, 0.2])
    """
    if np.any((x < 0) | (x > NUM_TESTED) | (x != np.round(x))):
        raise InputError(f"The observation is impossible under this task: counts are from 0 to {NUM_TESTED}, got {x}.")
    return PRIOR.from_normal(sample_by_population(lambda z: _log_likelihood(PRIOR.from_normal(z), x), 2, n, rng))


def log_infected(theta: np.ndarray) -> np.ndarray:
    """The logarithm of the infected fraction on the ten days, ``(n, 10)``."""
    beta, gamma = theta.T
    growth, coupling = np.stack([np.zeros_like(gamma), -gamma]), np.stack([-beta, beta])
    log_fraction: np.ndarray = np.minimum(integrate_logarithms(growth, coupling, _START, DAYS)[1].T, -1e-9)
    return log_fraction  # below zero in spite of rounding


def _log_likelihood(theta: np.ndarray, x: np.ndarray) -> np.ndarray:
    """The log likelihood of each day, ``(n, 10)``, up to a constant."""
    log_fraction = log_infected(theta)
    terms: np.ndarray = x * log_fraction + (NUM_TESTED - x) * np.log(-np.expm1(log_fraction))
    return terms


TASK = Task(
    name="sir",
    description="SIR: contact and recovery rates of an epidemic, from counts on ten days",
    prior=PRIOR,
    simulator=simulate,
    parameter_names=("beta", "gamma"),
    theta_shape=(2,),
    x_shape=(10,),
    posterior=reference_posterior,
)
