r"""Two Moons: a posterior of two thin crescents (Greenberg et al. 2019, https://arxiv.org/abs/1905.07488).

.. math::
    p = (r \cos a + 1/4,\; r \sin a), \quad a \sim U(-\pi/2, \pi/2), \quad r \sim N(0.1, 0.01^2) \\
    x = p + (-|z_0|, z_1), \quad z = \big((\theta_1 + \theta_2), (\theta_2 - \theta_1)\big) / \sqrt 2,
    \quad \theta \sim U(-1, 1)^2

:math:`z` is :math:`\theta` rotated by 45 degrees, so a uniform prior on :math:`\theta` is uniform in :math:`z`, and
:math:`p(\theta | x) \propto p_P(x_0 + |z_0|, x_1 - z_1)` inside the square. Hence an exact sampler: draw the noise
:math:`p`, solve for :math:`z_1 = x_1 - p_1` and :math:`|z_0| = p_0 - x_0`, give :math:`z_0` a random sign, rotate back,
and reject draws without a solution (:math:`p_0 < x_0`) or outside the square.
"""

from __future__ import annotations

import numpy as np

from propersbi.tasks.priors import BoxUniform
from propersbi.tasks.reference.rejection import sample_by_rejection
from propersbi.tasks.task import Task

__all__ = ["TASK"]

PRIOR = BoxUniform([-1.0, -1.0], [1.0, 1.0])


def simulate(theta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Data ``(n, 2)`` for parameters ``(n, 2)``.

    >>> simulate(np.zeros((1, 2)), np.random.default_rng(0)).round(3)
    array([[0.34 , 0.041]])
    """
    z = _rotate(theta)
    x: np.ndarray = _crescent(len(theta), rng) + np.stack([-np.abs(z[:, 0]), z[:, 1]], axis=1)
    return x


def reference_posterior(x: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    """``n`` exact, independent draws ``(n, 2)`` from the posterior of any observation ``(2,)``.

    >>> reference_posterior(np.array([-0.64, 0.16]), 2, np.random.default_rng(0)).round(2)
    array([[ 0.61,  0.78],
           [-0.85, -0.52]])
    """
    return sample_by_rejection(lambda size, rng: _propose(x, size, rng), n, rng)


def _propose(x: np.ndarray, size: int, rng: np.random.Generator) -> np.ndarray:
    p = _crescent(size, rng)
    sign = rng.choice([-1.0, 1.0], size)
    z = np.stack([sign * (p[:, 0] - x[0]), x[1] - p[:, 1]], axis=1)
    theta = _rotate_back(z)
    accepted: np.ndarray = theta[PRIOR.contains(theta) & (p[:, 0] >= x[0])]
    return accepted


def _crescent(n: int, rng: np.random.Generator) -> np.ndarray:
    """The noise: points near a half circle."""
    a = rng.uniform(-np.pi / 2, np.pi / 2, n)
    r = rng.normal(0.1, 0.01, n)
    return np.stack([r * np.cos(a) + 0.25, r * np.sin(a)], axis=1)


def _rotate(theta: np.ndarray) -> np.ndarray:
    z: np.ndarray = np.stack([theta[:, 0] + theta[:, 1], theta[:, 1] - theta[:, 0]], axis=1) / np.sqrt(2)
    return z


def _rotate_back(z: np.ndarray) -> np.ndarray:
    theta: np.ndarray = np.stack([z[:, 0] - z[:, 1], z[:, 0] + z[:, 1]], axis=1) / np.sqrt(2)
    return theta


TASK = Task(
    name="two_moons",
    description="Two moons: a bimodal posterior of two thin crescents in the plane",
    prior=PRIOR,
    simulator=simulate,
    parameter_names=("theta_1", "theta_2"),
    theta_shape=(2,),
    x_shape=(2,),
    posterior=reference_posterior,
    training={"emulated": 0, "optimizer": "soap", "max_steps": 1750},  # a demonstration is short
)
