"""Simulations on disk: immutable shards, one per chunk, that several processes may write concurrently.

::

    simulations/
      manifest.json                      format, seed, chunk size, shapes and dtypes, names if there are any
      train/fingerprint.safetensors      a few rows that tell the prior and the simulator from others
      train/chunk-000000.safetensors     theta (rows, *event), x (rows, *event), valid (rows,): whether all finite
      train/chunk-000000.failures.json   which rows failed and why, if any did
      train/chunk-000001.safetensors
      round-1/chunk-000000.safetensors   one folder per group

Shards are written atomically, so the directory listing defines which chunks are finished: there is no index that a
crash could make inconsistent. The manifest is created by exactly one process, before any shard. Every shard is
validated against it when read, and by its checksums. The failures of a chunk are written before its shard. A damaged
shard is set aside, as ``*.damaged``, and simulated again. Only NumPy is needed.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from propersbi.layouts import Layout as Parts
from propersbi.simulation.chunking import Chunking
from propersbi.simulation.failures import Failures
from propersbi.simulation.manifest import SETTINGS, create_manifest, manifest_path, read_manifest, write_manifest
from propersbi.simulation.shards import Layout, Shard, describe, encode_shard, layout_of, same_layout
from propersbi.simulation.stored_rows import StoredRows
from propersbi.storage.checks import check_whole, to_path
from propersbi.storage.files import read_bytes, read_json, sweep, write_bytes
from propersbi.types import InputError

__all__ = ["Store", "check_group", "check_whole"]

Names = Mapping[str, Sequence[Any] | None]
"""``parameter_names`` and ``x_names``."""


@dataclass(frozen=True)
class Store:
    """A folder of simulations.

    Arguments:
        folder: The path of the folder.
        seed: The seed of all chunks.
        chunk_size: The number of rows in a full chunk.
        growing: Whether that doubles after every hundred chunks, up to 1000 rows.

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
    growing: bool = False

    @classmethod
    def exists(cls, folder: str | Path) -> bool:
        """Whether there is a store in ``folder``."""
        return manifest_path(folder).exists()

    @classmethod
    def open(cls, folder: str | Path) -> Store:
        """The store in ``folder``, with its own seed and chunk size."""
        content = read_manifest(folder)
        # An absolute path, since workers may have another working directory.
        return cls(Path(folder).absolute(), content["seed"], content["chunk_size"], "growing" in content)

    @classmethod
    def create_or_open(cls, folder: str | Path, *, seed: int, chunk_size: int, growing: bool = False) -> Store:
        """The store in ``folder``, created if there is none; an existing one must have this seed and chunk size.

        Chunks of a new store may be ``growing``: twice as large after every hundred, up to 1000 rows.
        """
        folder = to_path("path", folder)
        settings = {"seed": check_whole("seed", seed, 0), "chunk_size": check_whole("chunk_size", chunk_size, 1)}
        try:
            orphan = next(Path(folder).glob("*/chunk-*.safetensors"), None)  # first, as the manifest precedes shards
            if not cls.exists(folder) and orphan is None:
                create_manifest(folder, **settings, growing=growing)
        except OSError as error:
            raise InputError(f"Simulations cannot be stored in '{folder}': {error}.") from error
        store = cls.open(folder)
        for place in (store.folder, *store.folder.glob("*/")):
            sweep(place)
        for name, actual in (("seed", store.seed), ("chunk_size", store.chunk_size)):
            if actual != settings[name]:
                raise InputError(f"The simulations in '{folder}' have {name} {actual}, not {settings[name]}.")
        return store

    @property
    def chunking(self) -> Chunking:
        """How rows are divided into chunks."""
        return Chunking(self.chunk_size, self.growing)

    def has(self, group: str, chunk: int, rows: int) -> bool:
        """Whether the chunk is finished, with at least ``rows`` rows."""
        path = self.path(group, chunk)
        return path.exists() and Shard.read(path).rows >= rows

    def is_begun(self, group: str) -> bool:
        """Whether a chunk of the group is finished."""
        return bool(self.finished(group))

    def is_imported(self, group: str) -> bool:
        """Whether the rows of a group were imported, and not simulated here."""
        return (self.folder / check_group(group) / "imported").exists()

    def mark_imported(self, group: str) -> None:
        """Say that the rows of a group are imported: no simulations are added to them."""
        write_bytes(self.folder / check_group(group) / "imported", b"")

    def import_rows(
        self,
        theta: Any,
        x: Any,
        *,
        group: str = "train",
        parameter_names: Sequence[str] | None = None,
        x_names: Sequence[str] | None = None,
    ) -> int:
        """Write rows that were simulated elsewhere, chunk by chunk; how many there are.

        Arguments:
            theta: Parameters ``(n, *event)``: an array, also a memory-mapped one.
            x: The data they made, likewise.
            group: The group, which holds imported rows only.
            parameter_names: One for each parameter.
            x_names: One for each number of the data.
        """
        from propersbi.simulation.importing import import_rows

        return import_rows(self, [(theta, x)], group=group, parameter_names=parameter_names, x_names=x_names)

    def set_aside_damaged(self, group: str, n: int) -> list[Path]:
        """Rename the damaged shards among the first ``n`` rows, so that they are simulated again; their paths."""
        layout, damaged = read_manifest(self.folder), []
        for chunk in range(min(self.chunking.count(n), 1 + max(self.finished(group), default=-1))):
            path = self.path(group, chunk)
            if not path.exists():
                continue
            try:
                self._check_failures(Shard.read(path, layout).verify(), group, chunk)
            except InputError:
                path.replace(path.with_name(f"{path.name}.damaged"))
                damaged.append(path)
        return damaged

    def missing(self, group: str, n: int) -> list[int]:
        """The unfinished chunks among the first ``n`` rows; chunks with too few rows count, so ``n`` can grow."""
        chunks, finished = range(self.chunking.count(n)), set(self.finished(group))
        done = {chunk for chunk in finished if self.has(group, chunk, self.chunking.within(chunk, n))}
        return [chunk for chunk in chunks if chunk not in done]

    def write(
        self,
        group: str,
        chunk: int,
        theta: np.ndarray,
        x: np.ndarray,
        *,
        failures: Failures | None = None,
        names: Names | None = None,
        parts: Parts | None = None,
        nan: bool = False,
    ) -> None:
        """Write one chunk atomically. Two processes may write the same chunk, as both write the same bytes.

        Rows that are not finite are not valid; with ``nan``, NaN in ``x`` is data. ``parts`` are those of the data.
        """
        most = self.chunking.rows(chunk)
        if not 0 < len(theta) == len(x) <= most:
            raise InputError(f"A chunk has 1 to {most} rows, got {len(theta)} of theta and {len(x)} of x.")
        names = {**(names or {}), "parts": None if parts is None else parts.to_json()}
        self._check_layout(names, theta=layout_of(theta), x={**layout_of(x), **({"nan": True} if nan else {})})
        records = json.dumps(failures.to_json()).encode() if failures is not None and failures.total else None
        content = encode_shard(theta, x, nan=nan, failures=records)
        if records is not None:
            write_bytes(self._failures_path(group, chunk), records)
        else:
            self._failures_path(group, chunk).unlink(missing_ok=True)  # of an attempt that was cut off
        write_bytes(self.path(group, chunk), content)

    @property
    def x_shape(self) -> tuple[int, ...] | None:
        """The shape of the data of one row, once a chunk is written."""
        layout = read_manifest(self.folder)["x"]
        return None if layout is None else tuple(layout["shape"])

    @property
    def parameter_names(self) -> tuple[str, ...] | None:
        """The names of the parameters, if they were known."""
        return self._names("parameter_names")

    @property
    def x_names(self) -> tuple[str, ...] | None:
        """The names of the data, if the simulator gave any."""
        return self._names("x_names")

    def failures(self, group: str, n: int | None = None, *, chunks: Iterable[int] | None = None) -> Failures:
        """The rows that failed among the first ``n``, in all finished chunks or in these."""
        found: list[Failures] = []
        for chunk in self.finished(group) if chunks is None else chunks:
            path, shard = self._failures_path(group, chunk), Shard.read(self.path(group, chunk))
            self._check_failures(shard, group, chunk)
            if not path.exists():
                continue
            failures = Failures.from_json(read_json(path), self.seed, str(path))
            end = self.chunking.start(chunk) + shard.rows
            found.append(failures.before(end if n is None else min(n, end)))
        return Failures.join(found)

    def rows(self, group: str, n: int | None = None) -> tuple[StoredRows, StoredRows]:
        """``theta`` and ``x`` of the first ``n`` rows, or of all finished ones, without rows that are not finite."""
        finished = self.finished(group)
        chunks = finished if n is None else range(self.chunking.count(n))
        absent = len(chunks) - len([chunk for chunk in finished if chunk in chunks])  # counted: a file may ask for 10^9
        absent = absent or (0 if n is None else len(self.missing(group, n)))
        if absent or not chunks:
            number = absent or "all"
            raise InputError(f"Group '{group}' in '{self.folder}' is incomplete: {number} of its chunks are missing.")
        layout = read_manifest(self.folder)
        shards = [Shard.read(self.path(group, chunk), layout) for chunk in chunks]
        if n is not None:  # the last shard may have more rows, if more were simulated before
            shards[-1] = replace(shards[-1], rows=self.chunking.within(chunks[-1], n))
        valid = [shard.valid_rows() for shard in shards]
        parts = None if layout.get("parts") is None else Parts.from_json(layout["parts"])
        return StoredRows("theta", shards, valid), StoredRows("x", shards, valid, parts)

    def path(self, group: str, chunk: int) -> Path:
        """Where the shard of a chunk is."""
        return self.folder / check_group(group) / f"chunk-{chunk:06d}.safetensors"

    def _failures_path(self, group: str, chunk: int) -> Path:
        return self.path(group, chunk).with_suffix(".failures.json")

    def _check_failures(self, shard: Shard, group: str, chunk: int) -> None:
        """Refuse failures that are not those that were written with the shard."""
        if shard.checksums is None:
            return
        path = self._failures_path(group, chunk)
        content = read_bytes(path) if path.exists() else b""
        if hashlib.sha256(content).hexdigest() != shard.checksums["failures"]:
            raise InputError(f"'{path}' is damaged (its checksum does not fit): run the simulations again.")

    def _names(self, key: str) -> tuple[str, ...] | None:
        names = read_manifest(self.folder).get(key)
        return None if names is None else tuple(names)

    def finished(self, group: str) -> list[int]:
        """The numbers of the chunks that are finished."""
        names = [path.name for path in (self.folder / check_group(group)).glob("*")]
        matches = [re.fullmatch(r"chunk-(\d{6,})\.safetensors", name) for name in names]
        return sorted(int(match[1]) for match in matches if match)

    def _check_layout(self, names: Names, **layout: Layout) -> None:
        """Check shapes, dtypes and names of a chunk against the manifest, or add them if this is the first chunk.

        Two concurrent first writers of the same problem write the same manifest. For different problems, the second
        manifest remains, and the shards of the first writer fail the check when they are read.
        """
        content = read_manifest(self.folder)
        if content["theta"] is not None and next(self.folder.glob("*/chunk-*.safetensors"), None) is None:
            content |= {"theta": None, "x": None}  # of an attempt that was cut off
        for name, new in layout.items():
            if content[name] is not None and not same_layout(content[name], new):
                old = describe(content[name])
                raise InputError(f"{name} has {describe(new)}, but '{self.folder}' has {old}: delete it to start anew.")
        given = {key: list(values) for key, values in names.items() if values is not None}
        if content["theta"] is None:
            settings = {key: value for key, value in content.items() if key in SETTINGS}
            write_manifest(self.folder, {**settings, **layout, **given})
        elif given.get("x_names") != content.get("x_names") and given.get("x_names") is not None:
            raise InputError(f"x has the names {given['x_names']}, but '{self.folder}' has {content.get('x_names')}.")


def check_group(group: str) -> str:
    """``group`` if it is a valid folder name.

    >>> check_group("round-1")
    'round-1'
    """
    if not isinstance(group, str) or not re.fullmatch(r"\w[\w.-]{0,99}", group, re.ASCII):
        raise InputError(f"'group' must consist of letters, digits, '-', '_' and '.', got {group!r}.")
    return group
