"""Running a job: its chunks computed by an executor and collected, in memory or in a store."""

from __future__ import annotations

import sys
import uuid
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from propersbi.layouts import Layout, PackedArray
from propersbi.simulation.calls import is_tensor
from propersbi.simulation.chunks import Chunk, Job, Source, write_chunk
from propersbi.simulation.dispatch import Engine
from propersbi.simulation.executors import Joblib, Serial
from propersbi.simulation.failures import Failures, SimulationError, describe, too_many
from propersbi.simulation.fingerprint import (
    Fingerprint,
    check_fingerprint,
    compute_fingerprint,
    forget_fingerprint,
)
from propersbi.simulation.output import print_beside
from propersbi.simulation.priors import draw
from propersbi.simulation.processes import Threads
from propersbi.simulation.shards import usable_rows
from propersbi.simulation.startup import start_here
from propersbi.simulation.store import Store
from propersbi.simulation.styles import Style
from propersbi.storage.progress import progress_bar
from propersbi.storage.randomness import stream
from propersbi.storage.tables import html_table
from propersbi.types import Executor, InputError, Rows

__all__ = ["Run", "Simulations"]

PROBES = 4  # chunks by which workers are asked whether they see the store


@dataclass(frozen=True, eq=False, repr=False)
class Simulations:
    """Parameters and the data simulated from them, row by row; ``theta, x = simulations`` unpacks them.

    Arguments:
        theta: Parameters, ``(n, *event)``.
        x: Data, ``(n, *event)``.
        invalid: The number of rows that were excluded, because they failed or were not finite.
        failures: Records of the rows that failed, the first hundred; ``failures.total`` counts all of them.
        parameter_names: One for each parameter, if the prior names them.
        x_names: One for each number of the data, if the simulator names them.
    """

    theta: Rows
    x: Rows
    invalid: int = 0
    failures: Failures = field(default_factory=Failures)
    parameter_names: tuple[str, ...] | None = None
    x_names: tuple[str, ...] | None = None

    def __len__(self) -> int:
        return len(self.theta)

    def __iter__(self) -> Iterator[Rows]:
        return iter((self.theta, self.x))

    def __repr__(self) -> str:
        failed = f", {self.failures.total} of them failed" if self.failures.total else ""
        return f"Simulations(theta {self.theta.shape}, x {self.x.shape}, {self.invalid} invalid{failed})"

    def _repr_html_(self) -> str:
        """A table for notebooks."""
        shapes = [["theta", str(self.theta.shape[1:])], ["x", str(self.x.shape[1:])]]
        names = [["parameters", ", ".join(self.parameter_names)]] if self.parameter_names else []
        counts = [["invalid", f"{self.invalid:,}"], ["failed", f"{self.failures.total:,}"]]
        return html_table(f"{len(self):,} simulations", ["what", "value"], [*shapes, *names, *counts])


