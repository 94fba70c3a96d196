"""Simulations: parameters drawn from a prior and the data simulated from them.

Simulations are computed in chunks, and each chunk has its own random stream, determined by the seed, the group and the
number of the chunk, not by the worker or the order of execution. The result is therefore identical in memory and on
disk, with one worker and with many, and after a crash, when only missing chunks are computed. (Provided that the
simulator is deterministic: some linear algebra rounds differently with another number of threads.)
"""

from __future__ import annotations

import math
import sys
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from propersbi.simulation.calls import call, is_tensor, required_arguments
from propersbi.simulation.executors import Joblib, Serial
from propersbi.simulation.priors import draw
from propersbi.simulation.shards import finite_rows
from propersbi.simulation.store import Store, check_group, check_whole
from propersbi.storage.progress import progress_bar
from propersbi.storage.randomness import stream
from propersbi.types import Array, Executor, InputError, Prior, Rows, Simulator

__all__ = ["SimulationError", "Simulations", "simulate"]

_Columns = tuple[np.ndarray, np.ndarray]
_Collect = Callable[[int, _Columns | None], None]

CHUNKS, MAX_CHUNK_SIZE = 100, 1000  # unless a chunk size is given


class SimulationError(RuntimeError):
    """The simulator or its executor failed; the message gives the parameter and the number of finished chunks."""


@dataclass(frozen=True, eq=False, repr=False)
class Simulations:
    """Parameters and the data simulated from them, row by row; ``theta, x = simulations`` unpacks them.

    Arguments:
        theta: Parameters, ``(n, *event)``.
        x: Data, ``(n, *event)``.
        invalid: The number of rows that were excluded because they were not finite.
    """

    theta: Rows
    x: Rows
    invalid: int = 0

    def __len__(self) -> int:
        return len(self.theta)

    def __iter__(self) -> Iterator[Rows]:
        return iter((self.theta, self.x))

    def __repr__(self) -> str:
        return f"Simulations(theta {self.theta.shape}, x {self.x.shape}, {self.invalid} invalid)"


def simulate(
    prior: Prior | Any,
    simulator: Simulator,
    n: int,
    *,
    seed: int = 0,
    path: str | Path | None = None,
    group: str = "train",
    chunk_size: int | None = None,
    executor: Executor | None = None,
    workers: int | None = 1,
    batched: bool = True,
    half: bool = False,
    progress: bool = True,
) -> Simulations:
    """Draw ``n`` parameters and simulate data for each.

    Values are stored as float32; scalars become vectors of length one. Rows with NaN or infinite values are excluded
    and counted, with a warning.

    Arguments:
        prior: An object with ``sample(n, rng)``; a torch distribution; a list of either, whose columns are joined; or
            an array of draws, which is resampled with replacement.
        simulator: ``(theta) -> x`` or ``(theta, rng) -> x``, batch first. ``theta`` is what the prior returns, NumPy or
            torch, always ``(n, *event)`` with at least one event axis; ``x`` may be an array, a tensor or a list.
        n: The number of simulations.
        seed: The random seed; the same seed gives the same simulations.
        path: A folder to store them in. Running again continues, and a larger ``n`` extends them. The prior and the
            simulator are not stored, so use another folder for another problem.
        group: A name such as ``"train"``, ``"test"`` or ``"round-1"``; each group has its own random streams.
        chunk_size: The number of rows computed and written at once; a hundredth of ``n`` by default, at most 1000.
        executor: Where chunks are computed, instead of ``workers``.
        workers: The number of processes; ``None`` uses all cores.
        batched: Whether the simulator accepts batches; otherwise it is called with one parameter at a time.
        half: Whether to store ``x`` in half precision: three digits, values up to 65504, half the space.
        progress: Whether to show a progress bar.

    >>> class Normal:
    ...     def sample(self, n, rng):
    ...         return rng.normal(size=(n, 2))
    >>> simulate(Normal(), lambda theta, rng: theta + rng.normal(size=theta.shape), 100, progress=False)
    Simulations(theta (100, 2), x (100, 2), 0 invalid)
    """
    if not callable(simulator) or len(required_arguments(simulator)) > 2:
        raise InputError(f"The simulator must be a function of (theta) or (theta, rng), got {simulator!r:.80}.")
    n, seed, group = check_whole("n", n, 1), check_whole("seed", seed, 0), check_group(group)
    if executor is not None and workers != 1:
        raise InputError(f"Give either 'executor' or 'workers', not both, got an executor and {workers} workers.")
    execute = executor or (Serial() if workers == 1 else Joblib(workers))
    size = check_whole("chunk_size", _default_chunk_size(n, path) if chunk_size is None else chunk_size, 1)
    store = None if path is None else Store.create_or_open(path, seed=seed, chunk_size=size)
    job = _Job(prior, simulator, n, seed, group, size, batched, half, store)
    simulations = _on_disk(job, store, execute, progress) if store else _in_memory(job, execute, progress)
    _warn_of_invalid_rows(simulations.invalid, n)
    return simulations


