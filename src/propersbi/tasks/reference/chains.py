r"""Independent draws of a posterior whose likelihood can be evaluated.

**Chains.** Every draw is the last state of a Metropolis chain of its own. A fixed law :math:`q` near the target
:math:`p` makes the start and all proposals, and the chain moves with probability :math:`\min(1, w' / w)`,
:math:`w = p / q`. After :math:`k` steps it is within

.. math:: (1 - 1 / w_*)^k, \quad w_* = \max w / E_q w

of the target in total variation (Mengersen & Tweedie 1996, https://doi.org/10.1214/aos/1033066201): with
:math:`k = 7 w_*` within a thousandth, :math:`w_*` as estimated from a pilot. Nothing has to burn in, and all proposals
can be evaluated at once.

**Population.** Where the target has no simple shape, :math:`q` is a mixture of many t laws around points of a
population. It starts from the prior and meets the data one after another, in the order of time, so that a likelihood of
many ridges cannot trap it: as much of the next term enters as leaves a tenth of the population effective, centres are
drawn by weight, and the mixture around them, each as wide as its neighbourhood, makes the next population.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, inf, lgamma, log, pi

import numpy as np

from propersbi.types import InputError

__all__ = ["Mixture", "fit_mixture", "sample_by_chains", "sample_by_population"]

LogDensity = Callable[[np.ndarray], np.ndarray]
"""``(n, p) -> (n,)``, up to a constant."""

_IMPOSSIBLE = -1e300
"""In place of minus infinity, of which differences make no sense."""

_BATCH = 20_000
_MOST_STEPS = 300
"""A bound of the time: enough for weights up to 40 times their mean."""

_POPULATION = 1500
_CENTRES = 100
_ROUNDS = 60
_NEAR = 0.1
"""The share of the population that makes a neighbourhood."""

_WIDTH = 1.2
_FREEDOM = 10.0
_LARGEST_WEIGHT = 10.0
"""What is good enough for a mixture: beyond, another round costs less than longer chains."""


@dataclass(frozen=True)
class Mixture:
    """Multivariate t laws around ``centres`` ``(k, p)``, all of the same weight.

    Arguments:
        centres: Where they lie, ``(k, p)``.
        roots: Square roots of their matrices of scales, ``(k, p, p)``.
        freedom: Their degrees of freedom.

    >>> law = Mixture(np.zeros((1, 2)), np.eye(2)[None], freedom=1e9)
    >>> law.log_prob(np.array([[0.0, 1.0]])).round(4)  # of a Gaussian
    array([-2.3379])
    """

    centres: np.ndarray
    roots: np.ndarray
    freedom: float

    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """``n`` independent draws, ``(n, p)``."""
        k, p = self.centres.shape
        which = rng.integers(k, size=n)
        t = rng.standard_normal((n, p)) * np.sqrt(self.freedom / rng.chisquare(self.freedom, (n, 1)))
        return self.centres[which] + np.einsum("nij,nj->ni", self.roots[which], t)

    def log_prob(self, theta: np.ndarray) -> np.ndarray:
        """The log density of each row, ``(n,)``."""
        p, df = self.centres.shape[1], self.freedom
        whiten = np.linalg.inv(self.roots)
        offsets = np.einsum("kij,kj->ik", whiten, self.centres)
        distance = np.zeros((len(theta), len(self.centres)))
        for rows, offset in zip(whiten.swapaxes(0, 1), offsets, strict=True):
            distance += (theta @ rows.T - offset) ** 2
        constant = lgamma((df + p) / 2) - lgamma(df / 2) - p / 2 * log(df * pi)
        heights = constant - np.linalg.slogdet(self.roots)[1] - (df + p) / 2 * np.log1p(distance / df)
        top = heights.max(1)
        return top + np.log(np.exp(heights - top[:, None]).mean(1))


def sample_by_chains(log_density: LogDensity, proposal: Mixture, n: int, rng: np.random.Generator) -> np.ndarray:
    """``n`` independent draws ``(n, p)`` of a density that ``proposal`` is near to.

    >>> law = Mixture(np.zeros((1, 1)), np.ones((1, 1, 1)), freedom=5)
    >>> draws = sample_by_chains(lambda theta: -((theta[:, 0] - 1) ** 2), law, 10_000, np.random.default_rng(0))
    >>> draws.mean().round(1), draws.var().round(1)
    (np.float64(1.0), np.float64(0.5))
    """

    def log_weight(theta: np.ndarray) -> np.ndarray:
        return log_density(theta) - proposal.log_prob(theta)

    pilot = log_weight(proposal.sample(_POPULATION, rng))
    steps = min(ceil(7 * _largest(pilot)), _MOST_STEPS)
    size = max(1, _BATCH // steps)
    return np.concatenate([_run(log_weight, proposal, min(size, n - i), steps, rng) for i in range(0, n, size)])


def _run(log_weight: LogDensity, proposal: Mixture, n: int, steps: int, rng: np.random.Generator) -> np.ndarray:
    """The last states of ``n`` chains."""
    theta = proposal.sample((steps + 1) * n, rng)
    weight = log_weight(theta).reshape(steps + 1, n)
    chain, state = np.arange(n), np.zeros(n, int)
    for step in range(1, steps + 1):
        accepted = -rng.standard_exponential(n) < weight[step] - weight[state, chain]
        state[accepted] = step
    return theta.reshape(steps + 1, n, -1)[state, chain]


def sample_by_population(log_likelihood: LogDensity, p: int, n: int, rng: np.random.Generator) -> np.ndarray:
    """``n`` independent draws ``(n, p)`` of the posterior of ``p`` parameters whose prior is standard normal.

    Arguments:
        log_likelihood: ``(n, p) -> (n, k)``, one term for each of ``k`` data in the order of time; ``nan`` is none.
        p: How many parameters there are.
        n: How many draws to make.
        rng: Where randomness comes from.

    >>> draws = sample_by_population(lambda z: -((z - 1) ** 2), 2, 2000, np.random.default_rng(0))
    >>> draws.mean().round(1), draws.var().round(1)
    (np.float64(0.7), np.float64(0.3))
    """

    def terms(z: np.ndarray) -> np.ndarray:
        return np.nan_to_num(log_likelihood(z), nan=_IMPOSSIBLE, neginf=_IMPOSSIBLE)

    law = fit_mixture(terms, p, rng)
    return sample_by_chains(lambda z: terms(z).sum(1) - 0.5 * (z**2).sum(1), law, n, rng)


def fit_mixture(log_likelihood: LogDensity, p: int, rng: np.random.Generator) -> Mixture:
    """A mixture near that posterior, as good as chains need it.

    >>> law = fit_mixture(lambda z: -50 * (np.abs(z) - 1) ** 2, 2, np.random.default_rng(0))  # four modes
    >>> np.unique(np.sign(law.centres), axis=0).shape
    (4, 2)
    """
    law, known = Mixture(np.zeros((1, p)), np.eye(p)[None], _FREEDOM), 0.0
    best, least = None, inf
    for _ in range(_ROUNDS):
        z = law.sample(_POPULATION, rng)
        terms = log_likelihood(z)
        prior = -0.5 * (z**2).sum(1) - law.log_prob(z)
        if known == terms.shape[1] and (largest := _largest(prior + terms.sum(1))) < least:
            best, least = law, largest
        if best is not None and least < _LARGEST_WEIGHT:
            return best
        known = _advance(prior, terms, known)
        law = _smooth(z, _weigh(prior, terms, known), rng)
    if best is None:
        raise InputError(
            "The observation is impossible, or nearly so, under this task: "
            f"{_ROUNDS} rounds did not find its posterior."
        )
    return best


def _advance(prior: np.ndarray, terms: np.ndarray, known: float) -> float:
    """How many terms may be known for a tenth of the population to be effective; at least as many as are."""
    low, high = known, float(terms.shape[1])
    enough = len(prior) / 10
    if _effective(_weigh(prior, terms, high)) > enough:
        return high
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if _effective(_weigh(prior, terms, middle)) > enough else (low, middle)
    return low


def _smooth(z: np.ndarray, weight: np.ndarray, rng: np.random.Generator) -> Mixture:
    """A mixture around some of the points, each as wide as its neighbourhood."""
    centres = z[rng.choice(len(z), _CENTRES, p=weight)]
    covariance = np.cov(z.T, aweights=weight) + 1e-9 * np.eye(z.shape[1])
    offset = z - centres[:, None]
    distance = ((offset @ np.linalg.inv(np.linalg.cholesky(covariance)).T) ** 2).sum(-1)
    order = distance.argsort(1)
    mass = weight[order]
    near = np.zeros_like(distance)
    np.put_along_axis(near, order, np.where(mass.cumsum(1) - mass < _NEAR, mass, 0.0), axis=1)
    near /= near.sum(1, keepdims=True)
    # A little of the whole covariance, for neighbourhoods of too few points.
    scales = np.einsum("kn,kni,knj->kij", near, offset, offset) + 1e-3 * covariance
    return Mixture(centres, _WIDTH * np.linalg.cholesky(scales), _FREEDOM)


def _weigh(prior: np.ndarray, terms: np.ndarray, known: float) -> np.ndarray:
    """The normalised weights if the first ``known`` terms count, the last of them in part."""
    log_weight = prior + terms @ np.clip(known - np.arange(terms.shape[1]), 0, 1)
    weight = np.exp(log_weight - log_weight.max())
    return weight / weight.sum()


def _effective(weight: np.ndarray) -> float:
    return 1 / (weight**2).sum()


def _largest(log_weight: np.ndarray) -> float:
    """The largest weight in units of their mean."""
    return 1 / np.exp(log_weight - log_weight.max()).mean()
