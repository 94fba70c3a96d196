"""Rules made of rules: on patches, on scaled parameters, on functions of parameters."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from propersbi.scoring.pairs import check
from propersbi.scoring.rule import Rule, resolved
from propersbi.types import InputError, ScoringRule

__all__ = ["Derived", "Patched", "Scaled"]


@dataclass(frozen=True)
class Patched(Rule):
    r"""The score of a field or image plus the scores of its patches, which see what is local.

    .. math:: S(P, \theta) = w_1\, S_{full}(P, \theta) + w_2 \sum_{p} S_{rule}(P_p, \theta_p)

    over all windows of some size, a step apart, without padding. Proper whenever the rules are; strictly proper if
    :math:`w_1 > 0` and the rule of the whole is. Patches alone say nothing about the dependence between distant places.

    Arguments:
        rule: The rule of the patches.
        size: Points of a window: one number for all grid axes, or one for each. A single number is for all axes of
            events with one or two, and for the last two of events with channels; every channel belongs to the window.
        step: Points between windows, likewise.
        weight: The weight :math:`w_2` of the sum over patches, or a name: ``"mean"`` weighs the mean over patches like
            the whole; ``"paper energy"`` and ``"paper kernel"`` are the weights the paper used, which fall with the
            square of the number of patches :math:`N`: :math:`w_2 = D / (|p| N^2)` for :math:`D` points and :math:`|p|`
            per patch, and :math:`w_2 = 1 / N^2`.
        full_weight: The weight :math:`w_1` of the score of the whole.
        full: The rule of the whole, if it is another one.

    References:
        Pacchiardi & Dutta, 2022 (patched scores).

    Examples:
        >>> from propersbi.scoring import EnergyScore
        >>> rule = Patched(EnergyScore(), size=8, step=5, weight="paper energy")
        >>> rule(torch.zeros(3, 2, 28, 28), torch.ones(2, 28, 28))
        tensor([63.8400, 63.8400])
    """

    rule: ScoringRule
    size: int | tuple[int, ...]
    step: int | tuple[int, ...]
    weight: float | str = "mean"
    full_weight: float = 1.0
    full: ScoringRule | None = None

    def __post_init__(self) -> None:
        for name, values in (("size", self.size), ("step", self.step)):
            if not values or not all(isinstance(value, int) and value > 0 for value in _spread(values, 1)):
                raise InputError(f"'{name}' must hold positive whole numbers, got {values}.")
        if len({len(values) for values in (self.size, self.step) if isinstance(values, tuple)}) > 1:
            raise InputError(f"'size' and 'step' must be for the same axes, got {self.size} and {self.step}.")
        if isinstance(self.weight, str):
            if self.weight not in _WEIGHTS:
                raise InputError(f"'weight' must be a number or one of {list(_WEIGHTS)}, got '{self.weight}'.")
        elif not 0 < self.weight < math.inf:
            raise InputError(f"'weight' must be positive, got {self.weight}.")
        if not 0 <= self.full_weight < math.inf:
            raise InputError(f"'full_weight' must not be negative, got {self.full_weight}.")

    def __call__(self, samples: Float[Tensor, "m n *event"], theta: Float[Tensor, "n *event"]) -> Float[Tensor, " n"]:
        check(samples, theta)
        drawn, true = self._windows(samples, 2), self._windows(theta, 1)
        m, n, patches = drawn.shape[:3]
        scores = self.rule(drawn.reshape(m, n * patches, -1), true.reshape(n * patches, -1)).reshape(n, patches)
        total = self._patch_weight(theta, patches) * scores.sum(1)
        if not self.full_weight:
            return total
        return total + self.full_weight * (self.full or self.rule)(samples, theta)

    def resolve(self, theta: Any) -> Patched:
        """The same rule with bandwidths as numbers: for the patches, the median over patches."""
        windows = self._windows(theta, 1)
        return replace(
            self,
            rule=resolved(self.rule, list(windows.unbind(1))),
            full=resolved(self.full or self.rule, theta) if self.full_weight else self.full,
        )

    def _patch_weight(self, theta: Tensor, patches: int) -> float:
        if not isinstance(self.weight, str):
            return self.weight
        points = math.prod(theta.shape[1:]) / math.prod(self._sizes(theta.ndim - 1)[0]) / self._channels(theta)
        return _WEIGHTS[self.weight](points, patches)

    def _channels(self, theta: Tensor) -> int:
        return math.prod(theta.shape[1 : theta.ndim - len(self._sizes(theta.ndim - 1)[0])])

    def _sizes(self, axes: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Sizes and steps, one for each grid axis of events with so many axes."""
        given = [len(values) for values in (self.size, self.step) if isinstance(values, tuple)]
        grid = given[0] if given else min(axes, 2)
        if grid > axes:
            raise InputError(f"Patches over {grid} axes do not fit parameters with {axes}.")
        return _spread(self.size, grid), _spread(self.step, grid)

    def _windows(self, values: Tensor, batch: int) -> Tensor:
        """All windows: ``(*batch, *event) -> (*batch, patches, *window)``."""
        sizes, steps = self._sizes(values.ndim - batch)
        first = values.ndim - len(sizes)
        for axis, (size, step) in enumerate(zip(sizes, steps, strict=True), first):
            if size > values.shape[axis]:
                raise InputError(f"A patch of {size} does not fit an axis of {values.shape[axis]}.")
            values = values.unfold(axis, size, step)
        # Now (*batch, *channels, *places, *window): places move to the front and become one axis.
        for place in range(len(sizes)):
            values = values.movedim(first + place, batch + place)
        return values.flatten(batch, batch + len(sizes) - 1)


