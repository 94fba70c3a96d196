"""Whether a training had converged when it ended, read from its history.

The learning rate falls to zero along a cosine, so that every score flattens at the end, also that of a training that
was far too short. What shows is how much of the whole improvement came late: where the second half of the training
brought a considerable share of it, and the score still fell in the last fifth, more training would have brought more.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from propersbi.training.history import History, StopReason

__all__ = ["Convergence", "convergence_of"]

LATE_SHARE = 0.15  # of the improvement since the first validation, in the second half of the training
SMALLEST_FALL = 0.002  # of the score, in the last fifth of the training
NOISE = 2.0  # standard errors of the score that a fall exceeds
SETTLED = (StopReason.PATIENCE, StopReason.SETTLED, StopReason.FIRST_RISE, StopReason.EVEN)
BROKEN = (StopReason.DIVERGED, StopReason.COLLAPSED)


@dataclass(frozen=True)
class Convergence:
    """Whether a training had converged, and a sentence that says why."""

    converged: bool
    sentence: str


def convergence_of(history: History) -> Convergence:
    """Whether a training had converged.

    >>> steps = [100, 200, 300, 400]
    >>> curves = {"validation": {"step": steps, "score": [4.0, 3.0, 2.0, 1.0], "excess": [0.0] * 4}, "steps": 400}
    >>> convergence_of(History(**curves, stopped=StopReason.MAX_STEPS)).sentence
    'Training was cut off after 400 steps while its validation score still fell: train longer.'
    """
    if history.stopped in BROKEN:
        return Convergence(False, f"Training ended because {history.stopped.sentence}.")
    if history.stopped in SETTLED:
        return Convergence(True, f"Training ended because {history.stopped.sentence}.")
    if len(history.validation["score"]) < 2:
        few = (
            f"Training was cut off after {history.steps} steps, too few to see whether it had converged: train longer."
        )
        return Convergence(False, few)
    if _still_fell(history):
        cut = f"Training was cut off after {history.steps} steps while its validation score still fell: train longer."
        return Convergence(False, cut)
    return Convergence(True, "Training ended when its validation score no longer fell noticeably.")


def _still_fell(history: History) -> bool:
    scores = history.validation["score"]
    first, last = scores[0], scores[-1]
    late = _score_at(history, 0.8) - last
    threshold = max(NOISE * _noise(history), SMALLEST_FALL * abs(last))
    return late > threshold and _score_at(history, 0.5) - last > LATE_SHARE * (first - last)


def _score_at(history: History, share: float) -> float:
    """The last validation score within a share of the training, or the first one of all."""
    steps, scores = history.validation["step"], history.validation["score"]
    before = [score for step, score in zip(steps, scores, strict=True) if step <= share * steps[-1]]
    return before[-1] if before else scores[0]


def _noise(history: History) -> float:
    """The standard error of the difference of two scores, where some score exceeded the lowest before it, else 0."""
    found, lowest = [], float("inf")
    for score, excess in zip(history.validation["score"], history.validation["excess"], strict=True):
        lowest = min(lowest, score)
        if excess > 0 and score > lowest:
            found.append((score - lowest) / excess)
    return median(found) if found else 0.0
