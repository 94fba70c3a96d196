"""Rules composed of rules: on patches, on scaled parameters, on functions of parameters."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from jaxtyping import Float
from torch import Tensor

from propersbi.scoring.pairs import check
from propersbi.scoring.rule import Rule, TrainingParameters, resolved
from propersbi.storage.checks import is_number
from propersbi.types import InputError, ScoringRule

__all__ = ["Derived", "Patched", "Scaled"]


@dataclass(frozen=True)
class Patched(Rule):
    r"""The score of a field or image plus the scores of its patches, which are sensitive to local structure.

    .. math:: S(P, \theta) = w_1\, S_{full}(P, \theta) + w_2 \sum_{p} S_{rule}(P_p, \theta_p)

    over all windows of a given size and stride, without padding. Proper if the rules are; strictly proper if
    :math:`w_1 > 0` and the full rule is. Patches alone ignore the dependence between distant points.

    Arguments:
        rule: The rule for the patches.
        size: The window size in grid points: one number for all grid axes, or one per axis. A single number applies to
            all axes of one- and two-dimensional events and to the last two axes otherwise; leading axes are channels
            and belong to every window.
        step: The stride between windows, given in the same way.
        weight: The weight :math:`w_2` of the sum over patches; ``None`` is one over the number of patches, so that the
            mean over patches has the same weight as the full field.
        full_weight: The weight :math:`w_1` of the score of the full field.
        full: The rule for the full field; the same as for the patches unless given.

    References:
        Pacchiardi & Dutta, 2022 (patched scores).

    Examples:
        >>> import torch
        >>> from propersbi.scoring import EnergyScore
        >>> rule = Patched(EnergyScore(), size=8, step=5)
        >>> rule(torch.zeros(3, 2, 28, 28), torch.ones(2, 28, 28))
        tensor([72.0000, 72.0000])
    """

    rule: ScoringRule
    size: int | tuple[int, ...]
    step: int | tuple[int, ...]
    weight: float | None = None
    full_weight: float = 1.0
    full: ScoringRule | None = None

    def __post_init__(self) -> None:
        for name, values in (("size", self.size), ("step", self.step)):
            axes = values if isinstance(values, tuple) else (values,)
            if not axes or not all(type(value) is int and value > 0 for value in axes):
                raise InputError(f"'{name}' must hold positive whole numbers, got {values!s:.80}.")
        if len({len(values) for values in (self.size, self.step) if isinstance(values, tuple)}) > 1:
            raise InputError(f"'size' and 'step' must have the same number of axes, got {self.size} and {self.step}.")
        weight = 1.0 if self.weight is None else self.weight
        if not (is_number(weight) and weight > 0):
            raise InputError(f"'weight' must be a positive number or None, got {self.weight!r:.80}.")
        if not (is_number(self.full_weight) and self.full_weight >= 0):
            raise InputError(f"'full_weight' must not be negative, got {self.full_weight!s:.80}.")

    def __call__(self, samples: Float[Tensor, "m n *event"], theta: Float[Tensor, "n *event"]) -> Float[Tensor, " n"]:
        check(samples, theta)
        draws, truth = self._windows(samples, 2), self._windows(theta, 1)
        m, n, patches = draws.shape[:3]
        scores = self.rule(draws.reshape(m, n * patches, -1), truth.reshape(n * patches, -1)).reshape(n, patches)
        total = (1 / patches if self.weight is None else self.weight) * scores.sum(1)
        if not self.full_weight:
            return total
        return total + self.full_weight * (self.full or self.rule)(samples, theta)

    def resolve(self, theta: TrainingParameters) -> Patched:
        """The same rule with numerical bandwidths; for the patches, the median over patches."""
        if not isinstance(theta, Tensor):
            raise InputError(f"Patches are resolved on one tensor of parameters, got {len(theta)}.")
        windows = self._windows(theta, 1)
        return replace(
            self,
            rule=resolved(self.rule, list(windows.unbind(1))),
            full=resolved(self.full or self.rule, theta) if self.full_weight else self.full,
        )

    def _sizes(self, axes: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Sizes and strides, one per grid axis, for events with ``axes`` axes."""
        lengths = [len(values) for values in (self.size, self.step) if isinstance(values, tuple)]
        grid = lengths[0] if lengths else min(axes, 2)
        if grid > axes:
            raise InputError(f"Patches over {grid} axes do not fit parameters with {axes}.")
        return _per_axis(self.size, grid), _per_axis(self.step, grid)

    def _windows(self, values: Tensor, batch: int) -> Tensor:
        """All windows: ``(*batch, *event) -> (*batch, patches, *window)``."""
        sizes, steps = self._sizes(values.ndim - batch)
        first = values.ndim - len(sizes)
        for axis, (size, step) in enumerate(zip(sizes, steps, strict=True), first):
            if size > values.shape[axis]:
                raise InputError(f"A patch of {size} does not fit an axis of {values.shape[axis]}.")
            values = values.unfold(axis, size, step)
        # Now (*batch, *channels, *positions, *window): positions move to the front and become one axis.
        for axis in range(len(sizes)):
            values = values.movedim(first + axis, batch + axis)
        return values.flatten(batch, batch + len(sizes) - 1)


