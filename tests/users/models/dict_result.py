"""Summaries by name: a dict of numbers and arrays."""

import numpy as np

prior = {"shape": (0.5, 5.0), "scale": (0.5, 3.0)}


def simulator(theta, rng):
    draws = rng.gamma(theta[0], theta[1], size=50)
    return {"mean": draws.mean(), "sd": draws.std(), "quantiles": np.quantile(draws, [0.1, 0.5, 0.9])}


observation = {"mean": 2.9, "sd": 2.1, "quantiles": [0.7, 2.5, 5.4]}
