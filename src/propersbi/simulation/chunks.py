"""Chunks of simulations: parameters drawn and simulated in one random stream, with the rows that failed.

A chunk is determined by the seed, the group and its number, never by the process or by what was computed before.
"""

from __future__ import annotations

import os
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from propersbi.layouts import Layout
from propersbi.simulation.callers import Caller, Direct, RowError
from propersbi.simulation.calls import Argument
from propersbi.simulation.chunking import Chunking
from propersbi.simulation.failures import (
    MAX_CHUNK_RECORDS,
    Failure,
    Failures,
    Options,
    SimulationError,
    describe,
    too_many,
)
from propersbi.simulation.output import capture
from propersbi.simulation.probing import PLACE, find_style
from propersbi.simulation.processes import Guarded, RowProcesses
from propersbi.simulation.results import as_floats, format_theta, stored
from propersbi.simulation.store import Store
from propersbi.simulation.styles import Style, check_rows
from propersbi.types import Array, Simulator

__all__ = ["Chunk", "Job", "Source", "write_chunk"]

Watch = Callable[[int], None]
"""Called with the number of rows of a chunk that are done; it may raise to give the chunk up."""


class Chunk(NamedTuple):
    """A chunk that was computed; with its rows, unless they are in a store, and without data if all failed."""

    number: int
    failures: Failures = Failures()
    printed: str = ""
    theta: np.ndarray | None = None
    x: np.ndarray | None = None
    x_names: tuple[str, ...] | None = None
    layout: Layout | None = None


@dataclass(frozen=True)
class Source:
    """A prior and a simulator, how rows are simulated, and what becomes of those that fail.

    Arguments:
        prior: The prior.
        simulator: The simulator.
        seed: The seed of everything.
        arguments: The parameters that the simulator takes by name.
        options: What becomes of rows that fail.
        progress: Whether a progress bar is shown, which must not be disturbed by what the simulator prints.
        processes: Those that run rows for a limited time; they stay in the process that started them.
        home: The process that started the simulations.
    """

    prior: Any
    simulator: Simulator
    seed: int
    arguments: tuple[Argument, ...] | None
    options: Options
    progress: bool
    processes: RowProcesses | None = field(default=None, compare=False)
    home: int = field(default_factory=os.getpid)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "processes": None}

    @contextmanager
    def caller(self, *place: int) -> Iterator[Caller]:
        """What draws and simulates at this place of the work."""
        place = (self.seed, *place)
        if self.options.timeout is None:
            with Direct(self.simulator, place) as direct:
                yield direct
            return
        own = self.processes or RowProcesses(self.simulator, self.options.timeout, collect=self.progress)
        try:
            with Guarded(own, place) as guarded:
                yield guarded
        finally:
            if self.processes is None:
                own.close()

    def find_style(self, batched: bool | None) -> Style:
        """How the simulator is called, found out by calling it."""
        with self.caller(*PLACE) as caller:
            return find_style(caller, self.prior, self.arguments, seed=self.seed, batched=batched)


@dataclass(frozen=True)
class Job:
    """The computation of a chunk; it is pickled and sent to wherever the executor runs it.

    Arguments:
        source: The prior and the simulator.
        style: How the simulator is called.
        n: The number of rows of all chunks.
        group: The name of the group.
        chunking: How rows are divided into chunks.
        half: Whether data are stored in half precision.
        store: Where chunks are written; without one they are returned.
        parameter_names: The names of the parameters, which are written with the first chunk.
    """

    source: Source
    style: Style
    n: int
    group: str
    chunking: Chunking
    half: bool
    store: Store | None
    parameter_names: tuple[str, ...] | None = None

    def __call__(self, chunk: int, watch: Watch | None = None) -> Chunk:
        """Compute a chunk, unless another process has written it already."""
        if self.store is not None and self.store.has(self.group, chunk, self.rows(chunk)):
            return Chunk(chunk, self.store.failures(self.group, chunks=[chunk]))
        elsewhere = os.getpid() != self.source.home
        with capture(active=self.source.progress and elsewhere) as printed:
            rows = self.simulate(chunk, watch)
        failures = Failures.of(rows.failures, MAX_CHUNK_RECORDS)
        if self.store is None:
            x, x_names = self.data(rows, self.style.x_shape), rows.style.x_names
            theta = stored(as_floats(rows.theta))
            return Chunk(chunk, failures, printed.getvalue(), theta, x, x_names, rows.style.layout)
        self.write(self.store, chunk, rows, failures)
        return Chunk(chunk, failures, printed.getvalue())

    @property
    def chunks(self) -> int:
        return self.chunking.count(self.n)

    def rows(self, chunk: int) -> int:
        return self.chunking.within(chunk, self.n)

    def draw(self, chunk: int, count: int) -> Array:
        """Draws from the prior at the place of a chunk."""
        with self.source.caller(zlib.crc32(self.group.encode()), chunk) as caller:
            return caller.draw(self.source.prior, count)

    def simulate(self, chunk: int, watch: Watch | None = None, *, count: int | None = None) -> _Rows:
        """Draw and simulate the rows of a chunk, or ``count`` rows in their place."""
        torch_was_loaded = "torch" in sys.modules
        place = (zlib.crc32(self.group.encode()), chunk)
        with self.source.caller(*place) as caller:
            theta = caller.draw(self.source.prior, self.rows(chunk) if count is None else count)
            rows = _Rows(self, place, caller, theta, self.style, watch)
            rows.simulate()
        if "torch" in sys.modules and not torch_was_loaded:
            return self.simulate(
                chunk, watch, count=count
            )  # the simulator imported torch, after the random states had been set
        return rows

    def data(self, rows: _Rows, shape: tuple[int, ...] | None) -> np.ndarray | None:
        """The data as they are stored; where all rows failed they are NaN of this shape, if it is known."""
        x = rows.x
        if x is None and shape is not None:
            x = np.full((len(rows.theta), *shape), np.nan, np.float32)
        with np.errstate(over="ignore"):  # overflow gives infinite values, which are counted as invalid
            return None if x is None else x.astype(np.float16) if self.half else stored(x)

    def write(self, store: Store, chunk: int, rows: _Rows, failures: Failures) -> None:
        """Write a chunk; where all rows failed, the shape of the data is that of other rows."""
        x = self.data(rows, self.style.x_shape or store.x_shape)
        if x is None:
            x = self.data(rows, self.source.find_style(self.style.batched).x_shape)
        if x is None:
            raise SimulationError(f"All {len(rows.theta)} rows of a chunk failed: {failures.most_frequent}.")
        names = {"parameter_names": self.parameter_names, "x_names": rows.style.x_names}
        kept: dict[str, Any] = {"failures": failures, "names": names, "parts": rows.style.layout}
        store.write(self.group, chunk, stored(as_floats(rows.theta)), x, nan=self.source.options.nan, **kept)

    def finished(self) -> str:
        """A sentence on the finished chunks, for error messages."""
        if self.store is None:
            return "Nothing was saved; with path=... finished chunks are saved and running again continues."
        finished = self.chunks - len(self.store.missing(self.group, self.n))
        kept = self.store.failures(self.group, self.n).total
        advice = f" It keeps the {kept} rows that failed: delete the folder to have them simulated again." * bool(kept)
        folder = self.store.folder
        return f"{finished} of {self.chunks} chunks are finished in '{folder}'; running again continues.{advice}"


