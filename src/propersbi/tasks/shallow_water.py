r"""Shallow water: the depth profile of a basin, from a wave seen in frequencies (Ramesh et al. 2022).

The depth :math:`d` at 100 points, 10 km apart, is a Gaussian process. A bump of water at one end runs through the basin
for 100 hours, by the one-dimensional shallow-water equations with bottom drag,

.. math:: \partial_t u = -g\, \partial_x \zeta - c_d\, u |u| / h, \qquad
          \partial_t \zeta = -\partial_x (h u), \qquad h = d + \zeta,

solved half implicitly in steps of five minutes. What is observed are the real and imaginary parts of the Fourier
transform of the surface in time and space, with noise.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.fft import fft2, ifft2

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
STEP, SPACING, GRAVITY, DRAG, IMPLICIT = 300.0, 10_000.0, 9.81, 1e-3, 0.5
WET, WALL, BUMP = 0.1, -10.0, 0.1  # metres: wet from this depth on; both ends are dry land; the wave at the start
NOISE = 0.25
SWEEPS = 5  # each brings the heights more than ten times closer to the solution: to 1e-5 metres
ROWS = 250  # profiles at once: what a processor's cache holds


class Profile:
    """Depth profiles: a Gaussian process of mean 10 m, standard deviation sqrt(15) m and a length of ten points.

    >>> PRIOR.sample(3, np.random.default_rng(0)).shape
    (3, 100)
    """

    mean, variance, length = 10.0, 15.0, 10.0

    def __init__(self) -> None:
        apart = np.subtract.outer(np.arange(POINTS), np.arange(POINTS))
        values, vectors = np.linalg.eigh(self.variance * np.exp(-(apart**2) / (2 * self.length**2)))
        # Most directions have no variance but rounding, of either sign.
        self._root = (vectors * np.sqrt(np.clip(values, 0, None)))[:, ::-1]

    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """``n`` profiles ``(n, 100)``."""
        return self.mean + rng.normal(size=(n, POINTS)) @ self._root.T

    def directions(self, k: int) -> np.ndarray:
        """The ``k`` main directions of variation ``(100, k)``, each as long as its standard deviation."""
        return self._root[:, :k]


PRIOR = Profile()


def surface(depth: np.ndarray, hours: int = HOURS, dtype: type[np.floating] = np.float32) -> np.ndarray:
    """The height of the surface every hour, ``(n, hours + 1, 100)`` in metres, over depth profiles ``(n, 100)``.

    >>> surface(np.full((1, 100), 10.0))[0, :, 1].round(3)[[0, 60, 80]]
    array([ 0.1  , -0.008,  0.003], dtype=float32)
    """
    depth = np.asarray(depth)
    if depth.ndim != 2 or depth.shape[1] != POINTS:
        raise InputError(f"Depth profiles must have shape (n, {POINTS}), got {depth.shape}.")
    parts = [_surface(depth[start : start + ROWS].astype(dtype), hours) for start in range(0, len(depth), ROWS)]
    return np.concatenate(parts) if parts else np.zeros((0, hours + 1, POINTS), dtype)


def observe(height: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Noisy spectra ``(n, 2, 100, 100)`` of surfaces ``(n, 101, 100)``, without the zero frequency in time."""
    x = rng.standard_normal((len(height), 2, HOURS, POINTS), dtype=np.float32)
    x *= np.float32(NOISE)
    return _add_spectrum(height, x)


def _add_spectrum(height: np.ndarray, x: np.ndarray) -> np.ndarray:
    spectrum = fft2(np.asarray(height, dtype=np.float32))[:, 1:]
    x[:, 0] += spectrum.real
    x[:, 1] += spectrum.imag
    return x


def simulate_without_noise(theta: np.ndarray) -> np.ndarray:
    """Data ``(n, 2, 100, 100)`` as they would be without noise, which is Gaussian and independent, of size 0.25."""
    return _add_spectrum(surface(theta), np.zeros((len(theta), 2, HOURS, POINTS), np.float32))


