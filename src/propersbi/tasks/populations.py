r"""Two populations that feed on each other, integrated by their Taylor series.

.. math:: \dot X = X (g_X + c_X Y), \quad \dot Y = Y (g_Y + c_Y X)

Their logarithms have the rates :math:`R_X = g_X + c_X Y` and :math:`R_Y = g_Y + c_Y X`. The right-hand side is
quadratic, so the coefficients in powers of time follow from each other,

.. math:: (k + 1) X_{k+1} = \sum_{j \le k} X_j R_{X, k-j}, \quad R_{X, k} = c_X Y_k \; (k \ge 1)

and the same for :math:`Y`; :math:`\log X` gains :math:`\sum_k R_{X,k} h^{k+1} / (k + 1)` over a step :math:`h`. Each
row chooses its own steps: as long as the last two terms of the series are below a tolerance (Jorba & Zou 2005,
https://doi.org/10.1080/10586458.2005.10128904). Logarithms keep populations positive, and small ones precise.
"""

from __future__ import annotations

import numpy as np

__all__ = ["integrate_logarithms"]

_ORDER = 13
_TOLERANCE = 1e-7
_MOST_STEPS = 1000


def integrate_logarithms(growth: np.ndarray, coupling: np.ndarray, start: np.ndarray, times: np.ndarray) -> np.ndarray:
    """The logarithms ``(2, len(times), n)`` of both populations at ``times``, of which the first is that of ``start``.

    Arguments:
        growth: The rates ``g`` of each row, ``(2, n)``.
        coupling: The rates ``c`` of each row, ``(2, n)``.
        start: Both populations at the first time, ``(2,)``.
        times: When to look, increasing.

    Returns:
        The logarithms; ``nan`` once a row is beyond what can be integrated in a thousand steps.

    >>> growth, coupling = np.array([[1.0], [-1.0]]), np.zeros((2, 1))
    >>> integrate_logarithms(growth, coupling, np.array([1.0, 1.0]), np.array([0.0, 2.0, 3.0]))[..., 0]
    array([[ 0.,  2.,  3.],
           [ 0., -2., -3.]])
    """
    n = growth.shape[1]
    state = np.repeat(np.log(start)[:, None], n, axis=1)
    logs = np.full((2, len(times), n), np.nan)
    logs[:, 0] = state
    rows, now, look = np.arange(n), np.full(n, times[0]), np.ones(n, int)
    for _ in range(_MOST_STEPS):
        with np.errstate(all="ignore"):  # a row may overflow: it is then given up
            series = _series(state, growth, coupling)
            rest = times[look] - now
            step = np.minimum(_longest_step(series), rest)
            state, now = state + _evaluate(series, step), now + step
        arrived = step == rest
        logs[:, look[arrived], rows[arrived]] = state[:, arrived]
        look = look + arrived
        left = (look < len(times)) & np.isfinite(state).all(0)
        rows, now, look = rows[left], now[left], look[left]
        state, growth, coupling = state[:, left], growth[:, left], coupling[:, left]
        if not len(rows):
            break
    return logs


def _series(state: np.ndarray, growth: np.ndarray, coupling: np.ndarray) -> np.ndarray:
    """The coefficients of the logarithms' gain, of orders 1, 2, ..., ``(order, 2, n)``."""
    population = np.empty((_ORDER, *state.shape))
    rate = np.empty_like(population)
    population[0] = np.exp(state)
    rate[0] = growth + coupling * population[0, ::-1]
    for k in range(1, _ORDER):
        population[k] = np.einsum("kin,kin->in", population[:k], rate[k - 1 :: -1]) / k
        rate[k] = coupling * population[k, ::-1]
    return rate / np.arange(1, _ORDER + 1)[:, None, None]


def _longest_step(series: np.ndarray) -> np.ndarray:
    steps = [(_TOLERANCE / np.abs(series[order - 1]).max(0)) ** (1 / order) for order in (_ORDER - 1, _ORDER)]
    return np.minimum(*steps)


def _evaluate(series: np.ndarray, step: np.ndarray) -> np.ndarray:
    gain = np.zeros_like(series[0])
    for coefficient in series[::-1]:
        gain = (gain + coefficient) * step
    return gain
