"""Batches that are simulated afresh while a network trains.

Batch i is a chunk of its own, a function of the seed and i alone: neither the number of workers nor an interruption
changes it. Workers compute some batches ahead; how many is bounded, so that neither memory nor work runs away.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from propersbi.simulation.chunking import Chunking
from propersbi.simulation.chunks import Chunk, Job
from propersbi.simulation.dispatch import compute
from propersbi.simulation.failures import SimulationError, find_options
from propersbi.simulation.shards import finite_rows, usable_rows
from propersbi.simulation.simulations import find_source
from propersbi.types import Prior, Simulator

__all__ = ["FreshBatches", "fresh_batches"]

GROUP = "online"  # of the random streams
HALF = 0.5  # of the rows of a batch may fail, or more if more are allowed to
AT_ONCE = 8  # batches that a worker computes for one request
AHEAD = 4  # requests for each worker that are under way or waiting to be used


@dataclass
class FreshBatches:
    """``batches[i]``: the parameters and the data of batch i, simulated when they are needed or a little earlier.

    Arguments:
        job: What simulates a batch; its chunks are the batches.
        max_failed: The share of the rows of a batch that may fail.
        workers: Processes that simulate ahead; 0 simulates here.
    """

    job: Job
    max_failed: float = HALF
    workers: int = 1
    _pool: Any = field(default=None, init=False, repr=False)
    _bytes: bytes = field(default=b"", init=False, repr=False)
    _pending: dict[int, Future[Any]] = field(default_factory=dict, init=False, repr=False)
    _ready: dict[int, Any] = field(default_factory=dict, init=False, repr=False)

    def __getitem__(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """The rows of a batch that can be used; rows that fail are left out."""
        chunk: Chunk = self.job(number) if self.workers == 0 else self._fetch(number)
        failures = chunk.failures
        assert chunk.theta is not None
        if chunk.x is None or failures.total > self.max_failed * len(chunk.theta):
            raise SimulationError(
                f"{failures.total} of {len(chunk.theta)} simulations of a batch failed. The most frequent error was "
                f"{failures.most_frequent}."
            )
        valid = finite_rows(chunk.theta) & usable_rows(chunk.x, nan=self.job.source.options.nan)
        if not valid.any():
            raise SimulationError(f"All {len(valid)} simulations of a batch have NaN or infinite values.")
        return chunk.theta[valid], chunk.x[valid]

    def close(self) -> None:
        """End the workers; they start again when a batch is asked for."""
        for future in self._pending.values():
            future.cancel()
        self._pending.clear()
        self._ready.clear()
        if self._pool is not None:
            self._pool.shutdown(wait=False, kill_workers=True)
            self._pool = None

    def _fetch(self, number: int) -> Any:
        request = number // AT_ONCE
        self._request(request)
        if number not in self._ready:
            self._ready = dict(zip(_numbers(request), self._pending.pop(request).result(), strict=True))
        return self._ready[number]

    def _request(self, request: int) -> None:
        """Ask for the batches of a request and of those after it, as far as they may be computed ahead."""
        if self._pool is None:
            import cloudpickle
            from joblib.externals.loky import ProcessPoolExecutor

            self._bytes = cloudpickle.dumps(self.job)
            self._pool = ProcessPoolExecutor(self.workers)
        for old in [key for key in self._pending if not request <= key <= request + AHEAD * self.workers]:
            self._pending.pop(old).cancel()
        first = request + (request * AT_ONCE in self._ready)
        for key in range(first, request + AHEAD * self.workers):
            if key not in self._pending:
                self._pending[key] = self._pool.submit(_several, self._bytes, list(_numbers(key)))


def _numbers(request: int) -> range:
    return range(request * AT_ONCE, (request + 1) * AT_ONCE)


def _several(job: bytes, numbers: list[int]) -> list[Any]:
    return [compute(job, number) for number in numbers]


def fresh_batches(
    prior: Prior | Any,
    simulator: Simulator,
    size: int,
    *,
    seed: int = 0,
    workers: int = 1,
    batched: bool | None = None,
    options: Mapping[str, Any] | None = None,
) -> FreshBatches:
    """Batches of ``size`` simulations each, as many as are asked for.

    Arguments:
        prior: As for :func:`propersbi.simulate`.
        simulator: Likewise.
        size: Rows per batch.
        seed: The same seed gives the same batches.
        workers: Processes that simulate ahead; 0 simulates in the process that asks.
        batched: Whether the simulator takes batches; ``None`` finds out.
        options: Other options of ``simulate``: ``parameter_names``, ``missing``, ``on_error``, ``max_failed``.

    >>> batches = fresh_batches((0.0, 1.0), lambda theta, rng: theta + rng.normal(size=theta.shape), 4, workers=0)
    >>> batches[3][0].shape, bool((batches[3][1] == batches[3][1]).all())
    ((4, 1), True)
    """
    given = dict(options or {})
    most = max(HALF, find_options(given).max_failed)  # of few rows a larger share may fail by chance
    source = find_source(prior, simulator, seed, {**given, "max_failed": 1.0}, progress=False)
    style = source.find_style(batched)
    return FreshBatches(Job(source, style, size * 2**31, GROUP, Chunking(size), False, None), most, workers)
