"""Every implementation once, by name; the laws in test_contracts.py run on each of them."""

import torch

from propersbi.simulation.executors import Joblib, Serial
from propersbi.training.divergences import KL, Hellinger, JensenShannon, Pearson, ReverseKL, TotalVariation, Wasserstein
from propersbi.scoring.kernels import Gaussian, InverseMultiquadric, Laplace, Matern, Mixture, RationalQuadratic
from propersbi.samplers.latent import CorrectedSampler, Metropolis, Rejection
from propersbi.networks import Flow, MLPCritic, MLPGenerator, PaperCamera, PaperMLP, PaperShallowWater, UNetGenerator
from propersbi.training.objectives import Adversarial, MaximumLikelihood, ScoreMinimization
from propersbi.samplers.refined import ReverseMarkov
from propersbi.samplers.linear import Residual
from propersbi.scoring import (
    Derived,
    EnergyScore,
    KernelScore,
    Patched,
    Scaled,
    SlicedEnergyScore,
    VariogramScore,
)

KERNELS = {
    "gaussian": Gaussian(bandwidth=1.3),
    "laplace": Laplace(bandwidth=1.3),
    "rational quadratic": RationalQuadratic(bandwidth=1.3, alpha=0.5),
    "inverse multiquadric": InverseMultiquadric(bandwidth=1.3),
    "matern 1/2": Matern(bandwidth=1.3, nu=0.5),
    "matern 3/2": Matern(bandwidth=1.3, nu=1.5),
    "matern 5/2": Matern(bandwidth=1.3, nu=2.5),
    "mixture": Mixture(Gaussian(bandwidth=1.0), factors=(0.3, 1.0, 3.0)),
}

# Rules of any number of parameters.
RULES = {
    "energy": EnergyScore(),
    "energy beta 0.5": EnergyScore(beta=0.5),
    "energy beta 1.5": EnergyScore(beta=1.5),
    **{f"kernel {name}": KernelScore(kernel) for name, kernel in KERNELS.items()},
    "sliced": SlicedEnergyScore(slices=8),
    "variogram": VariogramScore(p=1.0),
    "sum": EnergyScore() + 0.5 * VariogramScore(p=1.0),
}
BLIND = {
    ("variogram", "shifted"),
    ("variogram", "one mode"),
}  # what a rule that is proper but not strictly proper does not see


def _rotated(theta):
    return theta @ torch.tensor([[1.0, 1.0], [-1.0, 1.0]], dtype=theta.dtype)


# Rules of two parameters.
COMPOSED = {
    "patched": Patched(EnergyScore(), size=1, step=1),
    "scaled": Scaled(EnergyScore(), scales=(1.0, 2.0)),
    "derived": Derived(EnergyScore(), _rotated),
}

GENERATORS = {
    "mlp": lambda: MLPGenerator((2,), (3,), width=16, depth=1),
    "mlp noise everywhere": lambda: MLPGenerator((2,), (3,), width=16, depth=1, places=(0, 1, 2)),
    "mlp noise late": lambda: MLPGenerator((2,), (3,), width=16, depth=1, places=(2,), latent=3),
    "mlp images": lambda: MLPGenerator((2, 2), (1, 3, 1), width=16, depth=1),
    "mlp scalar": lambda: MLPGenerator((1,), (1,), width=16, depth=1, head=1),
    "mlp deep": lambda: MLPGenerator((2,), (3,), width=16, depth=3, head_width=8),
    "u-net": lambda: UNetGenerator((9, 8), (9, 8), channels=(4, 6), latent_maps=2),
    "u-net channels": lambda: UNetGenerator((2, 8, 8), (3, 8, 8), channels=(4,), head=(3,), regression=False),
    "paper": lambda: PaperMLP((2,), (3,)),
    "paper camera": lambda: PaperCamera((28, 28), (1, 28, 28)),
    "paper shallow water": lambda: PaperShallowWater((5,), (2, 40, 40), width=2),
    "paper small": lambda: PaperMLP((2,), (3,), before=1, after=1),
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
    "gan": lambda: Adversarial(MLPGenerator((2,), (2,), width=16, depth=1), critic=critic(), critic_steps=2),
    "wasserstein": lambda: Adversarial(
        MLPGenerator((2,), (2,), width=16, depth=1), Wasserstein(), critic=critic(), m=2, unrolled=2
    ),
    "flow": lambda: MaximumLikelihood(Flow((2,), (2,), transforms=2, width=16)),
    "flow by energy": lambda: ScoreMinimization(Flow((2,), (2,), transforms=2, width=16), EnergyScore(), m=5),
    "corrected latent": lambda: ScoreMinimization(leaning(Metropolis(steps=3)), EnergyScore(), m=5),
    "gan with corrected latent": lambda: Adversarial(leaning(Rejection(batch=8)), critic=critic(), m=2),
    "residual": lambda: ScoreMinimization(
        Residual(MLPGenerator((2,), (2,), width=16, depth=1)).fit(*linear_pairs(50)), EnergyScore(), m=5
    ),
}

GAMES = {
    "jensen-shannon": JensenShannon(),
    "jensen-shannon, non-saturating": JensenShannon(saturating=False),
    "kl": KL(),
    "reverse kl": ReverseKL(),
    "pearson": Pearson(),
    "hellinger": Hellinger(),
    "total variation": TotalVariation(),
    "wasserstein": Wasserstein(penalty=1.0),
}


def critic(**options):
    return MLPCritic((2,), (2,), width=32, depth=2, **options)


# How latent variables are drawn from a law that is not normal.
LATENTS = {
    "rejection": Rejection(batch=1000),
    "rejection, known bound": Rejection(batch=1000, log_bound=0.0),
    "metropolis": Metropolis(steps=60),
    "metropolis, small moves": Metropolis(steps=300, reaches=(0.6,)),
}


def leaning(latent):
    """A generator whose draws in training lean to large parameters."""
    generator = MLPGenerator((2,), (2,), width=16, depth=1)
    return CorrectedSampler(generator, latent, lambda theta: 0.3 * theta[..., 0], lambda theta: theta)


EXECUTORS = {"serial": Serial(), "joblib": Joblib(workers=2)}


def linear_pairs(n, seed=0, noise=0.5):
    """A linear-Gaussian problem whose posterior is known: theta ~ N(0, 1), x = theta + noise."""
    generator = torch.Generator().manual_seed(seed)
    theta = torch.randn(n, 2, generator=generator)
    return theta, theta + noise * torch.randn(n, 2, generator=generator)
