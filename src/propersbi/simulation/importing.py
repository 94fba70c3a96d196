"""Simulations from elsewhere: rows that exist already, written into a store chunk by chunk.

Rows come in blocks of any length and are never all in memory: from arrays, also memory-mapped ones, from a folder of
``.npz`` files, or from a Parquet file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from propersbi.simulation.chunking import Chunking
from propersbi.simulation.results import ResultError, as_floats, stored
from propersbi.simulation.store import Store
from propersbi.types import InputError

__all__ = ["Block", "import_rows", "read_blocks"]

Block = tuple[Any, Any]
"""Parameters ``(n, *event)`` and the data they made, ``(n, *event)``."""
ROWS_AT_ONCE = 10_000


def import_rows(
    store: Store,
    blocks: Iterable[Block],
    *,
    group: str = "train",
    parameter_names: Sequence[str] | None = None,
    x_names: Sequence[str] | None = None,
    start: int = 0,
    stop: int | None = None,
) -> int:
    """Write rows into an empty or partly imported group of a store; how many there are.

    Rows that are not finite are kept and not used, as those of ``simulate``. Importing the same rows again continues.

    Arguments:
        store: The store.
        blocks: Parameters and data, row by row.
        group: The group, which holds imported rows only.
        parameter_names: One for each parameter.
        x_names: One for each number of the data.
        start: The first row to import.
        stop: The row after the last one.
    """
    if store.is_begun(group) and not store.is_imported(group):
        raise InputError(f"Group '{group}' in '{store.folder}' holds simulations: import rows into another one.")
    store.mark_imported(group)
    names = {"parameter_names": parameter_names, "x_names": x_names}
    count = 0
    for number, (theta, x) in enumerate(_chunks(_sliced(blocks, start, stop), store.chunking)):
        if not store.has(group, number, len(theta)):
            store.write(group, number, stored(theta), stored(x), names=names)
        count += len(theta)
    if not count:
        raise InputError("There are no rows to import.")
    return count


def _sliced(blocks: Iterable[Block], start: int, stop: int | None) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Some of the rows, checked, in blocks that fit in memory."""
    first = 0
    for theta, x in blocks:
        if len(theta) != len(x):
            raise InputError(f"theta has {len(theta)} rows but x has {len(x)}.")
        low, high = max(start - first, 0), len(theta) if stop is None else min(len(theta), stop - first)
        for at in range(low, max(low, high), ROWS_AT_ONCE):
            rows = slice(at, min(at + ROWS_AT_ONCE, high))
            yield _rows(theta[rows], "theta"), _rows(x[rows], "x")
        first += len(theta)


def _rows(values: Any, name: str) -> np.ndarray:
    try:
        rows = as_floats(values)
    except ResultError as error:
        raise InputError(f"'{name}' must hold numbers: {error}.") from None
    return rows[:, None] if rows.ndim == 1 else rows


def _chunks(
    blocks: Iterable[tuple[np.ndarray, np.ndarray]], chunking: Chunking
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The same rows in chunks; the last one may be shorter."""
    parts: list[tuple[np.ndarray, np.ndarray]] = []
    number = held = 0
    for theta, x in blocks:
        parts, held = [*parts, (theta, x)], held + len(theta)
        if held >= chunking.rows(number):
            all_theta, all_x = _joined(parts)
            at = 0
            while held - at >= chunking.rows(number):
                end = at + chunking.rows(number)
                yield all_theta[at:end], all_x[at:end]
                at, number = end, number + 1
            parts, held = [(all_theta[at:], all_x[at:])], held - at
    if held:
        yield _joined(parts)


def _joined(parts: list[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    try:
        return np.concatenate([theta for theta, _ in parts]), np.concatenate([x for _, x in parts])
    except ValueError:
        shapes = sorted({(theta.shape[1:], x.shape[1:]) for theta, x in parts})
        raise InputError(f"Rows must have one shape, got {shapes[0]} and {shapes[-1]} of theta and x.") from None


def read_blocks(sources: Sequence[str | Path], parameters: Sequence[str] | None = None) -> Iterator[Block]:
    """Rows of files: ``theta.npy`` and ``x.npy``, a folder of ``.npz`` with ``theta`` and ``x``, or a Parquet file.

    Arguments:
        sources: One or two paths.
        parameters: The columns of a Parquet file that are parameters; all others are data.
    """
    paths = [Path(source) for source in sources]
    for path in paths:
        if not path.exists():
            raise InputError(f"There is no file '{path}'.")
    if len(paths) == 2:
        yield _load(paths[0]), _load(paths[1])
    elif len(paths) == 1 and paths[0].is_dir():
        files = sorted(paths[0].glob("*.npz"))
        if not files:
            raise InputError(f"There is no .npz file in '{paths[0]}'.")
        yield from map(_load_pair, files)
    elif len(paths) == 1 and paths[0].suffix == ".parquet":
        yield from _parquet(paths[0], parameters)
    else:
        raise InputError("Give theta.npy and x.npy, a folder of .npz files, or a .parquet file.")


def _load(path: Path) -> Any:
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # the parser of headers has errors of its own
        raise InputError(f"'{path}' cannot be read as an array: {error!s:.120}.") from None


def _load_pair(path: Path) -> Block:
    try:
        with np.load(path, allow_pickle=False) as content:
            return content["theta"], content["x"]
    except Exception as error:  # archives break in many ways: zlib, lzma and the parser of headers have their own
        raise InputError(f"'{path}' must hold arrays 'theta' and 'x': {error!s:.120}.") from None


def _parquet(path: Path, parameters: Sequence[str] | None) -> Iterator[Block]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise InputError(f"{error}: install it with pip install 'propersbi[parquet]'.") from None
    try:
        file = pyarrow.parquet.ParquetFile(path)
    except (pyarrow.ArrowException, OSError) as error:
        raise InputError(f"'{path}' cannot be read: {error!s:.120}.") from None
    columns = file.schema_arrow.names
    lacking = [name for name in parameters or () if name not in columns]
    if not parameters or lacking:
        what = f"There is no column '{lacking[0]}'" if lacking else "The columns that are parameters are not known"
        raise InputError(f"{what}: name them with --parameters, of {', '.join(columns[:20])}.")
    data = [name for name in columns if name not in parameters]
    for batch in file.iter_batches(ROWS_AT_ONCE):
        theta, x = (np.stack([np.asarray(batch[name]) for name in names], 1) for names in (parameters, data))
        yield theta, x
