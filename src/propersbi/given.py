"""What is known of networks and objectives that a user gives: built, or a class or function that makes them."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from torch import nn

from propersbi.recipes import Factory, Own
from propersbi.samplers import ChainGenerator, Refined
from propersbi.storage.config import CUSTOM, encode, qualified_name
from propersbi.training.objectives import Objective

__all__ = ["described", "settings_of", "takes_steps"]


def takes_steps(network: Any) -> bool:
    """Whether what makes a network can make one that is a step of a chain; by default it can."""
    if network is None or isinstance(network, Own):
        return True
    target = network.target if isinstance(network, Factory) else network
    if isinstance(target, type):
        return issubclass(target, ChainGenerator | Refined)
    return "chain" in _parameters(target)


def settings_of(objective: Any) -> Mapping[str, Any]:
    """The training configuration that suits what makes an objective."""
    target = objective.target if isinstance(objective, Factory) else objective
    return target.settings if isinstance(target, type) and issubclass(target, Objective) else {}


def _parameters(function: Any) -> list[str]:
    """Names of the arguments that a function takes; one with ``**options`` takes all."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    return [p.name for p in parameters] + ["chain" for p in parameters if p.kind is p.VAR_KEYWORD]


def described(module: nn.Module) -> Factory | Own:
    """A built network by its class and options, if it is the library's, else by its name."""
    data = encode(module)
    if data["class"] == CUSTOM or any(isinstance(value, dict) for value in data.values()):
        return Own(qualified_name(module))
    names = [name for name in data if name not in ("class", "theta_shape", "x_shape")]
    return Factory(data["class"], {name: getattr(module, name) for name in names})
