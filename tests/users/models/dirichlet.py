"""Shares that add up to one, seen through counts."""

import numpy as np
import torch

prior = torch.distributions.Dirichlet(torch.ones(3))
parameter_names = ["red", "green", "blue"]


def simulator(theta, rng):
    shares = np.asarray(theta, dtype=float)
    return rng.multinomial(40, shares / shares.sum(-1, keepdims=True))


observation = [20, 15, 5]
