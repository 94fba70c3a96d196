"""Images in idx files, the format of MNIST and EMNIST: a header of big-endian numbers, then one byte per pixel.

::

    00 00 08 03          two zeros, unsigned bytes, three axes
    count, rows, columns  four bytes each
    pixels                row by row

EMNIST stores its images with rows and columns exchanged; they are turned upright when they are read.
"""

from __future__ import annotations

import gzip
import zlib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from propersbi.types import InputError

__all__ = ["IdxImages", "find_images", "read_images"]

MAGIC = bytes([0, 0, 8, 3])
HEADER = 16
MOST = 10**7  # images in one file
PLACES = (".", "raw", "EMNIST/raw", "gzip")  # where torchvision and the original archive put their files
TEST = ("*test-images-idx3-ubyte", "t10k-images-idx3-ubyte")


@dataclass(frozen=True)
class IdxImages:
    """A prior of the images in an idx file, drawn with replacement, in single precision from 0 to 1.

    The file is opened when it is first sampled, once in every process.

    Arguments:
        path: The file, or a folder with the official files of EMNIST or MNIST.
        part: Of a folder: ``"train"`` or ``"test"``. No image is in both.
        side: Rows and columns that every image must have.
    """

    path: str
    part: str = "train"
    side: int = 28

    @property
    def lower(self) -> float:
        return 0.0

    @property
    def upper(self) -> float:
        return 1.0

    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """``n`` images ``(n, rows, columns)``."""
        images = _opened(self.path, self.part, self.side)
        return images[rng.integers(len(images), size=n)].astype(np.float32) / np.float32(255)


@lru_cache(maxsize=4)
def _opened(path: str, part: str, side: int) -> np.ndarray:
    place = Path(path)
    file = find_images(place, part) if place.is_dir() else place
    images = read_images(file)
    if images.shape[1:] != (side, side):
        raise InputError(f"The images in '{file}' have {images.shape[1:]} pixels, expected {(side, side)}.")
    return images


def find_images(folder: str | Path, part: str) -> Path:
    """The idx file of a part, ``"train"`` or ``"test"``, in a folder: EMNIST's *bymerge* split, or the only one."""
    if part not in ("train", "test"):
        raise InputError(f"'part' must be 'train' or 'test', got '{part}'.")
    names = TEST if part == "test" else ("*train-images-idx3-ubyte",)
    places = [Path(folder) / place for place in PLACES]
    found = {
        file.name.removesuffix(".gz"): file
        for place in reversed(places)
        for name in names
        for ending in (".gz", "")  # what is unpacked comes last and wins
        for file in sorted(place.glob(name + ending))
    }
    merged = [name for name in found if "bymerge" in name]
    chosen = merged or list(found)
    if not chosen:
        raise InputError(f"There is no file '{names[0]}' or '{names[0]}.gz' in '{folder}'.")
    if len(chosen) > 1:
        raise InputError(f"'{folder}' holds {len(chosen)} files of {part} images: name one of {sorted(chosen)}.")
    return found[chosen[0]]


def read_images(path: str | Path) -> np.ndarray:
    """All images of an idx file, plain or ``.gz``, as bytes ``(n, rows, columns)``; a plain file is not copied."""
    path = Path(path)
    packed = path.suffix == ".gz"
    try:
        with gzip.open(path) if packed else path.open("rb") as file:
            shape = _shape(file, path)
            images = _packed(file, shape, path) if packed else _plain(shape, path)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"'{path}' is cut off or not packed by gzip: {error}") from None
    except OSError as error:
        raise InputError(f"'{path}' cannot be read: {error.strerror or error}.") from None
    return images.transpose(0, 2, 1) if path.name.startswith("emnist") else images


def _shape(file: Any, path: Path) -> tuple[int, int, int]:
    header = file.read(HEADER)
    if header[:4] != MAGIC or len(header) < HEADER:
        raise InputError(f"'{path}' is not an idx file of images: it begins with {header[:4].hex() or 'nothing'}.")
    count, rows, columns = (int(size) for size in np.frombuffer(header, ">u4", offset=4))
    if not (0 < count <= MOST and 0 < rows <= 1024 and 0 < columns <= 1024):
        raise InputError(f"'{path}' claims to hold {count} images of {rows} x {columns} pixels.")
    return count, rows, columns


def _plain(shape: tuple[int, int, int], path: Path) -> np.ndarray:
    expected, size = HEADER + int(np.prod(shape)), path.stat().st_size
    if size != expected:
        raise InputError(f"'{path}' has {size} bytes, but its header promises {expected}.")
    return np.memmap(path, np.uint8, "r", HEADER, shape)


def _packed(file: Any, shape: tuple[int, int, int], path: Path) -> np.ndarray:
    expected = int(np.prod(shape))
    content = file.read(expected + 1)  # no more than the header promises: a small file may unpack to anything
    if len(content) != expected:
        more = "more" if len(content) > expected else f"{len(content)}"
        raise InputError(f"'{path}' holds {more} bytes of pixels, but its header promises {expected}.")
    return np.frombuffer(content, np.uint8).reshape(shape)
