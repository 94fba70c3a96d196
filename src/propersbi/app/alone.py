"""A folder that one process writes at a time: its lock, and the steps that need it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar, cast

from propersbi.storage.files import sweep
from propersbi.storage.locks import Lock

__all__ = ["LockedFolder", "alone"]

Step = TypeVar("Step", bound=Callable[..., Any])


class LockedFolder:
    """A folder with a lock.

    Arguments:
        folder: The folder.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._lock: Lock | None = None

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from writing into the folder; an ``InputError`` if one does already."""
        if self._lock is not None or "LOCAL_RANK" in os.environ:  # processes of one training share its lock
            yield
            return
        with Lock(self.folder / ".lock", f"The run '{self.folder}'") as self._lock:
            try:
                sweep(self.folder)
                yield
            finally:
                self._lock = None


def alone(step: Step) -> Step:
    """A step that no other process may take in the same folder at the same time."""

    @wraps(step)
    def locked(run: LockedFolder, *given: Any, **named: Any) -> Any:
        with run.locked():
            return step(run, *given, **named)

    return cast(Step, locked)
