"""Formats of saved posteriors: what older versions wrote is brought to the present format, one step at a time.

A posterior that a released version has saved can be loaded by every later version. Whoever changes what
``config.json`` holds, or the names of weights, raises :data:`FORMAT` and adds to :data:`MIGRATIONS` a function from
the old content to the new one. ``tests/saved`` holds posteriors of every kind and format, which are loaded in the tests
for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from propersbi.types import InputError

__all__ = ["FORMAT", "MIGRATIONS", "check_format", "migrate"]

FORMAT = 2

Content = tuple[dict[str, Any], dict[str, Tensor]]
"""What ``config.json`` says, and the tensors of ``weights.safetensors`` by name."""

MIGRATIONS: Mapping[int, Callable[[dict[str, Any], dict[str, Tensor]], Content]] = {}
"""By format, the step to the next one. Format 1 was never released."""


def check_format(found: Any, place: str) -> None:
    """Refuse a format that cannot be read: one of a later version, or of none.

    >>> check_format(99, "posterior")
    Traceback (most recent call last):
    propersbi.types.InputError: 'posterior' has format 99; this version reads format 2. A later version wrote it.
    """
    if found == FORMAT or found in MIGRATIONS:
        return
    later = isinstance(found, int) and found > FORMAT
    hint = " A later version wrote it." if later else ""
    raise InputError(f"'{place}' has format {found!s:.80}; this version reads format {FORMAT}.{hint}")


def migrate(
    config: dict[str, Any],
    tensors: dict[str, Tensor],
    *,
    steps: Mapping[int, Callable[[dict[str, Any], dict[str, Tensor]], Content]] = MIGRATIONS,
    to: int = FORMAT,
) -> Content:
    """Bring the content of any readable format to the present one.

    >>> rename = lambda config, tensors: ({**config, "info": {}}, {f"new.{name}": t for name, t in tensors.items()})
    >>> migrate({"format": 1}, {"bias": 0}, steps={1: rename}, to=2)
    ({'format': 2, 'info': {}}, {'new.bias': 0})
    """
    for number in range(config["format"], to):
        config, tensors = steps[number](config, tensors)
        config["format"] = number + 1
    return config, tensors
