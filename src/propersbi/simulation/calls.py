"""Calling functions written by users: which arguments they take, and whether their values are torch tensors.

Torch is recognised without being imported, so that simulation workers that use NumPy only need not load it.
"""

from __future__ import annotations

import difflib
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from propersbi.types import InputError

__all__ = ["Argument", "call", "is_tensor", "named_arguments", "nearest", "parameters", "required_arguments"]

Argument = tuple[str, int]
"""The name of a parameter and how many numbers it has."""


def parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """The parameters of a function by name; empty if they are unknown, as for some compiled functions.

    >>> list(parameters(lambda theta, rng=None: theta))
    ['theta', 'rng']
    """
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):
        return {}


def required_arguments(function: Callable[..., Any]) -> list[str]:
    """The names of the positional arguments without a default.

    >>> required_arguments(lambda theta, scale=1.0: theta)
    ['theta']
    """
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [name for name, p in parameters(function).items() if p.kind in positional and p.default is p.empty]


def call(function: Callable[..., Any], value: Any, rng: np.random.Generator) -> Any:
    """``function(value)``, with the generator if there is an argument ``rng`` or a second required argument.

    >>> call(lambda theta, scale=2.0: theta * scale, 3.0, np.random.default_rng(0))
    6.0
    """
    rng_parameter = parameters(function).get("rng")
    if rng_parameter is not None and rng_parameter.kind is not rng_parameter.POSITIONAL_ONLY:
        return function(value, rng=rng)
    return function(value, rng) if len(required_arguments(function)) == 2 else function(value)


def named_arguments(function: Callable[..., Any], arguments: Sequence[Argument]) -> tuple[Argument, ...] | None:
    """The arguments, if the function takes them by name; ``None`` if it takes one vector of all.

    >>> named_arguments(lambda beta, gamma, rng: 0, [("beta", 1), ("gamma", 2)])
    (('beta', 1), ('gamma', 2))
    >>> named_arguments(lambda theta: 0, [("beta", 1), ("gamma", 2)]) is None
    True
    """
    given, names = parameters(function), [name for name, _ in arguments]
    takes_any = any(p.kind is p.VAR_KEYWORD for p in given.values())
    by_name = {name: p for name, p in given.items() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    required = [name for name, p in by_name.items() if p.default is p.empty and name != "rng"]
    unused = [] if takes_any else [name for name in names if name not in by_name]
    unknown = [name for name in required if name not in names]
    if len(required) <= 1 and (unused or unknown):
        return None  # one vector
    if len(unknown) == len(required) and len(unused) == len(names):
        return None  # (theta, generator), or nothing that has to do with these names
    if unknown:
        advice = nearest(unknown[0], unused) or "give it a default."
        raise InputError(f"The simulator has an argument '{unknown[0]}', which is no parameter of the prior: {advice}")
    if unused:
        raise InputError(f"The prior has a parameter '{unused[0]}', which is not an argument of the simulator.")
    return tuple(arguments)


def nearest(name: str, names: Sequence[str]) -> str | None:
    """A question after the name that was meant, if there is one like it.

    >>> nearest("time_out", ["timeout", "on_error"])
    "did you mean 'timeout'?"
    """
    found = difflib.get_close_matches(name, names, n=1)
    return f"did you mean '{found[0]}'?" if found else None


def is_tensor(value: Any) -> bool:
    """Whether the value is a torch tensor; torch is not imported.

    >>> is_tensor(np.zeros(2))
    False
    """
    return "torch" in sys.modules and isinstance(value, sys.modules["torch"].Tensor)
