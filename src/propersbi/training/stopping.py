"""Stopping rules: functions of the training history alone.

The history is part of every checkpoint, so a rule needs no state of its own, and a training that was cut off and
resumed stops where the uninterrupted one does. To write a rule, write a function ``(history) -> StopReason | None``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from propersbi.storage.checks import check_number, is_number
from propersbi.training.history import History, StopReason
from propersbi.types import InputError

__all__ = ["Collapse", "Evenness", "FirstRise", "MaxSteps", "Patience", "Stopping", "TimeLimit", "first_reason"]


@runtime_checkable
class Stopping(Protocol):
    """A stopping rule."""

    def __call__(self, history: History) -> StopReason | None:
        """Why to stop now; ``None`` goes on."""


@dataclass(frozen=True)
class Patience:
    """Stop after some validations without better weights, or after a few if the score has become far worse.

    If it is not far worse and the learning rate is still high, the rate first falls to zero, from the best weights on.

    Arguments:
        validations: How many.
        overfitting: Stop already after ``overfitting_validations`` if the score lies this many standard errors of the
            paired difference above the lowest one.
        overfitting_validations: How many.
    """

    validations: int = 20
    overfitting: float = 10.0
    overfitting_validations: int = 5

    def __post_init__(self) -> None:
        _check_positive(
            validations=self.validations,
            overfitting=self.overfitting,
            overfitting_validations=self.overfitting_validations,
        )

    def __call__(self, history: History) -> StopReason | None:
        """Whether patience is at its end."""
        waited = history.validations_since_kept
        far_worse = bool(history.validation["excess"]) and history.validation["excess"][-1] > self.overfitting
        ended = waited >= self.validations or (waited >= self.overfitting_validations and far_worse)
        return StopReason.PATIENCE if ended else None


@dataclass(frozen=True)
class FirstRise:
    """Stop at the first validation score that is higher than the one before it.

    Arguments:
        start: Validations before this step do not count.
    """

    start: int = 0

    def __post_init__(self) -> None:
        if not is_number(self.start) or self.start < 0:
            raise InputError(f"'start' must not be negative, got {self.start!s:.80}.")

    def __call__(self, history: History) -> StopReason | None:
        """Whether the last score has risen."""
        steps, scores = history.validation["step"], history.validation["score"]
        rose = len(scores) > 1 and steps[-1] >= self.start and scores[-1] > scores[-2]
        return StopReason.FIRST_RISE if rose else None


@dataclass(frozen=True)
class Evenness:
    """Stop adversarial training when the critic no longer distinguishes real from drawn parameters.

    Arguments:
        tolerance: On the mean difference of its probabilities for real and for drawn parameters.
        validations: Over how many validations the mean is taken.
    """

    tolerance: float = 0.001
    validations: int = 10

    def __post_init__(self) -> None:
        _check_positive(tolerance=self.tolerance, validations=self.validations)

    def __call__(self, history: History) -> StopReason | None:
        """Whether the critic is even-handed."""
        recent = history.measures.get("evenness", [])[-self.validations :]
        even = len(recent) == self.validations and abs(sum(recent) / self.validations) < self.tolerance
        return StopReason.EVEN if even else None


@dataclass(frozen=True)
class Collapse:
    """Stop when all draws for one observation have become the same.

    Arguments:
        spread: Of the draws, in standard deviations of the parameters, below which they count as the same.
        validations: In how many validations in a row: some networks start with draws that hardly differ.
    """

    spread: float = 1e-3
    validations: int = 3

    def __post_init__(self) -> None:
        _check_positive(spread=self.spread, validations=self.validations)

    def __call__(self, history: History) -> StopReason | None:
        """Whether the draws have collapsed."""
        recent = history.measures.get("spread", [])[-self.validations :]
        collapsed = len(recent) == self.validations and max(recent) < self.spread
        return StopReason.COLLAPSED if collapsed else None


@dataclass(frozen=True)
class TimeLimit:
    """Stop after some seconds of training, over all resumptions.

    Arguments:
        seconds: How many.
    """

    seconds: float

    def __post_init__(self) -> None:
        _check_positive(seconds=self.seconds)

    def __call__(self, history: History) -> StopReason | None:
        """Whether the time is over."""
        return StopReason.TIME_LIMIT if history.seconds >= self.seconds else None


@dataclass(frozen=True)
class MaxSteps:
    """Stop after some gradient steps.

    Arguments:
        steps: How many.
    """

    steps: int

    def __post_init__(self) -> None:
        _check_positive(steps=self.steps)

    def __call__(self, history: History) -> StopReason | None:
        """Whether all steps are done."""
        return StopReason.MAX_STEPS if history.steps >= self.steps else None


def first_reason(rules: tuple[Stopping, ...], history: History) -> StopReason | None:
    """The reason of the first rule that has one; a training that diverged has ended for good."""
    if history.stopped is StopReason.DIVERGED:
        return history.stopped
    return next((reason for reason in (rule(history) for rule in rules) if reason is not None), None)


def _check_positive(**numbers: int | float) -> None:
    for name, number in numbers.items():
        check_number(name, number, "be a positive number", 0)
