"""How far the simulations of a run are: chunks done and under way, speed, time left, and who works where."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from propersbi.simulation.claims import claims_folder
from propersbi.simulation.store import Store
from propersbi.storage.files import read_json, write_json
from propersbi.storage.locks import SILENCE, Owner
from propersbi.storage.schema import read_value
from propersbi.types import InputError

__all__ = ["GroupStatus", "plan", "planned", "status"]

RECENT = 600.0  # seconds over which the speed is measured


def plan(folder: Path, **rows: int) -> None:
    """Write down how many rows each group of a run is to have."""
    write_json(folder / "plan.json", {**planned(folder), **rows})


def planned(folder: Path) -> dict[str, int]:
    """How many rows each group of a run is to have, as far as it is known."""
    path = folder / "plan.json"
    content = read_json(path) if path.exists() else {}
    rows: dict[str, int] = read_value(dict[str, int], content, str(path), "rows")
    return rows


@dataclass(frozen=True)
class GroupStatus:
    """How far a group of simulations is.

    Arguments:
        group: Its name.
        chunks: Chunks that are to be computed; ``None`` if that is not known.
        done: Those that are finished.
        failed: Rows that failed.
        rate: Rows per second of late; ``None`` if none were finished.
        left: Seconds that are left at this rate.
        working: How many chunks are under way on which machine.
        lost: Claims of processes that have ended.
    """

    group: str
    chunks: int | None
    done: int
    failed: int
    rate: float | None
    left: float | None
    working: dict[str, int]
    lost: int

    @property
    def complete(self) -> bool:
        """Whether all chunks are finished."""
        return self.chunks is not None and self.done >= self.chunks

    def __str__(self) -> str:
        of = "" if self.chunks is None else f" of {self.chunks}"
        words = [f"{self.group}: {self.done}{of} chunks done, {sum(self.working.values())} under way"]
        words += [f"{self.lost} left by processes that have ended"] if self.lost else []
        words += [f"{self.failed} rows failed"] if self.failed else []
        words += [f"{self.rate:.3g} rows per second"] if self.rate and not self.complete else []
        words += [f"{_duration(self.left)} left"] if self.left is not None and not self.complete else []
        where = [f"  {host}: {count} under way" for host, count in sorted(self.working.items())]
        return "\n".join([", ".join(words), *where])


def status(folder: str | Path) -> list[GroupStatus]:
    """How far each group of simulations of a run is."""
    folder = Path(folder)
    if not Store.exists(folder / "simulations"):
        raise InputError(f"'{folder}' has no simulations yet: run 'propersbi simulate'.")
    store, expected = Store.open(folder / "simulations"), planned(folder)
    present = [path.name for path in store.folder.iterdir() if path.is_dir() and not path.name.startswith(".")]
    return [_group(store, group, expected.get(group)) for group in sorted({*present, *expected}, key=_order)]


def _order(group: str) -> tuple[bool, str]:
    return group == "test", group


def _group(store: Store, group: str, n: int | None) -> GroupStatus:
    written = {chunk: store.path(group, chunk).stat().st_mtime for chunk in store.finished(group)}
    chunks = None if n is None else store.chunking.count(n)
    owners, lost = _claims(claims_folder(store.folder, group), {f"{chunk:06d}" for chunk in written})
    recent = [chunk for chunk in sorted(written, key=written.__getitem__) if time.time() - written[chunk] < RECENT]
    rate = None
    if len(recent) > 1:
        rate = sum(map(store.chunking.rows, recent[1:])) / max(time.time() - written[recent[0]], 1e-3)
    left = None
    if chunks is not None and rate:
        left = sum(store.chunking.rows(chunk) for chunk in range(chunks) if chunk not in written) / rate
    return GroupStatus(group, chunks, len(written), store.failures(group).total, rate, left, dict(owners), lost)


def _claims(folder: Path, finished: set[str]) -> tuple[Counter[str], int]:
    """How many chunks are claimed on each machine, and how many claims are of processes that have ended.

    Claims of chunks that are ``finished`` are of no interest: a process may end between the two.
    """
    working: Counter[str] = Counter()
    lost = 0
    for path in folder.glob("*.lock"):
        if path.stem in finished:
            continue
        try:
            content: Any = read_json(path)
            silent = time.time() - path.stat().st_mtime > SILENCE
        except (InputError, OSError):
            continue  # it was released in the meantime
        owner = Owner.from_json(content)
        alive = None if owner is None else owner.is_alive()
        if owner is None or alive is False or (alive is None and silent):
            lost += 1
        else:
            working[owner.host] += 1
    return working, lost


def _duration(seconds: float) -> str:
    """A duration in words.

    >>> _duration(59), _duration(3700), _duration(200_000)
    ('59 s', '1 h 1 min', '2 d 7 h')
    """
    minutes, hours, days = int(seconds // 60), int(seconds // 3600), int(seconds // 86400)
    if days:
        return f"{days} d {hours % 24} h"
    if hours:
        return f"{hours} h {minutes % 60} min"
    return f"{minutes} min" if minutes else f"{seconds:.0f} s"
