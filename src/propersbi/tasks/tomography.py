r"""Draws of the true posterior of a depth profile, by chains: the noise is Gaussian, so the likelihood is known.

The inverse transform of the observed spectrum shows the surface itself in white noise, without its mean over time. With
:math:`N` numbers in a surface, :math:`P` that takes the mean away, and depths
:math:`d = 10 + R u`, :math:`u \sim N(0, I)`, along the directions in which the prior varies at all,

.. math:: -2 \log p(u \mid x) = |u|^2 + \frac{N}{0.25^2}\, |y - P \zeta(u)|^2 + \text{const}.

**Climb.** Gauss-Newton steps that see the first hours first: the wave has then passed the near part of the basin only,
and a wrong depth cannot yet be made up for by another one further on. Before each further hour is looked at, points
scattered as the hours before allow compete to be the next starts.

**Chains.** They start around the best point, with the covariance of the Gauss-Newton step. Half of the moves renew a
part of that Gaussian law, half go along the difference of two other chains, which knows the shape of the posterior
where it is not Gaussian. All chains move at once, so that one call of the solver serves all.

**No wave.** If the place where the wave starts is dry, or the one beside it, nothing moves and nothing but noise is
seen. The posterior is then the prior of such profiles.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from propersbi.tasks.shallow_water import HOURS, NOISE, PRIOR, WET, heights, surface

__all__ = ["sample_posterior"]

DIRECTIONS = 24  # hold all but 1e-9 of the prior's variance
STARTS, CLOUD, TINY = 3, 30, 1e-4
HORIZONS = (*range(2, 46, 2), 50, 60, 75, HOURS)  # hours that are looked at, one after another
CHAINS, SWEEPS, APART = 100, 120, 10  # moves until a draw is taken, and between draws of the same chain


def sample_posterior(x: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    """``n`` draws ``(n, 100)`` of the posterior of one observation ``(2, 100, 100)``."""
    problem = _Problem(x)
    if problem.silent():
        return _without_wave(n, rng)
    law = _climb(problem, rng)
    u = law.sample(CHAINS, rng)
    value, draws = problem.log_density(u), []
    rounds = -(-n // CHAINS)
    for sweep in range(1, SWEEPS + APART * (rounds - 1) + 1):
        u, value = _move(problem, u, value, law, rng)
        if sweep >= SWEEPS and (sweep - SWEEPS) % APART == 0:
            draws.append(u)
    return problem.depth(np.concatenate(draws)[:n])


class _Problem:
    """What is known of one observation, in terms of u."""

    def __init__(self, x: np.ndarray) -> None:
        self.seen = heights(x[None])[0].astype(float)
        self.noise = NOISE / np.sqrt(self.seen.size)
        self.root = PRIOR.directions(DIRECTIONS)

    def depth(self, u: np.ndarray) -> np.ndarray:
        """Profiles ``(n, 100)``."""
        return PRIOR.mean + u @ self.root.T

    def misfit(self, u: np.ndarray, hours: int = HOURS, dtype: type[np.floating] = np.float32) -> np.ndarray:
        """How far surfaces are from what was seen in the first hours, in units of the noise, ``(n, hours, 100)``."""
        error = surface(self.depth(u), hours, dtype) - self.seen[: hours + 1]
        return (error - error.mean(1, keepdims=True)) / self.noise

    def silent(self) -> bool:
        """Whether what was seen is no more than noise; the smallest wave is far above it."""
        error = (self.seen - self.seen.mean(0)) / self.noise
        return bool((error**2).mean() < 1 + 6 * np.sqrt(2 / error.size))

    def log_density(self, u: np.ndarray) -> np.ndarray:
        """Up to a constant, ``(n,)``."""
        return -0.5 * ((self.misfit(u) ** 2).sum((1, 2)) + (u**2).sum(1))


def _without_wave(n: int, rng: np.random.Generator) -> np.ndarray:
    """Profiles ``(n, 100)`` of the prior in which no wave can start; about one in two hundred."""
    kept: list[np.ndarray] = []
    while sum(map(len, kept)) < n:
        depth = PRIOR.sample(10_000, rng)
        kept.append(depth[(depth[:, 1:3] <= WET).any(1)])
    return np.concatenate(kept)[:n]


@dataclass(frozen=True)
class _Gaussian:
    """A law near the posterior: its centre and a square root of its covariance."""

    centre: np.ndarray
    root: np.ndarray

    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        return self.centre + rng.normal(size=(n, DIRECTIONS)) @ self.root.T

    def log_prob(self, u: np.ndarray) -> np.ndarray:
        """Up to a constant, ``(n,)``."""
        return -0.5 * (np.linalg.solve(self.root, (u - self.centre).T) ** 2).sum(0)

    def renew(self, u: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Draws that keep a part of ``u``, such that the law stays as it is."""
        share = rng.choice([0.15, 0.4, 1.0], (len(u), 1))
        return (
            self.centre + np.sqrt(1 - share**2) * (u - self.centre) + share * (self.sample(len(u), rng) - self.centre)
        )


