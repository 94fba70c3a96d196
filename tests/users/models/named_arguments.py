"""Parameters by name: growth of a population up to its capacity."""

import numpy as np
import torch

YEARS = np.arange(1, 9)

prior = {"growth": torch.distributions.LogNormal(0.0, 0.3), "capacity": (50.0, 150.0)}


def simulator(growth, capacity, rng):
    size = capacity / (1 + (capacity / 5 - 1) * np.exp(-growth * YEARS))
    return size * np.exp(0.1 * rng.normal(size=YEARS.shape))


observation = [12, 25, 45, 65, 80, 92, 95, 99]
