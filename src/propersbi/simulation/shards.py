"""Shards: the files of a store, and columns of rows that are read from them on demand.

A shard is a safetensors file with the columns ``theta``, ``x`` and ``valid``. Its header is validated before any data
are read, and data are memory-mapped, so that only the requested rows are read.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from propersbi.types import InputError

__all__ = ["Layout", "Shard", "StoredRows", "describe", "finite_rows", "layout_of"]

Layout = dict[str, Any]
"""The shape and dtype of a row: ``{"shape": [2, 3], "dtype": "float32"}``."""

_DTYPES: dict[str, np.dtype] = {
    "F16": np.dtype("<f2"), "F32": np.dtype("<f4"), "F64": np.dtype("<f8"), "U8": np.dtype("u1")
}  # fmt: skip
_MAX_HEADER_BYTES = 1 << 20  # ours have about 200; a damaged length must not make us read gigabytes
_MAX_MAPPED_SHARDS = 4096  # systems limit the number of memory maps per process (65530 on Linux)
_MAX_MAPPED_BYTES = 1 << 29  # systems may keep an entire map in memory once a part of it was read


class StoredRows:
    """One column of a store: indexed by row like an array, but only the requested rows are read.

    An index is an integer, a slice, or an array of integers or booleans; ``np.asarray`` reads all rows. It is pickled
    as a list of files. ``invalid`` is the number of rows that were excluded because they are not finite.
    """

    def __init__(self, name: str, shards: list[Shard], valid: list[np.ndarray | None]) -> None:
        self._name, self._shards, self._valid = name, shards, valid
        counts = [shard.rows if rows is None else len(rows) for shard, rows in zip(shards, valid, strict=True)]
        self._ends = np.cumsum(counts)  # the index after the last row of each shard
        self._maps: dict[int, np.ndarray] = {}
        self._mapped_bytes = 0
        self.invalid = sum(shard.rows for shard in shards) - len(self)

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self), *self._shards[0].tensors[self._name].shape[1:])

    @property
    def dtype(self) -> np.dtype:
        return self._shards[0].tensors[self._name].dtype

    def __len__(self) -> int:
        return int(self._ends[-1])

    def __repr__(self) -> str:
        return f"StoredRows({self._name!r}, shape={self.shape}, dtype={self.dtype.name})"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("Stored rows are on disk: an array of them is always a copy.")
        return self[:].astype(dtype or self.dtype, copy=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_maps": {}, "_mapped_bytes": 0}

    def __getitem__(self, index: Any) -> np.ndarray:
        if isinstance(index, slice):
            return self._take(np.arange(*index.indices(len(self))))
        if isinstance(index, tuple):
            raise IndexError(f"Stored rows have one axis to index, got {len(index)} indices.")
        index = np.asarray(index)
        if index.size == 0:
            index = index.astype(np.int64)  # the dtype of an empty list is float
        np.broadcast_to(0, len(self))[index]  # takes no memory, and raises NumPy's error for an invalid index
        if index.dtype == bool:
            index = np.flatnonzero(index)
        flat = index.ravel().astype(np.int64)
        return self._take(np.where(flat < 0, flat + len(self), flat)).reshape(index.shape + self.shape[1:])

    def _take(self, index: np.ndarray) -> np.ndarray:
        """Rows by index; each shard is read once."""
        rows = np.empty((len(index), *self.shape[1:]), self.dtype)
        shards = np.searchsorted(self._ends, index, side="right")
        order = np.argsort(shards, kind="stable")
        touched, first = np.unique(shards[order], return_index=True)
        for shard, places in zip(touched.tolist(), np.split(order, first[1:]), strict=False):
            valid = self._valid[shard]
            local = index[places] - (self._ends[shard - 1] if shard else 0)
            rows[places] = self._map(shard)[local if valid is None else valid[local]]
        return rows

    def _map(self, shard: int) -> np.ndarray:
        if shard not in self._maps:
            if len(self._maps) >= _MAX_MAPPED_SHARDS or self._mapped_bytes >= _MAX_MAPPED_BYTES:
                self._maps.clear()
                self._mapped_bytes = 0
            self._maps[shard] = self._shards[shard].map(self._name)
            self._mapped_bytes += self._maps[shard].nbytes
        return self._maps[shard]


class _Tensor(NamedTuple):
    """The type, shape and byte range of an array in a file."""

    dtype: np.dtype
    shape: tuple[int, ...]
    start: int
    stop: int


@dataclass(frozen=True)
class Shard:
    """A shard with a validated header, and the number of its rows that are used."""

    path: Path
    tensors: dict[str, _Tensor]
    rows: int

    @classmethod
    def read(cls, path: Path, layout: dict[str, Layout] | None = None) -> Shard:
        """Read the header and validate it against the file and, if given, the manifest."""
        try:
            tensors = _read_header(path)
            _check_columns(tensors, layout or {})
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise InputError(f"'{path}' is damaged ({error}); delete it to have the chunk simulated again.") from error
        return cls(path, tensors, tensors["valid"].shape[0])

    def valid_rows(self) -> np.ndarray | None:
        """The indices of finite rows; ``None``, which takes no memory, if all are."""
        valid = np.array(self.map("valid")[: self.rows])
        return None if valid.all() else np.flatnonzero(valid)

    def map(self, name: str) -> np.ndarray:
        """A memory map of an array of the shard."""
        tensor = self.tensors[name]
        # Reading a map beyond the end of its file would kill the process.
        if not self.path.exists() or self.path.stat().st_size != max(t.stop for t in self.tensors.values()):
            raise InputError(f"'{self.path}' was changed or removed while its {self.rows} rows were in use.")
        return np.memmap(self.path, tensor.dtype, "r", tensor.start, tensor.shape)


def _read_header(path: Path) -> dict[str, _Tensor]:
    """The arrays of a safetensors file: eight bytes of header length, a JSON header, then the data without gaps."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        _require(0 < length <= min(_MAX_HEADER_BYTES, size - 8), f"a header of {length} bytes in a file of {size}")
        header = json.loads(file.read(length))
    header.pop("__metadata__", None)
    tensors = {name: _tensor(entry, 8 + length) for name, entry in header.items()}
    end = 8 + length
    for tensor in sorted(tensors.values(), key=lambda tensor: tensor.start):
        _require(tensor.start == end, "its arrays overlap or leave gaps")
        end = tensor.stop
    _require(end == size, f"its arrays end at byte {end} of {size}")
    return tensors


