"""Simulations on disk: immutable shards, one per chunk, that many processes may write at once.

::

    simulations/
      manifest.json                      format, seed, chunk size, shapes and dtypes
      train/chunk-000000.safetensors     theta (rows, *event), x (rows, *event), valid (rows,): all finite, or not
      train/chunk-000001.safetensors
      round-1/chunk-000000.safetensors   a folder per group

A shard appears in one step or not at all, so the listing of the folder is the truth about what is finished: there is
no index that a crash could leave behind. The manifest never changes its mind: it is created by exactly one process,
before any shard, and learns the shapes of the first chunk before that chunk is written. Every shard is held against
it when read. Only NumPy is needed.
"""

from __future__ import annotations

import json
import math
import os
import re
import uuid
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors.numpy import save

from propersbi.storage.files import read_json, write_json, write_with
from propersbi.types import InputError

__all__ = ["Store", "StoredRows", "check_group", "check_whole", "finite_rows"]

VERSION = 1
_DTYPES: dict[str, np.dtype] = {
    "F16": np.dtype("<f2"), "F32": np.dtype("<f4"), "F64": np.dtype("<f8"), "U8": np.dtype("u1")
}  # fmt: skip
_MAX_HEADER = 1 << 20  # ours have about 200 bytes; a damaged length must not make us read gigabytes
_MAX_MAPS = 4096  # systems limit the maps of a process (65530 on Linux)
_MAX_MAPPED = 1 << 29  # bytes that are mapped at once: systems may keep all of a map in memory once a part was read


@dataclass(frozen=True)
class Store:
    """A folder of simulations.

    Arguments:
        folder: Where it is.
        seed: The seed of all its chunks.
        chunk_size: The number of rows of a full chunk.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = Store.create_or_open(folder, seed=0, chunk_size=2)
    ...     store.write("train", 1, np.ones((1, 2)), np.ones((1, 5)))
    ...     print(store.missing("train", 3))
    ...     store.write("train", 0, np.zeros((2, 2)), np.zeros((2, 5)))
    ...     theta, x = store.rows("train")
    ...     print(x.shape, x[[2, 0]][:, 0])
    [0]
    (3, 5) [1. 0.]
    """

    folder: Path
    seed: int
    chunk_size: int

    @classmethod
    def exists(cls, folder: str | Path) -> bool:
        """Whether there is a store in ``folder``."""
        return _manifest(folder).exists()

    @classmethod
    def open(cls, folder: str | Path) -> Store:
        """The store in ``folder``, with its own seed and chunk size."""
        content = _read_manifest(folder)
        return cls(Path(folder).absolute(), content["seed"], content["chunk_size"])  # workers may stand elsewhere

    @classmethod
    def create_or_open(cls, folder: str | Path, *, seed: int, chunk_size: int) -> Store:
        """The store in ``folder``, which is made if there is none and must have this seed and chunk size."""
        wanted = {"seed": check_whole("seed", seed, 0), "chunk_size": check_whole("chunk_size", chunk_size, 1)}
        try:
            orphan = next(Path(folder).glob("*/chunk-*.safetensors"), None)  # asked first: the manifest precedes them
            if not cls.exists(folder) and orphan is None:
                _claim(_manifest(folder), {"version": VERSION, **wanted, "theta": None, "x": None})
        except OSError as error:
            raise InputError(f"No simulations can be kept in '{folder}': {error}.") from error
        store = cls.open(folder)
        for name, value in wanted.items():
            if getattr(store, name) != value:
                raise InputError(f"The simulations in '{folder}' have {name} {getattr(store, name)}, not {value}.")
        return store

    def expected_rows(self, chunk: int, n: int) -> int:
        """How many of the first ``n`` rows are in this chunk; the last one may be partial."""
        return max(0, min(self.chunk_size, n - chunk * self.chunk_size))

    def has(self, group: str, chunk: int, rows: int) -> bool:
        """Whether the chunk is finished, with ``rows`` rows or more."""
        path = self._path(group, chunk)
        return path.exists() and _Shard.read(path).rows >= rows

    def missing(self, group: str, n: int) -> list[int]:
        """The chunks of the first ``n`` rows that are not finished; one with too few rows is not, so ``n`` can grow."""
        chunks = range(math.ceil(n / self.chunk_size))
        return [chunk for chunk in chunks if not self.has(group, chunk, self.expected_rows(chunk, n))]

    def write(self, group: str, chunk: int, theta: np.ndarray, x: np.ndarray) -> None:
        """Write one chunk, whole or not at all. Whoever writes the same chunk again writes the same bytes."""
        # safetensors reads raw memory, so the arrays must be contiguous
        theta, x = np.ascontiguousarray(theta), np.ascontiguousarray(x)
        if not 0 < len(theta) == len(x) <= self.chunk_size:
            raise InputError(f"A chunk has 1 to {self.chunk_size} rows, got {len(theta)} of theta and {len(x)} of x.")
        self._settle(theta=_layout(theta), x=_layout(x))
        content = save({"theta": theta, "x": x, "valid": (finite_rows(theta) & finite_rows(x)).astype(np.uint8)})
        write_with(self._path(group, chunk), lambda file: file.write(content))

    def rows(self, group: str, n: int | None = None) -> tuple[StoredRows, StoredRows]:
        """``theta`` and ``x`` of the first ``n`` rows, or of all that are there, without those that are not finite."""
        chunks = self._finished(group) if n is None else range(math.ceil(n / self.chunk_size))
        missing = [] if n is None else self.missing(group, n)
        if missing or not chunks:
            raise InputError(f"Group '{group}' in '{self.folder}' lacks {len(missing) or 'all'} of its chunks.")
        layout = _read_manifest(self.folder)
        shards = [_Shard.read(self._path(group, chunk), layout) for chunk in chunks]
        if n is not None:  # the last shard may have more rows, if the store was once larger
            shards[-1] = replace(shards[-1], rows=self.expected_rows(chunks[-1], n))
        kept = [shard.kept() for shard in shards]
        return StoredRows("theta", shards, kept), StoredRows("x", shards, kept)

    def _path(self, group: str, chunk: int) -> Path:
        return self.folder / check_group(group) / f"chunk-{chunk:06d}.safetensors"

    def _finished(self, group: str) -> list[int]:
        names = [path.name for path in (self.folder / check_group(group)).glob("*")]
        matches = [re.fullmatch(r"chunk-(\d{6,})\.safetensors", name) for name in names]
        return sorted(int(match[1]) for match in matches if match)

    def _settle(self, **layout: dict[str, Any]) -> None:
        """Hold the shapes and dtypes of a chunk against those of the first one, or be the first one.

        Two first writers of the same model write the same manifest. If they were of different models, the second
        manifest stays, and the shards of the first no longer fit it when they are read.
        """
        content = _read_manifest(self.folder)
        for name, new in layout.items():
            if content[name] not in (None, new):
                raise InputError(f"{name} has {_describe(new)}, but '{self.folder}' has {_describe(content[name])}.")
        if content["theta"] is None:
            write_json(_manifest(self.folder), {**content, **layout})


