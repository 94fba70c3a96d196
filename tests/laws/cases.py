"""Every implementation once, by name; the laws in this folder run on each of them.

``test_complete.py`` checks that every public implementation is in a table.
"""

import math

import numpy as np
import scipy.stats
import torch
from torch import nn

from propersbi import tasks
from propersbi.layouts import Kind, Layout, Part
from propersbi.networks import (
    FieldGenerator,
    Flow,
    GridEmbedding,
    ImageEmbedding,
    MLPCritic,
    MLPGenerator,
    PartsEmbedding,
    SeriesEmbedding,
    SetEmbedding,
    UNetGenerator,
    VectorEmbedding,
)
from propersbi.samplers import (
    Adapted,
    Bijection,
    Blocks,
    Bounds,
    Box,
    Categories,
    Correlation,
    Counts,
    Integers,
    LatentCorrected,
    LinearResidual,
    Metropolis,
    Mixture,
    Ordered,
    PositiveDefinite,
    Refined,
    Rejection,
    Simplex,
    Standardized,
    Subset,
)
from propersbi.scoring import (
    Derived,
    EnergyScore,
    KernelScore,
    Patched,
    Scaled,
    SlicedEnergyScore,
    VariogramScore,
)
from propersbi.scoring.kernels import Gaussian, InverseMultiquadric, KernelMixture, Laplace, Matern, RationalQuadratic
from propersbi.sequential import CorrectedLatent, ImportanceWeights, Truncated, Uncorrected
from propersbi.sequential.ratio import Classification
from propersbi.simulation import Joblib, Serial
from propersbi.tasks.priors import BoxUniform, LogNormal
from propersbi.tasks.priors import Gaussian as GaussianPrior
from propersbi.training import (
    Adversarial,
    Collapse,
    Evenness,
    FirstRise,
    MaximumLikelihood,
    MaxSteps,
    Patience,
    ScoreMinimization,
    StopReason,
    TimeLimit,
)
from propersbi.training.divergences import KL, Hellinger, JensenShannon, Pearson, ReverseKL, TotalVariation, Wasserstein

KERNELS = {
    "gaussian": Gaussian(bandwidth=1.3),
    "laplace": Laplace(bandwidth=1.3),
    "rational quadratic": RationalQuadratic(bandwidth=1.3, alpha=0.5),
    "inverse multiquadric": InverseMultiquadric(bandwidth=1.3),
    "matern 1/2": Matern(bandwidth=1.3, nu=0.5),
    "matern 3/2": Matern(bandwidth=1.3, nu=1.5),
    "matern 5/2": Matern(bandwidth=1.3, nu=2.5),
    "mixture": KernelMixture(Gaussian(bandwidth=1.0), factors=(0.3, 1.0, 3.0)),
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
    "field": lambda: FieldGenerator((10,), (8, 12), width=16, shared=4),
}

OBJECTIVES = {
    "energy": lambda: ScoreMinimization(MLPGenerator((2,), (2,), width=16, depth=1), EnergyScore(), draws=5),
    "kernel": lambda: ScoreMinimization(
        MLPGenerator((2,), (2,), width=16, depth=1), KernelScore(Gaussian(bandwidth=1.0)), draws=5
    ),
    "refinement": lambda: ScoreMinimization(
        Refined(MLPGenerator((2,), (2,), width=16, depth=1, chain=True), center=1.0), EnergyScore(), draws=5
    ),
    "gan": lambda: Adversarial(MLPGenerator((2,), (2,), width=16, depth=1), critic=critic(), critic_steps=2),
    "wasserstein": lambda: Adversarial(
        MLPGenerator((2,), (2,), width=16, depth=1), Wasserstein(), critic=critic(), draws=2, unrolled=2
    ),
    "flow": lambda: MaximumLikelihood(Flow((2,), (2,), transforms=2, width=16)),
    "flow by energy": lambda: ScoreMinimization(Flow((2,), (2,), transforms=2, width=16), EnergyScore(), draws=5),
    "corrected latent": lambda: ScoreMinimization(tilted(Metropolis(steps=3)), EnergyScore(), draws=5),
    "gan with corrected latent": lambda: Adversarial(tilted(Rejection(batch=8)), critic=critic(), draws=2),
    "residual": lambda: ScoreMinimization(
        prepared(LinearResidual(MLPGenerator((2,), (2,), width=16, depth=1))), EnergyScore(), draws=5
    ),
    "classification": lambda: Classification(Halves()),
}

