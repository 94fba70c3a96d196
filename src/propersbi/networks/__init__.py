"""Networks: a generator turns noise and data into draws of the parameters; critics and flows serve the baselines."""

from propersbi.networks.conv import UNetGenerator, is_image_problem
from propersbi.networks.critic import MLPCritic, PaperCritic, PaperFieldCritic, PaperImageCritic
from propersbi.networks.embeddings import GridEmbedding, is_grid
from propersbi.networks.field import FieldGenerator
from propersbi.networks.flow import Flow
from propersbi.samplers.generator import ChainGenerator, Generator, Modulation
from propersbi.networks.mlp import MLPGenerator, PaperMLP
from propersbi.networks.paper import PaperCamera, PaperShallowWater

__all__ = [
    "ChainGenerator",
    "FieldGenerator",
    "Flow",
    "Generator",
    "GridEmbedding",
    "MLPCritic",
    "MLPGenerator",
    "Modulation",
    "PaperCamera",
    "PaperCritic",
    "PaperFieldCritic",
    "PaperImageCritic",
    "PaperMLP",
    "PaperShallowWater",
    "UNetGenerator",
    "is_grid",
    "is_image_problem",
]
