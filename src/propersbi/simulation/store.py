"""Simulations on disk: immutable shards, one per chunk, that several processes may write concurrently.

::

    simulations/
      manifest.json                      format, seed, chunk size, shapes and dtypes, names if there are any
      train/chunk-000000.safetensors     theta (rows, *event), x (rows, *event), valid (rows,): whether all finite
      train/chunk-000000.failures.json   which rows failed and why, if any did
      train/chunk-000001.safetensors
      round-1/chunk-000000.safetensors   one folder per group

Shards are written atomically, so the directory listing defines which chunks are finished: there is no index that a
crash could make inconsistent. The manifest is created by exactly one process, before any shard; the shapes and names of
the first chunk are added before that chunk is written, and nothing changes afterwards. Every shard is validated against
it when read. The failures of a chunk are written before its shard. Only NumPy is needed.
"""

from __future__ import annotations

import math
import os
import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save

from propersbi.simulation.failures import Failures
from propersbi.simulation.shards import Layout, Shard, StoredRows, describe, finite_rows, layout_of
from propersbi.storage.files import read_json, write_json, write_with
from propersbi.types import InputError

__all__ = ["Store", "check_group", "check_whole"]

VERSION = 1  # of the format

Names = Mapping[str, Sequence[str] | None]
"""``parameter_names`` and ``x_names``."""


