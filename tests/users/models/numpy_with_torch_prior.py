"""A simulator in NumPy with a prior of torch, many parameters at once."""

import numpy as np
import torch

prior = [torch.distributions.Uniform(0.5, 2.0), torch.distributions.Exponential(1.0)]
parameter_names = ["frequency", "amplitude"]


def simulator(theta, rng):
    frequency, amplitude = np.split(theta, 2, axis=1)
    assert type(theta) is np.ndarray
    times = np.linspace(0, 3, 12)
    return amplitude * np.sin(frequency * times) + 0.1 * rng.standard_normal((len(theta), 12))


observation = 0.8 * np.sin(1.2 * np.linspace(0, 3, 12))
