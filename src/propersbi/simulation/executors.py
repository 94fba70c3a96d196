"""Executors: chunks of work in this process, or in many.

An executor maps a job over chunk indices and returns results as they are finished, in any order. It decides where and
when a chunk is computed, never its content: each chunk has its own random stream, so every executor gives identical
results. To use another cluster, write a function ``(job, indices) -> iterator of results``.
"""

from __future__ import annotations

import os
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from propersbi.types import InputError

__all__ = ["Joblib", "Serial", "follow"]

FOLLOWER = "propersbi-follower"  # the thread that watches the parent


@dataclass(frozen=True)
class Serial:
    """Computes one chunk after the other in this process.

    >>> list(Serial()(lambda chunk: chunk**2, range(4)))
    [0, 1, 4, 9]
    """

    def __call__(self, job: Callable[[int], Any], indices: Iterable[int]) -> Iterator[Any]:
        """The results in the order of ``indices``, each computed when it is requested."""
        return map(job, indices)


@dataclass(frozen=True)
class Joblib:
    """Computes chunks in processes of :mod:`joblib`.

    The job is pickled by value, so lambdas and functions of a notebook work. When the iterator is closed early (by an
    error or Ctrl-C), running chunks are stopped.

    Arguments:
        workers: The number of processes; ``None`` uses all cores.
        backend: The name of a joblib backend: ``"loky"`` for this machine, or a registered one such as ``"dask"``.

    >>> sorted(Joblib(workers=1)(lambda chunk: chunk**2, range(4)))
    [0, 1, 4, 9]
    """

    workers: int | None = None
    backend: str = "loky"

    def __post_init__(self) -> None:
        is_integer = isinstance(self.workers, int) and not isinstance(self.workers, bool)
        if self.workers is not None and not (is_integer and self.workers >= 1):
            raise InputError(f"'workers' must be 1 or more, or None for all cores, got {self.workers!r}.")
        # Threads share the global random states that simulators may use, so results would depend on timing;
        # joblib's 'multiprocessing' cannot return results as they are finished.
        if not isinstance(self.backend, str) or self.backend in ("threading", "sequential", "multiprocessing"):
            raise InputError(f"'backend' must be a joblib backend of processes like 'loky', got {self.backend!r:.80}.")

    @property
    def count(self) -> int:
        """The number of processes."""
        import joblib

        return self.workers or int(joblib.cpu_count())

    def __call__(self, job: Callable[[int], Any], indices: Iterable[int]) -> Iterator[Any]:
        """The results, each as soon as it is finished."""
        import joblib

        parallel = joblib.Parallel(self.workers or -1, backend=self.backend, return_as="generator_unordered")
        followed = partial(_run_followed, job, os.getpid())
        results = parallel(joblib.delayed(followed)(index) for index in indices)
        try:
            for result in results:  # noqa: UP028, 'yield from' would close the results outside of the context below
                yield result
        finally:
            with _without_shutdown_noise():
                results.close()


def _run_followed(job: Callable[[int], Any], parent: int, index: int) -> Any:
    """Run a job in a process that ends when its parent has ended, even by ``kill -9`` and in the middle of a chunk."""
    if os.getppid() == parent and not any(thread.name == FOLLOWER for thread in threading.enumerate()):
        threading.Thread(target=follow, args=(parent,), name=FOLLOWER, daemon=True).start()
    return job(index)


def follow(parent: int) -> None:
    """End this process when its parent has ended."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


@contextmanager
def _without_shutdown_noise() -> Iterator[None]:
    """Suppress the expected messages of an early stop, and no others.

    Joblib warns about results that were not retrieved, and the thread that dispatches chunks may end with a harmless
    ``KeyError`` if it was about to dispatch one after the workers were terminated.
    """
    original_hook = threading.excepthook

    def hook(event: threading.ExceptHookArgs) -> None:
        if not (event.exc_type is KeyError and event.thread and event.thread.name == "ExecutorManagerThread"):
            original_hook(event)

    threading.excepthook = hook
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        threading.excepthook = original_hook
