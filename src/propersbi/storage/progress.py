"""Progress on long work: a bar on stderr with what is done and the time left."""

from __future__ import annotations

import sys
from typing import Any

__all__ = ["progress_bar"]


def progress_bar(total: int, what: str, unit: str, *, show: bool, done: int = 0) -> Any:
    """A bar for a terminal or a notebook; in a log file, a line now and then."""
    from tqdm.auto import tqdm

    live = sys.stderr.isatty() or "ipykernel" in sys.modules
    interval = 0.1 if live else 10.0
    return tqdm(total=total, initial=done, desc=what, unit=unit, disable=not show, mininterval=interval, maxinterval=30)
