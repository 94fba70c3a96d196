r"""Bernoulli GLM: a neuron that filters a stimulus (Gonçalves et al. 2020, https://doi.org/10.7554/eLife.56261).

In each of 100 time bins it spikes or not,

.. math:: y_t \sim \text{Bernoulli}(1 / (1 + e^{-\psi_t})), \quad \psi = V \theta, \quad x = V^T y

where :math:`\theta` is an offset and a filter of nine taps, and row :math:`t` of the design matrix :math:`V` is
:math:`(1, s_t, s_{t-1}, \dots, s_{t-8})` for a fixed white noise :math:`s`: :math:`x` is the spike count and nine
spike-triggered sums of the stimulus. The prior is Gaussian: the offset has variance 2, the filter :math:`f` is smooth,

.. math:: p(f) \propto \exp(-\tfrac12 |F f|^2), \quad F = D^2 + \text{diag}(\sqrt{0/9}, \dots, \sqrt{8/9})

with first differences :math:`D`. The likelihood depends on the spikes through :math:`x` alone,

.. math:: p(\theta | x) \propto p(\theta) \exp(\theta \cdot x - \sum_t \log(1 + e^{\psi_t}))

and is log-concave: it is sampled by chains whose proposal is centred at the mode, with the curvature at the mode.
"""

from __future__ import annotations

import numpy as np

from propersbi.tasks.priors import Gaussian
from propersbi.tasks.reference.chains import StudentMixture, sample_by_chains
from propersbi.tasks.task import Task
from propersbi.types import InputError

__all__ = ["TASK"]

TAPS = 9


def _lagged_stimulus() -> np.ndarray:
    stimulus = np.random.RandomState(42).randn(100)
    padded = np.concatenate([np.zeros(TAPS - 1), stimulus])
    lags = np.lib.stride_tricks.sliding_window_view(padded, TAPS)[:, ::-1]
    return np.concatenate([np.ones((100, 1)), lags], axis=1)


def _smooth_precision() -> np.ndarray:
    difference = np.eye(TAPS) - np.eye(TAPS, k=-1)
    factor = difference @ difference + np.diag(np.sqrt(np.arange(TAPS) / TAPS))
    precision = np.zeros((1 + TAPS, 1 + TAPS))
    precision[0, 0] = 0.5
    precision[1:, 1:] = factor.T @ factor
    return precision


DESIGN = _lagged_stimulus()
PRECISION = _smooth_precision()
_COVARIANCE = np.linalg.inv(PRECISION)
PRIOR = Gaussian(np.zeros(1 + TAPS), (_COVARIANCE + _COVARIANCE.T) / 2)


def simulate(theta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Data ``(n, 10)``, spike count and spike-triggered sums, for parameters ``(n, 10)``.

    >>> simulate(np.zeros((1, 10)), np.random.default_rng(0)).shape
    (1, 10)
    """
    summaries: np.ndarray = simulate_spikes(theta, rng) @ DESIGN
    return summaries


def simulate_spikes(theta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Spike trains ``(n, 100)`` of zeros and ones."""
    spikes = rng.random((len(theta), len(DESIGN))) < _probability(theta)
    return spikes.astype(float)


def reference_posterior(x: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    """``n`` independent draws ``(n, 10)`` from the posterior of any observation ``(10,)``.

    >>> x = simulate(np.zeros((1, 10)), np.random.default_rng(0))[0]
    >>> reference_posterior(x, 3, np.random.default_rng(0)).shape
    (3, 10)
    """
    lower, upper = -np.maximum(-DESIGN, 0).sum(0), np.maximum(DESIGN, 0).sum(0)
    if np.any((x < lower - 1e-3) | (x > upper + 1e-3)):
        raise InputError(f"The observation is impossible under this task: no spike train has the summaries {x}.")
    mode, curvature = _find_mode(x)
    root = 1.15 * np.linalg.cholesky(np.linalg.inv(curvature))
    proposal = StudentMixture(mode[None], root[None], freedom=10)
    return sample_by_chains(lambda theta: _log_density(theta, x), proposal, n, rng)


def _probability(theta: np.ndarray) -> np.ndarray:
    """The probability of a spike in each bin, in a form that does not overflow."""
    probability: np.ndarray = 0.5 + 0.5 * np.tanh(0.5 * theta @ DESIGN.T)
    return probability


def _log_density(theta: np.ndarray, x: np.ndarray) -> np.ndarray:
    log_prior = -0.5 * ((theta @ PRECISION) * theta).sum(1)
    log_posterior: np.ndarray = log_prior + theta @ x - np.logaddexp(0, theta @ DESIGN.T).sum(1)
    return log_posterior


def _find_mode(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The mode and the curvature at the mode, by Newton's method with step halving."""
    theta = np.zeros((1, 1 + TAPS))
    for _ in range(100):
        probability = _probability(theta)[0]
        gradient = x - DESIGN.T @ probability - PRECISION @ theta[0]
        curvature = PRECISION + (DESIGN.T * (probability * (1 - probability))) @ DESIGN
        step = np.linalg.solve(curvature, gradient)
        if gradient @ step < 1e-9:
            break
        while _log_density(theta + step, x) < _log_density(theta, x):
            step = step / 2
        theta = theta + step
    return theta[0], curvature


TASK = Task(
    name="bernoulli_glm",
    description="Bernoulli GLM: offset and smooth filter of a neuron, from its spike count and spike-triggered sums",
    prior=PRIOR,
    simulator=simulate,
    parameter_names=("offset", *(f"filter_{j}" for j in range(1, 1 + TAPS))),
    theta_shape=(1 + TAPS,),
    x_shape=(1 + TAPS,),
    posterior=reference_posterior,
)
