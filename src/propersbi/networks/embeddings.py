r"""Embeddings: from data on a grid to a few hundred features.

:class:`GridEmbedding` is for data with two grid axes, ``(rows, columns)`` or ``(channels, rows, columns)``: images,
or a field along the last axis watched over time. Strided convolutions see detail, all rows of a column are then read
together, and columns are mixed with their neighbours: few weights, of which each sees many examples in every datum.

Spectra hide what happened where. If the data are a Fourier transform, the inverse transform comes first: it costs
next to nothing, and convolutions find waves in space and time far more easily than in frequencies.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import leaky_relu

from propersbi.types import InputError

__all__ = ["GridEmbedding", "is_grid"]

SLOPE = 0.1  # of the leaky rectifiers
STRIDE = 4  # of the first convolution, which sees nearly all of the cost


def is_grid(shape: Sequence[int]) -> bool:
    """Whether data of this shape are an image or field of at least 8 x 8 points, perhaps with channels.

    >>> is_grid((28, 28)), is_grid((2, 100, 100)), is_grid((3, 2000))
    (True, True, False)
    """
    return 2 <= len(shape) <= 3 and min(shape[-2:]) >= 8


class GridEmbedding(nn.Module):
    """Features of data with two grid axes.

    Arguments:
        x_shape: The event shape of the data, ``(rows, columns)`` or ``(channels, rows, columns)``.
        channels: Of the two convolutions.
        width: Numbers kept for each column.
        mixing: Convolutions along the columns.
        features: Numbers in the end.
        spectrum: Whether the data are real and imaginary parts ``(2, rows, columns)`` of the Fourier transform of a
            real field, to be transformed back first.
        lost: Rows of the spectrum, from the zero frequency on, that are not in the data.

    Examples:
        >>> GridEmbedding((28, 28), features=64)(torch.zeros(5, 28, 28)).shape
        torch.Size([5, 64])
    """

    def __init__(
        self,
        x_shape: Sequence[int],
        *,
        channels: Sequence[int] = (32, 64),
        width: int = 192,
        mixing: int = 2,
        features: int = 256,
        spectrum: bool = False,
        lost: int = 0,
    ) -> None:
        super().__init__()
        self.x_shape, self.channels = tuple(x_shape), tuple(channels)
        self.width, self.mixing, self.features, self.spectrum, self.lost = width, mixing, features, spectrum, lost
        if len(self.x_shape) not in (2, 3) or (spectrum and (len(self.x_shape) != 3 or self.x_shape[0] != 2)):
            kind = "(2, rows, columns) for a spectrum" if spectrum else "(rows, columns) or (channels, rows, columns)"
            raise InputError(f"Data on a grid have the shape {kind}, got {self.x_shape}.")
        if len(self.channels) != 2 or min(*self.channels, width, features) < 1 or mixing < 0 or lost < 0:
            raise InputError(f"Two positive 'channels', 'width' and 'features' are needed, got {self.channels}.")
        first, second = self.channels
        grids = 1 if spectrum or len(self.x_shape) == 2 else self.x_shape[0]
        self.convolutions = nn.Sequential(
            nn.Conv2d(grids, first, 5, STRIDE, 2),
            nn.LeakyReLU(SLOPE, inplace=True),
            nn.Conv2d(first, second, 3, (2, 1), 1),
            nn.LeakyReLU(SLOPE, inplace=True),
        ).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        rows, columns = self._coarse(self.x_shape[-2] + lost, self.x_shape[-1])
        self.read = nn.Conv1d(second * rows, width, 1)
        self.place = nn.Parameter(0.1 * torch.randn(width, columns))
        self.mix = nn.ModuleList(nn.Conv1d(width, width, 3, padding=1) for _ in range(mixing))
        self.narrow = nn.Conv1d(width, max(1, width // 6), 1)
        self.last = nn.Linear(max(1, width // 6) * columns, features)

    @staticmethod
    def _coarse(rows: int, columns: int) -> tuple[int, int]:
        """The grid after both convolutions."""
        return math.ceil(math.ceil(rows / STRIDE) / 2), math.ceil(columns / STRIDE)

    def forward(self, x: Float[Tensor, "n *x"]) -> Float[Tensor, "n features"]:
        return self.joined(self.along(x))

    def along(self, x: Float[Tensor, "n *x"]) -> Float[Tensor, "n width places"]:
        """What is known at each of the coarse columns."""
        grid = self._field(x) if self.spectrum else x
        h = self.convolutions(grid.unsqueeze(1) if grid.ndim == 3 else grid)
        h = self.read(h.flatten(1, 2)) + self.place
        for mix in self.mix:
            h = h + mix(leaky_relu(h, SLOPE))
        return leaky_relu(h, SLOPE)

    def joined(self, along: Float[Tensor, "n width places"]) -> Float[Tensor, "n features"]:
        """All columns together."""
        return self.last(leaky_relu(self.narrow(along), SLOPE).flatten(1))

    def _field(self, spectrum: Float[Tensor, "n 2 rows columns"]) -> Float[Tensor, "n lines columns"]:
        """The real field; noise of standard deviation 1 in the spectrum is so in the field."""
        known = nn.functional.pad(torch.complex(spectrum[:, 0], spectrum[:, 1]), (0, 0, self.lost, 0))
        return torch.fft.ifft2(known, norm="ortho").real
