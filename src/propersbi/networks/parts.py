"""Data of several named parts, each with an embedding of its own kind."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from propersbi.layouts import Kind, Layout, Part
from propersbi.networks.embeddings import Embedding, VectorEmbedding, check_shape
from propersbi.networks.images import ImageEmbedding
from propersbi.networks.series import SeriesEmbedding
from propersbi.networks.sets import SetEmbedding

__all__ = ["EMBEDDINGS", "PartsEmbedding", "embedding_for"]

EMBEDDINGS = {
    Kind.VECTOR: "VectorEmbedding",
    Kind.SERIES: "SeriesEmbedding",
    Kind.SET: "SetEmbedding",
    Kind.IMAGE: "ImageEmbedding",
}
"""The class of the embedding for each kind."""


def embedding_for(part: Part) -> Embedding:
    """The embedding of one part, with its defaults."""
    shape = part.shape or (1,)
    match part.kind:
        case Kind.SERIES:
            return SeriesEmbedding(shape)
        case Kind.SET:
            return SetEmbedding(shape)
        case Kind.IMAGE:
            return ImageEmbedding(shape)
        case _:
            return VectorEmbedding(shape)


class PartsEmbedding(Embedding):
    """Features of data of several parts: those of each part, side by side, all statistics first.

    Arguments:
        x_shape: The packed shape, ``(numbers,)``.
        layout: The parts, with their kinds.

    Examples:
        >>> parts = (Part("spectrum", (200,), Kind.SERIES), Part("magnitude", (), Kind.VECTOR))
        >>> embedding = PartsEmbedding((201,), layout=Layout(parts))
        >>> embedding.names[-3:]
        ('magnitude: x[0]', 'magnitude: sd[0]', 'magnitude: known[0]')
    """

    def __init__(self, x_shape: Sequence[int], *, layout: Layout) -> None:
        check_shape("The packed", x_shape, tuple(x_shape) == layout.packed_shape, f"{layout.packed_shape}")
        embeddings = [embedding_for(part) for part in layout.parts]
        pairs = zip(layout.parts, embeddings, strict=True)
        super().__init__(x_shape, [f"{part.name}: {name}" for part, embedding in pairs for name in embedding.names])
        self.learnt = sum(embedding.learnt for embedding in embeddings)
        self.layout, self.embeddings = layout, nn.ModuleList(embeddings)

    def _each(self, x: Tensor) -> list[tuple[Embedding, Tensor]]:
        pieces = x.flatten(1).split([math.prod(part.shape) for part in self.layout.parts], 1)
        found = []
        for part, embedding, piece in zip(self.layout.parts, self.embeddings, pieces, strict=True):
            assert isinstance(embedding, Embedding)
            found.append((embedding, piece.unflatten(1, part.shape or (1,))))
        return found

    def prepare(self, x: Float[Tensor, "n *x"]) -> None:
        """Prepare each part."""
        for embedding, piece in self._each(x):
            embedding.prepare(piece)

    def compute(self, x: Float[Tensor, "n *x"]) -> Float[Tensor, "n fixed"]:
        return torch.cat([embedding.compute(piece) for embedding, piece in self._each(x)], 1)

    def statistics(self, x: Float[Tensor, "n *x"]) -> Float[Tensor, "n fixed"]:
        """Those of each part, in its own units."""
        return torch.cat([embedding.statistics(piece) for embedding, piece in self._each(x)], 1)

    def learn(self, x: Float[Tensor, "n *x"]) -> Float[Tensor, "n learnt"]:
        return torch.cat([embedding.learn(piece) for embedding, piece in self._each(x)], 1)
