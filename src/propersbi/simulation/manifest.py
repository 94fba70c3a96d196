"""The manifest of a store: seed, chunk size, shapes, dtypes and names, checked when it is read.

It is created by exactly one process, before any shard. The shapes and names of the first chunk are added before that
chunk is written, and nothing changes afterwards.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from propersbi.layouts import Layout as Parts
from propersbi.simulation.shards import MAX_AXES
from propersbi.storage.files import checksum_of_json, read_json, write_json
from propersbi.storage.schema import read_as
from propersbi.types import InputError

__all__ = ["SETTINGS", "create_manifest", "manifest_path", "read_manifest", "write_manifest"]

VERSION = 2  # of the format; the first one had no checksums
SETTINGS = {"version", "seed", "chunk_size", "growing"}


def manifest_path(folder: str | Path) -> Path:
    """Where the manifest of a store is."""
    return Path(folder) / "manifest.json"


def create_manifest(folder: str | Path, seed: int, chunk_size: int, *, growing: bool = False) -> None:
    """Create a manifest unless another process already has."""
    content = {"version": VERSION, "seed": seed, "chunk_size": chunk_size, "theta": None, "x": None}
    content |= {"growing": True} if growing else {}
    write_json(manifest_path(folder), {**content, "checksum": checksum_of_json(content)}, replace=False)


def write_manifest(folder: str | Path, content: dict[str, Any]) -> None:
    """Replace a manifest."""
    write_json(manifest_path(folder), {**content, "checksum": checksum_of_json(content)})


def read_manifest(folder: str | Path) -> dict[str, Any]:
    """The entries of a manifest, without its checksum."""
    path = manifest_path(folder)
    content = read_json(path)
    version = content.get("version") if isinstance(content, dict) else None
    if version not in (1, VERSION) or isinstance(version, bool):
        raise InputError(f"'{path}' has format version {version!s:.20}, but this library reads version {VERSION}.")
    checksum = content.pop("checksum", None)
    if version == VERSION and checksum != checksum_of_json(content):
        raise InputError(f"'{path}' was changed after it was written: its checksum does not fit.")
    read_as(_Manifest, content, str(path)).check(str(path))
    return dict(content)


@dataclass(frozen=True)
class _Rows:
    """The layout of rows; see :data:`propersbi.simulation.shards.Layout`."""

    shape: list[int]
    dtype: str
    nan: bool = True

    def fits(self) -> bool:
        known = self.nan and self.dtype in ("float16", "float32", "float64")
        return known and len(self.shape) < MAX_AXES and min(self.shape, default=1) > 0


@dataclass(frozen=True)
class _Manifest:
    """What a manifest holds, besides its checksum."""

    version: int
    seed: int
    chunk_size: int
    theta: _Rows | None
    x: _Rows | None
    growing: bool = True
    parameter_names: list[str] | None = None
    x_names: list[str] | None = None
    parts: list[Any] | None = None

    def check(self, place: str) -> None:
        """Refuse entries that do not fit one another."""
        for name, wrong in self.wrong():
            if wrong:
                raise InputError(f"'{place}' is damaged: its '{name}' does not fit.")

    def wrong(self) -> Iterator[tuple[str, bool]]:
        yield "chunk_size", self.chunk_size < 1
        yield "growing", not self.growing
        for name, names, rows in (("theta", self.parameter_names, self.theta), ("x", self.x_names, self.x)):
            yield name, rows is not None and not rows.fits()
            yield f"names of {name}", names is not None and (rows is None or len(names) != math.prod(rows.shape))
        yield "parts", self.parts is not None and (self.x is None or _shape_of(self.parts) != self.x.shape)


def _shape_of(parts: list[Any]) -> list[int] | None:
    try:
        return list(Parts.from_json(parts).packed_shape)
    except ValueError:
        return None