def add_noise(x: Any) -> Any:
    """The noise, drawn by torch: for training on data without it."""
    return x + NOISE * x.new_empty(x.shape).normal_()


def simulate(theta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Data ``(n, 2, 100, 100)`` for depth profiles ``(n, 100)``."""
    return observe(surface(theta), rng)


def heights(x: np.ndarray) -> np.ndarray:
    """What data ``(n, 2, 100, 100)`` show of the surface, ``(n, 101, 100)``: in noise, less its mean over time."""
    spectrum = np.zeros((len(x), HOURS + 1, POINTS), np.complex64)
    spectrum[:, 1:].real, spectrum[:, 1:].imag = x[:, 0], x[:, 1]
    return ifft2(spectrum).real


def _surface(depth: np.ndarray, hours: int) -> np.ndarray:
    """Points come first and profiles last, so that every operation is on long vectors."""
    bottom, number = depth.T.copy(order="C"), depth.dtype.type
    bottom[0] = bottom[-1] = WALL
    wet = bottom > WET
    through = wet[:-1] & wet[1:]  # faces between two wet points
    height = np.zeros_like(bottom)
    height[1] = BUMP
    speed = np.zeros_like(bottom[1:])
    water = bottom + height
    heights = [height.copy()]
    push, coupling = number(STEP * GRAVITY / SPACING), number((STEP * IMPLICIT / SPACING) ** 2 * GRAVITY)
    for step in range(1, hours * int(3600 / STEP) + 1):
        column = np.where(through, (water[:-1] + water[1:]) / 2, number(1))
        drag = number(STEP * DRAG) * speed * np.abs(speed) / column
        ahead = through * (speed - drag - number(1 - IMPLICIT) * push * np.diff(height, axis=0))
        flow = number(STEP / SPACING) * column * (number(1 - IMPLICIT) * speed + number(IMPLICIT) * ahead)
        target = height.copy()
        target[:-1] -= flow
        target[1:] += flow
        height = _solved(height, target, coupling * column * through)
        speed = ahead - through * (number(IMPLICIT) * push * np.diff(height, axis=0))
        water = bottom + height
        if step % int(3600 / STEP) == 0:
            heights.append(height.copy())
    return np.stack(heights).transpose(2, 0, 1)


def _solved(guess: np.ndarray, target: np.ndarray, face: np.ndarray) -> np.ndarray:
    """Heights that, with what flows through the faces to their neighbours, make the target; by sweeps.

    Dry points have no open face and keep their height.
    """
    share = np.ones_like(target)
    share[:-1] += face
    share[1:] += face
    np.reciprocal(share, out=share)
    height, part = guess, np.empty_like(face)
    for _ in range(SWEEPS):
        better = target.copy()
        better[:-1] += np.multiply(face, height[1:], out=part)
        better[1:] += np.multiply(face, height[:-1], out=part)
        better *= share
        height = better
    return height


def reference_posterior(x: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    """``n`` draws ``(n, 100)`` of the true posterior of one observation, by chains: a minute or two."""
    from propersbi.tasks.tomography import sample_posterior

    return sample_posterior(x, n, rng)


def _known(i: int) -> tuple[np.ndarray, np.ndarray]:
    """True profile and observation ``i``."""
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
    pair=_known,
    parts=(simulate_without_noise, add_noise),
    view=heights,
    quick={
        "half": True,
        "simulations": 10_000,
        "test": 300,
        "draws": 250,
        "reference": 0,
        "training": {
            "time_limit": 300.0,
            "max_steps": 5000,
            "rule": {"class": "EnergyScore", "beta": 1.0},
            "network": {
                "class": "FieldGenerator",
                "theta_shape": [POINTS],
                "x_shape": [2, HOURS, POINTS],
                "spectrum": True,
                "lost": 1,
            },
        },
    },
)
