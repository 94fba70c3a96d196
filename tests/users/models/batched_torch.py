"""A linear model of many parameters at once, in torch."""

import torch

DESIGN = torch.tensor([[1.0, 0.5, 0.0], [0.0, 1.0, 0.5], [0.5, 0.0, 1.0], [1.0, 1.0, 1.0]])

prior = torch.distributions.MultivariateNormal(torch.zeros(3), torch.eye(3))
parameter_names = ["a", "b", "c"]


def simulator(theta):
    assert theta.shape[1:] == (3,)
    mean = theta @ DESIGN.T
    return mean + 0.2 * torch.randn_like(mean)


observation = torch.tensor([0.5, -0.2, 0.1, 0.4])