def _tensor(entry: dict[str, Any], origin: int) -> _Tensor:
    dtype, shape, (start, stop) = _DTYPES[entry["dtype"]], tuple(entry["shape"]), entry["data_offsets"]
    are_integers = all(type(number) is int and number >= 0 for number in (*shape, start, stop))
    _require(are_integers and 0 not in shape and len(shape) > 0, f"an array of shape {shape} at {start}:{stop}")
    _require(stop - start == math.prod(shape) * dtype.itemsize, f"{stop - start} bytes for shape {shape}")
    return _Tensor(dtype, shape, origin + start, origin + stop)


def _check_columns(tensors: dict[str, _Tensor], layout: dict[str, Layout]) -> None:
    _require(set(tensors) == {"theta", "x", "valid"}, f"it holds {sorted(tensors)}")
    valid = tensors["valid"]
    _require(valid.dtype == np.uint8 and len(valid.shape) == 1, "its column 'valid' does not hold bytes")
    for name in ("theta", "x"):
        tensor = tensors[name]
        fits = tensor.dtype.kind == "f" and tensor.shape[:1] == valid.shape
        _require(fits, f"its {name} is {tensor.dtype.name} of shape {tensor.shape} for {valid.shape[0]} rows")
        actual = {"shape": list(tensor.shape[1:]), "dtype": tensor.dtype.name}
        expected = layout.get(name) or actual
        _require(actual == expected, f"its {name} has {describe(actual)}, but the manifest {describe(expected)}")


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)


def finite_rows(rows: np.ndarray) -> np.ndarray:
    """Whether all values of each row are finite, ``(n,)``.

    >>> finite_rows(np.array([[1.0, 2.0], [3.0, np.nan]]))
    array([ True, False])
    """
    finite: np.ndarray = np.isfinite(rows).all(axis=tuple(range(1, rows.ndim)))
    return finite


def layout_of(rows: np.ndarray) -> Layout:
    """The layout of the rows of an array.

    >>> layout_of(np.zeros((5, 2)))
    {'shape': [2], 'dtype': 'float64'}
    """
    if rows.dtype.kind != "f" or rows.dtype.itemsize > 8 or rows.size == 0:
        raise InputError(f"Rows must be non-empty arrays of float16, 32 or 64, got {rows.dtype} of shape {rows.shape}.")
    return {"shape": list(rows.shape[1:]), "dtype": rows.dtype.name}


def describe(layout: Layout) -> str:
    """A layout in words, for messages."""
    return f"rows of shape {tuple(layout['shape'])} and {layout['dtype']}"
