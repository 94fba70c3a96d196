"""Samplers: the contract that networks implement, and the wrappers that compose."""

from propersbi.samplers.base import Adapted, DensitySampler, RefinedSampler, Sampler, Wrapper
from propersbi.samplers.bounds import Bounds, Box, support_of
from propersbi.samplers.generator import ChainGenerator, Generator
from propersbi.samplers.latent import LatentCorrected, Metropolis, Rejection
from propersbi.samplers.linear import LinearResidual
from propersbi.samplers.mixture import Mixture
from propersbi.samplers.refined import Refined
from propersbi.samplers.standardized import Standardize, Standardized

__all__ = [
    "Adapted",
    "Bounds",
    "Box",
    "ChainGenerator",
    "DensitySampler",
    "Generator",
    "LatentCorrected",
    "LinearResidual",
    "Metropolis",
    "Mixture",
    "Refined",
    "RefinedSampler",
    "Rejection",
    "Sampler",
    "Standardize",
    "Standardized",
    "Wrapper",
    "support_of",
]