_WEIGHTS: dict[str, Callable[[float, int], float]] = {
    "mean": lambda _, patches: 1 / patches,
    "paper energy": lambda points, patches: points / patches**2,
    "paper kernel": lambda _, patches: 1 / patches**2,
}
"""The weight of the sum over patches, from how many patches would tile the field and how many there are."""


@dataclass(frozen=True)
class Scaled(Rule):
    """A rule in which some parameters count more: each is multiplied by a number before it is scored.

    As strictly proper as the rule, since no number is zero.

    Arguments:
        rule: The scoring rule.
        scales: One positive number for each parameter (of the flattened event).

    Examples:
        >>> from propersbi.scoring import EnergyScore
        >>> rule = Scaled(EnergyScore(), scales=(1.0, 10.0))
        >>> rule(torch.zeros(2, 1, 2), torch.tensor([[3.0, 0.4]]))
        tensor([10.])
    """

    rule: ScoringRule
    scales: Sequence[int | float]

    def __post_init__(self) -> None:
        object.__setattr__(self, "scales", tuple(float(scale) for scale in self.scales))
        for scale in self.scales:
            if not 0 < scale < math.inf:
                raise InputError(f"'scales' must be positive, got {scale}.")

    def __call__(self, samples: Float[Tensor, "m n *event"], theta: Float[Tensor, "n *event"]) -> Float[Tensor, " n"]:
        check(samples, theta)
        return self.rule(self._scaled(samples, 2), self._scaled(theta, 1))

    def resolve(self, theta: Any) -> Scaled:
        """The same rule, resolved on scaled training parameters."""
        return replace(self, rule=resolved(self.rule, _each(theta, lambda part: self._scaled(part, 1))))

    def _scaled(self, values: Tensor, batch: int) -> Tensor:
        event = values.shape[batch:]
        if math.prod(event) != len(self.scales):
            raise InputError(f"{len(self.scales)} scales do not fit parameters of shape {tuple(event)}.")
        return values * values.new_tensor(self.scales).reshape(event)


@dataclass(frozen=True)
class Derived(Rule):
    r"""The score of a function of the parameters: of what is done with them in the end.

    It is proper. It is strictly proper for the law of :math:`g(\theta)`, and for that of :math:`\theta` if :math:`g` is
    one-to-one; else add a rule for :math:`\theta` itself. Under ``ps.fit`` parameters are standardised when they are
    scored.

    Arguments:
        rule: The scoring rule.
        function: Differentiable, ``(k, *event) -> (k, *derived)``.

    Examples:
        >>> from propersbi.scoring import EnergyScore
        >>> rule = Derived(EnergyScore(), lambda theta: theta.sum(-1, keepdim=True))
        >>> rule(torch.zeros(2, 1, 2), torch.tensor([[3.0, 1.0]]))
        tensor([8.])
    """

    rule: ScoringRule
    function: Callable[[Tensor], Tensor]

    def __call__(self, samples: Float[Tensor, "m n *event"], theta: Float[Tensor, "n *event"]) -> Float[Tensor, " n"]:
        check(samples, theta)
        derived = self.function(samples.flatten(0, 1)).unflatten(0, samples.shape[:2])
        return self.rule(derived, self.function(theta))

    def resolve(self, theta: Any) -> Derived:
        """The same rule, resolved on the function of training parameters."""
        return replace(self, rule=resolved(self.rule, _each(theta, self.function)))


def _each(theta: Tensor | Sequence[Tensor], function: Callable[[Tensor], Tensor]) -> Any:
    """The function of training parameters, or of each set of them."""
    return function(theta) if isinstance(theta, torch.Tensor) else [function(part) for part in theta]


def _spread(values: int | tuple[int, ...], axes: int) -> tuple[int, ...]:
    return values if isinstance(values, tuple) else (values,) * axes
