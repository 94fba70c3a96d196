r"""Shallow water: the depth profile of a basin, from a wave seen in frequencies (Ramesh et al. 2022).

The depth :math:`d` at 100 points, 10 km apart, is a Gaussian process. A bump of water at one end runs through the basin
for 100 hours, by the one-dimensional shallow-water equations with bottom drag,

.. math:: \partial_t u = -g\, \partial_x \zeta - c_d\, u |u| / h, \qquad
          \partial_t \zeta = -\partial_x (h u), \qquad h = d + \zeta,

solved half implicitly in steps of five minutes. What is observed are the real and imaginary parts of the Fourier
transform of the surface in time and space, with noise.
"""

from __future__ import annotations

import numpy as np

from propersbi.types import InputError

__all__ = ["PRIOR", "Profile", "observe", "simulate", "surface"]

POINTS, HOURS = 100, 100
STEP, SPACING, GRAVITY, DRAG, IMPLICIT = 300.0, 10_000.0, 9.81, 1e-3, 0.5
WET, WALL, BUMP = 0.1, -10.0, 0.1  # metres: wet from this depth on; both ends are dry land; the wave at the start
NOISE = 0.25
SWEEPS = 7  # each brings the heights about ten times closer to the solution
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
        self._root = vectors * np.sqrt(np.clip(values, 0, None))

    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """``n`` profiles ``(n, 100)``."""
        return self.mean + rng.normal(size=(n, POINTS)) @ self._root.T


PRIOR = Profile()


def surface(depth: np.ndarray) -> np.ndarray:
    """The height of the surface every hour, ``(n, 101, 100)`` in metres, over depth profiles ``(n, 100)``.

    >>> surface(np.full((1, 100), 10.0))[0, :, 1].round(3)[[0, 60, 80]]
    array([ 0.1  , -0.008,  0.003], dtype=float32)
    """
    depth = np.asarray(depth)
    if depth.ndim != 2 or depth.shape[1] != POINTS:
        raise InputError(f"Depth profiles must have shape (n, {POINTS}), got {depth.shape}.")
    parts = [_surface(depth[start : start + ROWS]) for start in range(0, len(depth), ROWS)]
    return np.concatenate(parts) if parts else np.zeros((0, HOURS + 1, POINTS), np.float32)


def observe(height: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Noisy spectra ``(n, 2, 100, 100)`` of surfaces ``(n, 101, 100)``, without the zero frequency in time."""
    spectrum = np.fft.fft2(height)[:, 1:]
    parts = np.stack([spectrum.real, spectrum.imag], 1).astype(np.float32)
    return parts + rng.normal(0, NOISE, parts.shape).astype(np.float32)


def simulate(theta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Data ``(n, 2, 100, 100)`` for depth profiles ``(n, 100)``."""
    return observe(surface(theta), rng)


def _surface(depth: np.ndarray) -> np.ndarray:
    """Points come first and profiles last, so that every operation is on long vectors."""
    bottom = depth.T.astype(np.float32, order="C")
    bottom[0] = bottom[-1] = WALL
    wet = bottom > WET
    through = wet[:-1] & wet[1:]  # faces between two wet points
    height = np.zeros_like(bottom)
    height[1] = BUMP
    speed = np.zeros_like(bottom[1:])
    water = bottom + height
    hours = [height.copy()]
    push, coupling = np.float32(STEP * GRAVITY / SPACING), np.float32((STEP * IMPLICIT / SPACING) ** 2 * GRAVITY)
    for step in range(1, HOURS * int(3600 / STEP) + 1):
        column = np.where(through, (water[:-1] + water[1:]) / 2, np.float32(1))
        drag = np.float32(STEP * DRAG) * speed * np.abs(speed) / column
        ahead = through * (speed - drag - np.float32(1 - IMPLICIT) * push * np.diff(height, axis=0))
        flow = np.float32(STEP / SPACING) * column * (np.float32(1 - IMPLICIT) * speed + np.float32(IMPLICIT) * ahead)
        target = height.copy()
        target[:-1] -= flow
        target[1:] += flow
        height = _solved(height, target, coupling * column * through)
        speed = ahead - through * (np.float32(IMPLICIT) * push * np.diff(height, axis=0))
        water = bottom + height
        if step % int(3600 / STEP) == 0:
            hours.append(height.copy())
    return np.stack(hours).transpose(2, 0, 1)


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
