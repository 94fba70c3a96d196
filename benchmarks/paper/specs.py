"""What specifications describe by class names and options: scoring rules and networks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.paper.weights import patch_weight
from propersbi.recipes import Factory
from propersbi.storage.config import decode

__all__ = ["factory", "rule_of"]


def rule_of(description: Mapping[str, Any], theta_shape: Sequence[int]) -> Any:
    """A scoring rule for parameters of a shape, with the paper's weights of patches as numbers.

    >>> rule_of({"class": "EnergyScore", "beta": 0.5}, (2,))
    EnergyScore(beta=0.5, fair=True)
    """
    options = dict(description)
    if isinstance(options.get("weight"), str):
        options["weight"] = patch_weight(options["weight"], theta_shape, options["size"], options["step"])
    return decode(options)


def factory(description: Mapping[str, Any]) -> Factory:
    """What makes a network from its shapes.

    >>> factory({"class": "PaperMLP", "before": 1})
    Factory(name='PaperMLP', options={'before': 1})
    """
    return Factory(description["class"], {key: value for key, value in description.items() if key != "class"})
