"""Where chunks of work run: here, or on many processes.

An executor maps a job over chunk indices and gives results back as they come, in any order. It decides where and when
a chunk is computed, never what is in it: the chunk owns its random numbers, so every executor gives the same bytes.
To bring another cluster, write a function ``(job, indices) -> iterator of results``.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from propersbi.types import InputError

__all__ = ["Joblib", "Serial"]


@dataclass(frozen=True)
class Serial:
    """One chunk after the other, in this process.

    >>> list(Serial()(lambda chunk: chunk**2, range(4)))
    [0, 1, 4, 9]
    """

    def __call__(self, job: Callable[[int], Any], indices: Iterable[int]) -> Iterator[Any]:
        """The results, one by one, in the order of ``indices``."""
        return map(job, indices)


@dataclass(frozen=True)
class Joblib:
    """Chunks on the processes of :mod:`joblib`. The job is shipped whole, so lambdas and notebook functions work.

    When the results are no longer wanted (an error, Ctrl-C), the chunks under way are stopped.

    Arguments:
        workers: The number of processes; ``None`` uses all cores.
        backend: The name of a joblib backend: ``"loky"`` for this machine, or one that was registered, like ``"dask"``.

    >>> sorted(Joblib(workers=1)(lambda chunk: chunk**2, range(4)))
    [0, 1, 4, 9]
    """

    workers: int | None = None
    backend: str = "loky"

    def __post_init__(self) -> None:
        whole = isinstance(self.workers, int) and not isinstance(self.workers, bool)
        if self.workers is not None and not (whole and self.workers >= 1):
            raise InputError(f"'workers' must be 1 or more, or None for all cores, got {self.workers!r}.")
        # Threads share the global random states that simulators may draw from, so bytes would depend on timing;
        # joblib's 'multiprocessing' cannot hand back results as they come.
        if self.backend in ("threading", "sequential", "multiprocessing"):
            raise InputError(f"'backend' must be a joblib backend of processes, such as 'loky', got '{self.backend}'.")

    def __call__(self, job: Callable[[int], Any], indices: Iterable[int]) -> Iterator[Any]:
        """The results, each as soon as it is there."""
        import joblib

        parallel = joblib.Parallel(self.workers or -1, backend=self.backend, return_as="generator_unordered")
        results = parallel(joblib.delayed(job)(index) for index in indices)
        try:
            for result in results:  # noqa: UP028, 'yield from' would close the results outside of the silence below
                yield result
        finally:
            with _stopping():
                results.close()


@contextmanager
def _stopping() -> Iterator[None]:
    """Silence for what is meant when work is stopped early, and for nothing else.

    Joblib warns of chunks that nobody fetched, and the thread that hands out chunks dies of a ``KeyError`` if it was
    just about to hand one out (after the workers were ended, so no harm comes of it).
    """
    report = threading.excepthook

    def hook(event: threading.ExceptHookArgs) -> None:
        if not (event.exc_type is KeyError and event.thread and event.thread.name == "ExecutorManagerThread"):
            report(event)

    threading.excepthook = hook
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        threading.excepthook = report
