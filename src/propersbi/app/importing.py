"""A run of simulations that exist already."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from propersbi.app.facts import machine, now, versions
from propersbi.app.problems import load_problem
from propersbi.problem import Settings
from propersbi.simulation.importing import import_rows, read_blocks
from propersbi.simulation.store import Store
from propersbi.storage.records import RunRecord, SimulationsRecord
from propersbi.types import InputError

__all__ = ["import_run"]

CHUNK_SIZE = 1000


def import_run(
    folder: str | Path,
    sources: Sequence[str | Path],
    *,
    parameters: Sequence[str] | None = None,
    test: int | None = None,
    model: str | None = None,
) -> SimulationsRecord:
    """Write rows of files into a run directory; the last ones are kept to test with.

    Arguments:
        folder: The run directory.
        sources: As for :func:`~propersbi.simulation.importing.read_blocks`.
        parameters: The columns of a Parquet file that are parameters.
        test: How many rows to test with; by default a tenth, from 300 to 1000, and at most half of them.
        model: The file or task that the rows are of, if there is one: its prior tells where parameters lie.
    """
    folder = Path(folder)
    problem = None if model is None else load_problem(model)
    total = sum(len(theta) for theta, _ in read_blocks(sources, parameters))
    held_out = min(Settings().test_pairs(total), total // 2) if test is None else test
    if not 0 < held_out < total:
        raise InputError(f"Of {total} rows, 1 to {total - 1} can be tested with, not {held_out}.")
    store = Store.create_or_open(folder / "simulations", seed=0, chunk_size=CHUNK_SIZE)
    names = parameters or (None if problem is None else problem.parameter_names)
    n = total - held_out
    import_rows(store, read_blocks(sources, parameters), parameter_names=names, stop=n)
    import_rows(store, read_blocks(sources, parameters), group="test", parameter_names=names, start=n)
    invalid = sum(store.rows(group)[0].invalid for group in ("train", "test"))
    name = folder.name if problem is None else problem.name
    record = RunRecord(name, now(), None if problem is None else problem.digest)
    done = SimulationsRecord(n, held_out, invalid, 0)
    command = " ".join(["propersbi import", str(folder), *map(str, sources)])
    replace(record, command=command, versions=versions(), machine=machine(), simulations=done).save(folder)
    return done
