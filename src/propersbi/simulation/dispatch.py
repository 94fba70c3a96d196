"""Chunks computed by the engine of a cluster: which ones are under way, and what becomes of those that are lost.

A bounded number of chunks is under way; results come as they are finished. A chunk whose
worker was lost, or that failed in a way that is not the simulator's, is computed again, three times at most. Near the
end, chunks that take much longer than others are computed twice: both have the same bytes, and the first one counts. If
the iterator is closed early, by an error or Ctrl-C, everything under way is cancelled.

A process computes one chunk at a time, since simulators may use random states of their whole process.
"""

from __future__ import annotations

import statistics
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from propersbi.simulation.chunks import Job
from propersbi.simulation.failures import SimulationError, describe
from propersbi.simulation.results import format_theta
from propersbi.types import InputError

__all__ = ["TRIES", "Engine", "Tasks", "compute"]

TRIES = 3  # of a chunk
PER_WORKER = 2  # chunks under way for each worker: one that runs and one that waits
POLL = 1.0  # seconds after which the number of workers and the slowest chunks are looked at again
STRAGGLER = 3.0  # times the usual duration, after which a chunk is computed twice once workers are idle
_LOCK = threading.Lock()


class Engine(ABC):
    """What computes chunks somewhere else: an executor for :func:`propersbi.simulate`."""

    @abstractmethod
    def connect(self, job: bytes) -> Tasks:
        """A connection that computes chunks of a pickled job."""

    def __call__(self, job: Callable[[int], Any], indices: Iterable[int]) -> Iterator[Any]:
        """The results, each as soon as it is finished."""
        import cloudpickle

        tasks = self.connect(cloudpickle.dumps(job))
        work = _Work(tasks, job, deque(indices))
        try:
            yield from work.results()
        finally:
            tasks.close(list(work.running))


class Tasks(ABC):
    """A connection to an engine."""

    @abstractmethod
    def submit(self, index: int) -> Any:
        """Begin to compute a chunk; something that can be a key of a dict."""

    @abstractmethod
    def wait(self, running: list[Any], seconds: float) -> list[Any]:
        """Those that are finished, as soon as there are any, or none after some seconds."""

    @abstractmethod
    def result(self, task: Any) -> Any:
        """The result of one that is finished, or its error."""

    @abstractmethod
    def workers(self) -> int:
        """How many processes there are now."""

    @abstractmethod
    def cancel(self, tasks: list[Any]) -> None:
        """Give up what is not needed any more."""

    def close(self, tasks: list[Any]) -> None:
        """Give up what is under way, and the connection if it is our own."""
        self.cancel(tasks)


@dataclass
class _Work:
    """The chunks of a job: waiting, under way and done.

    Arguments:
        tasks: What computes them.
        job: The job, to name the parameters of a chunk that fails.
        waiting: The chunks to compute.
    """

    tasks: Tasks
    job: Callable[[int], Any]
    waiting: deque[int]
    running: dict[Any, tuple[int, float]] = field(default_factory=dict)
    copies: Counter[int] = field(default_factory=Counter)
    tries: Counter[int] = field(default_factory=Counter)
    seconds: deque[float] = field(default_factory=lambda: deque(maxlen=100))
    _workers: int = 1
    _looked: float = -POLL

    def results(self) -> Iterator[Any]:
        """The results as they come."""
        while self.waiting or self.running:
            self.fill()
            for task in self.tasks.wait(list(self.running), POLL):
                if task not in self.running:
                    continue  # another copy of it was faster
                index, started = self.running.pop(task)
                self.copies[index] -= 1
                try:
                    result = self.tasks.result(task)
                except (InputError, SimulationError):
                    raise
                except Exception as error:
                    self.retry(index, error)
                    continue
                self.seconds.append(time.monotonic() - started)
                self.forget(index)
                yield result

    def fill(self) -> None:
        """Submit what there is room for."""
        if time.monotonic() - self._looked >= POLL:
            self._workers, self._looked = max(1, self.tasks.workers()), time.monotonic()
        while self.waiting and len(self.running) < PER_WORKER * self._workers:
            self.submit(self.waiting.popleft())
        if not self.waiting and len(self.running) < self._workers and len(self.seconds) >= TRIES:
            limit = time.monotonic() - STRAGGLER * statistics.median(self.seconds) - POLL
            slow = [index for index, started in self.running.values() if started < limit and self.copies[index] == 1]
            for index in slow[: self._workers - len(self.running)]:
                self.submit(index)

    def submit(self, index: int) -> None:
        self.copies[index] += 1
        self.running[self.tasks.submit(index)] = index, time.monotonic()

    def retry(self, index: int, error: Exception) -> None:
        """Compute a chunk again, unless it failed too often or is under way elsewhere."""
        self.tries[index] += 1
        if self.tries[index] >= TRIES:
            raise SimulationError(f"{self.name(index)} failed {TRIES} times: {describe(error)}.") from error
        if not self.copies[index]:
            self.waiting.appendleft(index)

    def forget(self, index: int) -> None:
        """Give up other copies of a chunk that is done."""
        others = [task for task, (other, _) in self.running.items() if other == index]
        for task in others:
            del self.running[task]
        del self.copies[index]
        self.tries.pop(index, None)
        self.tasks.cancel(others)

    def name(self, index: int) -> str:
        if not isinstance(self.job, Job):
            return f"Chunk {index}"
        return (
            f"Chunk {index}, which begins with theta = {format_theta(self.job.draw(index, self.job.rows(index))[0])},"
        )


@lru_cache(maxsize=2)
def _load(job: bytes) -> Callable[[int], Any]:
    import cloudpickle

    loaded: Callable[[int], Any] = cloudpickle.loads(job)
    return loaded


def compute(job: bytes, index: int) -> Any:
    """A chunk of a pickled job, in a worker; one at a time.

    Engines do not survive what is raised to end a process, such as ``KeyboardInterrupt``: it becomes an error.
    """
    with _LOCK:
        try:
            return _load(job)(index)
        except (KeyboardInterrupt, SystemExit, GeneratorExit) as error:
            raise SimulationError(f"Chunk {index} was interrupted by {describe(error)} in its worker.") from error
