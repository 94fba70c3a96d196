"""One parameter in, one number out."""

from math import exp

prior = (0.0, 3.0)


def simulator(theta, rng):
    return exp(-theta[0]) + 0.05 * rng.normal()


observation = 0.4