def _climb(problem: _Problem, rng: np.random.Generator) -> _Gaussian:
    """The law around the best point that was found."""
    u, precision = np.zeros((1, DIRECTIONS)), np.eye(DIRECTIONS)[None]
    caution = np.full(STARTS, 0.1)
    for hours in HORIZONS:
        u = _scatter(problem, u, precision, hours, rng)
        for _ in range(2):
            u, caution, precision = _step(problem, u, np.minimum(caution, 1.0), hours)
    for _ in range(4):
        u, caution, precision = _step(problem, u, caution, HOURS)
    best = int(problem.log_density(u).argmax())
    return _Gaussian(u[best], np.linalg.inv(np.linalg.cholesky(precision[best])).T)


def _scatter(
    problem: _Problem, u: np.ndarray, precision: np.ndarray, hours: int, rng: np.random.Generator
) -> np.ndarray:
    """The best of the points and of what is as likely given the hours before."""
    roots = np.linalg.inv(np.linalg.cholesky(precision)).swapaxes(1, 2)
    clouds = u[:, None] + np.einsum("kij,knj->kni", roots, rng.normal(size=(len(u), CLOUD, DIRECTIONS)))
    points = np.concatenate([u, clouds.reshape(-1, DIRECTIONS)])
    value = (problem.misfit(points, hours) ** 2).sum((1, 2)) + (points**2).sum(1)
    return points[value.argsort()[:STARTS]]


def _step(problem: _Problem, u: np.ndarray, caution: np.ndarray, hours: int) -> tuple[np.ndarray, ...]:
    """One Gauss-Newton step of each start, shortened where the last one led astray."""
    around = np.concatenate([u[:, None], u[:, None] + TINY * np.eye(DIRECTIONS)], 1)
    misfit = problem.misfit(around.reshape(-1, DIRECTIONS), hours, np.float64).reshape(len(u), DIRECTIONS + 1, -1)
    here, slope = misfit[:, 0], (misfit[:, 1:] - misfit[:, :1]) / TINY
    precision = slope @ slope.swapaxes(1, 2) + np.eye(DIRECTIONS)
    downhill = (slope @ here[:, :, None])[:, :, 0] + u
    careful = precision * (1 + caution[:, None, None] * np.eye(DIRECTIONS))
    there = u - np.linalg.solve(careful, downhill[:, :, None])[:, :, 0]
    before = (here**2).sum(1) + (u**2).sum(1)
    after = (problem.misfit(there, hours) ** 2).sum((1, 2)) + (there**2).sum(1)
    better = after < before
    return np.where(better[:, None], there, u), np.clip(caution * np.where(better, 0.2, 8.0), 1e-4, 1e4), precision


def _move(
    problem: _Problem, u: np.ndarray, value: np.ndarray, law: _Gaussian, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """One Metropolis move of every chain; of each half in turn, the other half standing still."""
    u, value = u.copy(), value.copy()
    halves = np.array_split(rng.permutation(len(u)), 2)
    for moving, others in (halves, halves[::-1]):
        along = rng.random() < 0.5
        proposal = _along(u[moving], u[others], rng) if along else law.renew(u[moving], rng)
        there = problem.log_density(proposal)
        gain = there - value[moving] - (0.0 if along else law.log_prob(proposal) - law.log_prob(u[moving]))
        accepted = -rng.standard_exponential(len(moving)) < gain
        u[moving[accepted]], value[moving[accepted]] = proposal[accepted], there[accepted]
    return u, value


def _along(u: np.ndarray, others: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Along the difference of two of the others, mostly by the length that suits Gaussian laws, now and then by all."""
    n, p = u.shape
    first = rng.integers(len(others), size=n)
    second = (first + rng.integers(1, len(others), size=n)) % len(others)
    usual = rng.uniform(0.3, 1.2, (n, 1)) * 2.38 / np.sqrt(2 * p)
    length = np.where(rng.random((n, 1)) < 0.1, 1.0, usual)
    return u + length * (others[first] - others[second]) + 1e-4 * rng.normal(size=u.shape)
