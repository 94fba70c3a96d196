r"""Draws from the true posterior of a depth profile, by Markov chains: with Gaussian noise, the likelihood is known.

The inverse transform of the observed spectrum is the surface in white noise, without its mean over time. With :math:`N`
values per surface, the projection :math:`P` that subtracts the mean, and depths :math:`d = 10 + R u`,
:math:`u \sim N(0, I)`, along the principal directions of the prior,

.. math:: -2 \log p(u \mid x) = |u|^2 + \frac{N}{0.25^2}\, |y - P \zeta(u)|^2 + \text{const}.

**Optimisation.** Gauss-Newton steps on an increasing number of hours: in the first hours the wave has only passed the
near part of the basin, and a wrong depth cannot be compensated by another one further away. Whenever hours are added,
the next starting points are the best of a random sample from the Laplace approximation given the previous hours.

**Chains.** They start from the Laplace approximation at the best point. Half of the moves are preconditioned
Crank-Nicolson proposals for that Gaussian, half are differential-evolution proposals along the difference of two other
chains, which adapt to a non-Gaussian posterior. All chains move at once, with one call of the solver.

**No wave.** If the point where the wave starts or its neighbour is dry, nothing moves and the data are pure noise. The
posterior is then the prior restricted to such profiles.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from propersbi.tasks.shallow_water import HOURS, NOISE, PRIOR, WET, heights, surface

__all__ = ["sample_posterior"]

DIRECTIONS = 24  # explain all but 1e-9 of the variance of the prior
NUM_STARTS, CANDIDATES_PER_START = 3, 30
DIFFERENCE_STEP = 1e-4  # for derivatives by finite differences
HORIZONS = (*range(2, 46, 2), 50, 60, 75, HOURS)  # hours that enter the fit, in succession
NUM_CHAINS, BURN_IN, THINNING = 100, 120, 10  # moves before the first draw, and between draws of the same chain


def sample_posterior(x: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    """``n`` draws ``(n, 100)`` from the posterior of one observation ``(2, 100, 100)``."""
    target = _Target(x)
    if target.is_silent():
        return _sample_without_wave(n, rng)
    approximation = _optimise(target, rng)
    u = approximation.sample(NUM_CHAINS, rng)
    value, draws = target.log_density(u), []
    draws_per_chain = -(-n // NUM_CHAINS)
    for move in range(1, BURN_IN + THINNING * (draws_per_chain - 1) + 1):
        u, value = _move(target, u, value, approximation, rng)
        if move >= BURN_IN and (move - BURN_IN) % THINNING == 0:
            draws.append(u)
    return target.depth(np.concatenate(draws)[:n])


class _Target:
    """The posterior of one observation, as a function of u."""

    def __init__(self, x: np.ndarray) -> None:
        self.observed = heights(x[None])[0].astype(float)
        self.noise = NOISE / np.sqrt(self.observed.size)
        self.root = PRIOR.directions(DIRECTIONS)

    def depth(self, u: np.ndarray) -> np.ndarray:
        """Profiles ``(n, 100)``."""
        depth: np.ndarray = PRIOR.mean + u @ self.root.T
        return depth

    def misfit(self, u: np.ndarray, hours: int = HOURS, dtype: type[np.floating] = np.float32) -> np.ndarray:
        """The difference from the observed surface in the first hours, in units of the noise, ``(n, hours, 100)``."""
        error = surface(self.depth(u), hours, dtype) - self.observed[: hours + 1]
        standardised: np.ndarray = (error - error.mean(1, keepdims=True)) / self.noise
        return standardised

    def is_silent(self) -> bool:
        """Whether the data are pure noise; the smallest wave is far above it."""
        error = (self.observed - self.observed.mean(0)) / self.noise
        return bool((error**2).mean() < 1 + 6 * np.sqrt(2 / error.size))

    def log_density(self, u: np.ndarray) -> np.ndarray:
        """The log density up to a constant, ``(n,)``."""
        log_density: np.ndarray = -0.5 * ((self.misfit(u) ** 2).sum((1, 2)) + (u**2).sum(1))
        return log_density


def _sample_without_wave(n: int, rng: np.random.Generator) -> np.ndarray:
    """Profiles ``(n, 100)`` of the prior in which no wave can start; about one in two hundred."""
    accepted: list[np.ndarray] = []
    while sum(map(len, accepted)) < n:
        depth = PRIOR.sample(10_000, rng)
        accepted.append(depth[(depth[:, 1:3] <= WET).any(1)])
    return np.concatenate(accepted)[:n]


@dataclass(frozen=True)
class _Gaussian:
    """A Gaussian approximation of the posterior: its centre and a square root of its covariance."""

    centre: np.ndarray
    root: np.ndarray

    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        draws: np.ndarray = self.centre + rng.normal(size=(n, DIRECTIONS)) @ self.root.T
        return draws

    def log_prob(self, u: np.ndarray) -> np.ndarray:
        """The log density up to a constant, ``(n,)``."""
        log_density: np.ndarray = -0.5 * (np.linalg.solve(self.root, (u - self.centre).T) ** 2).sum(0)
        return log_density

    def propose(self, u: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Preconditioned Crank-Nicolson proposals, which leave the Gaussian invariant."""
        size = rng.choice([0.15, 0.4, 1.0], (len(u), 1))
        innovation = self.sample(len(u), rng) - self.centre
        proposal: np.ndarray = self.centre + np.sqrt(1 - size**2) * (u - self.centre) + size * innovation
        return proposal


