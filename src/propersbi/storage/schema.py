"""Schemas of files: a dataclass or named tuple says by its annotations what plain data a file holds.

Data are checked as a whole before anything is built from them. Whatever does not fit is an
:class:`~propersbi.types.InputError`, one sentence that names the file and the entry.

>>> from dataclasses import dataclass
>>> @dataclass(frozen=True)
... class Plan:
...     rows: dict[str, int]
...     note: str | None = None
>>> read_as(Plan, {"rows": {"train": 100}}, "plan.json")
Plan(rows={'train': 100}, note=None)
>>> read_as(Plan, {"rows": {"train": "many"}}, "plan.json")
Traceback (most recent call last):
propersbi.types.InputError: 'plan.json' is damaged: 'rows.train' must be a whole number, got 'many'.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from enum import Enum
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from propersbi.types import InputError

__all__ = ["MAX_COUNT", "read_as", "read_value"]

MAX_COUNT = 2**63 - 1  # of whole numbers, none of which is negative
Record = TypeVar("Record")


def read_as(cls: type[Record], data: Any, place: str, prefix: str = "") -> Record:
    """An object of a class from a JSON object with the names of its fields, each checked against its type.

    Arguments:
        cls: The dataclass or named tuple.
        data: What JSON gave.
        place: The name of the file, for messages.
        prefix: Where in the file the object stands, for messages.
    """
    if not isinstance(data, Mapping):
        what = f"'{prefix[:-1]}'" if prefix else "it"
        raise InputError(f"'{place}' is damaged: {what} must be an object, got {data!r:.40}.")
    hints = get_type_hints(cls)
    unknown = sorted(set(data) - set(hints))
    if unknown:
        raise InputError(f"'{place}' is damaged: it has an unknown entry '{prefix}{unknown[0]:.40}'.")
    given = {key: read_value(hints[key], value, place, prefix + key) for key, value in data.items()}
    parameters = inspect.signature(cls).parameters.items()
    missing = [key for key, part in parameters if part.default is part.empty and key not in given]
    if missing:
        raise InputError(f"'{place}' is damaged: '{prefix}{missing[0]}' is missing.")
    return cls(**given)


def read_value(kind: Any, value: Any, place: str, name: str) -> Any:
    """A value of a kind: a number, text, a list, a tuple or an object of them, a record, or nothing.

    >>> read_value(list[int], [1, -1], "plan.json", "rows")
    Traceback (most recent call last):
    propersbi.types.InputError: 'plan.json' is damaged: 'rows.1' must be a whole number, got -1.
    """
    origin, parts = get_origin(kind) or kind, get_args(kind)
    if origin is UnionType:
        if value is None and NoneType in parts:
            return None
        return read_value(next(part for part in parts if part is not NoneType), value, place, name)
    if isinstance(kind, type) and (is_dataclass(kind) or (issubclass(kind, tuple) and kind is not tuple)):
        return read_as(kind, value, place, f"{name}.")
    what, right = ("one of its words", _is_word(kind)) if _is_enum(kind) else _KINDS[origin]
    if not right(value):
        raise InputError(f"'{place}' is damaged: '{name:.80}' must be {what}, got {value!r:.40}.")
    if _is_enum(kind):
        return kind(value)
    if origin in (list, tuple):
        return origin(read_value(parts[0], item, place, f"{name}.{i}") for i, item in enumerate(value))
    if origin in (dict, Mapping) and parts:
        return {key: read_value(parts[1], item, place, f"{name}.{key}") for key, item in value.items()}
    return value


def _is_enum(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Enum)


def _is_word(kind: Any) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, str) and value in [member.value for member in kind]


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_COUNT


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


_KINDS: Mapping[Any, tuple[str, Callable[[Any], bool]]] = {
    bool: ("true or false", lambda value: isinstance(value, bool)),
    int: ("a whole number", _is_count),
    float: ("a finite number", _is_number),
    str: ("text", lambda value: isinstance(value, str)),
    list: ("a list", lambda value: isinstance(value, list)),
    tuple: ("a list", lambda value: isinstance(value, list)),
    dict: ("an object", lambda value: isinstance(value, Mapping)),
    Mapping: ("an object", lambda value: isinstance(value, Mapping)),
    Any: ("anything", lambda value: True),  # noqa: ARG005
}
