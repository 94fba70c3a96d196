"""Draws in files: CSV, NumPy, Parquet, and netCDF or zarr for ArviZ and xarray."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from propersbi.interchange import write_arviz
from propersbi.posterior import Posterior
from propersbi.storage.files import write_with
from propersbi.types import InputError

__all__ = ["check_output", "write_draws"]

TREES = (".nc", ".zarr")


def check_output(out: str) -> None:
    """Refuse a file of an unknown kind, before anything is drawn."""
    if out != "-" and Path(out).suffix not in (*_WRITERS, *TREES):
        raise InputError(f"Draws are written to .csv, .npy, .parquet, .nc or .zarr, not to '{out}'.")


def write_draws(out: str, posterior: Posterior, x: np.ndarray, count: int, *, seed: int, progress: bool) -> None:
    """Draw and write: ``.npy`` keeps the shape of theta, ``.nc`` and ``.zarr`` are what ArviZ and xarray read.

    The others have a column for each parameter; ``-`` is CSV on stdout.
    """
    if Path(out).suffix in TREES:
        write_arviz(out, posterior.to_arviz(x, num_samples=count, seed=seed))
        return
    samples = posterior.sample((count,), x=x, seed=seed, show_progress_bars=progress).cpu().numpy()
    if out == "-":
        sys.stdout.write(_csv(samples, posterior.parameter_names).decode())
        return
    content = _WRITERS[Path(out).suffix](samples, posterior.parameter_names)
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


_WRITERS = {".csv": _csv, ".npy": _npy, ".parquet": _parquet}
