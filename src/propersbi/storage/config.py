"""Objects to JSON and back, through an allow-list of classes. Never pickle.

Constructors store their arguments under their own names, so an object is its class name and those arguments::

    Gaussian(bandwidth=1.0)  <->  {"class": "Gaussian", "bandwidth": 1.0}

Reading can build only concrete classes that stand in the ``__all__`` of one of :data:`MODULES`, or of a module that
this process has registered, from numbers, strings, lists and each other.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from copy import deepcopy
from functools import cache
from importlib import import_module
from typing import Any

from propersbi.types import InputError

__all__ = ["CUSTOM", "MODULES", "allowed_class", "decode", "encode", "qualified_name", "register"]

MODULES = [
    "propersbi.layouts",
    "propersbi.networks",
    "propersbi.recipes",
    "propersbi.samplers",
    "propersbi.scoring",
    "propersbi.scoring.kernels",
    "propersbi.training.adversarial",
    "propersbi.training.config",
    "propersbi.training.divergences",
    "propersbi.training.objectives",
    "propersbi.training.stopping",
]
"""Where classes that can be saved and loaded are."""

CUSTOM = "custom"


def register(module: str) -> None:
    """Let the classes in the ``__all__`` of an imported module be saved and loaded in this process.

    Arguments:
        module: Its full name, for example ``__name__``.
    """
    if module not in MODULES:
        MODULES.append(module)
        _classes.cache_clear()


@cache
def _classes() -> dict[str, type]:
    found: dict[str, type] = {}
    for place in MODULES:
        module = import_module(place)
        for name in module.__all__:
            value = getattr(module, name)
            if isinstance(value, type) and not inspect.isabstract(value):
                found[name] = value
    return found


def allowed_class(name: Any) -> type:
    """The class of this name, if it can be loaded.

    >>> allowed_class("EnergyScore").__name__
    'EnergyScore'
    """
    if not isinstance(name, str) or name not in _classes():
        raise InputError(f"'{name!s:.80}' is not a class that can be loaded.")
    return _classes()[name]


def encode(value: Any) -> Any:
    """What JSON can hold of ``value``.

    An object of a class that is not registered is saved by name only; whoever loads it must pass it again.

    >>> from propersbi.scoring import EnergyScore
    >>> encode(EnergyScore(beta=0.5))
    {'class': 'EnergyScore', 'beta': 0.5, 'fair': True}
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise InputError(f"A configuration holds finite numbers only, got {value}.")
        return value
    if isinstance(value, list | tuple):
        return [encode(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): encode(item) for key, item in value.items()}
    name = type(value).__name__
    if _classes().get(name) is not type(value):
        return {"class": CUSTOM, "name": qualified_name(value)}
    return {"class": name, **{argument: encode(getattr(value, argument)) for argument in _arguments(type(value))}}


def qualified_name(value: Any) -> str:
    """Module and name of a function, or of the class of an object."""
    named = value if inspect.isroutine(value) or isinstance(value, type) else type(value)
    return f"{named.__module__}.{named.__qualname__}"


def decode(data: Any, custom: Mapping[str, Any] | None = None, role: str = "") -> Any:
    """The object that ``data`` describes; objects of the user's own come from ``custom``, by their role.

    >>> decode({"class": "EnergyScore", "beta": 0.5})
    EnergyScore(beta=0.5, fair=True)
    >>> decode({"class": "os.system", "command": "true"})
    Traceback (most recent call last):
    propersbi.types.InputError: 'os.system' is not a class that can be loaded.
    """
    if isinstance(data, list):
        return tuple(decode(item, custom, role) for item in data)
    if not isinstance(data, dict):
        return data
    if "class" not in data:
        return {key: decode(value, custom, key) for key, value in data.items()}
    if data["class"] == CUSTOM:
        if (custom or {}).get(role) is None:
            raise InputError(
                f"This was saved with an object of your own, '{data.get('name')!s:.80}': pass it again as '{role}'."
            )
        return deepcopy((custom or {})[role])  # members of an ensemble must not share weights
    cls = allowed_class(data["class"])
    given = {key: decode(value, custom, key) for key, value in data.items() if key != "class"}
    unknown = sorted(given.keys() - set(_arguments(cls)))
    if unknown:
        raise InputError(f"'{cls.__name__}' has no argument '{unknown[0]!s:.80}'.")
    try:
        return cls(**given)
    except InputError:
        raise
    except (TypeError, ValueError, RuntimeError, OverflowError, AttributeError) as error:
        raise InputError(f"'{cls.__name__}' cannot be built from what was saved: {str(error)[:200]}") from None


def _arguments(cls: type) -> list[str]:
    return list(inspect.signature(cls).parameters)
