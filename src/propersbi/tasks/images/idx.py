"""Images in idx files, the format of MNIST and EMNIST: a header of big-endian numbers, then one byte per pixel.

::

    00 00 08 03           two zeros, unsigned bytes, three axes
    count, rows, columns  four bytes each
    pixels                row by row

EMNIST stores images with rows and columns exchanged; they are transposed when they are read.
"""

from __future__ import annotations

import gzip
import zlib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import IO, cast

import numpy as np

from propersbi.types import InputError

__all__ = ["IdxImages", "find_images", "read_images"]

MAGIC = bytes([0, 0, 8, 3])
HEADER_BYTES = 16
MAX_IMAGES, MAX_SIDE = 10**7, 1024
SUBFOLDERS = (".", "raw", "EMNIST/raw", "gzip")  # those of torchvision and of the original archive
FILE_PATTERNS = {
    "train": ("*train-images-idx3-ubyte",),
    "test": ("*test-images-idx3-ubyte", "t10k-images-idx3-ubyte"),
}


@dataclass(frozen=True)
class IdxImages:
    """A prior that draws images of an idx file with replacement, in single precision from 0 to 1.

    The file is opened at the first draw, once in every process.

    Arguments:
        path: The file, or a folder with the official files of EMNIST or MNIST.
        part: Of a folder, ``"train"`` or ``"test"``, which have no image in common.
        side: The required number of rows and columns.
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
        images = _open_images(self.path, self.part, self.side)
        return images[rng.integers(len(images), size=n)].astype(np.float32) / np.float32(255)


@lru_cache(maxsize=4)
def _open_images(path: str, part: str, side: int) -> np.ndarray:
    file = find_images(path, part) if Path(path).is_dir() else Path(path)
    images = read_images(file)
    if images.shape[1:] != (side, side):
        raise InputError(f"The images in '{file}' have {images.shape[1:]} pixels, expected {(side, side)}.")
    return images


def find_images(folder: str | Path, part: str) -> Path:
    """The idx file of a part, ``"train"`` or ``"test"``, in a folder: EMNIST's *bymerge* split, or the only one."""
    if part not in FILE_PATTERNS:
        raise InputError(f"'part' must be 'train' or 'test', got '{part}'.")
    patterns = FILE_PATTERNS[part]
    files = {
        file.name.removesuffix(".gz"): file
        for subfolder in reversed(SUBFOLDERS)
        for pattern in patterns
        for ending in (".gz", "")  # uncompressed files come last and replace compressed ones
        for file in sorted((Path(folder) / subfolder).glob(pattern + ending))
    }
    candidates = [name for name in files if "bymerge" in name] or list(files)
    if not candidates:
        raise InputError(f"There is no file '{patterns[0]}' or '{patterns[0]}.gz' in '{folder}'.")
    if len(candidates) > 1:
        raise InputError(
            f"'{folder}' holds {len(candidates)} files of {part} images; give the path of one of {sorted(candidates)}."
        )
    return files[candidates[0]]


def read_images(path: str | Path) -> np.ndarray:
    """All images of an idx file, plain or ``.gz``, as bytes ``(n, rows, columns)``; a plain file is memory-mapped."""
    path = Path(path)
    is_compressed = path.suffix == ".gz"
    try:
        with _open(path, is_compressed) as file:
            shape = _read_shape(file, path)
            images = _decompress(file, shape, path) if is_compressed else _map(shape, path)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"'{path}' is truncated or not a gzip file: {error}") from None
    except OSError as error:
        raise InputError(f"'{path}' cannot be read: {error.strerror or error}.") from None
    return images.transpose(0, 2, 1) if path.name.startswith("emnist") else images


def _open(path: Path, is_compressed: bool) -> IO[bytes]:
    return cast(IO[bytes], gzip.open(path)) if is_compressed else path.open("rb")


def _read_shape(file: IO[bytes], path: Path) -> tuple[int, int, int]:
    header = file.read(HEADER_BYTES)
    if header[:4] != MAGIC or len(header) < HEADER_BYTES:
        raise InputError(f"'{path}' is not an idx file of images: it begins with {header[:4].hex() or 'nothing'}.")
    count, rows, columns = (int(size) for size in np.frombuffer(header, ">u4", offset=4))
    if not (0 < count <= MAX_IMAGES and 0 < rows <= MAX_SIDE and 0 < columns <= MAX_SIDE):
        raise InputError(f"'{path}' declares {count} images of {rows} x {columns} pixels.")
    return count, rows, columns


def _map(shape: tuple[int, int, int], path: Path) -> np.ndarray:
    expected, size = HEADER_BYTES + int(np.prod(shape)), path.stat().st_size
    if size != expected:
        raise InputError(f"'{path}' has {size} bytes, but its header declares {expected}.")
    return np.memmap(path, np.uint8, "r", HEADER_BYTES, shape)


def _decompress(file: IO[bytes], shape: tuple[int, int, int], path: Path) -> np.ndarray:
    expected = int(np.prod(shape))
    content = file.read(expected + 1)  # limited, as a small file may decompress to any size
    if len(content) != expected:
        number = "more" if len(content) > expected else f"{len(content)}"
        raise InputError(f"'{path}' holds {number} bytes of pixels, but its header declares {expected}.")
    return np.frombuffer(content, np.uint8).reshape(shape)
