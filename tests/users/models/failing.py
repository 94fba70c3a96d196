"""A solver that does not converge for some parameters: about one in fifty raises."""

import numpy as np

prior = {"stiffness": (0.0, 1.0), "damping": (0.0, 1.0)}


def simulator(theta, rng):
    if theta[0] > 0.98:
        raise RuntimeError(f"no convergence after {rng.integers(100, 200)} iterations")
    times = np.linspace(0, 6, 8)
    clean = np.exp(-theta[1] * times) * np.cos((1 + theta[0]) * times)
    return clean + 0.05 * rng.normal(size=times.shape)


observation = [1.1, 0.15, -0.42, -0.44, 0.01, 0.25, 0.03, -0.1]
