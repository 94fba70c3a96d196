"""A simulator that tells what it does."""

import numpy as np

prior = [(0.0, 1.0), (-1.0, 1.0)]
parameter_names = ["slope", "intercept"]


def simulator(theta):
    print("simulating", theta)  # noqa: T201
    grid = np.linspace(0, 1, 6)
    return theta[0] * grid + theta[1] + 0.1 * np.random.normal(size=6)


observation = np.array([0.1, 0.2, 0.2, 0.4, 0.4, 0.6])
