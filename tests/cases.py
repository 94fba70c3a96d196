"""Every implementation once, by name; the laws in test_contracts.py run on each of them."""

import torch

from propersbi.executors import Joblib, Serial
from propersbi.kernels import Gaussian
from propersbi.networks import MLPGenerator, PaperMLP
from propersbi.objectives import ScoreMinimization
from propersbi.refinement import ReverseMarkov
from propersbi.scoring import EnergyScore, KernelScore

RULES = {
    "energy": EnergyScore(),
    "energy beta 0.5": EnergyScore(beta=0.5),
    "energy beta 1.5": EnergyScore(beta=1.5),
    "kernel gaussian": KernelScore(Gaussian(bandwidth=1.3)),
}

GENERATORS = {
    "mlp": lambda: MLPGenerator((2,), (3,), width=16, depth=1),
    "mlp noise everywhere": lambda: MLPGenerator((2,), (3,), width=16, depth=1, places=(0, 1, 2)),
    "mlp noise late": lambda: MLPGenerator((2,), (3,), width=16, depth=1, places=(2,), latent=3),
    "mlp images": lambda: MLPGenerator((2, 2), (1, 3, 1), width=16, depth=1),
    "mlp scalar": lambda: MLPGenerator((1,), (1,), width=16, depth=1, head=1),
    "mlp deep": lambda: MLPGenerator((2,), (3,), width=16, depth=3, head_width=8),
    "paper": lambda: PaperMLP((2,), (3,)),
}

OBJECTIVES = {
    "energy": lambda: ScoreMinimization(MLPGenerator((2,), (2,), width=16, depth=1), EnergyScore(), m=5),
    "kernel": lambda: ScoreMinimization(
        MLPGenerator((2,), (2,), width=16, depth=1), KernelScore(Gaussian(bandwidth=1.0)), m=5
    ),
    "paper": lambda: ScoreMinimization(PaperMLP((2,), (2,)), EnergyScore(), m=3),
    "refinement": lambda: ScoreMinimization(
        ReverseMarkov(MLPGenerator((2,), (2,), width=16, depth=1, chain=True), center=1.0), EnergyScore(), m=5
    ),
}

EXECUTORS = {"serial": Serial(), "joblib": Joblib(workers=2)}


def linear_pairs(n, seed=0, noise=0.5):
    """A linear-Gaussian problem whose posterior is known: theta ~ N(0, 1), x = theta + noise."""
    generator = torch.Generator().manual_seed(seed)
    theta = torch.randn(n, 2, generator=generator)
    return theta, theta + noise * torch.randn(n, 2, generator=generator)
