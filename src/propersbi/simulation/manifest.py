"""The manifest of a store: seed, chunk size, shapes, dtypes and names, checked when it is read.

It is created by exactly one process, before any shard. The shapes and names of the first chunk are added before that
chunk is written, and nothing changes afterwards.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from propersbi.layouts import Layout as Parts
from propersbi.simulation.shards import MAX_AXES, Layout
from propersbi.storage.checks import check_whole
from propersbi.storage.files import checksum_of_json, read_json, write_json
from propersbi.types import InputError

__all__ = ["create_manifest", "manifest_path", "read_manifest", "write_manifest"]

VERSION = 2  # of the format; the first one had no checksums
MAX_NUMBER = 2**63  # of whole numbers in a manifest
ENTRIES = {"version", "seed", "chunk_size", "theta", "x", "parameter_names", "x_names", "parts"}


def manifest_path(folder: str | Path) -> Path:
    """Where the manifest of a store is."""
    return Path(folder) / "manifest.json"


def create_manifest(folder: str | Path, seed: int, chunk_size: int) -> None:
    """Create a manifest unless another process already has."""
    content = {"version": VERSION, "seed": seed, "chunk_size": chunk_size, "theta": None, "x": None}
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
    try:
        _check(content)
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"'{path}' is damaged ({error!s:.120}).") from None
    return dict(content)


def _check(content: dict[str, Any]) -> None:
    check_whole("seed", content["seed"], 0)
    check_whole("chunk_size", content["chunk_size"], 1)
    if not set(content) <= ENTRIES:
        raise ValueError(f"it has an unknown entry '{sorted(set(content) - ENTRIES)[0]:.40}'")
    for name in ("theta", "x"):
        if content[name] is not None:
            _check_layout(content[name])
    parts, x = content.get("parts"), content["x"]
    if parts is not None and (x is None or list(Parts.from_json(parts).packed_shape) != x["shape"]):
        raise ValueError(f"its parts are {parts!r:.40}")
    for key, of in (("parameter_names", "theta"), ("x_names", "x")):
        names, layout = content.get(key), content[of]
        if names is None:
            continue
        if not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
            raise ValueError(f"'{key}' are {names!r:.40}")
        if layout is None or len(names) != math.prod(layout["shape"]):
            raise ValueError(f"it has {len(names)} '{key}' for {layout!r:.40}")


def _check_layout(layout: Layout) -> None:
    shape = layout["shape"]
    sizes = isinstance(shape, list) and all(type(size) is int and 0 < size < MAX_NUMBER for size in shape)
    known = set(layout) <= {"shape", "dtype", "nan"} and layout.get("nan", True) is True
    if not (known and sizes and len(shape) < MAX_AXES and layout["dtype"] in ("float16", "float32", "float64")):
        raise ValueError(f"a layout is {layout!r:.80}")
