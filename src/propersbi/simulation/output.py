"""What simulators print: whole lines beside the progress bar, from this process and from others."""

from __future__ import annotations

import io
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any, TextIO

__all__ = ["capture", "print_beside"]

MAX_CHARACTERS = 1 << 16  # of what a worker prints in one chunk


class _Stream(io.TextIOBase):
    """Stands for a stream, and is that stream in all but writing."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._lock = stream, threading.RLock()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def fileno(self) -> int:
        return self._stream.fileno()

    def isatty(self) -> bool:
        return self._stream.isatty()

    def writable(self) -> bool:
        return True


class _Lines(_Stream):
    """Writes whole lines, with the bar out of the way."""

    def __init__(self, stream: TextIO, bar: Any) -> None:
        super().__init__(stream)
        self._bar, self._rest = bar, ""

    def write(self, text: str) -> int:
        with self._lock:
            lines, newline, self._rest = (self._rest + text).rpartition("\n")
            self._print(lines + newline)
        return len(text)

    def finish(self) -> None:
        """Write what is left of a line."""
        with self._lock:
            self._print(self._rest + "\n" * bool(self._rest))
            self._rest = ""

    def _print(self, lines: str) -> None:
        if lines:
            self._bar.clear()
            self._stream.write(lines)
            self._stream.flush()
            self._bar.refresh()


class _Collector(_Stream):
    """Keeps what is written, up to a number of characters."""

    def __init__(self, stream: TextIO, text: io.StringIO) -> None:
        super().__init__(stream)
        self._text = text

    def write(self, text: str) -> int:
        left = MAX_CHARACTERS - self._text.tell()
        if left > 0:
            self._text.write(text if len(text) <= left else text[:left] + "...\n")
        return len(text)


@contextmanager
def print_beside(bar: Any, *, show: bool) -> Iterator[None]:
    """Let what is printed meanwhile not disturb the bar, if one is shown."""
    if not show:
        yield
        return
    out, err = _Lines(sys.stdout, bar), _Lines(sys.stderr, bar)
    try:
        with redirect_stdout(out), redirect_stderr(err):
            yield
    finally:
        out.finish()
        err.finish()


@contextmanager
def capture(*, active: bool = True) -> Iterator[io.StringIO]:
    """Collect what is printed meanwhile."""
    text = io.StringIO()
    if not active:
        yield text
        return
    with redirect_stdout(_Collector(sys.stdout, text)), redirect_stderr(_Collector(sys.stderr, text)):
        yield text
