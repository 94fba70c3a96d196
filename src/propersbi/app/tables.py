"""Draws in files: CSV, NumPy and Parquet."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from propersbi.storage.files import write_with
from propersbi.types import InputError

__all__ = ["write_samples"]


def write_samples(out: str, samples: np.ndarray, names: Sequence[str]) -> None:
    """Write draws ``(n, *event)``: ``.npy`` keeps their shape, the others have a column for each parameter."""
    writers = {".csv": _csv, ".npy": _npy, ".parquet": _parquet}
    if out == "-":
        sys.stdout.write(_csv(samples, names).decode())
        return
    suffix = Path(out).suffix
    if suffix not in writers:
        raise InputError(f"Draws are written to .csv, .npy or .parquet, not to '{out}'.")
    content = writers[suffix](samples, names)
    write_with(out, lambda file: file.write(content))


def _csv(samples: np.ndarray, names: Sequence[str]) -> bytes:
    quoted = ['"' + name.replace('"', '""') + '"' if set(name) & set(',"\n') else name for name in names]
    text = io.StringIO()
    np.savetxt(text, samples.reshape(len(samples), -1), fmt="%.9g", delimiter=",", header=",".join(quoted), comments="")
    return text.getvalue().encode()


def _npy(samples: np.ndarray, names: Sequence[str]) -> bytes:  # noqa: ARG001
    content = io.BytesIO()
    np.save(content, samples, allow_pickle=False)
    return content.getvalue()


def _parquet(samples: np.ndarray, names: Sequence[str]) -> bytes:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise InputError("Parquet needs the package pyarrow: pip install 'propersbi[parquet]'.") from None
    columns = samples.reshape(len(samples), -1)
    content = io.BytesIO()
    pq.write_table(pa.table({name: columns[:, i] for i, name in enumerate(names)}), content)
    return content.getvalue()
