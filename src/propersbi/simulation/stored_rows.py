"""Columns of a store: rows that are read from its shards on demand.

Data are memory-mapped, so that only the requested rows are read. The number of maps is bounded, since each takes a file
descriptor; small columns of shards are read as a whole. Each is verified by its checksum when it is first read.
"""

from __future__ import annotations

import hashlib
import sys
from typing import Any

import numpy as np

from propersbi.layouts import Layout
from propersbi.simulation.shards import Shard

__all__ = ["StoredRows"]

_MAX_MAPPED_SHARDS = 4096  # systems limit the number of memory maps per process (65530 on Linux)
_MAX_MAPPED_BYTES = 1 << 29  # systems may keep an entire map in memory once a part of it was read


class StoredRows:
    """One column of a store: indexed by row like an array, but only the requested rows are read.

    An index is an integer, a slice, or an array of integers or booleans; ``np.asarray`` reads all rows. It is pickled
    as a list of files. ``layout`` are the parts of structured data. ``invalid`` is the number of rows that were
    excluded because they are not finite.
    """

    def __init__(
        self, name: str, shards: list[Shard], valid: list[np.ndarray | None], layout: Layout | None = None
    ) -> None:
        self.layout = layout
        self._name, self._shards, self._valid = name, shards, valid
        counts = [shard.rows if rows is None else len(rows) for shard, rows in zip(shards, valid, strict=True)]
        self._ends = np.cumsum(counts)  # the index after the last row of each shard
        self._maps: dict[int, np.ndarray] = {}
        self._mapped_shards = self._mapped_bytes = 0
        self._verified = np.zeros(len(shards), bool)
        # Chunks are in double precision where single precision would lose digits.
        self._dtype = np.result_type(*{shard.tensors[name].dtype for shard in shards})
        self.invalid = sum(shard.rows for shard in shards) - len(self)

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self), *self._shards[0].tensors[self._name].shape[1:])

    @property
    def dtype(self) -> np.dtype:
        return self._dtype

    def __len__(self) -> int:
        return int(self._ends[-1])

    def __repr__(self) -> str:
        return f"StoredRows({self._name!r}, shape={self.shape}, dtype={self.dtype.name})"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("Stored rows are on disk: an array of them is always a copy.")
        return self[:].astype(dtype or self.dtype, copy=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_maps": {}, "_mapped_shards": 0, "_mapped_bytes": 0}

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

    def checksum(self) -> str | None:
        """The SHA-256 of the checksums that shards record of their used rows; ``None`` if some have none."""
        found = [shard.checksum_of(name) for shard in self._shards for name in (self._name, "valid")]
        return None if None in found else hashlib.sha256(" ".join(map(str, found)).encode()).hexdigest()

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
            column = self._shards[shard].map(self._name, verify=not self._verified[shard])
            if self._mapped_shards >= _most_maps() or self._mapped_bytes >= _MAX_MAPPED_BYTES:
                self._maps.clear()
                self._mapped_shards = self._mapped_bytes = 0
            self._maps[shard] = column
            self._mapped_shards += isinstance(column, np.memmap)
            self._mapped_bytes += column.nbytes
            self._verified[shard] = True
        return self._maps[shard]


def _most_maps() -> int:
    """How many maps one column may keep: each has a file descriptor, and others need some too."""
    if sys.platform == "win32":
        return _MAX_MAPPED_SHARDS
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MAX_MAPPED_SHARDS if soft == resource.RLIM_INFINITY else max(2, min(_MAX_MAPPED_SHARDS, soft // 16))
