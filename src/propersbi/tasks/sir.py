r"""SIR: an epidemic among a million people, seen in samples of a thousand on ten days (Kermack & McKendrick 1927).

.. math::
    \dot S = -\beta S I, \quad \dot I = \beta S I - \gamma I, \quad S_0 = 1 - 10^{-6}, \; I_0 = 10^{-6} \\
    x_k \sim \text{Binomial}(1000, I(17 k)), \; k = 0, \dots, 9, \quad
    \beta \sim \text{LogNormal}(\log 0.4, 0.5), \; \gamma \sim \text{LogNormal}(\log 1/8, 0.2)

with the shares :math:`S` of the susceptible and :math:`I` of the infected; the recovered are the rest. The likelihood
is a product of binomials, and chains draw from the posterior.
"""

from __future__ import annotations

import numpy as np

from propersbi.tasks.reference.chains import sample_by_population
from propersbi.tasks.populations import integrate_logarithms
from propersbi.tasks.priors import LogNormal
from propersbi.tasks.task import Task
from propersbi.types import InputError

__all__ = ["TASK"]

PRIOR = LogNormal(np.log([0.4, 0.125]), [0.5, 0.2])
DAYS = 17.0 * np.arange(10)
TESTED = 1000
_START = np.array([1 - 1e-6, 1e-6])


def simulate(theta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Data ``(n, 10)``, infected people among a thousand, for parameters ``(n, 2)``.

    >>> simulate(np.array([[0.6, 0.2]]), np.random.default_rng(0))
    array([[  0.,   0., 266.,  66.,   6.,   0.,   0.,   0.,   0.,   0.]])
    """
    share = np.exp(log_infected(theta))
    return np.where(np.isnan(share), np.nan, rng.binomial(TESTED, np.nan_to_num(share)))


def reference_posterior(x: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    """``n`` independent draws ``(n, 2)`` of the posterior of any observation ``(10,)``.

    >>> x = simulate(np.array([[0.6, 0.2]]), np.random.default_rng(0))[0]
    >>> reference_posterior(x, 1000, np.random.default_rng(0)).mean(0).round(1)
    array([0.6, 0.2])
    """
    if np.any((x < 0) | (x > TESTED) | (x != np.round(x))):
        raise InputError(f"The observation is impossible under this task: not all counts from 0 to {TESTED}, got {x}.")
    return PRIOR.from_normal(sample_by_population(lambda z: _log_likelihood(PRIOR.from_normal(z), x), 2, n, rng))


def log_infected(theta: np.ndarray) -> np.ndarray:
    """The logarithm of the infected share on the ten days, ``(n, 10)``."""
    beta, gamma = theta.T
    growth, coupling = np.stack([np.zeros_like(gamma), -gamma]), np.stack([-beta, beta])
    log_share = integrate_logarithms(growth, coupling, _START, DAYS)[1].T
    return np.minimum(log_share, -1e-9)  # rounding may not make it one


def _log_likelihood(theta: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Of each day, ``(n, 10)``, up to a constant."""
    log_share = log_infected(theta)
    return x * log_share + (TESTED - x) * np.log(-np.expm1(log_share))


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
