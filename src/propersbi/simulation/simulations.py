"""Simulations: parameters from a prior and the data a simulator makes of them.

The work is cut into chunks, and each chunk owns its random numbers: they follow from the seed, the group and the number
of the chunk, not from who computes it or when. So the bytes are the same in memory and on disk, on one worker and on
many, and after a crash, when only the chunks that are missing are computed. (The simulator has to play along: some
linear algebra rounds differently with another number of threads.)
"""

from __future__ import annotations

import inspect
import math
import sys
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from propersbi.simulation.executors import Joblib, Serial
from propersbi.storage.progress import progress_bar
from propersbi.storage.randomness import stream
from propersbi.simulation.store import Store, StoredRows, check_group, check_whole, finite_rows
from propersbi.types import Array, Executor, InputError, Prior, Rows, Simulator

__all__ = ["SimulationError", "Simulations", "draw", "simulate"]

_Columns = tuple[np.ndarray, np.ndarray]


class SimulationError(RuntimeError):
    """The simulator failed, or the place it ran at; the message says where and what is finished."""


@dataclass(frozen=True, eq=False, repr=False)
class Simulations:
    """Parameters and the data they made, row by row; ``theta, x = simulations`` takes them apart.

    Arguments:
        theta: Parameters, ``(n, *event)``.
        x: Data, ``(n, *event)``.
        invalid: How many rows were left out because they were not finite.
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

    Values are kept as float32, and numbers without a shape become vectors of length one. Rows with NaN or infinite
    values are left out, counted and warned of.

    Arguments:
        prior: An object with ``sample(n, rng)``; a torch distribution; a list of either, whose columns are joined; or
            an array of draws, which are drawn from again with replacement.
        simulator: ``(theta) -> x`` or ``(theta, rng) -> x``, batch first. It gets what the prior gives, NumPy or torch,
            always as ``(n, *event)`` with at least one event axis, and may return NumPy, torch or lists.
        n: How many.
        seed: The same seed gives the same simulations.
        path: A folder to keep them in. Running again continues, and with a larger ``n`` extends; the folder does not
            know the prior and the simulator, so another model needs another folder.
        group: A name such as ``"train"``, ``"test"`` or ``"round-1"``; each has its own random numbers.
        chunk_size: How many rows are computed and written at once; by default about a hundredth, 1000 at most.
        executor: Where chunks run, in place of ``workers``.
        workers: The number of processes; ``None`` uses all cores.
        batched: Whether the simulator takes many parameters at once; if not, it gets them one by one.
        half: Whether to keep x in half precision: three digits, values up to 65504, half the space.
        progress: Whether to show a progress bar.

    >>> class Normal:
    ...     def sample(self, n, rng):
    ...         return rng.normal(size=(n, 2))
    >>> simulate(Normal(), lambda theta, rng: theta + rng.normal(size=theta.shape), 100, progress=False)
    Simulations(theta (100, 2), x (100, 2), 0 invalid)
    """
    if not callable(simulator) or len(_required(simulator)) > 2:
        raise InputError(f"The simulator must be a function of (theta) or (theta, rng), got {simulator!r:.80}.")
    n, seed, group = check_whole("n", n, 1), check_whole("seed", seed, 0), check_group(group)
    if executor is not None and workers != 1:
        raise InputError(f"Give 'executor' or 'workers', not both: the executor has its own, got {workers} workers.")
    execute = executor or (Serial() if workers == 1 else Joblib(workers))
    size = check_whole("chunk_size", _default_size(n, path) if chunk_size is None else chunk_size, 1)
    store = None if path is None else Store.create_or_open(path, seed=seed, chunk_size=size)
    job = _Job(prior, simulator, n, seed, group, size, batched, half, store)
    simulations = _on_disk(job, store, execute, progress) if store else _in_memory(job, execute, progress)
    return _reported(simulations, n)


def draw(prior: Prior | Any, n: int, rng: np.random.Generator) -> Array:
    """``n`` draws ``(n, *event)`` from anything that is accepted as a prior, with at least one event axis.

    Torch distributions draw from torch's global state: see :func:`propersbi.storage.randomness.stream`.

    >>> draw(np.array([1.0, 2.0]), 3, np.random.default_rng(0))
    array([[2.],
           [2.],
           [2.]])
    """
    if isinstance(prior, (list, tuple)) and prior and all(hasattr(part, "sample") for part in prior):
        columns = [draw(part, n, rng).reshape(n, -1) for part in prior]
        if all(map(_is_tensor, columns)):
            return sys.modules["torch"].cat(columns, 1)
        return np.concatenate([np.asarray(column) for column in columns], 1)
    theta = _sample(prior, n, rng) if hasattr(prior, "sample") else _resample(prior, n, rng)
    theta = theta if _is_tensor(theta) else np.asarray(theta)
    if theta.ndim == 0 or len(theta) != n:
        raise InputError(f"The prior was asked for {n} draws and gave an array of shape {tuple(theta.shape)}.")
    return theta.reshape(n, 1) if theta.ndim == 1 else theta


