"""Networks: generators that turn noise and data into draws, flows with a density, embeddings of data, critics."""

from propersbi.networks.conv import UNetGenerator, is_image_problem
from propersbi.networks.critic import MLPCritic
from propersbi.networks.embeddings import GridEmbedding, is_grid
from propersbi.networks.field import FieldGenerator
from propersbi.networks.flow import Flow
from propersbi.networks.mlp import MLPGenerator

__all__ = [
    "FieldGenerator",
    "Flow",
    "GridEmbedding",
    "MLPCritic",
    "MLPGenerator",
    "UNetGenerator",
    "is_grid",
    "is_image_problem",
]
