"""Calling functions written by users: which arguments they take, and whether their values are torch tensors.

Torch is recognised without being imported, so that simulation workers that use NumPy only need not load it.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

__all__ = ["call", "is_tensor", "parameters", "required_arguments"]


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


def is_tensor(value: Any) -> bool:
    """Whether the value is a torch tensor; torch is not imported.

    >>> is_tensor(np.zeros(2))
    False
    """
    return "torch" in sys.modules and isinstance(value, sys.modules["torch"].Tensor)
