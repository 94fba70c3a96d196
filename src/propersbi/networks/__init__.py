"""Networks: a generator turns noise and data into draws of the parameters; critics and flows serve the baselines."""

from propersbi.networks.critic import MLPCritic, PaperCritic, PaperFieldCritic, PaperImageCritic
from propersbi.networks.embed import GridEmbedding
from propersbi.networks.flow import Flow
from propersbi.networks.generator import ChainGenerator, Generator, Modulation
from propersbi.networks.mlp import MLPGenerator, PaperMLP

__all__ = [
    "ChainGenerator",
    "Flow",
    "Generator",
    "GridEmbedding",
    "MLPCritic",
    "MLPGenerator",
    "Modulation",
    "PaperCritic",
    "PaperFieldCritic",
    "PaperImageCritic",
    "PaperMLP",
]
