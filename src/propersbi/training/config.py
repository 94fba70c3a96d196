"""The training configuration: what is asked of the training loop."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from propersbi.storage.checks import check_number, check_whole, is_number
from propersbi.training.history import History, StopReason
from propersbi.training.stopping import Patience, Stopping
from propersbi.types import InputError

__all__ = ["TrainConfig"]

# Shares of the steps so far and of all steps: in the smaller one the rate falls to zero once little is left to learn.
SETTLING_SHARE, SETTLING_MOST = 0.6, 0.125
LOW_RATE = 0.05  # of the peak of the learning rate, below which hardly anything is gained at lower ones


@dataclass(frozen=True)
class TrainConfig:
    """How to train.

    Arguments:
        max_steps: Gradient steps (rounds of all phases) at most; the learning rate reaches zero there.
        learning_rate: Its peak, after ``warmup`` steps; then it falls along a cosine.
        warmup: Steps of linear rise.
        decay: Whether it falls at all.
        optimizer: ``"adamw"``, or ``"soap"``: Adam in the principal axes of each layer's gradients, see
            :mod:`propersbi.training.optimizers`.
        weight_decay: Decoupled decay of the weights (AdamW).
        betas: Adam's decay rates of the first and second moments.
        clip: Gradients with a larger norm are scaled down to it; ``None`` leaves them.
        average: Decay rate of the running average of the weights, which is what is validated and kept; 0 turns
            averaging off.
        validate_every: Steps between two validations.
        stopping: Rules that end the training early, see :mod:`propersbi.training.stopping`; none with ``()``.
        keep: The weights to keep: those of the ``"best"`` validation score, or the ``"last"``, with new noise at every
            validation.
        keep_within: Later weights are preferred as long as their score lies within this many standard errors of the
            paired difference of the lowest one: scores are hardly sensitive to the last gain in sharpness.
        settle: If training has not clearly lowered the validation score by this step, there is little to learn beyond
            what was found before training: the learning rate falls to zero soon, and training ends. ``None`` goes on.
        time_limit: Seconds of training at most, over all resumptions; the learning rate reaches zero there.
        checkpoint_every: Seconds between two checkpoints.
        devices: How many devices; each takes its share of every batch. Several need ``propersbi[devices]``.
        threads: Threads of torch on the CPU; small networks are fastest on one.
        precision: Of the arithmetic, as Lightning Fabric names it; others than ``"32-true"`` need it too.
    """

    max_steps: int = 4000
    learning_rate: float = 2e-3
    warmup: int = 100
    decay: bool = True
    optimizer: Literal["adamw", "soap"] = "adamw"
    weight_decay: float = 0.0
    betas: Sequence[float] = (0.9, 0.99)
    clip: float | None = 1.0
    average: float = 0.999
    validate_every: int = 100
    stopping: Sequence[Stopping] = (Patience(),)
    keep: Literal["best", "last"] = "best"
    keep_within: float = 1.0
    settle: int | None = None
    time_limit: float | None = None
    checkpoint_every: float = 20.0
    devices: int = 1
    threads: int = 1
    precision: str = "32-true"

    def __post_init__(self) -> None:
        for name in ("max_steps", "validate_every", "devices", "threads", "learning_rate"):
            check_number(name, getattr(self, name), "be positive", 0)
        for name in ("max_steps", "validate_every", "devices", "threads"):
            check_whole(name, getattr(self, name), 1)
        for name in ("warmup", "weight_decay", "keep_within", "checkpoint_every"):
            if not _is_at_least_zero(getattr(self, name)):
                raise InputError(f"'{name}' must not be negative, got {getattr(self, name)!s:.80}.")
        if not (_is_at_least_zero(self.average) and self.average < 1):
            raise InputError(f"'average' must lie in [0, 1), got {self.average!s:.80}.")
        for name in ("time_limit", "clip", "settle"):
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name), "be positive or None", 0)
        if not isinstance(self.keep, str) or self.keep not in ("best", "last"):
            raise InputError(f"'keep' must be 'best' or 'last', got '{self.keep!s:.80}'.")
        if not isinstance(self.optimizer, str) or self.optimizer not in ("adamw", "soap"):
            raise InputError(f"'optimizer' must be 'adamw' or 'soap', got '{self.optimizer!s:.80}'.")
        betas = tuple(self.betas) if isinstance(self.betas, Sequence) else ()
        if not (len(betas) == 2 and all(_is_at_least_zero(beta) and beta < 1 for beta in betas)):
            raise InputError(f"'betas' must be two numbers in [0, 1), got {self.betas!s:.80}.")
        many = isinstance(self.stopping, Sequence) and not callable(self.stopping)
        rules = tuple(self.stopping) if many else (self.stopping,)
        if not all(map(callable, rules)):
            raise InputError(f"'stopping' must hold rules such as Patience(20), got {self.stopping!r:.80}.")
        object.__setattr__(self, "stopping", rules)
        object.__setattr__(self, "betas", tuple(self.betas))

    def rate(self, step: int, seconds: float = 0.0, settled: int | None = None) -> float:
        """The learning rate of a step: linear rise, then a cosine that reaches zero when steps or time run out.

        Arguments:
            step: The step.
            seconds: Of training so far.
            settled: The step at which there was little left to learn, if any: the rate falls to zero from there.
        """
        rise = min(1.0, (step + 1) / max(1, self.warmup))
        if settled is not None:
            rise *= max(0.0, 1 - (step - settled) / max(1, self.last_step(settled) - settled))
        if not self.decay:
            return self.learning_rate * rise
        used = max(step / self.max_steps, seconds / self.time_limit if self.time_limit else 0.0)
        return self.learning_rate * rise * 0.5 * (1 + math.cos(math.pi * min(1.0, used)))

    def settles(self, history: History) -> bool:
        """Whether a score that no longer falls may do so at lower learning rates, and training is to go on at these."""
        steps, settled = history.steps, history.settled
        if settled is not None and steps >= self.last_step(settled):
            return False
        high = self.decay and self.rate(steps, history.seconds) > LOW_RATE * self.learning_rate
        overfitting = min((rule.overfitting for rule in self.stopping if isinstance(rule, Patience)), default=0.0)
        flat = bool(history.validation["excess"]) and history.validation["excess"][-1] <= overfitting
        return flat and self.keep == "best" and (high or settled is not None)

    def end_of_settling(self, history: History) -> StopReason | None:
        """Why training has ended once its learning rate has fallen to zero early."""
        if history.settled is None or history.steps < self.last_step(history.settled):
            return None
        return StopReason.SETTLED if history.settled == self.settle else StopReason.PATIENCE

    def last_step(self, settled: int | None) -> int:
        """The step at which training ends, early if there was little left to learn at the step ``settled``."""
        if settled is None:
            return self.max_steps
        return min(self.max_steps, settled + round(min(SETTLING_SHARE * settled, SETTLING_MOST * self.max_steps)))


def _is_at_least_zero(value: Any) -> bool:
    return is_number(value) and value >= 0
