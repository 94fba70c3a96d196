"""Arguments that users give, checked where they come in: numbers, whole numbers, seeds, names and paths."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Sequence
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from propersbi.types import InputError

__all__ = [
    "check_number",
    "check_numbers",
    "check_seed",
    "check_whole",
    "checked_names",
    "is_number",
    "list_of_names",
    "to_path",
]

MAX_WHOLE = 2**63 - 1


def is_number(value: Any) -> bool:
    """Whether the value is a finite real number, and no truth value.

    >>> is_number(1.5), is_number(True), is_number("1"), is_number(math.nan)
    (True, False, False, False)
    """
    number: Any = value if isinstance(value, Real) and not isinstance(value, bool) else math.inf
    return bool(abs(number) <= sys.float_info.max)


def check_number(name: str, value: Any, wanted: str, low: float = -math.inf, high: float = math.inf) -> None:
    """Refuse what is no number strictly between ``low`` and ``high``; ``wanted`` says so in words.

    >>> check_number("beta", 3, "lie in (0, 2)", 0, 2)
    Traceback (most recent call last):
    propersbi.types.InputError: 'beta' must lie in (0, 2), got 3.
    """
    if not (is_number(value) and low < value < high):
        raise InputError(f"'{name}' must {wanted}, got {value!s:.80}.")


def check_numbers(
    name: str, values: Any, wanted: str, low: float = -math.inf, high: float = math.inf
) -> tuple[float, ...]:
    """Several numbers as a tuple, each strictly between ``low`` and ``high``; ``wanted`` says so in words.

    >>> check_numbers("factors", 3, "hold positive numbers", 0)
    Traceback (most recent call last):
    propersbi.types.InputError: 'factors' must hold positive numbers, got 3.
    """
    try:
        found = () if isinstance(values, str | bytes) else tuple(values)
    except TypeError:
        found = ()
    if not found or not all(is_number(value) and low < value < high for value in found):
        raise InputError(f"'{name}' must {wanted}, got {values!r:.80}.")
    return found


def check_whole(name: str, value: Any, least: int) -> int:
    """``value`` as an ``int`` of at least ``least``.

    >>> check_whole("n", 3, 1)
    3
    """
    if isinstance(value, bool) or not isinstance(value, Integral) or not least <= int(value) <= MAX_WHOLE:
        raise InputError(f"'{name}' must be a whole number of at least {least}, got {value!r:.80}.")
    return int(value)


def check_seed(seed: Any) -> int:
    """A seed as an ``int``."""
    return check_whole("seed", seed, 0)


def list_of_names(name: str, values: Any) -> list[str]:
    """Names as a list.

    >>> list_of_names("parameter_names", "ab")
    Traceback (most recent call last):
    propersbi.types.InputError: 'parameter_names' must be a list of names, got 'ab'.
    """
    try:
        names = None if isinstance(values, str | bytes) else list(values)
    except TypeError:
        names = None
    if names is None or not all(isinstance(one, str) for one in names):
        raise InputError(f"'{name}' must be a list of names, got {values!r:.80}.")
    return names


def checked_names(names: Sequence[str] | None, shape: Sequence[int], what: str = "parameter") -> tuple[str, ...]:
    """One name for each parameter, or number of the data, no two alike: the given ones, or numbered ones."""
    size = math.prod(shape)
    if names is None:
        return tuple(f"theta_{i + 1}" for i in range(size))
    names = list_of_names("x_names" if what == "data" else "parameter_names", names)
    if len(names) != size:
        numbers = "parameters" if what == "parameter" else "numbers"
        raise InputError(f"There are {len(names)} {what} names for {size} {numbers}.")
    found = tuple(str(name) for name in names)
    if len(set(found)) < size:
        twice = next(name for i, name in enumerate(found) if name in found[:i])
        raise InputError(f"Two {what} names are the same: '{twice:.80}'.")
    return found


def to_path(name: str, value: Any) -> Path:
    """A path from text or a path.

    >>> to_path("folder", 3)
    Traceback (most recent call last):
    propersbi.types.InputError: 'folder' must be a path, got 3.
    """
    try:
        path = Path(value)
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        pass
    except (TypeError, ValueError, OSError):  # no text, a zero byte, half a character, a name that is too long
        raise InputError(f"'{name}' must be a path, got {value!r:.80}.") from None
    return path