@dataclass(frozen=True)
class Store:
    """A folder of simulations.

    Arguments:
        folder: The path of the folder.
        seed: The seed of all chunks.
        chunk_size: The number of rows in a full chunk.

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
        # An absolute path, since workers may have another working directory.
        return cls(Path(folder).absolute(), content["seed"], content["chunk_size"])

    @classmethod
    def create_or_open(cls, folder: str | Path, *, seed: int, chunk_size: int) -> Store:
        """The store in ``folder``, created if there is none; an existing one must have this seed and chunk size."""
        settings = {"seed": check_whole("seed", seed, 0), "chunk_size": check_whole("chunk_size", chunk_size, 1)}
        try:
            orphan = next(Path(folder).glob("*/chunk-*.safetensors"), None)  # first, as the manifest precedes shards
            if not cls.exists(folder) and orphan is None:
                _create_once(_manifest(folder), {"version": VERSION, **settings, "theta": None, "x": None})
        except OSError as error:
            raise InputError(f"Simulations cannot be stored in '{folder}': {error}.") from error
        store = cls.open(folder)
        for name, actual in (("seed", store.seed), ("chunk_size", store.chunk_size)):
            if actual != settings[name]:
                raise InputError(f"The simulations in '{folder}' have {name} {actual}, not {settings[name]}.")
        return store

    def expected_rows(self, chunk: int, n: int) -> int:
        """The number of rows of this chunk among the first ``n``; the last chunk may be partial."""
        return max(0, min(self.chunk_size, n - chunk * self.chunk_size))

    def has(self, group: str, chunk: int, rows: int) -> bool:
        """Whether the chunk is finished, with at least ``rows`` rows."""
        path = self._path(group, chunk)
        return path.exists() and Shard.read(path).rows >= rows

    def missing(self, group: str, n: int) -> list[int]:
        """The unfinished chunks among the first ``n`` rows; chunks with too few rows count, so ``n`` can grow."""
        chunks = range(math.ceil(n / self.chunk_size))
        return [chunk for chunk in chunks if not self.has(group, chunk, self.expected_rows(chunk, n))]

    def write(
        self,
        group: str,
        chunk: int,
        theta: np.ndarray,
        x: np.ndarray,
        *,
        failures: Failures | None = None,
        names: Names | None = None,
    ) -> None:
        """Write one chunk atomically. Two processes may write the same chunk, as both write the same bytes."""
        # safetensors reads raw memory, so the arrays must be contiguous.
        theta, x = np.ascontiguousarray(theta), np.ascontiguousarray(x)
        if not 0 < len(theta) == len(x) <= self.chunk_size:
            raise InputError(f"A chunk has 1 to {self.chunk_size} rows, got {len(theta)} of theta and {len(x)} of x.")
        self._check_layout(names or {}, theta=layout_of(theta), x=layout_of(x))
        content = save({"theta": theta, "x": x, "valid": (finite_rows(theta) & finite_rows(x)).astype(np.uint8)})
        if failures is not None and failures.total:
            write_json(self._failures_path(group, chunk), failures.to_json())
        else:
            self._failures_path(group, chunk).unlink(missing_ok=True)  # of an attempt that was cut off
        write_with(self._path(group, chunk), lambda file: file.write(content))

    @property
    def x_shape(self) -> tuple[int, ...] | None:
        """The shape of the data of one row, once a chunk is written."""
        layout = _read_manifest(self.folder)["x"]
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
        for chunk in self._finished(group) if chunks is None else chunks:
            path = self._failures_path(group, chunk)
            if not path.exists():
                continue
            try:
                failures = Failures.from_json(read_json(path), self.seed)
            except ValueError as error:
                raise InputError(f"'{path}' is damaged ({error}); delete it and its chunk.") from None
            end = chunk * self.chunk_size + Shard.read(self._path(group, chunk)).rows
            found.append(failures.before(end if n is None else min(n, end)))
        return Failures.join(found)

    def rows(self, group: str, n: int | None = None) -> tuple[StoredRows, StoredRows]:
        """``theta`` and ``x`` of the first ``n`` rows, or of all finished ones, without rows that are not finite."""
        chunks = self._finished(group) if n is None else range(math.ceil(n / self.chunk_size))
        missing = [] if n is None else self.missing(group, n)
        if missing or not chunks:
            number = len(missing) or "all"
            raise InputError(f"Group '{group}' in '{self.folder}' is incomplete: {number} of its chunks are missing.")
        layout = _read_manifest(self.folder)
        shards = [Shard.read(self._path(group, chunk), layout) for chunk in chunks]
        if n is not None:  # the last shard may have more rows, if more were simulated before
            shards[-1] = replace(shards[-1], rows=self.expected_rows(chunks[-1], n))
        valid = [shard.valid_rows() for shard in shards]
        return StoredRows("theta", shards, valid), StoredRows("x", shards, valid)

    def _path(self, group: str, chunk: int) -> Path:
        return self.folder / check_group(group) / f"chunk-{chunk:06d}.safetensors"

    def _failures_path(self, group: str, chunk: int) -> Path:
        return self._path(group, chunk).with_suffix(".failures.json")

    def _names(self, key: str) -> tuple[str, ...] | None:
        names = _read_manifest(self.folder).get(key)
        return None if names is None else tuple(names)

    def _finished(self, group: str) -> list[int]:
        names = [path.name for path in (self.folder / check_group(group)).glob("*")]
        matches = [re.fullmatch(r"chunk-(\d{6,})\.safetensors", name) for name in names]
        return sorted(int(match[1]) for match in matches if match)

    def _check_layout(self, names: Names, **layout: Layout) -> None:
        """Check shapes, dtypes and names of a chunk against the manifest, or add them if this is the first chunk.

        Two concurrent first writers of the same problem write the same manifest. For different problems, the second
        manifest remains, and the shards of the first writer fail the check when they are read.
        """
        content = _read_manifest(self.folder)
        for name, new in layout.items():
            if content[name] not in (None, new):
                raise InputError(f"{name} has {describe(new)}, but '{self.folder}' has {describe(content[name])}.")
        given = {key: list(values) for key, values in names.items() if values is not None}
        if content["theta"] is None:
            write_json(_manifest(self.folder), {**content, **layout, **given})
        elif given.get("x_names") != content.get("x_names") and given.get("x_names") is not None:
            raise InputError(f"x has the names {given['x_names']}, but '{self.folder}' has {content.get('x_names')}.")


def check_whole(name: str, value: Any, least: int) -> int:
    """``value`` as an ``int`` of at least ``least``.

    >>> check_whole("n", np.int64(3), 1)
    3
    """
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise InputError(f"'{name}' must be a whole number of at least {least}, got {value!r}.")
    return int(value)


def check_group(group: str) -> str:
    """``group`` if it is a valid folder name.

    >>> check_group("round-1")
    'round-1'
    """
    if not isinstance(group, str) or not re.fullmatch(r"\w[\w.-]{0,99}", group, re.ASCII):
        raise InputError(f"'group' must consist of letters, digits, '-', '_' and '.', got {group!r}.")
    return group


def _manifest(folder: str | Path) -> Path:
    return Path(folder) / "manifest.json"


def _read_manifest(folder: str | Path) -> dict[str, Any]:
    path = _manifest(folder)
    content: dict[str, Any] = read_json(path)
    version = content.get("version") if isinstance(content, dict) else None
    if version != VERSION:
        raise InputError(f"'{path}' has format version {version}, but this library reads version {VERSION}.")
    try:
        check_whole("seed", content["seed"], 0)
        check_whole("chunk_size", content["chunk_size"], 1)
        for layout in (content["theta"], content["x"]):
            if layout is not None and set(layout) != {"shape", "dtype"}:
                raise ValueError(f"a layout is {layout}")
        for key in ("parameter_names", "x_names"):
            if not all(isinstance(name, str) for name in content.get(key) or ()):
                raise ValueError(f"'{key}' are {content[key]!r:.80}")
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"'{path}' is damaged ({error}).") from None
    return content


def _create_once(path: Path, content: dict[str, Any]) -> None:
    """Create a manifest unless another process already has: a link, unlike a rename, never replaces a file."""
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