def _sample(prior: Any, n: int, rng: np.random.Generator) -> Any:
    """Torch's ``sample(sample_shape)``, also of a class that only looks like torch's, or our ``sample(n, rng)``."""
    torch = sys.modules.get("torch")
    if (torch and isinstance(prior, torch.distributions.Distribution)) or "sample_shape" in _parameters(prior.sample):
        return prior.sample(torch.Size((n,)) if torch else (n,))
    return _call(prior.sample, n, rng)


def _resample(prior: Any, n: int, rng: np.random.Generator) -> Any:
    draws: Any = prior if _is_tensor(prior) or isinstance(prior, StoredRows) else np.asarray(prior)
    if not _is_tensor(draws) and draws.dtype.kind not in "fiub":
        raise InputError(f"A prior has sample(n, rng), or is a distribution or an array of draws, got {prior!r:.80}.")
    if len(draws.shape) == 0 or len(draws) == 0:
        raise InputError(f"A prior that is an array of draws needs at least 1, got the shape {tuple(draws.shape)}.")
    rows = draws[rng.integers(len(draws), size=n)]
    if _is_tensor(rows):
        return rows if rows.is_floating_point() else rows.float()
    return rows if rows.dtype.kind == "f" else rows.astype(float)


@dataclass(frozen=True)
class _Job:
    """What is to be done for each chunk; it goes whole to wherever the executor runs it."""

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
        """One chunk: its number and, if there is no store to keep them, its theta and x."""
        if self.store is None:
            return chunk, self.simulate(chunk)
        if not self.store.has(self.group, chunk, self.rows(chunk)):  # another process may have been quicker
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
            x = self.batch(theta, rng) if self.batched else self.one_by_one(theta, rng)
        if "torch" in sys.modules and not torch_was_loaded:
            return self.simulate(chunk)  # torch came in with the simulator, too late for its random state to be set
        with np.errstate(over="ignore"):  # too large is infinite, and counted as such
            return _float32(theta), _rows(x, rows).astype(np.float16 if self.half else np.float32, copy=False)

    def batch(self, theta: Array, rng: np.random.Generator) -> np.ndarray:
        try:
            x = _call(self.simulator, _copy(theta), rng)
        except Exception as error:
            row = self.culprit(theta, rng)
            where = f"theta = {_text(theta[0])} or after it in its chunk" if row is None else f"theta = {_text(row)}"
            raise SimulationError(_sentence(f"The simulator failed at {where}", error)) from error
        return _float32(x)

    def one_by_one(self, theta: Array, rng: np.random.Generator) -> np.ndarray:
        rows: list[np.ndarray] = []
        for row in theta:
            try:
                x = _call(self.simulator, _copy(row), rng)
            except Exception as error:
                raise SimulationError(_sentence(f"The simulator failed at theta = {_text(row)}", error)) from error
            rows.append(_float32(x))
            if rows[-1].shape != rows[0].shape:
                raise InputError(f"The simulator gave x of shape {rows[0].shape} and then of shape {rows[-1].shape}.")
        return np.stack(rows)

    def culprit(self, theta: Array, rng: np.random.Generator) -> Array | None:
        """The first row that fails by itself."""
        for row in range(len(theta)):
            try:
                _call(self.simulator, _copy(theta[row : row + 1]), rng)
            except Exception:
                return theta[row]
        return None

    def state(self) -> str:
        """What is finished, for the one who reads that the rest failed."""
        if self.store is None:
            return "Nothing was kept; with path=... finished chunks stay on disk and running again continues."
        finished = self.chunks - len(self.store.missing(self.group, self.n))
        return f"{finished} of {self.chunks} chunks are finished in '{self.store.folder}'; running again continues."


def _default_size(n: int, path: str | Path | None) -> int:
    """About a hundred chunks; a store that is there already has its own size."""
    if path is not None and Store.exists(path):
        return Store.open(path).chunk_size
    return max(1, min(1000, math.ceil(n / 100)))


def _on_disk(job: _Job, store: Store, execute: Executor, progress: bool) -> Simulations:
    _run(job, store.missing(job.group, job.n), execute, progress, lambda *_: None)
    theta, x = store.rows(job.group, job.n)
    return Simulations(theta, x, theta.invalid)


