"""What makes an object once shapes or the sampler are known: a class of the library with options, or a name only."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from propersbi.storage.config import allowed_class
from propersbi.types import InputError

__all__ = ["Factory", "Own"]


@dataclass(frozen=True)
class Factory:
    """A class of the library and its options, to be built once shapes or the sampler are known.

    Arguments:
        name: The name of the class.
        options: Keyword arguments of its constructor.

    Examples:
        >>> Factory("MLPGenerator", {"width": 16})((2,), (3,)).width
        16
        >>> from propersbi.networks import MLPGenerator
        >>> Factory.of(functools.partial(MLPGenerator, width=16))
        Factory(name='MLPGenerator', options={'width': 16})
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, make: Any) -> Factory | None:
        """The factory for a class of the library or a ``functools.partial`` of one; ``None`` for anything else."""
        options: dict[str, Any] = {}
        while isinstance(make, functools.partial):
            if make.args:
                return None
            options, make = {**make.keywords, **options}, make.func
        try:
            known = isinstance(make, type) and allowed_class(make.__name__) is make
        except InputError:
            return None
        return cls(make.__name__, options) if known else None

    @property
    def target(self) -> type:
        """The class."""
        return allowed_class(self.name)

    def __call__(self, *arguments: Any, **more: Any) -> Any:
        """Build it."""
        return self.target(*arguments, **{**self.options, **more})

    def __str__(self) -> str:
        return f"{self.name}({', '.join(f'{key}={value}' for key, value in self.options.items())})"


@dataclass(frozen=True)
class Own:
    """Stands for an object of the user's own, which a recipe knows by name only; it must be passed again.

    Arguments:
        name: Its module and name.
    """

    name: str

    def __str__(self) -> str:
        return self.name