class StoredRows:
    """One column of a store: indexed by row like an array, but only the rows that are asked for are read.

    It takes a whole number, a slice, or an array of whole numbers or of booleans; ``np.asarray`` reads everything.
    It pickles as a list of files. ``invalid`` counts the rows that were left out for not being finite.
    """

    def __init__(self, name: str, shards: list[_Shard], kept: list[np.ndarray | None]) -> None:
        self._name, self._shards, self._kept = name, shards, kept
        counts = [shard.rows if rows is None else len(rows) for shard, rows in zip(shards, kept, strict=True)]
        self._ends = np.cumsum(counts)  # where the rows of each shard end
        self._maps: dict[int, np.ndarray] = {}
        self._mapped = 0  # bytes of all of them
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
        return {**self.__dict__, "_maps": {}, "_mapped": 0}

    def __getitem__(self, index: Any) -> np.ndarray:
        if isinstance(index, slice):
            return self._take(np.arange(*index.indices(len(self))))
        if isinstance(index, tuple):
            raise IndexError(f"Stored rows have one axis to index, got {len(index)} indices.")
        index = np.asarray(index)
        if index.size == 0:
            index = index.astype(np.int64)  # an empty list has no whole numbers to tell
        np.broadcast_to(0, len(self))[index]  # costs nothing, and raises what NumPy raises for a wrong index
        if index.dtype == bool:
            index = np.flatnonzero(index)
        flat = index.ravel().astype(np.int64)
        return self._take(np.where(flat < 0, flat + len(self), flat)).reshape(index.shape + self.shape[1:])

    def _take(self, index: np.ndarray) -> np.ndarray:
        """Rows by index, each shard read once."""
        rows = np.empty((len(index), *self.shape[1:]), self.dtype)
        shards = np.searchsorted(self._ends, index, side="right")
        order = np.argsort(shards, kind="stable")
        touched, first = np.unique(shards[order], return_index=True)
        for shard, places in zip(touched.tolist(), np.split(order, first[1:]), strict=False):
            kept = self._kept[shard]
            local = index[places] - (self._ends[shard - 1] if shard else 0)
            rows[places] = self._map(shard)[local if kept is None else kept[local]]
        return rows

    def _map(self, shard: int) -> np.ndarray:
        if shard not in self._maps:
            if len(self._maps) >= _MAX_MAPS or self._mapped >= _MAX_MAPPED:
                self._maps.clear()
                self._mapped = 0
            self._maps[shard] = self._shards[shard].map(self._name)
            self._mapped += self._maps[shard].nbytes
        return self._maps[shard]


class _Tensor(NamedTuple):
    """Where an array stands in a file."""

    dtype: np.dtype
    shape: tuple[int, ...]
    start: int
    stop: int


