"""The course of a training: what is asked of it, and what happened."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from propersbi.types import InputError

__all__ = ["History", "TrainConfig"]


@dataclass(frozen=True)
class TrainConfig:
    """How to train.

    Arguments:
        max_steps: Gradient steps (rounds of all phases) at most; the learning rate reaches zero there.
        learning_rate: Its peak, after ``warmup`` steps; then it falls along a cosine.
        warmup: Steps of linear rise.
        decay: Whether it falls at all.
        weight_decay: Decoupled decay of the weights (AdamW).
        betas: Adam's momentum and variance memory.
        clip: Gradients longer than this are shortened to it; ``None`` leaves them.
        average: Memory of the running average of the weights; 0 turns averaging off.
        validate_every: Steps between two looks at the held-out score.
        patience: Stop after this many looks without a new best, or after five if the score has become far worse;
            ``None`` never stops early.
        first_rise: The paper's rule in place of patience: from this step on, stop at the first look that is worse than
            the one before it. The last weights are kept, not the best, and every look has noise of its own.
        time_limit: Seconds of training at most, over all resumptions.
        checkpoint_every: Seconds between two checkpoints.
        seed: Of all noise in training.
        device: ``"auto"``, ``"cpu"``, ``"cuda"``, ...
        devices: How many of them; each takes its share of every batch.
        threads: Threads of torch on the CPU; small networks are fastest on one.
        precision: Of the arithmetic, as Lightning Fabric names it.
    """

    max_steps: int = 4000
    learning_rate: float = 2e-3
    warmup: int = 100
    decay: bool = True
    weight_decay: float = 0.0
    betas: tuple[float, float] = (0.9, 0.99)
    clip: float | None = 1.0
    average: float = 0.999
    validate_every: int = 100
    patience: int | None = 20
    first_rise: int | None = None
    time_limit: float | None = None
    checkpoint_every: float = 20.0
    seed: int = 0
    device: str = "auto"
    devices: int = 1
    threads: int = 1
    precision: str = "32-true"

    def __post_init__(self) -> None:
        for name in ("max_steps", "validate_every", "devices", "threads", "learning_rate"):
            if not getattr(self, name) > 0:
                raise InputError(f"'{name}' must be positive, got {getattr(self, name)}.")
        if not 0 <= self.average < 1:
            raise InputError(f"'average' must lie in [0, 1), got {self.average}.")
        if self.time_limit is not None and not self.time_limit > 0:
            raise InputError(f"'time_limit' must be positive seconds, got {self.time_limit}.")

    def rate(self, step: int, seconds: float = 0.0) -> float:
        """The learning rate of a step: linear rise, then a cosine that reaches zero when steps or time run out."""
        rise = min(1.0, (step + 1) / max(1, self.warmup))
        if not self.decay:
            return self.learning_rate * rise
        used = max(step / self.max_steps, seconds / self.time_limit if self.time_limit else 0.0)
        return self.learning_rate * rise * 0.5 * (1 + math.cos(math.pi * min(1.0, used)))


@dataclass
class History:
    """What happened in training, as data."""

    train: dict[str, list[float]] = field(default_factory=lambda: {"step": [], "loss": []})
    validation: dict[str, list[float]] = field(default_factory=lambda: {"step": [], "score": []})
    learning_rate: dict[str, list[float]] = field(default_factory=lambda: {"step": [], "value": []})
    best_step: int = 0
    best_score: float | None = None
    seconds: float = 0.0
    steps: int = 0
    stopped: str = ""
    trouble: str = ""
    overfits: bool = False

    def record(self, step: int, loss: float, rate: float, score: float) -> None:
        """Note a look at the held-out score."""
        for curve, key, value in (
            (self.train, "loss", loss),
            (self.learning_rate, "value", rate),
            (self.validation, "score", score),
        ):
            curve["step"].append(step)
            curve[key].append(value)

    def rose(self, start: int) -> bool:
        """Whether the last look, at step ``start`` or later, is worse than the one before it."""
        steps, scores = self.validation["step"], self.validation["score"]
        return len(scores) > 1 and steps[-1] >= start and scores[-1] > scores[-2]

    def last_line(self) -> str:
        """The latest loss and held-out score, and the score of the weights that are kept."""
        if self.best_score is None:
            return ""
        return (
            f"loss {self.train['loss'][-1]:.4g}, score {self.validation['score'][-1]:.4g}, kept {self.best_score:.4g}"
        )