@dataclass(frozen=True)
class _Job:
    """The computation of a chunk; it is pickled and sent to wherever the executor runs it."""

    prior: Any
    simulator: Simulator
    n: int
    seed: int
    group: str
    chunk_size: int
    batched: bool
    half: bool
    store: Store | None

    def __call__(self, chunk: int) -> tuple[int, _Columns | None]:
        """The number of the chunk and, without a store, its theta and x."""
        if self.store is None:
            return chunk, self.simulate(chunk)
        if not self.store.has(self.group, chunk, self.rows(chunk)):  # another process may have written it already
            self.store.write(self.group, chunk, *self.simulate(chunk))
        return chunk, None

    @property
    def chunks(self) -> int:
        return math.ceil(self.n / self.chunk_size)

    def rows(self, chunk: int) -> int:
        return min(self.chunk_size, self.n - chunk * self.chunk_size)

    def simulate(self, chunk: int) -> _Columns:
        torch_was_loaded = "torch" in sys.modules
        rows = self.rows(chunk)
        with stream(self.seed, zlib.crc32(self.group.encode()), chunk) as rng:
            theta = draw(self.prior, rows, rng)
            x = self.simulate_batch(theta, rng) if self.batched else self.simulate_each(theta, rng)
        if "torch" in sys.modules and not torch_was_loaded:
            return self.simulate(chunk)  # the simulator imported torch, after the random states had been set
        with np.errstate(over="ignore"):  # overflow gives infinite values, which are counted as invalid
            return _float32(theta), _with_rows(x, rows).astype(np.float16 if self.half else np.float32, copy=False)

    def simulate_batch(self, theta: Array, rng: np.random.Generator) -> np.ndarray:
        try:
            x = call(self.simulator, _copy(theta), rng)
        except Exception as error:
            row = self.first_failure(theta, rng)
            place = f"{_format(theta[0])} or a later row of its chunk" if row is None else _format(row)
            raise SimulationError(_describe(f"The simulator failed at theta = {place}", error)) from error
        return _float32(x)

    def simulate_each(self, theta: Array, rng: np.random.Generator) -> np.ndarray:
        rows: list[np.ndarray] = []
        for row in theta:
            try:
                x = call(self.simulator, _copy(row), rng)
            except Exception as error:
                raise SimulationError(_describe(f"The simulator failed at theta = {_format(row)}", error)) from error
            rows.append(_float32(x))
            if rows[-1].shape != rows[0].shape:
                raise InputError(f"The simulator returned x of shapes {rows[0].shape} and {rows[-1].shape}.")
        return np.stack(rows)

    def first_failure(self, theta: Array, rng: np.random.Generator) -> Array | None:
        """The first row that fails on its own."""
        for row in range(len(theta)):
            try:
                call(self.simulator, _copy(theta[row : row + 1]), rng)
            except Exception:
                return theta[row]
        return None

    def finished(self) -> str:
        """A sentence on the finished chunks, for error messages."""
        if self.store is None:
            return "Nothing was saved; with path=... finished chunks are saved and running again continues."
        finished = self.chunks - len(self.store.missing(self.group, self.n))
        return f"{finished} of {self.chunks} chunks are finished in '{self.store.folder}'; running again continues."


def _default_chunk_size(n: int, path: str | Path | None) -> int:
    """The chunk size of an existing store, or that of about a hundred chunks."""
    if path is not None and Store.exists(path):
        return Store.open(path).chunk_size
    return max(1, min(MAX_CHUNK_SIZE, math.ceil(n / CHUNKS)))


