"""A table of results, as pandas has it."""

import numpy as np


class Table:
    """What a DataFrame and a Series of pandas have in common, without the dependency."""

    def __init__(self, **columns):
        self.columns = list(columns)
        self._values = np.array([list(columns.values())])

    @property
    def shape(self):
        return self._values.shape

    def to_numpy(self):
        return self._values

    def __array__(self, dtype=None, copy=None):
        return np.array(self._values, dtype=dtype)

    def __len__(self):
        return len(self._values)


prior = {"mean": (-1.0, 1.0), "sd": (0.5, 2.0)}


def simulator(mean, sd, rng):
    draws = rng.normal(mean, sd, size=30)
    return Table(average=draws.mean(), spread=draws.std(), largest=draws.max())


observation = Table(average=0.2, spread=1.1, largest=2.4)
