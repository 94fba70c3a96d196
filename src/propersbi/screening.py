r"""Numbers of the data that say nothing about the parameters.

With many such numbers a network memorises single simulations before it has found the few that matter. A number
:math:`x_j` is unrelated if no dependence is found between it and the parameters, the related numbers, or the products
of the two. All are replaced by Legendre polynomials :math:`\varphi_a` of their ranks, so that dependence need be
neither linear nor in the mean; with an orthonormal basis :math:`q_b` of what :math:`x_j` is compared with,

.. math:: S_j = n \sum_{a, b} \langle \varphi_a(x_j), q_b \rangle^2

has a :math:`\chi^2` distribution if there is none. What is found to depend is related, and the rest is compared with it
again, so that a number which matters only together with a related one is found. In the end the unrelated numbers
together must show no dependence either: :math:`\sum_j S_j` is compared with its values for permuted rows.
"""

from __future__ import annotations

import numpy as np
from scipy.stats import chi2, rankdata

__all__ = ["unrelated_numbers"]

DEGREE = 3  # of the polynomials
LEVEL = 0.01  # probability of taking one of all unrelated numbers for a related one, and of each test of their sum
PERMUTATIONS = 200
MOST_COMPARED = 0.2  # of the number of rows: functions that a number can be compared with
TINY = 1e-6  # singular values of functions that are zero by rounding


def unrelated_numbers(theta: np.ndarray, x: np.ndarray) -> list[int]:
    """The places of the numbers in ``x`` ``(n, numbers)`` that say nothing about ``theta`` ``(n, parameters)``.

    None at all if there is too little evidence, or if those that seem unrelated depend on the parameters together.

    Examples:
        >>> rng = np.random.default_rng(0)
        >>> theta, x = rng.normal(size=(1000, 1)), rng.normal(size=(1000, 6))
        >>> x[:, 2] *= 1 + theta[:, 0] ** 2
        >>> unrelated_numbers(theta, x)
        [0, 1, 3, 4, 5]
    """
    parameters, numbers = _polynomials(theta), _polynomials(x)
    own = _orthonormal(numbers.transpose(1, 0, 2))
    freedom = np.maximum(_dimensions(own), 1)
    related = np.zeros(x.shape[1], bool)
    alone = compared = _orthonormal(parameters.reshape(len(x), -1))
    while True:
        rest = np.flatnonzero(~related)
        if not len(rest) or _dimensions(compared) > MOST_COMPARED * len(x):
            return []
        dependence = len(x) * np.square(own[rest].transpose(0, 2, 1) @ compared).sum((1, 2))
        likely = chi2.sf(dependence, freedom[rest] * _dimensions(compared))
        found = rest[likely < LEVEL / x.shape[1]]
        if not len(found):
            break
        related[found] = True
        products = numbers[:, related, :1] * parameters[:, None, :, 0]
        parts = [parameters, numbers[:, related], products]
        compared = _orthonormal(np.concatenate([part.reshape(len(x), -1) for part in parts], 1))
    if not related.any() or _dependent(own[rest], alone) or _dependent(own[rest], compared):
        return []
    return [int(j) for j in rest]


def _polynomials(values: np.ndarray) -> np.ndarray:
    """Legendre polynomials of the ranks of each column, ``(n, columns, degree)``, with mean zero."""
    ranks = 2 * rankdata(values, axis=0) / (len(values) + 1) - 1
    found = np.polynomial.legendre.legvander(ranks, DEGREE)[..., 1:]
    centred: np.ndarray = found - found.mean(0)
    return centred


def _orthonormal(functions: np.ndarray) -> np.ndarray:
    """An orthonormal basis of columns ``(..., n, k)``; zeros where there are fewer than k dimensions."""
    centred = functions - functions.mean(-2, keepdims=True)
    basis, size, _ = np.linalg.svd(centred, full_matrices=False)
    largest = size.max(-1, keepdims=True)
    return np.where((size > TINY * largest)[..., None, :] & (largest > 0)[..., None, :], basis, 0.0)


def _dimensions(basis: np.ndarray) -> np.ndarray:
    """How many columns of orthonormal bases are not zero."""
    return np.asarray(basis.any(-2).sum(-1))


def _dependent(own: np.ndarray, compared: np.ndarray) -> bool:
    """Whether numbers together depend on what they are compared with."""
    rng, flat = np.random.default_rng(0), own.transpose(1, 0, 2).reshape(len(compared), -1)
    total = np.square(flat.T @ compared).sum()
    by_chance = [np.square(flat.T @ rng.permutation(compared)).sum() for _ in range(PERMUTATIONS)]
    return bool((1 + np.sum(by_chance >= total)) / (1 + PERMUTATIONS) < LEVEL)
