r"""Lotka-Volterra: prey and predators, observed ten times with an error of ten percent (Lotka 1920, Volterra 1926).

.. math::
    \dot X = \alpha X - \beta X Y, \quad \dot Y = -\gamma Y + \delta X Y, \quad X_0 = 30, \; Y_0 = 1 \\
    \log x_{ik} \sim N(\log u_i(2.1 k), 0.1^2), \quad k = 0, \dots, 9, \quad u = (X, Y) \\
    \log \alpha, \log \gamma \sim N(-0.125, 0.5^2), \quad \log \beta, \log \delta \sim N(-3, 0.5^2)

where :math:`u` is clipped to :math:`[10^{-10}, 10^4]`; ten values of the prey precede ten of the predators. The
likelihood is Gaussian in the logarithms, with ridges and separate modes where oscillations are fast; the posterior is
sampled by chains.
"""

from __future__ import annotations

import numpy as np

from propersbi.tasks.populations import integrate_logarithms
from propersbi.tasks.priors import LogNormal
from propersbi.tasks.reference.chains import sample_by_population
from propersbi.tasks.task import Task
from propersbi.types import InputError

__all__ = ["TASK"]

PRIOR = LogNormal([-0.125, -3.0, -0.125, -3.0], 0.5)
TIMES = 2.1 * np.arange(10)
NOISE = 0.1
_START = np.array([30.0, 1.0])


def simulate(theta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Data ``(n, 20)``, prey and then predators, for parameters ``(n, 4)``.

    >>> simulate(np.array([[0.9, 0.05, 0.9, 0.05]]), np.random.default_rng(0)).shape
    (1, 20)
    """
    return np.exp(rng.normal(log_populations(theta), NOISE))


def reference_posterior(x: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    """``n`` independent draws ``(n, 4)`` from the posterior of any observation ``(20,)``.

    >>> x = simulate(np.array([[0.9, 0.05, 0.9, 0.05]]), np.random.default_rng(0))[0]
    >>> reference_posterior(x, 100, np.random.default_rng(0)).mean(0).round(2)
    array([0.88, 0.05, 0.9 , 0.05])
    """
    if np.any(x <= 0):
        raise InputError(f"The observation is impossible under this task: not all values are positive, got {x}.")
    log_x = np.log(x)
    return PRIOR.from_normal(sample_by_population(lambda z: _log_likelihood(PRIOR.from_normal(z), log_x), 4, n, rng))


def log_populations(theta: np.ndarray) -> np.ndarray:
    """The logarithms of the observed populations, ``(n, 20)``, without error."""
    alpha, beta, gamma, delta = theta.T
    logs = integrate_logarithms(np.stack([alpha, -gamma]), np.stack([-beta, delta]), _START, TIMES)
    clipped: np.ndarray = np.clip(logs, np.log(1e-10), np.log(1e4))
    return clipped.reshape(2 * len(TIMES), -1).T


def _log_likelihood(theta: np.ndarray, log_x: np.ndarray) -> np.ndarray:
    """The log likelihood of each time, ``(n, 10)``, up to a constant."""
    errors = (log_x - log_populations(theta)) / NOISE
    terms: np.ndarray = -0.5 * (errors**2).reshape(-1, 2, len(TIMES)).sum(1)
    return terms


TASK = Task(
    name="lotka_volterra",
    description="Lotka-Volterra: growth and interaction rates of prey and predators, from ten noisy counts of each",
    prior=PRIOR,
    simulator=simulate,
    parameter_names=("alpha", "beta", "gamma", "delta"),
    theta_shape=(4,),
    x_shape=(20,),
    posterior=reference_posterior,
)