@dataclass(frozen=True)
class Scaled(Rule):
    """A rule that weights parameters differently: each is multiplied by a constant before scoring.

    Strictly proper if the rule is, since no constant is zero.

    Arguments:
        rule: The scoring rule.
        scales: One positive number per parameter (of the flattened event).

    Examples:
        >>> import torch
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

    def resolve(self, theta: TrainingParameters) -> Scaled:
        """The same rule, resolved on scaled training parameters."""
        return replace(self, rule=resolved(self.rule, _each(theta, lambda part: self._scaled(part, 1))))

    def _scaled(self, values: Tensor, batch: int) -> Tensor:
        event = values.shape[batch:]
        if math.prod(event) != len(self.scales):
            raise InputError(f"{len(self.scales)} scales do not fit parameters of shape {tuple(event)}.")
        return values * values.new_tensor(self.scales).reshape(event)


@dataclass(frozen=True)
class Derived(Rule):
    r"""The score of a function :math:`g(\theta)` of the parameters, such as a quantity computed from them.

    Proper. Strictly proper for the distribution of :math:`g(\theta)`, and for that of :math:`\theta` if :math:`g` is
    one-to-one; otherwise add a rule for :math:`\theta` itself. ``ps.fit`` scores standardised parameters.

    Arguments:
        rule: The scoring rule.
        function: The differentiable function :math:`g`, ``(k, *event) -> (k, *derived)``.

    Examples:
        >>> import torch
        >>> from propersbi.scoring import EnergyScore
        >>> rule = Derived(EnergyScore(), lambda theta: theta.sum(-1, keepdim=True))
        >>> rule(torch.zeros(2, 1, 2), torch.tensor([[3.0, 1.0]]))
        tensor([8.])
    """

    rule: ScoringRule
    function: Callable[[Tensor], Tensor]

    def __call__(self, samples: Float[Tensor, "m n *event"], theta: Float[Tensor, "n *event"]) -> Float[Tensor, " n"]:
        check(samples, theta)
        derived = self.function(samples.flatten(0, 1))
        return self.rule(derived.reshape(*samples.shape[:2], *derived.shape[1:]), self.function(theta))

    def resolve(self, theta: TrainingParameters) -> Derived:
        """The same rule, resolved on the function of the training parameters."""
        return replace(self, rule=resolved(self.rule, _each(theta, self.function)))


def _each(theta: TrainingParameters, function: Callable[[Tensor], Tensor]) -> TrainingParameters:
    """The function of the training parameters, or of each set of them."""
    return function(theta) if isinstance(theta, Tensor) else [function(part) for part in theta]


def _per_axis(values: int | tuple[int, ...], axes: int) -> tuple[int, ...]:
    return values if isinstance(values, tuple) else (values,) * axes
