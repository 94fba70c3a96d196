"""Progress on long work: a bar on stderr with what is done and the time left."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any

__all__ = ["Phases", "announce", "progress_bar"]


def progress_bar(total: int, what: str, unit: str, *, show: bool, done: int = 0) -> Any:
    """A bar for a terminal or a notebook; in a log file, a line now and then."""
    from tqdm.auto import tqdm

    live = sys.stderr.isatty() or "ipykernel" in sys.modules
    interval = 0.1 if live else 10.0
    return tqdm(total=total, initial=done, desc=what, unit=unit, disable=not show, mininterval=interval, maxinterval=30)


def announce(line: str, *, show: bool) -> None:
    """What begins now, as a line on stderr."""
    if show:
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()


class Phases:
    """The phases of a long run, each announced on stderr with its number and the time since the start.

    Arguments:
        names: What they are, in their order.
        show: Whether to announce them.

    >>> phases = Phases(["simulate", "train"], show=False)
    >>> phases.next()
    'Phase 1 of 2 (0:00): simulate'
    """

    def __init__(self, names: Sequence[str], *, show: bool) -> None:
        self.names, self.show, self.done, self.started = tuple(names), show, 0, time.monotonic()

    def next(self) -> str:
        """Announce the next phase."""
        minutes, seconds = divmod(int(time.monotonic() - self.started), 60)
        self.done += 1
        line = f"Phase {self.done} of {len(self.names)} ({minutes}:{seconds:02d}): {self.names[self.done - 1]}"
        announce(line, show=self.show)
        return line