def write_chunk(job: Job, store: Store, chunk: Chunk) -> None:
    """Write a chunk that was computed where its store cannot be seen."""
    assert chunk.theta is not None
    shape = job.style.x_shape or store.x_shape
    if chunk.x is None and shape is None:
        raise SimulationError(f"All {len(chunk.theta)} rows of a chunk failed: {chunk.failures.most_frequent}.")
    dtype = np.float16 if job.half else np.float32
    x = np.full((len(chunk.theta), *(shape or ())), np.nan, dtype) if chunk.x is None else chunk.x
    names = {"parameter_names": job.parameter_names, "x_names": chunk.x_names}
    kept: dict[str, Any] = {"failures": chunk.failures, "names": names, "parts": chunk.layout}
    store.write(job.group, chunk.number, chunk.theta, x, nan=job.source.options.nan, **kept)


@dataclass
class _Rows:
    """The rows of one chunk while they are simulated.

    Arguments:
        job: What they belong to.
        place: The group and the chunk, where their random stream belongs.
        caller: What calls the simulator.
        theta: Their parameters.
        style: How the simulator is called; the shape and the names of the data are those of the first row.
        watch: Called after each row.
    """

    job: Job
    place: tuple[int, int]
    caller: Caller
    theta: Array
    style: Style
    watch: Watch | None
    x: np.ndarray | None = None
    failures: list[Failure] = field(default_factory=list)

    def simulate(self) -> None:
        if self.style.batched:
            self.simulate_batch()
            return
        for row in range(len(self.theta)):
            self.simulate_row(row, self.theta[row])

    def simulate_batch(self) -> None:
        """All rows at once or, if that fails, one by one, each with a random stream of its own."""
        try:
            values = self.caller(self.style, self.theta)
        except RowError as error:
            if len(self.theta) == 1:
                self.fail(0, error)
                return
            for row in range(len(self.theta)):
                self.restart(row)
                self.simulate_row(row, self.theta[row : row + 1])
            if self.job.source.options.on_error == "raise":
                place = f"{format_theta(self.theta[0])} or a later row of its chunk"
                raise _failed(place, error.cause) from error.cause
        else:
            self.x = check_rows(values, self.theta, self.style)
            self.style = self.style.with_data(values)

    def simulate_row(self, row: int, theta: Array) -> None:
        try:
            values = self.caller(self.style, theta)
        except RowError as error:
            self.fail(row, error)
        else:
            x = check_rows(values, theta, self.style)
            if self.x is None:
                self.x = np.full((len(self.theta), *x.shape[1:]), np.nan, x.dtype)
                self.style = self.style.with_data(values)
            if x.dtype != self.x.dtype:
                self.x = self.x.astype(np.float64)
            self.x[row] = x[0]
        if self.watch is not None:
            self.watch(row + 1)

    def fail(self, row: int, error: RowError) -> None:
        source, theta = self.job.source, self.theta[row]
        if source.options.on_error == "raise":
            raise _failed(format_theta(theta), error.cause) from error.cause
        number = self.job.chunking.start(self.place[1]) + row
        self.failures.append(Failure.of(number, theta, error.cause, source.seed))
        if too_many(len(self.failures), row + 1, self.job.n, source.options.max_failed):
            Failures.of(self.failures).check(row + 1, self.job.n, source.options.max_failed)
        if error.lost:
            self.restart(row)

    def restart(self, row: int) -> None:
        """Continue with the random stream of a row; its number is not 0, which would be that of the chunk."""
        self.caller.restart(self.job.source.seed, *self.place, row + 1)


def _failed(place: str, cause: BaseException) -> SimulationError:
    return SimulationError(f"The simulator failed at theta = {place}: {describe(cause)}.")
