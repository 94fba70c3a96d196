"""Networks: a generator turns noise and data into draws of the parameters."""

from propersbi.networks.generator import ChainGenerator, Generator, Modulation
from propersbi.networks.mlp import MLPGenerator, PaperMLP

__all__ = ["ChainGenerator", "Generator", "MLPGenerator", "Modulation", "PaperMLP"]
