"""Files that are whole or absent: written beside their place, flushed to the disk, then renamed into it.

A crash, a full disk or a kill leaves the old file or none, never half of a new one.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from propersbi.types import InputError

__all__ = ["read_json", "write_bytes", "write_json", "write_text", "write_with"]


def write_with(path: str | Path, write: Callable[[IO[bytes]], Any]) -> Path:
    """Let ``write`` fill a temporary binary file and put it in place in one step."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")  # threads and other machines write too
    try:
        with temporary.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)
    return path


def write_bytes(path: str | Path, content: bytes) -> Path:
    """Write ``content`` as a whole or not at all."""
    return write_with(path, lambda file: file.write(content))


def write_text(path: str | Path, content: str) -> Path:
    """Write UTF-8 text as a whole or not at all."""
    return write_bytes(path, content.encode())


def write_json(path: str | Path, content: Any) -> Path:
    """Write strict JSON, indented for people; not-a-number and infinity are refused."""
    return write_text(path, json.dumps(content, indent=2, allow_nan=False) + "\n")


def read_json(path: str | Path) -> Any:
    """Read JSON; a missing, empty or broken file is an :class:`InputError` that names it."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InputError(f"There is no file '{path}'.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"'{path}' cannot be read: {error}.") from None
    if not text.strip():
        raise InputError(f"'{path}' is empty.")
    try:
        return json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise InputError(f"'{path}' is not valid JSON: {error}.") from None


def _sync_folder(folder: Path) -> None:
    """Flush the folder's entry for a renamed file, where the system can (POSIX)."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
