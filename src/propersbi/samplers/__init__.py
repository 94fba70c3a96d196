"""Samplers: the contract that networks implement, the wrappers that compose, and the supports that draws stay in."""

from propersbi.samplers.base import Adapted, DensitySampler, RefinedSampler, Sampler, Wrapper
from propersbi.samplers.blocks import Blocks
from propersbi.samplers.bounds import Bounds, Box, Support
from propersbi.samplers.constraints import Bijection, Ordered, Simplex
from propersbi.samplers.discrete import Categories, Counts, Integers
from propersbi.samplers.generator import ChainGenerator, Generator
from propersbi.samplers.latent import LatentCorrected, Metropolis, Rejection
from propersbi.samplers.linear import LinearResidual
from propersbi.samplers.matrices import Correlation, PositiveDefinite
from propersbi.samplers.missing import Missing
from propersbi.samplers.mixture import Mixture
from propersbi.samplers.priors import support_of
from propersbi.samplers.refined import Refined
from propersbi.samplers.standardized import Standardized
from propersbi.samplers.subset import Subset
from propersbi.samplers.units import Standardize

__all__ = [
    "Adapted",
    "Bijection",
    "Blocks",
    "Bounds",
    "Box",
    "Categories",
    "ChainGenerator",
    "Correlation",
    "Counts",
    "DensitySampler",
    "Generator",
    "Integers",
    "LatentCorrected",
    "LinearResidual",
    "Metropolis",
    "Missing",
    "Mixture",
    "Ordered",
    "PositiveDefinite",
    "Refined",
    "RefinedSampler",
    "Rejection",
    "Sampler",
    "Simplex",
    "Standardize",
    "Standardized",
    "Subset",
    "Support",
    "Wrapper",
    "support_of",
]
