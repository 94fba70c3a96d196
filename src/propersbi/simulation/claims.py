"""Many processes, one store, no server: each claims chunks by lock files, and dead claims are taken over.

A process is one part of many, as the jobs of a SLURM array are. It computes its share of the chunks first and then
those that others have left. A chunk under way is claimed by a lock file with host, process and heartbeat
(:mod:`propersbi.storage.locks`). Claims only save work: a chunk that is computed twice is written twice with the same
bytes.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from propersbi.simulation.chunks import Job
from propersbi.storage.locks import Lock, LockedError
from propersbi.types import InputError

__all__ = ["Part", "UnderWayError", "claims_folder"]


class UnderWayError(InputError):
    """All chunks that are left are under way in other processes."""


def claims_folder(store: Path, group: str) -> Path:
    """Where the claims of a group are."""
    return store / group / "claims"


@dataclass(frozen=True)
class Part:
    """An executor that computes its share of the chunks of a store, and then what other processes have left.

    When all that is left is under way elsewhere it ends with :class:`UnderWayError` and does not wait: a later run
    completes what a process that dies at the very end leaves behind.

    Arguments:
        number: Which part, from 1.
        parts: How many there are.

    >>> Part(1, 3).order([0, 1, 2, 3, 4])[:2]
    [0, 3]
    """

    number: int
    parts: int

    def __post_init__(self) -> None:
        if not 1 <= self.number <= self.parts:
            raise InputError(f"A part is a number from 1 to {self.parts}, got {self.number}.")

    @classmethod
    def parse(cls, text: str) -> Part:
        """A part written as ``17/200``.

        >>> Part.parse("17/200")
        Part(number=17, parts=200)
        """
        number, slash, parts = text.partition("/")
        if not (slash and number.strip().isdecimal() and parts.strip().isdecimal()):
            raise InputError(f"A part is written as 17/200, got '{text:.40}'.")
        return cls(int(number), int(parts))

    def order(self, indices: Iterable[int]) -> list[int]:
        """Its own share, then the others in an order of its own, so that helpers do not meet."""
        chunks = list(indices)
        own = [chunk for chunk in chunks if chunk % self.parts == self.number - 1]
        others = [chunk for chunk in chunks if chunk % self.parts != self.number - 1]
        random.Random(self.number).shuffle(others)
        return own + others

    def __call__(self, job: Callable[[int], Any], indices: Iterable[int]) -> Iterator[Any]:
        """The results of all chunks, those of other processes included, as they are found or computed."""
        if not isinstance(job, Job):
            yield from map(job, indices)
            return
        if job.store is None:
            raise InputError("Parts share a store: give 'path'.")
        folder, left = claims_folder(job.store.folder, job.group), self.order(indices)
        while left:
            claimed: list[int] = []
            for chunk in left:
                try:
                    result = self.compute(job, chunk, folder)
                except LockedError:
                    claimed.append(chunk)
                    continue
                yield result
            if len(claimed) == len(left):
                raise UnderWayError(
                    f"{len(left)} of {job.chunks} chunks of group '{job.group}' are under way in other processes; "
                    "all others are finished."
                )
            left = claimed

    def compute(self, job: Job, chunk: int, folder: Path) -> Any:
        """A chunk, claimed while it is computed; one that is finished is only read."""
        assert job.store is not None
        if job.store.has(job.group, chunk, job.rows(chunk)):
            return job(chunk)
        with Lock(folder / f"{chunk:06d}.lock", f"Chunk {chunk}"):
            return job(chunk)