DIVERGENCES = {
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


# How latent variables are drawn from a distribution that is not normal.
LATENTS = {
    "rejection": Rejection(batch=1000),
    "rejection, known bound": Rejection(batch=1000, log_bound=0.0),
    "metropolis": Metropolis(steps=60),
    "metropolis, small moves": Metropolis(steps=300, reaches=(0.6,)),
}


def tilted(latent):
    """A generator whose draws in training favour large parameters."""
    generator = MLPGenerator((2,), (2,), width=16, depth=1)
    return LatentCorrected(generator, latent, lambda theta: 0.3 * theta[..., 0], lambda theta: theta)


EXECUTORS = {"serial": Serial(), "joblib": Joblib(workers=2)}

ADVERSARIAL = {"gan", "wasserstein", "gan with corrected latent"}  # of the objectives


class Halves(nn.Module):
    """Log odds of the first of two parameters being positive."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 1)

    def forward(self, values):
        return self.layer(values)[..., 0]


class OwnModule(nn.Module):
    """A module of a user's own with just the methods of a sampler."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 4)

    def sample(self, m, x):
        mean, scale = self.layer(x).chunk(2, -1)
        return mean + scale * torch.randn(m, *mean.shape)

    def training_pair(self, m, theta, x):
        return self.sample(m, x), theta


def in_a_disc(theta):
    """A support that is known by a function."""
    return (theta**2).sum(1) < 4


# Supports, and the shape of an event.
SUPPORTS = {
    "box": (Box((0.0, None), (1.0, 3.0)), (2,)),
    "integers": (Integers(lower=0.0, upper=5.0), (3,)),
    "counts without an end": (Integers(lower=0.0), (2,)),
    "mixed": (Integers((0.0, None, None), (1.0, None, 4.0), where=(1, 2)), (3,)),
    "pixels": (Integers(0.0, 255.0), (2, 3)),
    "categories": (Categories(4), (1,)),
    "one-hot": (Categories(4, one_hot=True), (4,)),
    "counts": (Counts(4, total=7), (4,)),
    "simplex": (Simplex(4), (4,)),
    "smallest simplex": (Simplex(2), (2,)),
    "ordered": (Ordered(3), (3,)),
    "ordered above": (Ordered(3, lower=1.0), (3,)),
    "ordered below": (Ordered(3, upper=1.0), (3,)),
    "ordered between": (Ordered(3, lower=-1.0, upper=2.0), (3,)),
    "positive definite": (PositiveDefinite(3), (3, 3)),
    "cholesky": (PositiveDefinite(3, cholesky=True), (3, 3)),
    "correlation": (Correlation(3), (3, 3)),
    "correlation cholesky": (Correlation(3, cholesky=True), (3, 3)),
    "bijection": (Bijection(torch.distributions.constraints.greater_than(2.0), (2,)), (2,)),
    "blocks": (Blocks((Simplex(3), Box(lower=0.0), PositiveDefinite(2)), (3, 2, 4)), (9,)),
    "discrete blocks": (Blocks((Categories(3), Box(0.0, 1.0), Integers(lower=0.0)), (1, 1, 2)), (4,)),
    "several": (Blocks((Simplex(3), Simplex(3)), (3, 3), (2, 3)), (2, 3)),
    "subset": (Subset(in_a_disc, Box(-2.0, 2.0)), (2,)),
}


def one_pass():
    return MLPGenerator((2,), (3,), width=16, depth=1)


def step():
    return MLPGenerator((2,), (3,), width=16, depth=1, chain=True)


def flow():
    return Flow((2,), (3,), transforms=1, width=8)


# Samplers and their wrappers, in several orders.
SAMPLERS = {
    **GENERATORS,
    "flow": flow,
    "refined": lambda: Refined(step(), refinement_steps=3),
    "refined u-net": lambda: Refined(UNetGenerator((8, 8), (8, 8), channels=(4,), chain=True), refinement_steps=2),
    "standardized": lambda: Standardized(one_pass()),
    "standardized flow": lambda: Standardized(flow()),
    "residual": lambda: LinearResidual(one_pass()),
    "residual flow": lambda: LinearResidual(flow()),
    "residual of residual": lambda: LinearResidual(LinearResidual(one_pass())),
    "residual of refined": lambda: LinearResidual(Refined(step(), refinement_steps=2)),
    "default": lambda: Standardized(LinearResidual(Refined(step(), refinement_steps=2))),
    "residual of standardized": lambda: LinearResidual(Standardized(one_pass())),
    "standardized twice": lambda: Standardized(Standardized(Refined(step(), refinement_steps=2))),
    "mixture": lambda: Mixture([one_pass(), one_pass(), one_pass()]),
    "mixture of defaults": lambda: Mixture([SAMPLERS["default"](), SAMPLERS["default"]()]),
    "mixture of flows": lambda: Mixture([Standardized(flow()), flow()]),
    "standardized mixture": lambda: Standardized(LinearResidual(Mixture([one_pass(), one_pass()]))),
    "latent corrected": lambda: LatentCorrected(
        one_pass(), Rejection(batch=8), lambda theta: 0.3 * theta[..., 0], lambda theta: theta
    ),
    "adapted": lambda: Adapted(OwnModule(), (2,), (3,)),
    "standardized integers": lambda: Standardized(one_pass(), support=Integers(lower=0.0, where=(1,))),
    "standardized simplex": lambda: Standardized(LinearResidual(one_pass()), support=Simplex(3)),
    "standardized matrices": lambda: Standardized(MLPGenerator((3,), (3,), width=16), support=PositiveDefinite(2)),
    "standardized ordered flow": lambda: Standardized(flow(), support=Ordered(2, lower=-3.0)),
    "standardized integers of a flow": lambda: Standardized(flow(), support=Integers()),
    "standardized subset": lambda: Standardized(
        LinearResidual(Refined(step(), refinement_steps=2)), support=Subset(in_a_disc)
    ),
    "mixture of simplices": lambda: Mixture([Standardized(one_pass(), support=Simplex(3)) for _ in range(2)]),
}

EMBEDDINGS = {
    "grid": lambda: GridEmbedding((16, 12), channels=(4, 6), width=12, features=10),
    "grid with channels": lambda: GridEmbedding((2, 16, 12), channels=(4, 6), width=12, features=10),
    "spectrum": lambda: GridEmbedding((2, 15, 12), channels=(4, 6), width=12, features=10, spectrum=True, lost=1),
    "vector": lambda: VectorEmbedding((5,)),
    "long vector": lambda: VectorEmbedding((70,)),
    "series": lambda: SeriesEmbedding((40,), channels=(4, 8), learnt=5),
    "series of channels": lambda: SeriesEmbedding((33, 3), channels=(4, 8), learnt=5),
    "set": lambda: SetEmbedding((12, 2), width=8, learnt=5),
    "small set of numbers": lambda: SetEmbedding((4,), width=8, learnt=5),
    "image": lambda: ImageEmbedding((8, 11), channels=4, learnt=5),
    "image, channels first": lambda: ImageEmbedding((3, 16, 9), channels=4, learnt=5),
    "image, channels last": lambda: ImageEmbedding((16, 9, 3), channels=4, learnt=5),
    "parts": lambda: PartsEmbedding((27,), layout=PARTS),
}
PARTS = Layout((Part("trials", (12, 2), Kind.SET, ragged=True), Part("extra", (3,), Kind.VECTOR)))

CRITICS = {
    "mlp": lambda: MLPCritic((2,), (3,), width=16),
    "mlp spectral": lambda: MLPCritic((2,), (3,), width=16, spectral=True),
    "mlp embedded": lambda: MLPCritic((2,), (3,), width=16, embedding=nn.Linear(3, 5)),
}

# Stopping rules, and why they stop.
STOPPINGS = {
    "patience": (Patience(2), StopReason.PATIENCE),
    "first rise": (FirstRise(), StopReason.FIRST_RISE),
    "evenness": (Evenness(0.5, validations=3), StopReason.EVEN),
    "collapse": (Collapse(), StopReason.COLLAPSED),
    "time limit": (TimeLimit(10.0), StopReason.TIME_LIMIT),
    "max steps": (MaxSteps(50), StopReason.MAX_STEPS),
}

CORRECTIONS = {
    "uncorrected": Uncorrected(),
    "weights": ImportanceWeights(draws=500),
    "truncated": Truncated(),
    "rejection": CorrectedLatent(Rejection(batch=20), draws=500),
    "metropolis": CorrectedLatent(Metropolis(steps=5), draws=500),
}

PRIORS = {
    "uniform": BoxUniform([-1.0, -1.0], [1.0, 1.0]),
    "gaussian": GaussianPrior(np.zeros(2), np.eye(2)),
    "log-normal": LogNormal(np.zeros(2), np.ones(2)),
    "torch": torch.distributions.Independent(torch.distributions.Normal(torch.zeros(2), 1.0), 1),
    "list": [torch.distributions.Normal(0.0, 1.0), torch.distributions.Exponential(1.0)],
    "draws": np.random.default_rng(0).normal(size=(50, 2)),
    "dict": {"a": torch.distributions.Poisson(3.0), "b": (0.0, 1.0)},
    "pairs": [(0.0, 1.0), (2, 3)],
    "scipy": scipy.stats.multivariate_normal(np.zeros(2), np.eye(2)),
    "simplex": torch.distributions.Dirichlet(torch.ones(2)),
    "function": lambda rng: rng.normal(size=2),
}

TASKS = {name: name for name in tasks.names()}


def parameters(sampler, n, generator):
    """Parameters that a sampler can have drawn."""
    inner = sampler.samplers[0] if isinstance(sampler, Mixture) else sampler
    support = inner.support if isinstance(inner, Standardized) else None
    if support is None:
        return torch.randn(n, *sampler.theta_shape, generator=generator)
    real = torch.randn(3 * n, math.prod(support.real_shape(sampler.theta_shape)), generator=generator)
    theta = support.from_real(real).unflatten(-1, sampler.theta_shape)
    return theta[support.accepts(theta) if isinstance(support, Subset) else slice(None)][:n]


def prepared(sampler, n=200, seed=0, bounds=None):
    """A sampler prepared on pairs of its shapes."""
    generator = torch.Generator().manual_seed(seed)
    theta = parameters(sampler, n, generator)
    x = torch.randn(n, *sampler.x_shape, generator=generator)
    sampler.prepare(theta, x, bounds or Bounds.none(math.prod(sampler.theta_shape)))
    return sampler


def linear_pairs(n, seed=0, noise=0.5):
    """A linear-Gaussian problem whose posterior is known: theta ~ N(0, 1), x = theta + noise."""
    generator = torch.Generator().manual_seed(seed)
    theta = torch.randn(n, 2, generator=generator)
    return theta, theta + noise * torch.randn(n, 2, generator=generator)
