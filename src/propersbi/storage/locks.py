"""Locks between processes: a file that says which process on which machine owns something.

A lock is a small JSON file, created by exactly one process, with the host, the process and a random token. Its owner
renews the modification time now and then, as a heartbeat. The lock of an owner that has ended is taken over: on the
same machine as soon as its process is gone, on another one when the heartbeat has stopped for a while.

>>> import tempfile
>>> with tempfile.TemporaryDirectory() as folder, Lock(Path(folder) / "lock"):
...     try:
...         Lock(Path(folder) / "lock").acquire()
...     except LockedError as error:
...         print("process" in str(error))
True
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from propersbi.storage.files import read_json, temporary_name, write_json
from propersbi.types import InputError

__all__ = ["Lock", "LockedError", "Owner"]

HEARTBEAT = 10.0  # seconds between two signs of life
SILENCE = 60.0  # seconds without one after which an owner on another machine counts as ended


class LockedError(InputError):
    """Another process, which is alive, owns the lock."""


@dataclass(frozen=True)
class Owner:
    """A process on a machine.

    Arguments:
        host: The name of the machine.
        pid: The number of the process.
        start: When the process started, in the units of its system, as numbers of processes are used again.
    """

    host: str
    pid: int
    start: str

    @classmethod
    def current(cls) -> Owner:
        """The process that calls."""
        return cls(socket.gethostname(), os.getpid(), _start(os.getpid()))

    @classmethod
    def from_json(cls, data: Any) -> Owner | None:
        """The owner that a file names; ``None`` if it names none."""
        if not isinstance(data, Mapping):
            return None
        host, pid, start = data.get("host"), data.get("pid"), data.get("start")
        if isinstance(host, str) and type(pid) is int and 0 < pid < 2**31 and isinstance(start, str):
            return cls(host, pid, start)
        return None

    def is_alive(self) -> bool | None:
        """Whether the process runs; ``None`` if that cannot be known, since it is on another machine."""
        if self.host != socket.gethostname():
            return None
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        return _start(self.pid) == self.start

    def __str__(self) -> str:
        return f"process {self.pid} on '{self.host:.80}'"


class Lock:
    """A lock that is held while its context is open.

    Arguments:
        path: The file.
        what: What is locked, for messages.
        wait: Seconds to wait for an owner that is alive, before :class:`LockedError` is raised.
        silence: Seconds without a heartbeat after which an owner on another machine counts as ended.
    """

    def __init__(self, path: str | Path, what: str = "", *, wait: float = 0.0, silence: float = SILENCE) -> None:
        self.path, self.what, self.wait, self.silence = Path(path), what or f"'{path}'", wait, silence
        self._token: str | None = None
        self._released = threading.Event()

    def __enter__(self) -> Lock:
        self.acquire()
        return self

    def __exit__(self, *error: object) -> None:
        self.release()

    def acquire(self) -> None:
        """Take the lock, or that of an owner that has ended; :class:`LockedError` if its owner is alive."""
        token, deadline = secrets.token_hex(8), time.monotonic() + self.wait
        content = {**asdict(Owner.current()), "token": token}
        while not write_json(self.path, content, replace=False):
            owner = self._living_owner()
            if owner is None:
                continue  # it was taken away or released: try again
            if time.monotonic() >= deadline:
                raise LockedError(
                    f"{self.what} is in use by {owner}: wait until it is done, or end it; if it is gone, "
                    f"delete '{self.path}'."
                )
            time.sleep(0.05)
        self._token = token
        self._released.clear()
        threading.Thread(target=self._beat, daemon=True).start()

    def release(self) -> None:
        """Give the lock back."""
        self._released.set()
        if self._token is not None and self._read().get("token") == self._token:
            self.path.unlink(missing_ok=True)
        self._token = None

    def _living_owner(self) -> str | None:
        """Who owns the lock; that of an owner that has ended is removed, by exactly one of several processes."""
        content = self._read()
        owner = Owner.from_json(content)
        alive = None if owner is None else owner.is_alive()
        if alive is None:
            alive = self._silent_for() < self.silence
        if alive:
            return "another process" if owner is None else str(owner)
        aside = temporary_name(self.path)
        try:
            self.path.rename(aside)
        except FileNotFoundError:
            return None
        taken = Lock(aside)._read()
        if taken != content:  # another process has taken it over in the meantime: put it back
            with suppress(OSError):
                os.link(aside, self.path)
        aside.unlink(missing_ok=True)
        return None

    def _read(self) -> Mapping[str, Any]:
        try:
            content = read_json(self.path)
        except InputError:
            return {}
        return content if isinstance(content, dict) else {}

    def _silent_for(self) -> float:
        """Seconds since the last heartbeat, by the clock of the file system."""
        clock = temporary_name(self.path)
        try:
            clock.touch()
            return clock.stat().st_mtime - self.path.stat().st_mtime
        except OSError:
            return 0.0
        finally:
            clock.unlink(missing_ok=True)

    def _beat(self) -> None:
        while not self._released.wait(HEARTBEAT):
            try:
                os.utime(self.path)
            except OSError:
                return


def _start(pid: int) -> str:
    """When a process started, where the system tells (Linux); boots are distinguished too."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()[:8]}-{fields[19]}"
    except (OSError, IndexError):
        return ""