@dataclass(frozen=True)
class _Shard:
    """A shard file whose header was read and found true, and how many of its rows count."""

    path: Path
    tensors: dict[str, _Tensor]
    rows: int

    @classmethod
    def read(cls, path: Path, layout: dict[str, Any] | None = None) -> _Shard:
        """Read the header and check it against the file and, where given, against the manifest."""
        try:
            tensors = _read_header(path)
            _check_columns(tensors, layout or {})
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise InputError(f"'{path}' is damaged ({error}); delete it to have the chunk simulated again.") from error
        return cls(path, tensors, tensors["valid"].shape[0])

    def kept(self) -> np.ndarray | None:
        """Which rows are finite; ``None``, which takes no memory, if all are."""
        valid = np.array(self.map("valid")[: self.rows])
        return None if valid.all() else np.flatnonzero(valid)

    def map(self, name: str) -> np.ndarray:
        """An array of the shard, mapped into memory and read where it is touched."""
        tensor = self.tensors[name]
        # a map that reaches beyond its file would end the process when touched
        if not self.path.exists() or self.path.stat().st_size != max(t.stop for t in self.tensors.values()):
            raise InputError(f"'{self.path}' was changed or removed while its rows were in use.")
        return np.memmap(self.path, tensor.dtype, "r", tensor.start, tensor.shape)


def _read_header(path: Path) -> dict[str, _Tensor]:
    """The arrays of a safetensors file: eight bytes of header length, the header as JSON, then the data, no gaps."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        _require(0 < length <= min(_MAX_HEADER, size - 8), f"a header of {length} bytes in a file of {size}")
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
    whole = all(type(number) is int and number >= 0 for number in (*shape, start, stop))
    _require(whole and 0 not in shape and len(shape) > 0, f"an array of shape {shape} at {start}:{stop}")
    _require(stop - start == math.prod(shape) * dtype.itemsize, f"{stop - start} bytes for shape {shape}")
    return _Tensor(dtype, shape, origin + start, origin + stop)


def _check_columns(tensors: dict[str, _Tensor], layout: dict[str, Any]) -> None:
    _require(set(tensors) == {"theta", "x", "valid"}, f"it holds {sorted(tensors)}")
    valid = tensors["valid"]
    _require(valid.dtype == np.uint8 and len(valid.shape) == 1, "its column 'valid' is not one of bytes")
    for name in ("theta", "x"):
        tensor = tensors[name]
        _require(tensor.dtype.kind == "f" and tensor.shape[:1] == valid.shape, f"its {name} does not fit")
        have = {"shape": list(tensor.shape[1:]), "dtype": tensor.dtype.name}
        want = layout.get(name) or have
        _require(have == want, f"its {name} has {_describe(have)}, but the manifest {_describe(want)}")


def _require(condition: bool, otherwise: str) -> None:
    if not condition:
        raise ValueError(otherwise)


def check_whole(name: str, value: Any, least: int) -> int:
    """``value`` as an ``int`` of at least ``least``.

    >>> check_whole("n", np.int64(3), 1)
    3
    """
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise InputError(f"'{name}' must be a whole number of at least {least}, got {value!r}.")
    return int(value)


def check_group(group: str) -> str:
    """``group`` if it can name a folder.

    >>> check_group("round-1")
    'round-1'
    """
    if not isinstance(group, str) or not re.fullmatch(r"\w[\w.-]{0,99}", group, re.ASCII):
        raise InputError(f"'group' must be made of letters, digits, '-', '_' and '.', got {group!r}.")
    return group


def finite_rows(rows: np.ndarray) -> np.ndarray:
    """Which rows have only finite values.

    >>> finite_rows(np.array([[1.0, 2.0], [3.0, np.nan]]))
    array([ True, False])
    """
    return np.isfinite(rows).all(axis=tuple(range(1, rows.ndim)))


def _layout(rows: np.ndarray) -> dict[str, Any]:
    if rows.dtype.kind != "f" or rows.dtype.itemsize > 8 or rows.size == 0:
        raise InputError(f"Rows must be of float16, 32 or 64 and not empty, got {rows.dtype} of shape {rows.shape}.")
    return {"shape": list(rows.shape[1:]), "dtype": rows.dtype.name}


def _describe(layout: dict[str, Any]) -> str:
    return f"rows of shape {tuple(layout['shape'])} and {layout['dtype']}"


def _manifest(folder: str | Path) -> Path:
    return Path(folder) / "manifest.json"


def _read_manifest(folder: str | Path) -> dict[str, Any]:
    path = _manifest(folder)
    content = read_json(path)
    version = content.get("version") if isinstance(content, dict) else None
    if version != VERSION:
        raise InputError(f"'{path}' has format version {version}, but this library reads version {VERSION}.")
    try:
        check_whole("seed", content["seed"], 0)
        check_whole("chunk_size", content["chunk_size"], 1)
        for layout in (content["theta"], content["x"]):
            _require(layout is None or set(layout) == {"shape", "dtype"}, f"a layout is {layout}")
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"'{path}' is damaged ({error}).") from None
    return content


def _claim(path: Path, content: dict[str, Any]) -> None:
    """Put a manifest in place unless another process was first: a link, unlike a rename, never replaces."""
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    write_json(draft, content)
    try:
        os.link(draft, path)
    except FileExistsError:
        pass
    except OSError:  # a file system without links
        if not path.exists():
            draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
