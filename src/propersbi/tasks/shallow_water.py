r"""Shallow water: the depth profile of a basin, from the spectrum of a wave (Ramesh et al. 2022).

The depth :math:`d` at 100 points, 10 km apart, is a Gaussian process. An initial bump at one end propagates through the
basin for 100 hours according to the one-dimensional shallow-water equations with bottom drag,

.. math:: \partial_t u = -g\, \partial_x \zeta - c_d\, u |u| / h, \qquad
          \partial_t \zeta = -\partial_x (h u), \qquad h = d + \zeta,

solved by a semi-implicit scheme with time steps of five minutes. The observation is the Fourier transform of the
surface in time and space, real and imaginary part, with additive noise.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.fft import fft2, ifft2

from propersbi.problem import Noise, Settings
from propersbi.tasks.task import Task
from propersbi.types import InputError

__all__ = [
    "PRIOR",
    "TASK",
    "Profile",
    "heights",
    "observe",
    "reference_posterior",
    "simulate",
    "simulate_without_noise",
    "surface",
]

POINTS, HOURS = 100, 100
TIME_STEP, SPACING, GRAVITY, DRAG, IMPLICITNESS = 300.0, 10_000.0, 9.81, 1e-3, 0.5
WET, LAND, BUMP = 0.1, -10.0, 0.1  # metres: the depth above which a point is wet, of both ends, of the initial wave
NOISE = 0.25
JACOBI_SWEEPS = 5  # each reduces the error more than tenfold, to 1e-5 metres in the end
MAX_PROFILES_PER_BLOCK = 250  # a block fits the processor cache


class Profile:
    """Depth profiles: a Gaussian process of mean 10 m, standard deviation sqrt(15) m and length scale of ten points.

    >>> PRIOR.sample(3, np.random.default_rng(0)).shape
    (3, 100)
    """

    mean, variance, length = 10.0, 15.0, 10.0

    def __init__(self) -> None:
        distance = np.subtract.outer(np.arange(POINTS), np.arange(POINTS))
        values, vectors = np.linalg.eigh(self.variance * np.exp(-(distance**2) / (2 * self.length**2)))
        # Most eigenvalues are zero up to rounding, and may be negative.
        self._root = (vectors * np.sqrt(np.clip(values, 0, None)))[:, ::-1]

    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """``n`` profiles ``(n, 100)``."""
        depth: np.ndarray = self.mean + rng.normal(size=(n, POINTS)) @ self._root.T
        return depth

    def directions(self, k: int) -> np.ndarray:
        """The ``k`` leading principal directions ``(100, k)``, each scaled by its standard deviation."""
        directions: np.ndarray = self._root[:, :k]
        return directions


PRIOR = Profile()


def surface(depth: np.ndarray, hours: int = HOURS, dtype: type[np.floating] = np.float32) -> np.ndarray:
    """The height of the surface every hour, ``(n, hours + 1, 100)`` in metres, over depth profiles ``(n, 100)``.

    >>> surface(np.full((1, 100), 10.0))[0, :, 1].round(3)[[0, 60, 80]]
    array([ 0.1  , -0.008,  0.003], dtype=float32)
    """
    depth = np.asarray(depth)
    if depth.ndim != 2 or depth.shape[1] != POINTS:
        raise InputError(f"Depth profiles must have shape (n, {POINTS}), got {depth.shape}.")
    size = MAX_PROFILES_PER_BLOCK
    blocks = [_solve(depth[start : start + size].astype(dtype), hours) for start in range(0, len(depth), size)]
    return np.concatenate(blocks) if blocks else np.zeros((0, hours + 1, POINTS), dtype)


def observe(height: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Noisy spectra ``(n, 2, 100, 100)`` of surfaces ``(n, 101, 100)``, without the zero temporal frequency."""
    x = rng.standard_normal((len(height), 2, HOURS, POINTS), dtype=np.float32)
    x *= np.float32(NOISE)
    return _add_spectrum(height, x)


def _add_spectrum(height: np.ndarray, x: np.ndarray) -> np.ndarray:
    spectrum = fft2(np.asarray(height, dtype=np.float32))[:, 1:]
    x[:, 0] += spectrum.real
    x[:, 1] += spectrum.imag
    return x


def simulate_without_noise(theta: np.ndarray) -> np.ndarray:
    """Data ``(n, 2, 100, 100)`` without the noise, which is independent and Gaussian with standard deviation 0.25."""
    return _add_spectrum(surface(theta), np.zeros((len(theta), 2, HOURS, POINTS), np.float32))


