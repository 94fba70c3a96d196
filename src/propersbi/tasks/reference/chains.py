r"""Independent draws from a posterior whose likelihood can be evaluated.

**Chains.** Every draw is the last state of its own Metropolis chain. The initial state and all proposals are drawn from
a fixed distribution :math:`q` close to the target :math:`p`, and a move is accepted with probability
:math:`\min(1, w' / w)`, :math:`w = p / q`. After :math:`k` steps the chain is within

.. math:: (1 - 1 / w_*)^k, \quad w_* = \max w / E_q w

of the target in total variation (Mengersen & Tweedie 1996, https://doi.org/10.1214/aos/1033066201): within 0.001 for
:math:`k = 7 w_*`, with :math:`w_*` estimated from a pilot sample. There is no burn-in, and all proposals can be
evaluated at once.

**Population.** For targets of complicated shape, :math:`q` is a mixture of t distributions centred at members of a
population, fitted sequentially. The population starts from the prior; data enter one after another, in the order of
time, so that it is not trapped by a likelihood with many ridges. In each round, data are added until the effective
sample size is a tenth of the population, centres are resampled by weight, and the next population is drawn from the
mixture around them, each component as wide as its neighbourhood.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, inf, lgamma, log, pi

import numpy as np

from propersbi.types import InputError

__all__ = ["StudentMixture", "fit_mixture", "sample_by_chains", "sample_by_population"]

LogDensity = Callable[[np.ndarray], np.ndarray]
"""``(n, p) -> (n,)``, up to a constant."""

_LOG_ZERO = -1e300
"""Replaces minus infinity, whose differences are undefined."""

_PROPOSALS_PER_BATCH = 20_000
_MAX_STEPS = 300
"""Limits the time; enough for weights up to 40 times their mean."""

_POPULATION_SIZE = 1500
_NUM_CENTRES = 100
_MAX_ROUNDS = 60
_NEIGHBOURHOOD = 0.1
"""The fraction of the population that defines the width of a component."""

_EFFECTIVE_FRACTION = 10
"""The effective sample size of a round is the population divided by this."""

_WIDTH = 1.2
_DEGREES_OF_FREEDOM = 10.0
_ACCEPTABLE_WEIGHT = 10.0
"""The fit ends below this largest weight; above it, another round costs less than longer chains."""


@dataclass(frozen=True)
class StudentMixture:
    """A mixture of multivariate t distributions of equal weight.

    Arguments:
        centres: Their locations, ``(k, p)``.
        roots: Square roots of their scale matrices, ``(k, p, p)``.
        freedom: The degrees of freedom.

    >>> mixture = StudentMixture(np.zeros((1, 2)), np.eye(2)[None], freedom=1e9)
    >>> mixture.log_prob(np.array([[0.0, 1.0]])).round(4)  # of a Gaussian
    array([-2.3379])
    """

    centres: np.ndarray
    roots: np.ndarray
    freedom: float

    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """``n`` independent draws, ``(n, p)``."""
        k, p = self.centres.shape
        component = rng.integers(k, size=n)
        t = rng.standard_normal((n, p)) * np.sqrt(self.freedom / rng.chisquare(self.freedom, (n, 1)))
        draws: np.ndarray = self.centres[component] + np.einsum("nij,nj->ni", self.roots[component], t)
        return draws

    def log_prob(self, theta: np.ndarray) -> np.ndarray:
        """The log density of each row, ``(n,)``."""
        p, df = self.centres.shape[1], self.freedom
        whiten = np.linalg.inv(self.roots)
        offsets = np.einsum("kij,kj->ik", whiten, self.centres)
        distance = np.zeros((len(theta), len(self.centres)))
        for rows, offset in zip(whiten.swapaxes(0, 1), offsets, strict=True):
            distance += (theta @ rows.T - offset) ** 2
        constant = lgamma((df + p) / 2) - lgamma(df / 2) - p / 2 * log(df * pi)
        logs = constant - np.linalg.slogdet(self.roots)[1] - (df + p) / 2 * np.log1p(distance / df)
        largest = logs.max(1)
        log_mean: np.ndarray = largest + np.log(np.exp(logs - largest[:, None]).mean(1))
        return log_mean


def sample_by_chains(log_density: LogDensity, proposal: StudentMixture, n: int, rng: np.random.Generator) -> np.ndarray:
    """``n`` independent draws ``(n, p)`` from a density that is close to ``proposal``.

    >>> proposal = StudentMixture(np.zeros((1, 1)), np.ones((1, 1, 1)), freedom=5)
    >>> draws = sample_by_chains(lambda theta: -((theta[:, 0] - 1) ** 2), proposal, 10_000, np.random.default_rng(0))
    >>> draws.mean().round(1), draws.var().round(1)
    (np.float64(1.0), np.float64(0.5))
    """

    def log_weight(theta: np.ndarray) -> np.ndarray:
        difference: np.ndarray = log_density(theta) - proposal.log_prob(theta)
        return difference

    pilot = log_weight(proposal.sample(_POPULATION_SIZE, rng))
    steps = min(ceil(7 * _largest_weight(pilot)), _MAX_STEPS)
    size = max(1, _PROPOSALS_PER_BATCH // steps)
    return np.concatenate([_run_chains(log_weight, proposal, min(size, n - i), steps, rng) for i in range(0, n, size)])


def _run_chains(
    log_weight: LogDensity, proposal: StudentMixture, n: int, steps: int, rng: np.random.Generator
) -> np.ndarray:
    """The last states of ``n`` chains."""
    theta = proposal.sample((steps + 1) * n, rng)
    weight = log_weight(theta).reshape(steps + 1, n)
    chain, state = np.arange(n), np.zeros(n, int)
    for step in range(1, steps + 1):
        accepted = -rng.standard_exponential(n) < weight[step] - weight[state, chain]
        state[accepted] = step
    return theta.reshape(steps + 1, n, -1)[state, chain]


def sample_by_population(log_likelihood: LogDensity, p: int, n: int, rng: np.random.Generator) -> np.ndarray:
    """``n`` independent draws ``(n, p)`` from the posterior of ``p`` parameters with a standard normal prior.

    Arguments:
        log_likelihood: ``(n, p) -> (n, k)``, one term for each of ``k`` data in the order of time; ``nan`` means a
            likelihood of zero.
        p: The number of parameters.
        n: The number of draws.
        rng: The random generator.

    >>> draws = sample_by_population(lambda z: -((z - 1) ** 2), 2, 2000, np.random.default_rng(0))
    >>> draws.mean().round(1), draws.var().round(1)
    (np.float64(0.7), np.float64(0.3))
    """

    def terms(z: np.ndarray) -> np.ndarray:
        return np.nan_to_num(log_likelihood(z), nan=_LOG_ZERO, neginf=_LOG_ZERO)

    proposal = fit_mixture(terms, p, rng)
    return sample_by_chains(lambda z: terms(z).sum(1) - 0.5 * (z**2).sum(1), proposal, n, rng)


def fit_mixture(log_likelihood: LogDensity, p: int, rng: np.random.Generator) -> StudentMixture:
    """A mixture that approximates that posterior well enough to be the proposal of chains.

    >>> mixture = fit_mixture(lambda z: -50 * (np.abs(z) - 1) ** 2, 2, np.random.default_rng(0))  # four modes
    >>> np.unique(np.sign(mixture.centres), axis=0).shape
    (4, 2)
    """
    mixture, num_terms = StudentMixture(np.zeros((1, p)), np.eye(p)[None], _DEGREES_OF_FREEDOM), 0.0
    best, lowest = None, inf
    for _ in range(_MAX_ROUNDS):
        z = mixture.sample(_POPULATION_SIZE, rng)
        terms = log_likelihood(z)
        prior = -0.5 * (z**2).sum(1) - mixture.log_prob(z)
        if num_terms == terms.shape[1] and (largest := _largest_weight(prior + terms.sum(1))) < lowest:
            best, lowest = mixture, largest
        if best is not None and lowest < _ACCEPTABLE_WEIGHT:
            return best
        num_terms = _add_terms(prior, terms, num_terms)
        mixture = _smooth(z, _weights(prior, terms, num_terms), rng)
    if best is None:
        raise InputError(
            "The observation is impossible, or nearly so, under this task: "
            f"{_MAX_ROUNDS} rounds did not find its posterior."
        )
    return best


def _add_terms(prior: np.ndarray, terms: np.ndarray, num_terms: float) -> float:
    """The number of terms at which a tenth of the population is effective; not smaller than ``num_terms``."""
    low, high = num_terms, float(terms.shape[1])
    threshold = len(prior) / _EFFECTIVE_FRACTION
    if _effective_size(_weights(prior, terms, high)) > threshold:
        return high
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if _effective_size(_weights(prior, terms, middle)) > threshold else (low, middle)
    return low


def _smooth(z: np.ndarray, weight: np.ndarray, rng: np.random.Generator) -> StudentMixture:
    """A mixture centred at resampled points, each component as wide as its neighbourhood."""
    centres = z[rng.choice(len(z), _NUM_CENTRES, p=weight)]
    covariance = np.cov(z.T, aweights=weight) + 1e-9 * np.eye(z.shape[1])
    offset = z - centres[:, None]
    distance = ((offset @ np.linalg.inv(np.linalg.cholesky(covariance)).T) ** 2).sum(-1)
    order = distance.argsort(1)
    mass = weight[order]
    local = np.zeros_like(distance)
    np.put_along_axis(local, order, np.where(mass.cumsum(1) - mass < _NEIGHBOURHOOD, mass, 0.0), axis=1)
    local /= local.sum(1, keepdims=True)
    # A small part of the overall covariance, for neighbourhoods of too few points.
    scales = np.einsum("kn,kni,knj->kij", local, offset, offset) + 1e-3 * covariance
    return StudentMixture(centres, _WIDTH * np.linalg.cholesky(scales), _DEGREES_OF_FREEDOM)


def _weights(prior: np.ndarray, terms: np.ndarray, num_terms: float) -> np.ndarray:
    """The normalised weights given the first ``num_terms`` terms, of which the last enters partially."""
    log_weight = prior + terms @ np.clip(num_terms - np.arange(terms.shape[1]), 0, 1)
    weight: np.ndarray = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()
    return weight


def _effective_size(weight: np.ndarray) -> float:
    return float(1 / (weight**2).sum())


def _largest_weight(log_weight: np.ndarray) -> float:
    """The largest weight relative to their mean."""
    return float(1 / np.exp(log_weight - log_weight.max()).mean())
