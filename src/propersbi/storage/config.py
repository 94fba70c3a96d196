"""Objects to JSON and back, through an allow-list of the library's own classes. Never pickle.

Constructors store their arguments under their own names; so an object is its class name and those arguments::

    Gaussian(bandwidth=1.0)  <->  {"class": "Gaussian", "bandwidth": 1.0}

Reading can build nothing but what stands in :data:`ALLOWED`, out of numbers, words, lists and each other.
"""

from __future__ import annotations

import inspect
import math
from importlib import import_module
from typing import Any

from propersbi.types import InputError

__all__ = ["ALLOWED", "decode", "encode"]

ALLOWED = {
    "Box": "propersbi.samplers.bounds",
    "Derived": "propersbi.scoring.composed",
    "EnergyScore": "propersbi.scoring.radial",
    "FieldGenerator": "propersbi.networks.field",
    "Flow": "propersbi.networks.flow",
    "Gaussian": "propersbi.scoring.kernels",
    "GridEmbedding": "propersbi.networks.embeddings",
    "Hellinger": "propersbi.training.divergences",
    "InverseMultiquadric": "propersbi.scoring.kernels",
    "JensenShannon": "propersbi.training.divergences",
    "KL": "propersbi.training.divergences",
    "KernelScore": "propersbi.scoring.radial",
    "Laplace": "propersbi.scoring.kernels",
    "MLPGenerator": "propersbi.networks.mlp",
    "Matern": "propersbi.scoring.kernels",
    "MedianHeuristic": "propersbi.scoring.kernels",
    "Mixture": "propersbi.scoring.kernels",
    "PaperCamera": "propersbi.networks.paper",
    "PaperMLP": "propersbi.networks.mlp",
    "PaperShallowWater": "propersbi.networks.paper",
    "Patched": "propersbi.scoring.composed",
    "Pearson": "propersbi.training.divergences",
    "RationalQuadratic": "propersbi.scoring.kernels",
    "Residual": "propersbi.samplers.linear",
    "ReverseKL": "propersbi.training.divergences",
    "ReverseMarkov": "propersbi.samplers.refined",
    "Scaled": "propersbi.scoring.composed",
    "SlicedEnergyScore": "propersbi.scoring.sliced",
    "Standardize": "propersbi.samplers.bounds",
    "TotalVariation": "propersbi.training.divergences",
    "UNetGenerator": "propersbi.networks.conv",
    "VariogramScore": "propersbi.scoring.variogram",
    "Wasserstein": "propersbi.training.divergences",
    "WeightedSum": "propersbi.scoring.rule",
}
"""Every class that can be saved, and the module it lives in."""

CUSTOM = "custom"


def encode(value: Any) -> Any:
    """What JSON can hold of ``value``.

    An object that is not the library's own is saved by name only; whoever loads it must bring it along.

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
    name = type(value).__name__
    if type(value).__module__ != ALLOWED.get(name):
        return {"class": CUSTOM, "name": f"{type(value).__module__}.{type(value).__qualname__}"}
    return {"class": name, **{argument: encode(getattr(value, argument)) for argument in _arguments(type(value))}}


def decode(data: Any, custom: dict[str, Any] | None = None, role: str = "") -> Any:
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
    name = data.get("class")
    if name == CUSTOM:
        if (custom or {}).get(role) is None:
            raise InputError(f"This was saved with an own object '{data.get('name')}': pass it again as '{role}'.")
        return (custom or {})[role]
    if not isinstance(name, str) or name not in ALLOWED:
        raise InputError(f"'{name}' is not a class that can be loaded.")
    cls = getattr(import_module(ALLOWED[name]), name)
    given = {key: decode(value, custom, key) for key, value in data.items() if key != "class"}
    unknown = sorted(given.keys() - set(_arguments(cls)))
    if unknown:
        raise InputError(f"'{name}' has no argument '{unknown[0]}'.")
    try:
        return cls(**given)
    except InputError:
        raise
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise InputError(f"'{name}' cannot be built from what was saved: {error}") from None


def _arguments(cls: type) -> list[str]:
    return list(inspect.signature(cls).parameters)