def add_noise(x: Any) -> Any:
    """Add noise to a torch tensor, for training on data without noise."""
    return x + NOISE * x.new_empty(x.shape).normal_()


def simulate(theta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Data ``(n, 2, 100, 100)`` for depth profiles ``(n, 100)``."""
    return observe(surface(theta), rng)


def heights(x: np.ndarray) -> np.ndarray:
    """The noisy surface ``(n, 101, 100)``, minus its mean over time, from data ``(n, 2, 100, 100)``."""
    spectrum = np.zeros((len(x), HOURS + 1, POINTS), np.complex64)
    spectrum[:, 1:].real, spectrum[:, 1:].imag = x[:, 0], x[:, 1]
    height: np.ndarray = ifft2(spectrum).real
    return height


def _solve(depth: np.ndarray, hours: int) -> np.ndarray:
    """The surface; points are the first and profiles the last axis, so that operations are vectorised."""
    bottom, number = depth.T.copy(order="C"), depth.dtype.type
    bottom[0] = bottom[-1] = LAND
    wet = bottom > WET
    is_open = wet[:-1] & wet[1:]  # faces between two wet points
    height = np.zeros_like(bottom)
    height[1] = BUMP
    speed = np.zeros_like(bottom[1:])
    water = bottom + height
    heights = [height.copy()]
    pressure = number(TIME_STEP * GRAVITY / SPACING)
    coupling = number((TIME_STEP * IMPLICITNESS / SPACING) ** 2 * GRAVITY)
    for step in range(1, hours * int(3600 / TIME_STEP) + 1):
        column = np.where(is_open, (water[:-1] + water[1:]) / 2, number(1))
        drag = number(TIME_STEP * DRAG) * speed * np.abs(speed) / column
        explicit = is_open * (speed - drag - number(1 - IMPLICITNESS) * pressure * np.diff(height, axis=0))
        mean_speed = number(1 - IMPLICITNESS) * speed + number(IMPLICITNESS) * explicit
        flow = number(TIME_STEP / SPACING) * column * mean_speed
        target = height.copy()
        target[:-1] -= flow
        target[1:] += flow
        height = _solve_implicit(height, target, coupling * column * is_open)
        speed = explicit - is_open * (number(IMPLICITNESS) * pressure * np.diff(height, axis=0))
        water = bottom + height
        if step % int(3600 / TIME_STEP) == 0:
            heights.append(height.copy())
    return np.stack(heights).transpose(2, 0, 1)


def _solve_implicit(guess: np.ndarray, target: np.ndarray, face: np.ndarray) -> np.ndarray:
    """The tridiagonal system of the implicit step, with off-diagonal entries ``-face``, by Jacobi iteration.

    Dry points have no open face and keep their height.
    """
    inverse_diagonal = np.ones_like(target)
    inverse_diagonal[:-1] += face
    inverse_diagonal[1:] += face
    np.reciprocal(inverse_diagonal, out=inverse_diagonal)
    height, buffer = guess, np.empty_like(face)
    for _ in range(JACOBI_SWEEPS):
        update = target.copy()
        update[:-1] += np.multiply(face, height[1:], out=buffer)
        update[1:] += np.multiply(face, height[:-1], out=buffer)
        update *= inverse_diagonal
        height = update
    return height


def reference_posterior(x: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    """``n`` draws ``(n, 100)`` from the true posterior of one observation, by chains; takes a minute or two."""
    from propersbi.tasks.reference.tomography import sample_posterior

    return sample_posterior(x, n, rng)


def _observation_pair(i: int) -> tuple[np.ndarray, np.ndarray]:
    """The true profile and the data of observation ``i``."""
    rng = np.random.default_rng([i, POINTS])
    depth = PRIOR.sample(1, rng)
    return depth[0], simulate(depth, rng)[0]


TASK = Task(
    name="shallow_water",
    description="Shallow water: the depth of a basin at 100 points from the spectrum of a wave, 20 000 numbers",
    prior=PRIOR,
    simulator=simulate,
    parameter_names=tuple(f"depth_{i + 1}" for i in range(POINTS)),
    theta_shape=(POINTS,),
    x_shape=(2, HOURS, POINTS),
    posterior=reference_posterior,
    pair=_observation_pair,
    noise=Noise(noiseless=simulate_without_noise, add=add_noise),
    view=heights,
    settings=Settings(simulations=10_000, test=300, num_samples=250, reference_samples=0, half_precision=True),
    training={
        "time_limit": 300.0,
        "max_steps": 5000,
        "rule": {"class": "EnergyScore", "beta": 1.0},
        "network": {"class": "Factory", "name": "FieldGenerator", "options": {"spectrum": True, "lost": 1}},
    },
)
