r"""Two interacting populations, integrated by Taylor series.

.. math:: \dot X = X (g_X + c_X Y), \quad \dot Y = Y (g_Y + c_Y X)

Their logarithms have the rates :math:`R_X = g_X + c_X Y` and :math:`R_Y = g_Y + c_Y X`. The right-hand side is
quadratic, so the Taylor coefficients satisfy a recursion,

.. math:: (k + 1) X_{k+1} = \sum_{j \le k} X_j R_{X, k-j}, \quad R_{X, k} = c_X Y_k \; (k \ge 1)

and the same for :math:`Y`; :math:`\log X` increases by :math:`\sum_k R_{X,k} h^{k+1} / (k + 1)` in a step :math:`h`.
The step of each row is the largest for which the last two terms of the series are below a tolerance (Jorba & Zou 2005,
https://doi.org/10.1080/10586458.2005.10128904). Logarithms keep populations positive, and small ones accurate.
"""

from __future__ import annotations

import numpy as np

__all__ = ["integrate_logarithms"]

_ORDER = 13
_TOLERANCE = 1e-7
_MAX_STEPS = 1000


def integrate_logarithms(growth: np.ndarray, coupling: np.ndarray, start: np.ndarray, times: np.ndarray) -> np.ndarray:
    """The logarithms ``(2, len(times), n)`` of both populations at ``times``; the first time is that of ``start``.

    Arguments:
        growth: The rates ``g`` of each row, ``(2, n)``.
        coupling: The rates ``c`` of each row, ``(2, n)``.
        start: Both populations at the first time, ``(2,)``.
        times: The output times, increasing.

    Returns:
        The logarithms; ``nan`` after a row diverges or needs more than a thousand steps.

    >>> growth, coupling = np.array([[1.0], [-1.0]]), np.zeros((2, 1))
    >>> integrate_logarithms(growth, coupling, np.array([1.0, 1.0]), np.array([0.0, 2.0, 3.0]))[..., 0]
    array([[ 0.,  2.,  3.],
           [ 0., -2., -3.]])
    """
    n = growth.shape[1]
    state = np.repeat(np.log(start)[:, None], n, axis=1)
    logs = np.full((2, len(times), n), np.nan)
    logs[:, 0] = state
    rows, now, target = np.arange(n), np.full(n, times[0]), np.ones(n, int)
    for _ in range(_MAX_STEPS):
        with np.errstate(all="ignore"):  # rows that overflow are dropped below
            series = _series(state, growth, coupling)
            remaining = times[target] - now
            step = np.minimum(_longest_step(series), remaining)
            state, now = state + _evaluate(series, step), now + step
        at_target = step == remaining
        logs[:, target[at_target], rows[at_target]] = state[:, at_target]
        target = target + at_target
        active = (target < len(times)) & np.isfinite(state).all(0)
        rows, now, target = rows[active], now[active], target[active]
        state, growth, coupling = state[:, active], growth[:, active], coupling[:, active]
        if not len(rows):
            break
    return logs


def _series(state: np.ndarray, growth: np.ndarray, coupling: np.ndarray) -> np.ndarray:
    """The Taylor coefficients of the increase of the logarithms, of orders 1, 2, ..., ``(order, 2, n)``."""
    population = np.empty((_ORDER, *state.shape))
    rate = np.empty_like(population)
    population[0] = np.exp(state)
    rate[0] = growth + coupling * population[0, ::-1]
    for k in range(1, _ORDER):
        population[k] = np.einsum("kin,kin->in", population[:k], rate[k - 1 :: -1]) / k
        rate[k] = coupling * population[k, ::-1]
    coefficients: np.ndarray = rate / np.arange(1, _ORDER + 1)[:, None, None]
    return coefficients


def _longest_step(series: np.ndarray) -> np.ndarray:
    steps = [(_TOLERANCE / np.abs(series[order - 1]).max(0)) ** (1 / order) for order in (_ORDER - 1, _ORDER)]
    shorter: np.ndarray = np.minimum(*steps)
    return shorter


def _evaluate(series: np.ndarray, step: np.ndarray) -> np.ndarray:
    """The increase over a step, by Horner's method."""
    increase: np.ndarray = np.zeros_like(series[0])
    for coefficient in series[::-1]:
        increase = (increase + coefficient) * step
    return increase