def _on_disk(job: _Job, store: Store, execute: Executor, progress: bool) -> Simulations:
    _run(job, store.missing(job.group, job.n), execute, progress, lambda *_: None)
    theta, x = store.rows(job.group, job.n)
    return Simulations(theta, x, theta.invalid)


def _in_memory(job: _Job, execute: Executor, progress: bool) -> Simulations:
    columns: list[np.ndarray] = []
    received: set[int] = set()

    def collect(chunk: int, arrays: _Columns | None) -> None:
        if arrays is None:
            return  # not from this job, which returns its rows if there is no store
        if not columns:
            columns.extend(np.empty((job.n, *array.shape[1:]), array.dtype) for array in arrays)
        for name, column, array in zip(("theta", "x"), columns, arrays, strict=True):
            if column.shape[1:] != array.shape[1:]:
                raise InputError(f"{name} has rows of shapes {column.shape[1:]} and {array.shape[1:]}.")
            column[chunk * job.chunk_size :][: len(array)] = array
        received.add(chunk)

    _run(job, range(job.chunks), execute, progress, collect)
    if len(received) < job.chunks:
        raise SimulationError(f"The executor returned {len(received)} of {job.chunks} chunks.")
    valid = finite_rows(columns[0]) & finite_rows(columns[1])
    theta, x = columns if valid.all() else [column[valid] for column in columns]
    return Simulations(theta, x, int((~valid).sum()))


def _run(job: _Job, chunks: Sequence[int], execute: Executor, progress: bool, collect: _Collect) -> None:
    """Compute the given chunks and ``collect`` their results; on any error the executor is stopped."""
    todo = sum(map(job.rows, chunks))
    results = execute(job, chunks)
    try:
        with progress_bar(job.n, "simulating", "sim", show=progress, done=job.n - todo) as bar:
            for chunk, arrays in results:
                collect(chunk, arrays)
                bar.update(job.rows(chunk))
    except InputError:
        raise
    except SimulationError as error:
        raise SimulationError(f"{error} {job.finished()}") from error.__cause__
    except Exception as error:  # a full disk, a killed worker
        raise SimulationError(f"{_describe('The simulations stopped', error)} {job.finished()}") from error
    finally:
        getattr(results, "close", lambda: None)()  # an executor may return any iterator


def _warn_of_invalid_rows(invalid: int, n: int) -> None:
    if invalid == n:
        raise InputError(f"All {n} simulations have NaN or infinite values in float32, so none can be used.")
    if invalid:
        fraction = f"{invalid} of {n} simulations ({100 * invalid / n:.2g} %)"
        warnings.warn(f"{fraction} have NaN or infinite values and are excluded.", UserWarning, stacklevel=3)


def _copy(theta: Array) -> Array:
    """A copy, since the simulator may write into its argument."""
    return theta.clone() if is_tensor(theta) else np.array(theta)


def _float32(value: Any) -> np.ndarray:
    """A float32 copy of an array, a tensor or a list, since simulators may reuse their arrays."""
    if isinstance(value, (list, tuple)) and any(map(is_tensor, value)):
        value = [_float32(part) for part in value]
    if is_tensor(value):
        value = value.detach().cpu()
        value = value.numpy() if value.is_complex() else value.float().numpy()
    try:
        value = np.asarray(value)
    except ValueError as error:
        raise InputError(f"The simulator returned a value that is not an array: {error}.") from error
    if value.dtype.kind not in "fiub":
        raise InputError(f"The simulator must return real numbers, got {value.dtype}.")
    with np.errstate(over="ignore"):  # overflow gives infinite values, which are counted as invalid
        return np.array(value, np.float32, order="C")


def _with_rows(x: np.ndarray, n: int) -> np.ndarray:
    """``x`` with ``n`` rows and at least one event axis."""
    if x.ndim == 0 or len(x) != n or x.size == 0:
        raise InputError(f"The simulator must return x of shape ({n}, ...) for {n} parameters, got {x.shape}.")
    return x.reshape(n, 1) if x.ndim == 1 else x


def _format(theta: Array) -> str:
    theta = theta.detach().cpu().numpy() if is_tensor(theta) else theta
    text = np.array2string(np.asarray(theta), separator=", ", threshold=20, floatmode="unique")
    return " ".join(text.split())


def _describe(start: str, error: Exception) -> str:
    text = " ".join(str(error).split())  # a single line
    return f"{start}: {type(error).__name__}: {text}".rstrip(".") + "."
