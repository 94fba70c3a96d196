"""A search that never ends for a few parameters: a time limit ends it."""

import time

import propersbi as ps


def simulator(theta, rng):
    while theta[0] > 0.99:
        time.sleep(0.1)
    return theta[0] + 0.1 * rng.normal(size=3)


problem = ps.Problem(
    prior={"position": (0.0, 1.0)},
    simulator=simulator,
    x_o=[0.4, 0.5, 0.45],
    settings=ps.Settings(timeout=1.0),
)
