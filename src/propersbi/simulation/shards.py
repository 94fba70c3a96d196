"""Shards: the files of a store.

A shard is a safetensors file with the columns ``theta``, ``x`` and ``valid``, and a SHA-256 checksum of each in its
metadata. Its header is validated before any data are read, and each column when it is first read.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors.numpy import save

from propersbi.types import InputError

__all__ = [
    "MAX_AXES",
    "Layout",
    "Shard",
    "checksum",
    "describe",
    "encode_shard",
    "finite_rows",
    "layout_of",
    "same_layout",
    "usable_rows",
]

Layout = dict[str, Any]
"""The shape and dtype of a row: ``{"shape": [2, 3], "dtype": "float32"}``; with ``"nan": true``, NaN in it is data."""

_DTYPES: dict[str, np.dtype] = {
    "F16": np.dtype("<f2"), "F32": np.dtype("<f4"), "F64": np.dtype("<f8"), "U8": np.dtype("u1")
}  # fmt: skip
_MAX_HEADER_BYTES = 1 << 20  # ours have about 200; a damaged length must not make us read gigabytes
MAX_AXES = 32
_SMALL_COLUMN = 1 << 16  # bytes of a column that is read as a whole: about as much as a system reads ahead
_CHECKSUMS = "checksums"  # the one entry of the metadata: with several, their order in the file would be random


class _Tensor(NamedTuple):
    """The type, shape and byte range of an array in a file."""

    dtype: np.dtype
    shape: tuple[int, ...]
    start: int
    stop: int


@dataclass(frozen=True)
class Shard:
    """A shard with a validated header, and the number of its rows that are used.

    Arguments:
        path: The file.
        tensors: Its columns.
        rows: How many of its rows are used.
        checksums: Of its columns, and of its failures; ``None`` in a store of the first version.
        nan: Whether NaN in ``x`` is data.
    """

    path: Path
    tensors: dict[str, _Tensor]
    rows: int
    checksums: dict[str, str] | None = None
    nan: bool = False

    @classmethod
    def read(cls, path: Path, layout: dict[str, Any] | None = None) -> Shard:
        """Read the header and validate it against the file and, if given, the manifest."""
        layout = layout or {}
        try:
            tensors, checksums = _read_header(path)
            _check_columns(tensors, layout)
            _require(checksums is not None or layout.get("version", 1) < 2, "it has no checksums")
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise _damaged(path, str(error)) from error
        nan = bool((layout.get("x") or {}).get("nan"))
        return cls(path, tensors, tensors["valid"].shape[0], checksums, nan)

    def verify(self) -> Shard:
        """The shard itself, if all of its columns are as they were written."""
        for name in self.tensors:
            self.map(name, verify=True)
        return self

    def valid_rows(self) -> np.ndarray | None:
        """The indices of valid rows; ``None``, which takes no memory, if all are."""
        valid = np.array(self.map("valid", verify=True)[: self.rows])
        return None if valid.all() else np.flatnonzero(valid)

    def map(self, name: str, *, verify: bool = False) -> np.ndarray:
        """A column of the shard: a memory map, or an array if it is small."""
        tensor = self.tensors[name]
        # Reading a map beyond the end of its file would kill the process.
        if not self.path.is_file() or self.path.stat().st_size != max(t.stop for t in self.tensors.values()):
            raise InputError(f"'{self.path}' was changed or removed while its {self.rows} rows were in use.")
        column: np.ndarray
        if tensor.stop - tensor.start <= _SMALL_COLUMN:
            column = np.fromfile(self.path, tensor.dtype, math.prod(tensor.shape), offset=tensor.start)
            column = column.reshape(tensor.shape)
        else:
            column = np.memmap(self.path, tensor.dtype, "r", tensor.start, tensor.shape)
        if verify:
            self._verify(name, column)
        return column

    def checksum_of(self, name: str) -> str | None:
        """The checksum of the used rows of a column; ``None`` in a store of the first version."""
        if self.checksums is None or self.rows == self.tensors[name].shape[0]:
            return None if self.checksums is None else self.checksums[name]
        return checksum(name, self.map(name, verify=True)[: self.rows])

    def _verify(self, name: str, column: np.ndarray) -> None:
        if self.checksums is not None and self.checksums[name] != checksum(name, column):
            raise _damaged(self.path, f"the checksum of its {name} does not fit")
        if name == "valid":
            return
        usable = usable_rows(column, nan=self.nan and name == "x")
        if not usable.all() and (self.map("valid")[~usable] != 0).any():
            raise _damaged(self.path, f"its {name} is not finite where it is said to be")


def encode_shard(theta: np.ndarray, x: np.ndarray, *, nan: bool = False, failures: bytes | None = None) -> bytes:
    """The bytes of a shard; with ``nan``, NaN in ``x`` is data.

    Arguments:
        theta: Parameters, ``(rows, *event)``.
        x: Data, ``(rows, *event)``.
        nan: Whether rows with NaN in ``x`` are valid.
        failures: The file with the failures of the chunk, if there is one.
    """
    # safetensors reads raw memory, so the arrays must be contiguous and of the byte order of this machine.
    theta, x = (np.ascontiguousarray(rows, rows.dtype.newbyteorder("=")) for rows in (theta, x))
    valid = (usable_rows(theta) & usable_rows(x, nan=nan)).astype(np.uint8)
    columns = {"theta": theta, "x": x, "valid": valid}
    checksums = {name: checksum(name, column) for name, column in columns.items()}
    checksums["failures"] = hashlib.sha256(failures or b"").hexdigest()
    return save(columns, metadata={_CHECKSUMS: json.dumps(checksums, sort_keys=True)})


def checksum(name: str, column: np.ndarray) -> str:
    """The SHA-256 of a column with its name, type and shape."""
    content = hashlib.sha256(f"{name} {column.dtype.str} {column.shape}".encode())
    content.update(column.data.cast("B"))
    return content.hexdigest()


def _damaged(path: Path, reason: str) -> InputError:
    return InputError(
        f"'{path}' is damaged ({reason:.120}): run the simulations again, which sets it aside and replaces it."
    )


def _read_header(path: Path) -> tuple[dict[str, _Tensor], dict[str, str] | None]:
    """The arrays of a safetensors file: eight bytes of header length, a JSON header, then the data without gaps."""
    _require(path.is_file(), "it is not a regular file")
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        _require(0 < length <= min(_MAX_HEADER_BYTES, size - 8), f"a header of {length} bytes in a file of {size}")
        header = json.loads(file.read(length))
    checksums = _read_checksums(header.pop("__metadata__", None))
    tensors = {name: _tensor(entry, 8 + length) for name, entry in header.items()}
    end = 8 + length
    for tensor in sorted(tensors.values(), key=lambda tensor: tensor.start):
        _require(tensor.start == end, "its arrays overlap or leave gaps")
        end = tensor.stop
    _require(end == size, f"its arrays end at byte {end} of {size}")
    return tensors, checksums


def _read_checksums(metadata: Any) -> dict[str, str] | None:
    if metadata is None:
        return None
    checksums = json.loads(metadata[_CHECKSUMS])
    known = set(checksums) == {"theta", "x", "valid", "failures"} and all(type(c) is str for c in checksums.values())
    _require(known, "its checksums cannot be read")
    return dict(checksums)


def _tensor(entry: dict[str, Any], origin: int) -> _Tensor:
    dtype, shape, (start, stop) = _DTYPES[entry["dtype"]], tuple(entry["shape"]), entry["data_offsets"]
    are_integers = all(type(number) is int and number >= 0 for number in (*shape, start, stop))
    is_shape = are_integers and 0 not in shape and 0 < len(shape) <= MAX_AXES
    _require(is_shape, f"an array of shape {shape} at {start}:{stop}")
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
        expected = {key: (layout.get(name) or actual)[key] for key in actual}
        _require(
            same_layout(actual, expected), f"its {name} has {describe(actual)}, but the manifest {describe(expected)}"
        )


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)


def usable_rows(rows: np.ndarray, *, nan: bool = False) -> np.ndarray:
    """Whether each row can be used, ``(n,)``: all of it is finite or, with ``nan``, it is not all NaN and not infinite.

    >>> usable_rows(np.array([[1.0, 2.0], [3.0, np.nan], [np.nan, np.nan]]), nan=True)
    array([ True,  True, False])
    """
    if not nan:
        return finite_rows(rows)
    axes = tuple(range(1, rows.ndim))
    usable: np.ndarray = ~np.isinf(rows).any(axis=axes) & ~np.isnan(rows).all(axis=axes)
    return usable


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


def same_layout(one: Layout, other: Layout) -> bool:
    """Whether rows of both can stand in one column: chunks may be in double precision where single loses digits.

    >>> same_layout({"shape": [2], "dtype": "float32"}, {"shape": [2], "dtype": "float64"})
    True
    """
    same_type = one["dtype"] == other["dtype"] or {one["dtype"], other["dtype"]} == {"float32", "float64"}
    return same_type and all(one.get(key) == other.get(key) for key in ("shape", "nan"))


def describe(layout: Layout) -> str:
    """A layout in words, for messages."""
    return f"rows of shape {tuple(layout['shape'])} and {layout['dtype']}"
