"""What all scoring rules share: they can be added, multiplied and resolved."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from propersbi.types import InputError, ScoringRule

__all__ = ["Rule", "WeightedSum", "resolved"]


class Rule:
    """Arithmetic of scoring rules: ``EnergyScore() + 0.5 * KernelScore()``.

    A sum of proper rules is proper; it is strictly proper if one of them is.

    Examples:
        >>> from propersbi.scoring import EnergyScore
        >>> EnergyScore() + 0.5 * EnergyScore(beta=0.5)
        WeightedSum(rules=(EnergyScore(beta=1.0, fair=True), EnergyScore(beta=0.5, fair=True)), weights=(1.0, 0.5))
    """

    def __add__(self, other: ScoringRule) -> WeightedSum:
        if not callable(other):
            return NotImplemented
        rules, weights = _terms(self)
        more_rules, more_weights = _terms(other)
        return WeightedSum(rules + more_rules, weights + more_weights)

    def __radd__(self, other: ScoringRule) -> WeightedSum:
        if not callable(other):
            return NotImplemented
        rules, weights = _terms(self)
        return WeightedSum((other, *rules), (1.0, *weights))

    def __mul__(self, factor: int | float) -> WeightedSum:
        if not isinstance(factor, int | float):
            return NotImplemented
        rules, weights = _terms(self)
        return WeightedSum(rules, tuple(float(factor) * weight for weight in weights))

    __rmul__ = __mul__


@dataclass(frozen=True)
class WeightedSum(Rule):
    """A sum of scoring rules, each with a positive weight; made by ``+`` and ``*``.

    Arguments:
        rules: Scoring rules, your own functions among them.
        weights: One for each.
    """

    rules: tuple[ScoringRule, ...]
    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.rules or len(self.rules) != len(self.weights):
            raise InputError(f"A sum of rules needs a weight for each, got {len(self.rules)} and {len(self.weights)}.")
        for weight in self.weights:
            if not 0 < weight < math.inf:
                raise InputError(f"The weight of a scoring rule must be positive, or it is not proper; got {weight}.")

    def __call__(self, samples: Float[Tensor, "m n *event"], theta: Float[Tensor, "n *event"]) -> Float[Tensor, " n"]:
        scores = [weight * rule(samples, theta) for rule, weight in zip(self.rules, self.weights, strict=True)]
        return torch.stack(scores).sum(0)

    def resolve(self, theta: Any) -> WeightedSum:
        """The same sum with every rule resolved on training parameters."""
        return replace(self, rules=tuple(resolved(rule, theta) for rule in self.rules))


def _terms(rule: Any) -> tuple[tuple[ScoringRule, ...], tuple[float, ...]]:
    return (rule.rules, rule.weights) if isinstance(rule, WeightedSum) else ((rule,), (1.0,))


def resolved(rule: Any, theta: Any) -> Any:
    """A rule or kernel with everything it has to learn from training parameters turned into numbers."""
    return rule.resolve(theta) if hasattr(rule, "resolve") else rule
