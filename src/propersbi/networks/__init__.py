"""Networks: generators that turn noise and data into draws, flows with a density, embeddings of data, critics."""

from propersbi.networks.conv import UNetGenerator, is_image_problem
from propersbi.networks.critic import MLPCritic
from propersbi.networks.embeddings import Embedding, VectorEmbedding
from propersbi.networks.field import FieldGenerator
from propersbi.networks.flow import Flow
from propersbi.networks.images import GridEmbedding, ImageEmbedding, image_axes, is_grid
from propersbi.networks.mlp import MLPGenerator
from propersbi.networks.parts import PartsEmbedding
from propersbi.networks.series import SeriesEmbedding
from propersbi.networks.sets import SetEmbedding

__all__ = [
    "Embedding",
    "FieldGenerator",
    "Flow",
    "GridEmbedding",
    "ImageEmbedding",
    "MLPCritic",
    "MLPGenerator",
    "PartsEmbedding",
    "SeriesEmbedding",
    "SetEmbedding",
    "UNetGenerator",
    "VectorEmbedding",
    "image_axes",
    "is_grid",
    "is_image_problem",
]