@dataclass
class Run:
    """The chunks of a job, computed and collected.

    Arguments:
        job: The job.
        pool: The processes to compute them in.
        executor: What computes them instead, if anything.
    """

    job: Job
    pool: Joblib
    executor: Executor | None
    style_found: bool = field(default=False, init=False)

    def on_disk(self, store: Store, batched: bool | None, *, force: bool = False) -> Simulations:
        job = self.job
        for path in store.set_aside_damaged(job.group, job.n):
            warnings.warn(f"'{path}' was damaged: it is set aside, and simulated again.", stacklevel=4)
        missing = store.missing(job.group, job.n)
        if missing and store.is_imported(job.group):
            raise InputError(f"The rows of group '{job.group}' were imported, and no simulations are added to them.")
        finished = sorted(set(range(job.chunks)) - set(missing))
        failures = store.failures(job.group, job.n, chunks=finished)
        try:
            with self.errors_reported():
                if missing:
                    self.find_style(batched, quiet=store.x_shape is not None)
                check_fingerprint(
                    store, job.group, lambda: self.fingerprint(store, batched), complete=not missing, force=force
                )
                here = not missing or self.writes_shards(store)
                collect = (lambda _: None) if here else partial(write_chunk, self.job, store)
                self.compute(missing, failures, collect, sent_back=not here)
        except BaseException:
            forget_fingerprint(store, job.group)
            raise
        theta, x = store.rows(job.group, job.n)
        return Simulations(theta, x, theta.invalid, store.failures(job.group, job.n), x_names=store.x_names)

    def writes_shards(self, store: Store) -> bool:
        """Whether chunks are computed where the store can be seen; otherwise their rows are sent back."""
        if not isinstance(self.executor, Engine):
            return True
        token = store.folder / f".{uuid.uuid4().hex}.tmp"
        token.touch()
        try:
            return all(self.executor(partial(_sees, token), range(PROBES)))
        finally:
            token.unlink(missing_ok=True)

    def in_memory(self, batched: bool | None) -> Simulations:
        with self.errors_reported():
            self.find_style(batched)
            columns = _Columns(self.job)
            failures = self.compute(range(self.job.chunks), Failures(), columns.add)
            theta, x = columns.finish(failures)
        valid = usable_rows(theta) & usable_rows(x, nan=self.job.source.options.nan)
        theta, x = (theta, x) if valid.all() else (theta[valid], x[valid])
        x = x if columns.layout is None else PackedArray(x, columns.layout)
        return Simulations(theta, x, int((~valid).sum()), failures, x_names=columns.x_names)

    def fingerprint(self, store: Store, batched: bool | None) -> Fingerprint:
        """That of the prior and the simulator, computed where chunks are."""
        if not self.style_found:
            self.find_style(batched, quiet=store.x_shape is not None)
        if self.executor is None:
            return compute_fingerprint(self.job)
        results = self.executor(partial(compute_fingerprint, self.job), [0])
        try:
            return next(iter(results))
        finally:
            _close(results)

    def find_style(self, batched: bool | None, *, quiet: bool = False) -> None:
        """Find out how the simulator is called, where it runs, unless everything is known."""
        source, self.style_found = self.job.source, True
        if batched is not None and not _gives_tensors(source):
            return
        if self.executor is None:
            style = source.find_style(batched)
        else:
            results = self.executor(partial(_find_style, source, batched), [0])
            style = next(iter(results), self.job.style)
            _close(results)
        if source.progress and batched is None and style.x_shape is not None and not quiet:
            sys.stderr.write(f"simulator takes {style}\n")
        self.job = replace(self.job, style=style)

    def compute(
        self, chunks: Sequence[int], before: Failures, collect: Callable[[Chunk], None], *, sent_back: bool = False
    ) -> Failures:
        """Compute the given chunks and ``collect`` them; on any error the executor is stopped.

        Failures ``before`` count in the end, but stop nothing: the simulator may have been mended since. Rows of a
        store are ``sent_back`` by workers that cannot see it.
        """
        job, show, most = self.job, self.job.source.progress, self.job.source.options.max_failed
        todo, done = sum(map(job.rows, chunks)), 0
        found: list[Failures] = []
        with (
            progress_bar(job.n, "simulating", "sim", show=show, done=job.n - todo) as bar,
            print_beside(bar, show=show),
        ):
            results = self.execute(replace(job, store=None) if sent_back else job, chunks)
            try:
                for chunk in results:
                    if chunk.printed:
                        sys.stdout.write(chunk.printed)
                    collect(chunk)
                    found += [chunk.failures] if chunk.failures.total else []
                    done += job.rows(chunk.number)
                    bar.update(job.rows(chunk.number))
                    if too_many(sum(part.total for part in found), done, job.n, most):
                        Failures.join(found).check(done, job.n, most)
            finally:
                _close(results)
        failures = Failures.join([before, *found])
        failures.check(job.n, job.n, most)
        return failures

    def execute(self, job: Job, chunks: Sequence[int]) -> Iterator[Chunk]:
        processes = job.source.processes
        if self.executor is not None:
            return self.executor(job, chunks)
        if self.pool.workers == 1:
            return Serial()(job, chunks)
        return start_here(job, chunks, self.pool) if processes is None else Threads(processes)(job, chunks)

    @contextmanager
    def errors_reported(self) -> Iterator[None]:
        """Add what is finished to errors of the simulator and of executors."""
        try:
            yield
        except InputError:
            raise
        except SimulationError as error:
            raise SimulationError(f"{error} {self.job.finished()}") from error.__cause__
        except (Exception, SystemExit) as error:  # a full disk, a killed worker, a prior that exits
            raise SimulationError(f"The simulations stopped: {describe(error)}. {self.job.finished()}") from error


class _Columns:
    """The rows of all chunks, in memory."""

    def __init__(self, job: Job) -> None:
        self._job, self.received = job, 0
        self.theta: np.ndarray | None = None
        self.x: np.ndarray | None = None
        self.x_names: tuple[str, ...] | None = None
        self.layout: Layout | None = None

    def add(self, chunk: Chunk) -> None:
        if chunk.theta is None:
            return  # not from this job, which returns its rows if there is no store
        self.received += 1
        self.theta = self.put("theta", self.theta, chunk.theta, chunk.number)
        if chunk.x is None:
            return  # all rows failed
        self.x = self.put("x", self.x, chunk.x, chunk.number)
        if self.x_names not in (None, chunk.x_names):
            raise InputError(f"x has the names {self.x_names} and {chunk.x_names}.")
        self.x_names, self.layout = chunk.x_names, chunk.layout

    def put(self, name: str, column: np.ndarray | None, rows: np.ndarray, chunk: int) -> np.ndarray:
        if column is None:
            column = np.full((self._job.n, *rows.shape[1:]), np.nan, rows.dtype)
        if column.shape[1:] != rows.shape[1:]:
            raise InputError(f"{name} has rows of shapes {column.shape[1:]} and {rows.shape[1:]}.")
        if rows.dtype.itemsize > column.dtype.itemsize:
            column = column.astype(rows.dtype)
        column[self._job.chunking.start(chunk) :][: len(rows)] = rows
        return column

    def finish(self, failures: Failures) -> tuple[np.ndarray, np.ndarray]:
        """All rows."""
        if self.received < self._job.chunks or self.theta is None:
            raise SimulationError(f"The executor returned {self.received} of {self._job.chunks} chunks.")
        if self.x is None:
            raise SimulationError(f"All {failures.total} simulations failed: {failures.most_frequent}.")
        return self.theta, self.x


def _find_style(source: Source, batched: bool | None, index: int) -> Style:  # noqa: ARG001, executors map over numbers
    return source.find_style(batched)


def _sees(path: Path, index: int) -> bool:  # noqa: ARG001, executors map over numbers
    return path.exists()


def _gives_tensors(source: Source) -> bool:
    """Whether draws from the prior are tensors; a prior that cannot be drawn from is left to the first chunk."""
    try:
        with stream(source.seed) as rng:
            return is_tensor(draw(source.prior, 2, rng))
    except Exception:
        return False


def _close(results: Any) -> None:
    getattr(results, "close", lambda: None)()  # an executor may return any iterator