def _optimise(target: _Target, rng: np.random.Generator) -> _Gaussian:
    """The Laplace approximation at the best point found."""
    u, precision = np.zeros((1, DIRECTIONS)), np.eye(DIRECTIONS)[None]
    damping = np.full(NUM_STARTS, 0.1)
    for hours in HORIZONS:
        u = _next_starts(target, u, precision, hours, rng)
        for _ in range(2):
            u, damping, precision = _gauss_newton_step(target, u, np.minimum(damping, 1.0), hours)
    for _ in range(4):
        u, damping, precision = _gauss_newton_step(target, u, damping, HOURS)
    best = int(target.log_density(u).argmax())
    return _Gaussian(u[best], np.linalg.inv(np.linalg.cholesky(precision[best])).T)


def _next_starts(
    target: _Target, u: np.ndarray, precision: np.ndarray, hours: int, rng: np.random.Generator
) -> np.ndarray:
    """The best of the points and of random points from their Laplace approximations given the previous hours."""
    roots = np.linalg.inv(np.linalg.cholesky(precision)).swapaxes(1, 2)
    noise = rng.normal(size=(len(u), CANDIDATES_PER_START, DIRECTIONS))
    candidates = u[:, None] + np.einsum("kij,knj->kni", roots, noise)
    points = np.concatenate([u, candidates.reshape(-1, DIRECTIONS)])
    value = (target.misfit(points, hours) ** 2).sum((1, 2)) + (points**2).sum(1)
    best: np.ndarray = points[value.argsort()[:NUM_STARTS]]
    return best


def _gauss_newton_step(target: _Target, u: np.ndarray, damping: np.ndarray, hours: int) -> tuple[np.ndarray, ...]:
    """One damped Gauss-Newton step per start, with the new damping (higher after failure) and the precision."""
    shifted = np.concatenate([u[:, None], u[:, None] + DIFFERENCE_STEP * np.eye(DIRECTIONS)], 1)
    misfit = target.misfit(shifted.reshape(-1, DIRECTIONS), hours, np.float64).reshape(len(u), DIRECTIONS + 1, -1)
    residual, slope = misfit[:, 0], (misfit[:, 1:] - misfit[:, :1]) / DIFFERENCE_STEP
    precision = slope @ slope.swapaxes(1, 2) + np.eye(DIRECTIONS)
    gradient = (slope @ residual[:, :, None])[:, :, 0] + u
    damped = precision * (1 + damping[:, None, None] * np.eye(DIRECTIONS))
    proposal = u - np.linalg.solve(damped, gradient[:, :, None])[:, :, 0]
    before = (residual**2).sum(1) + (u**2).sum(1)
    after = (target.misfit(proposal, hours) ** 2).sum((1, 2)) + (proposal**2).sum(1)
    better = after < before
    return np.where(better[:, None], proposal, u), np.clip(damping * np.where(better, 0.2, 8.0), 1e-4, 1e4), precision


def _move(
    target: _Target, u: np.ndarray, value: np.ndarray, approximation: _Gaussian, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """One Metropolis move of every chain: each half in turn, while the other half is fixed."""
    u, value = u.copy(), value.copy()
    halves = np.array_split(rng.permutation(len(u)), 2)
    for moving, fixed in (halves, halves[::-1]):
        is_symmetric = rng.random() < 0.5
        if is_symmetric:
            proposal, log_ratio = _differential_evolution(u[moving], u[fixed], rng), 0.0
        else:
            proposal = approximation.propose(u[moving], rng)
            log_ratio = approximation.log_prob(proposal) - approximation.log_prob(u[moving])
        new_value = target.log_density(proposal)
        accepted = -rng.standard_exponential(len(moving)) < new_value - value[moving] - log_ratio
        u[moving[accepted]], value[moving[accepted]] = proposal[accepted], new_value[accepted]
    return u, value


def _differential_evolution(u: np.ndarray, others: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Proposals along the difference of two other chains: usually scaled optimally for Gaussians, sometimes by one."""
    n, p = u.shape
    first = rng.integers(len(others), size=n)
    second = (first + rng.integers(1, len(others), size=n)) % len(others)
    usual = rng.uniform(0.3, 1.2, (n, 1)) * 2.38 / np.sqrt(2 * p)
    length = np.where(rng.random((n, 1)) < 0.1, 1.0, usual)
    proposal: np.ndarray = u + length * (others[first] - others[second]) + 1e-4 * rng.normal(size=u.shape)
    return proposal