def _in_memory(job: _Job, execute: Executor, progress: bool) -> Simulations:
    columns: list[np.ndarray] = []
    kept: set[int] = set()

    def keep(chunk: int, arrays: _Columns) -> None:
        if not columns:
            columns.extend(np.empty((job.n, *array.shape[1:]), array.dtype) for array in arrays)
        for name, column, array in zip(("theta", "x"), columns, arrays, strict=True):
            if column.shape[1:] != array.shape[1:]:
                raise InputError(f"{name} has rows of shape {column.shape[1:]} and then of shape {array.shape[1:]}.")
            column[chunk * job.chunk_size :][: len(array)] = array
        kept.add(chunk)

    _run(job, range(job.chunks), execute, progress, keep)
    if len(kept) < job.chunks:
        raise SimulationError(f"The executor gave back {len(kept)} of {job.chunks} chunks.")
    valid = finite_rows(columns[0]) & finite_rows(columns[1])
    theta, x = columns if valid.all() else [column[valid] for column in columns]
    return Simulations(theta, x, int((~valid).sum()))


def _run(job: _Job, chunks: Sequence[int], execute: Executor, progress: bool, keep: Callable[..., None]) -> None:
    """Run the chunks that are to do and ``keep`` their results; whatever ends it, the executor is told to stop."""
    todo = sum(map(job.rows, chunks))
    results = execute(job, chunks)
    try:
        with progress_bar(job.n, "simulating", "sim", show=progress, done=job.n - todo) as bar:
            for chunk, arrays in results:
                keep(chunk, arrays)
                bar.update(job.rows(chunk))
    except InputError:
        raise
    except SimulationError as error:
        raise SimulationError(f"{error} {job.state()}") from error.__cause__
    except Exception as error:  # a full disk, a worker that was killed
        raise SimulationError(f"{_sentence('The simulations stopped', error)} {job.state()}") from error
    finally:
        getattr(results, "close", lambda: None)()


def _reported(simulations: Simulations, n: int) -> Simulations:
    invalid = simulations.invalid
    if invalid == n:
        raise InputError(f"All {n} simulations have NaN or infinite values (as float32), so nothing can be learnt.")
    if invalid:
        share = f"{invalid} of {n} simulations ({100 * invalid / n:.2g} %)"
        warnings.warn(f"{share} have NaN or infinite values and are left out.", UserWarning, stacklevel=3)
    return simulations


def _parameters(function: Callable) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):  # compiled functions may not tell
        return {}


def _required(function: Callable) -> list[str]:
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = _parameters(function).items()
    return [name for name, p in parameters if p.kind in positional and p.default is p.empty]


def _call(function: Callable, value: Any, rng: np.random.Generator) -> Any:
    """Give ``rng`` to who asks for it by name or as a second required argument; ``dt=0.1`` is not for us to fill."""
    named = _parameters(function).get("rng")
    if named is not None and named.kind is not named.POSITIONAL_ONLY:
        return function(value, rng=rng)
    return function(value, rng) if len(_required(function)) == 2 else function(value)


def _is_tensor(value: Any) -> bool:
    """Whether it is a torch tensor, asked without loading torch."""
    return "torch" in sys.modules and isinstance(value, sys.modules["torch"].Tensor)


def _copy(theta: Array) -> Array:
    """The simulator may write into what it gets."""
    return theta.clone() if _is_tensor(theta) else np.array(theta)


def _float32(value: Any) -> np.ndarray:
    """A copy of anything as float32, since simulators may use their arrays again."""
    if isinstance(value, (list, tuple)) and any(map(_is_tensor, value)):
        value = [_float32(part) for part in value]
    if _is_tensor(value):
        value = value.detach().cpu()
        value = value.numpy() if value.is_complex() else value.float().numpy()
    try:
        value = np.asarray(value)
    except ValueError as error:
        raise InputError(f"The simulator gave something that is not an array: {error}.") from error
    if value.dtype.kind not in "fiub":
        raise InputError(f"The simulator must give real numbers, got {value.dtype}.")
    with np.errstate(over="ignore"):  # too large for float32 is infinite, and counted as such
        return np.array(value, np.float32, order="C")


def _rows(x: np.ndarray, n: int) -> np.ndarray:
    if x.ndim == 0 or len(x) != n or x.size == 0:
        raise InputError(f"The simulator got {n} parameters and gave x of shape {x.shape}, which must begin with {n}.")
    return x.reshape(n, 1) if x.ndim == 1 else x


def _text(theta: Array) -> str:
    theta = theta.detach().cpu().numpy() if _is_tensor(theta) else theta
    text = np.array2string(np.asarray(theta), separator=", ", threshold=20, floatmode="unique")
    return " ".join(text.split())


def _sentence(start: str, error: Exception) -> str:
    text = " ".join(str(error).split())  # on one line
    return f"{start}: {type(error).__name__}: {text}".rstrip(".") + "."
