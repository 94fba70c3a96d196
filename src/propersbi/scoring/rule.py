"""What all scoring rules have in common: they can be added, multiplied and resolved."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from propersbi.types import InputError, ScoringRule

__all__ = ["Resolvable", "Rule", "TrainingParameters", "WeightedSum", "resolved"]

TrainingParameters = Tensor | Sequence[Tensor]
"""Parameters ``(n, *event)``, or several sets of them."""

T = TypeVar("T")


@runtime_checkable
class Resolvable(Protocol):
    """A rule or kernel with settings, such as a bandwidth, that are found on training parameters."""

    def resolve(self, theta: Any) -> Any:
        """The same rule or kernel with numbers in place of heuristics."""


def resolved(rule: T, theta: TrainingParameters) -> T:
    """A rule or kernel in which numbers found on training parameters replace all heuristics."""
    if not isinstance(rule, Resolvable):
        return rule
    result: T = rule.resolve(theta)
    return result


class Rule(ABC):
    """Arithmetic of scoring rules: ``EnergyScore() + 0.5 * KernelScore()``.

    A sum of proper rules is proper; it is strictly proper if one of them is.

    Examples:
        >>> from propersbi.scoring import EnergyScore
        >>> EnergyScore() + 0.5 * EnergyScore(beta=0.5)
        WeightedSum(rules=(EnergyScore(beta=1.0, fair=True), EnergyScore(beta=0.5, fair=True)), weights=(1.0, 0.5))
    """

    @abstractmethod
    def __call__(self, samples: Tensor, theta: Tensor) -> Tensor:
        """The score of ``m`` draws ``(m, n, *event)`` against the true values ``(n, *event)``, one per row ``(n,)``."""

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
    """A weighted sum of scoring rules with positive weights, as ``+`` and ``*`` return it.

    Arguments:
        rules: Scoring rules; functions of your own are allowed.
        weights: One weight per rule.
    """

    rules: tuple[ScoringRule, ...]
    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.rules or len(self.rules) != len(self.weights):
            raise InputError(f"A sum needs one weight per rule, got {len(self.weights)} for {len(self.rules)} rules.")
        for weight in self.weights:
            if not 0 < weight < math.inf:
                raise InputError(f"The weights of a proper sum of scoring rules must be positive, got {weight}.")

    def __call__(self, samples: Float[Tensor, "m n *event"], theta: Float[Tensor, "n *event"]) -> Float[Tensor, " n"]:
        scores = [weight * rule(samples, theta) for rule, weight in zip(self.rules, self.weights, strict=True)]
        return torch.stack(scores).sum(0)

    def resolve(self, theta: TrainingParameters) -> WeightedSum:
        """The same sum with every rule resolved on training parameters."""
        return replace(self, rules=tuple(resolved(rule, theta) for rule in self.rules))


def _terms(rule: ScoringRule) -> tuple[tuple[ScoringRule, ...], tuple[float, ...]]:
    return (rule.rules, rule.weights) if isinstance(rule, WeightedSum) else ((rule,), (1.0,))
