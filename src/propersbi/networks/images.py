r"""Images and fields: data on a grid.

:class:`ImageEmbedding` is for pictures of any size from 8 x 8, with channels first, last or none, of which a few
parameters are inferred. Strided convolutions halve the grid until it is about 4 x 4; what is left is read as a whole,
so that places are kept.

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

from propersbi.networks.embeddings import Embedding, check_shape
from propersbi.networks.statistics import log_second_differences, log_spectrum, moments, rings, split_missing
from propersbi.types import InputError

__all__ = ["GridEmbedding", "ImageEmbedding", "image_axes", "is_grid"]

SLOPE = 0.1  # of the leaky rectifiers
STRIDE = 4  # of the first convolution, which sees nearly all of the cost
SMALLEST = 8  # rows and columns of an image
COARSE = 4  # rows and columns at which it is read as a whole
MAX_CHANNELS = 4  # of an image whose channels come last


def is_grid(shape: Sequence[int]) -> bool:
    """Whether data of this shape are an image or field of at least 8 x 8 points, perhaps with channels.

    >>> is_grid((28, 28)), is_grid((2, 100, 100)), is_grid((3, 2000))
    (True, True, False)
    """
    return 2 <= len(shape) <= 3 and min(shape[-2:]) >= 8


def image_axes(shape: Sequence[int]) -> tuple[int, int, int, bool] | None:
    """Channels, rows and columns of an image, and whether its channels come last; ``None`` if it is none.

    >>> image_axes((16, 16)), image_axes((3, 32, 32)), image_axes((32, 32, 3)), image_axes((20, 2))
    ((1, 16, 16, False), (3, 32, 32, False), (3, 32, 32, True), None)
    """
    if len(shape) == 3 and min(shape[:2]) >= SMALLEST and shape[2] <= MAX_CHANNELS:
        return shape[2], shape[0], shape[1], True
    if is_grid(shape):
        return (1 if len(shape) == 2 else shape[0]), shape[-2], shape[-1], False
    return None


class ImageEmbedding(Embedding):
    """Features of an image.

    The statistics are, of each channel, the moments, the means over a grid of 4 x 4 parts, the power in each half
    octave of the spectrum and the second differences at each scale. Missing pixels are zero, and a channel more says
    where they are.

    Arguments:
        x_shape: ``(rows, columns)``, ``(channels, rows, columns)`` or ``(rows, columns, channels)``.
        channels: Of the first convolution; each further one has twice as many, up to four times.
        learnt: Learnt features.

    Examples:
        >>> ImageEmbedding((32, 32, 3), learnt=10)(torch.zeros(5, 32, 32, 3)).shape
        torch.Size([5, 115])
    """

    def __init__(self, x_shape: Sequence[int], *, channels: int = 16, learnt: int = 64) -> None:
        axes = image_axes(x_shape)
        expected = f"(rows, columns), with channels first or last, and at least {SMALLEST} x {SMALLEST} pixels"
        check_shape("An image's", x_shape, axes is not None, expected)
        assert axes is not None
        self.colours, rows, columns, self.last_axis = axes
        self.scales = int(math.log2(min(rows, columns) / COARSE))
        super().__init__(x_shape, self._names(len(rings(rows, columns))))
        self.channels, self.learnt = channels, learnt
        layers: list[nn.Module] = []
        before, size, wide = 2 * self.colours, (rows, columns), channels
        while min(size) > COARSE:
            layers += [nn.Conv2d(before, wide, 3, 2, 1), nn.LeakyReLU(SLOPE)]
            before, size, wide = wide, (-(-size[0] // 2), -(-size[1] // 2)), min(2 * wide, 4 * channels)
        self.convolutions = nn.Sequential(*layers)
        self.read = nn.Linear(before * math.prod(size), learnt)

    def _names(self, octaves: int) -> list[str]:
        colours = range(self.colours)
        names = [f"{kind} of channel {i}" for kind in ("mean", "log sd", "skewness") for i in colours]
        parts = [(i, j, k) for i in colours for j in range(COARSE) for k in range(COARSE)]
        names += [f"mean of channel {i}, part ({j}, {k})" for i, j, k in parts]
        names += [f"log power of channel {i}, half octave {j}" for i in colours for j in range(octaves)]
        differences = [(2**j, axis, i) for j in range(self.scales) for axis in ("rows", "columns") for i in colours]
        return names + [f"log second difference over {j} {axis} of channel {i}" for j, axis, i in differences]

    def _pixels(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Values and mask ``(n, channels, rows, columns)``."""
        grid = x.movedim(-1, 1) if self.last_axis else x.unsqueeze(1) if x.ndim == 3 else x
        return split_missing(grid)

    def compute(self, x: Float[Tensor, "n *x"]) -> Float[Tensor, "n fixed"]:
        values, mask = self._pixels(x)
        total = nn.functional.adaptive_avg_pool2d(values, COARSE)
        share = nn.functional.adaptive_avg_pool2d(mask.float(), COARSE)
        means = torch.where(share > 0, total / share.clamp_min(1e-6), torch.nan)
        pixels = (v.flatten(2).transpose(1, 2) for v in (values, mask))
        textures = [log_spectrum(values, mask), log_second_differences(values, mask, self.scales)]
        return torch.cat([moments(*pixels), means.flatten(1), *textures], 1)

    def learn(self, x: Float[Tensor, "n *x"]) -> Float[Tensor, "n learnt"]:
        values, mask = self._pixels(x)
        features = self.read(self.convolutions(torch.cat([values, mask.float()], 1)).flatten(1))
        size = features.square().mean(1, keepdim=True).sqrt()
        return features / size.clamp_min(1.0)  # images may differ in size by orders of magnitude


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
