"""Many processes without a slow start: short runs end here before others would have started.

A process needs seconds to start and to load what the simulator needs. Chunks are therefore computed in this process
first, and the others are started only if the rest would take longer than that.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from propersbi.simulation.chunks import Chunk, Job
from propersbi.simulation.executors import Joblib

__all__ = ["start_here"]

HEAD_START = 2.0  # seconds in which the speed of the simulator is measured
START_UP = 5.0  # seconds that other processes take to start


class _TooSlowError(Exception):
    """Other processes are worth their start."""


@dataclass
class _Pace:
    """How fast rows are computed, and how long the rest will take.

    Arguments:
        rows: The number of rows to compute.
        longest: The seconds that the rest may take in this process.
    """

    rows: int
    longest: float
    done: int = 0
    _started: float = field(default_factory=time.monotonic)

    def check(self, more: int) -> None:
        """Give up if the rest takes too long; ``more`` rows are done besides those counted."""
        elapsed, done = time.monotonic() - self._started, self.done + more
        if elapsed > HEAD_START and (self.rows - done) * elapsed > self.longest * done:
            raise _TooSlowError


def start_here(job: Job, chunks: Iterable[int], workers: Joblib) -> Iterator[Chunk]:
    """Compute chunks in this process and, if the rest would take long, go on in others."""
    left = list(chunks)
    count = workers.count
    pace = _Pace(sum(map(job.rows, left)), START_UP * count / max(1, count - 1))
    try:
        while left:
            chunk = job(left[0], pace.check)
            pace.done += job.rows(left.pop(0))
            yield chunk
            pace.check(0)
    except _TooSlowError:
        pass
    if left:
        yield from workers(job, left)
