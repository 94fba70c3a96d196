"""A model that is an object with data of its own and a method ``__call__``."""

import numpy as np


class Detector:
    def __init__(self, positions):
        self.positions = np.asarray(positions)

    def __call__(self, theta, rng):
        distance = np.hypot(*(self.positions - theta).T)
        return 1 / (0.1 + distance) + 0.05 * rng.normal(size=len(self.positions))


class Square:
    """A prior written by hand, with bounds."""

    lower, upper = np.array([-1.0, -1.0]), np.array([1.0, 1.0])

    def sample(self, n, rng):
        return rng.uniform(-1, 1, (n, 2))


prior = Square()
simulator = Detector([[1, 0], [0, 1], [-1, 0], [0, -1]])
parameter_names = ("east", "north")
observation = np.array([1.2, 1.0, 0.7, 0.8])
