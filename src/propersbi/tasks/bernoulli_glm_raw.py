r"""Bernoulli GLM, raw: :mod:`~propersbi.tasks.bernoulli_glm` observed by its 100 spikes in place of ten sums of them.

The likelihood depends on the spikes :math:`y` through :math:`V^T y` alone, so the posterior is that of the sums; a
method has to find them among the hundred numbers.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from propersbi.tasks import bernoulli_glm
from propersbi.tasks.bernoulli_glm import DESIGN, simulate_spikes
from propersbi.types import InputError

__all__ = ["TASK"]


def reference_posterior(x: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    """``n`` independent draws ``(n, 10)`` from the posterior of any spike train ``(100,)``.

    >>> x = simulate_spikes(np.zeros((1, 10)), np.random.default_rng(0))[0]
    >>> reference_posterior(x, 3, np.random.default_rng(0)).shape
    (3, 10)
    """
    if not np.isin(x, (0, 1)).all():
        raise InputError("The observation is impossible under this task: spikes are 0 or 1.")
    return bernoulli_glm.reference_posterior(x @ DESIGN, n, rng)


TASK = replace(
    bernoulli_glm.TASK,
    name="bernoulli_glm_raw",
    description="Bernoulli GLM, raw: offset and smooth filter of a neuron, from its spikes in 100 time bins",
    simulator=simulate_spikes,
    x_shape=(len(DESIGN),),
    posterior=reference_posterior,
)
