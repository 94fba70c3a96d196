"""Files that are whole or absent: written beside their place, flushed to the disk, then renamed into it.

A crash, a full disk or a kill leaves the old file or none, never half of a new one. Only regular files are read, and
JSON is read strictly: a damaged file is an :class:`~propersbi.types.InputError` that names it, before anything is built
from it.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import re
import secrets
import socket
import stat
import sys
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import IO, Any

from propersbi.types import InputError

__all__ = [
    "checksum_of_json",
    "read_bytes",
    "read_json",
    "sweep",
    "temporary_name",
    "write_bytes",
    "write_json",
    "write_text",
    "write_with",
]

MAX_JSON_BYTES = 1 << 28
MAX_DEPTH = 100  # of nested lists and objects
if sys.platform == "win32":
    _READ = os.O_RDONLY | os.O_BINARY
else:
    _READ = os.O_RDONLY | os.O_NONBLOCK


def write_with(path: str | Path, write: Callable[[IO[bytes]], Any], *, replace: bool = True) -> bool:
    """Let ``write`` fill a temporary binary file and put it in place in one step; whether it was.

    Without ``replace``, a file that another process has put there first is left alone.
    """
    path = Path(path)
    temporary = temporary_name(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        done = _put(temporary, path, replace)
    except OSError as error:
        raise _explained(error, path) from error
    finally:
        temporary.unlink(missing_ok=True)
    _sync_folder(path.parent)
    return done


def temporary_name(path: Path) -> Path:
    """A name beside ``path`` that no other process or thread uses; it says which process on which machine it is of."""
    return path.with_name(f".{path.name:.100}.{_host()}-{os.getpid()}-{secrets.token_hex(4)}.tmp")


def sweep(folder: str | Path) -> None:
    """Remove the temporary files that processes of this machine have left behind when they were killed."""
    for path in Path(folder).glob(".*.tmp"):
        match = re.fullmatch(r"\..*\.([0-9a-f]{8})-(\d+)-[0-9a-f]{8}\.tmp", path.name)
        if match is None or match[1] != _host():
            continue
        try:
            os.kill(int(match[2]), 0)
        except ProcessLookupError:
            path.unlink(missing_ok=True)
        except (OSError, OverflowError):
            continue


@cache
def _host() -> str:
    return hashlib.sha256(socket.gethostname().encode()).hexdigest()[:8]


def _put(temporary: Path, path: Path, replace: bool) -> bool:
    if replace:
        temporary.replace(path)
        return True
    try:
        os.link(temporary, path)  # unlike a rename, a link never replaces a file
    except FileExistsError:
        return False
    except OSError:  # a file system without links
        if path.exists():
            return False
        temporary.replace(path)
    return True


def write_bytes(path: str | Path, content: bytes) -> Path:
    """Write ``content`` as a whole or not at all."""
    write_with(path, lambda file: file.write(content))
    return Path(path)


def write_text(path: str | Path, content: str) -> Path:
    """Write UTF-8 text as a whole or not at all."""
    return write_bytes(path, content.encode())


def write_json(path: str | Path, content: Any, *, replace: bool = True) -> bool:
    """Write strict JSON, indented for people; not-a-number and infinity are refused."""
    text = json.dumps(content, indent=2, allow_nan=False) + "\n"
    return write_with(path, lambda file: file.write(text.encode()), replace=replace)


def read_bytes(path: str | Path, *, most: int | None = None) -> bytes:
    """The content of a regular file of at most ``most`` bytes."""
    path = Path(path)
    try:
        # A FIFO would block, and a device has no end.
        descriptor = os.open(path, _READ)
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise InputError(f"'{path}' cannot be read: it is not a regular file.")
            if most is not None and status.st_size > most:
                raise InputError(f"'{path}' cannot be read: it has {status.st_size} bytes, more than {most}.")
            return file.read(status.st_size + 1)
    except FileNotFoundError:
        raise InputError(f"There is no file '{path}'.") from None
    except (OSError, ValueError, MemoryError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"'{path}' cannot be read: {error}.") from None


def read_json(path: str | Path) -> Any:
    """Read strict JSON; a missing, empty or broken file is an :class:`InputError` that names it."""
    content = read_bytes(path, most=MAX_JSON_BYTES)
    if not content.strip():
        raise InputError(f"'{path}' is empty.")
    try:
        data = json.loads(content.decode(), parse_constant=_refuse_constant)
        _check_plain(data)
    except (ValueError, RecursionError, MemoryError) as error:
        raise InputError(f"'{path}' is not valid JSON: {error!s:.120}.") from None
    return data


def checksum_of_json(content: Mapping[str, Any]) -> str:
    """The SHA-256 of plain data, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"it holds {name}, which is no number of JSON")


def _check_plain(data: Any) -> None:
    """Refuse what Python reads but cannot write again: endless depth, infinite numbers, halves of characters."""
    level, depth = [data], 0
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            raise ValueError(f"it is nested more than {MAX_DEPTH} levels deep")
        below: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                for key in value:
                    key.encode()
                below += value.values()
            elif isinstance(value, list):
                below += value
            elif isinstance(value, str):
                value.encode()
            elif isinstance(value, float) and not math.isfinite(value):
                raise ValueError("it holds a number that is too large")
        level = below


def _explained(error: OSError, path: Path) -> OSError:
    """The same error with a sentence that says what is left."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        message = (
            f"The disk of '{path.parent}' is full: '{path.name}' was not written, and what was there before is kept"
        )
        return OSError(error.errno, message)
    return error


def _sync_folder(folder: Path) -> None:
    """Flush the folder's entry for a renamed file, where the system can (POSIX)."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
