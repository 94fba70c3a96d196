"""Two change points, the first before the second."""

import numpy as np

import propersbi as ps

TIMES = np.linspace(0, 1, 20)


def prior(rng):
    return np.sort(rng.uniform(0, 1, 2))


support = ps.samplers.Ordered(2, lower=0.0, upper=1.0)


def simulator(theta, rng):
    first, second = theta
    level = np.where(first > TIMES, 0.0, np.where(second > TIMES, 1.0, 0.3))
    return level + 0.2 * rng.normal(size=TIMES.shape)


parameter_names = ["first", "second"]
observation = np.repeat([0.0, 1.0, 0.3], [6, 8, 6])
