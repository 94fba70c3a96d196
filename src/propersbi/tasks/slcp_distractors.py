r"""SLCP with distractors: the eight data of :mod:`~propersbi.tasks.slcp` among 92 that are not informative.

.. math:: x = P (y, d), \quad y \sim \text{SLCP}(\theta), \quad d \sim \tfrac1{20} \sum_{k=1}^{20} t_2(m_k, L_k L_k^T)

The distractors :math:`d` are one draw from a fixed mixture of t distributions with two degrees of freedom in 92
dimensions: :math:`m_k \sim N(0, 15^2 I)`, and :math:`L_k / 3` is lower triangular with :math:`N(0, 1)` entries, plus
log-normal ones on the diagonal. :math:`P` is a fixed permutation. Locations, triangular matrices and permutation are
drawn, as in sbibm, from NumPy's legacy generator with seed 42, in this order. The posterior is that of SLCP given
:math:`y`.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from propersbi.tasks import slcp
from propersbi.tasks.task import Task

__all__ = ["TASK"]

INFORMATIVE, DISTRACTORS, COMPONENTS = 8, 92, 20


def simulate(theta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Data ``(n, 100)`` for parameters ``(n, 5)``.

    >>> simulate(np.ones((2, 5)), np.random.default_rng(0)).shape
    (2, 100)
    """
    return hide(slcp.simulate(theta, rng), _draw_distractors(len(theta), rng))


def reference_posterior(x: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    """``n`` exact, independent draws ``(n, 5)`` from the posterior of any observation ``(100,)``.

    >>> x = simulate(np.ones((1, 5)), np.random.default_rng(0))[0]
    >>> reference_posterior(x, 3, np.random.default_rng(0)).shape
    (3, 5)
    """
    return slcp.reference_posterior(find(x), n, rng)


def hide(informative: np.ndarray, distractors: np.ndarray) -> np.ndarray:
    """Informative data ``(n, 8)`` and distractors ``(n, 92)`` in the order of the observation, ``(n, 100)``.

    >>> np.flatnonzero(hide(np.ones((1, 8)), np.zeros((1, 92))))
    array([16, 21, 22, 23, 33, 42, 67, 90])
    """
    _, _, permutation = _constants()
    return np.concatenate([informative, distractors], axis=1)[:, permutation]


def find(x: np.ndarray) -> np.ndarray:
    """The eight informative values among the hundred of one observation."""
    _, _, permutation = _constants()
    return x[permutation.argsort()[:INFORMATIVE]]


def _draw_distractors(n: int, rng: np.random.Generator) -> np.ndarray:
    locations, roots, _ = _constants()
    t = rng.standard_normal((n, DISTRACTORS)) * np.sqrt(2 / rng.chisquare(2, (n, 1)))
    component = rng.integers(COMPONENTS, size=n)
    distractors = locations[component]
    for k in range(COMPONENTS):
        distractors[component == k] += t[component == k] @ roots[k].T
    return distractors


@cache
def _constants() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The locations ``(20, 92)`` and roots of scale matrices ``(20, 92, 92)``, and the permutation ``(100,)``."""
    stream = np.random.RandomState(42)
    locations = 15 * stream.standard_normal((COMPONENTS, DISTRACTORS))
    roots = np.empty((COMPONENTS, DISTRACTORS, DISTRACTORS))
    for root in roots:
        root[:] = 3 * np.tril(stream.standard_normal(root.shape))
        np.fill_diagonal(root, root.diagonal() + 3 * np.exp(stream.standard_normal(DISTRACTORS)))
    return locations, roots, stream.permutation(INFORMATIVE + DISTRACTORS)


TASK = Task(
    name="slcp_distractors",
    description="SLCP with distractors: its eight numbers hidden among 92 that say nothing",
    prior=slcp.PRIOR,
    simulator=simulate,
    parameter_names=slcp.TASK.parameter_names,
    theta_shape=(5,),
    x_shape=(INFORMATIVE + DISTRACTORS,),
    posterior=reference_posterior,
)
