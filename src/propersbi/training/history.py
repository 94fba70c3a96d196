"""The training history: what happened, as data. It is part of every checkpoint; stopping rules read nothing else."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from typing import Any

from propersbi.storage.schema import read_as
from propersbi.types import InputError

__all__ = ["History", "StopReason"]


class StopReason(StrEnum):
    """Why a training ended."""

    MAX_STEPS = "max_steps"
    PATIENCE = "patience"
    SETTLED = "settled"
    TIME_LIMIT = "time_limit"
    FIRST_RISE = "first_rise"
    EVEN = "even"
    COLLAPSED = "collapsed"
    DIVERGED = "diverged"
    INTERRUPTED = "interrupted"
    RULE = "rule"

    @property
    def sentence(self) -> str:
        """The reason, to follow "training ended because"."""
        return _SENTENCES[self]


_SENTENCES = {
    StopReason.MAX_STEPS: "all steps were done",
    StopReason.PATIENCE: "the validation score no longer improved",
    StopReason.SETTLED: "hardly anything was left to learn beyond what was found before training",
    StopReason.TIME_LIMIT: "the time limit was reached",
    StopReason.FIRST_RISE: "the validation score rose for the first time",
    StopReason.EVEN: "the critic no longer distinguished real from drawn parameters",
    StopReason.COLLAPSED: "the generator collapsed: its draws for one observation hardly differed",
    StopReason.DIVERGED: "the loss became infinite or not a number",
    StopReason.INTERRUPTED: "it was interrupted",
    StopReason.RULE: "a stopping rule of the user's own ended it",
}


@dataclass
class History:
    """What happened in training.

    Arguments:
        train: The mean training loss between two validations.
        validation: The validation score, and by how many standard errors of the paired difference it exceeds the
            lowest one so far.
        learning_rate: The learning rate at each validation.
        measures: What the objective measures at each validation besides its score.
        kept_step: The step whose weights are kept.
        kept_score: Their validation score.
        seconds: Of training, over all resumptions.
        steps: Gradient steps done.
        stopped: Why the training ended.
        settled: The step at which there was little left to learn, if that was found.
    """

    train: dict[str, list[float]] = field(default_factory=lambda: {"step": [], "loss": []})
    validation: dict[str, list[float]] = field(default_factory=lambda: {"step": [], "score": [], "excess": []})
    learning_rate: dict[str, list[float]] = field(default_factory=lambda: {"step": [], "value": []})
    measures: dict[str, list[float]] = field(default_factory=dict)
    kept_step: int = 0
    kept_score: float | None = None
    seconds: float = 0.0
    steps: int = 0
    stopped: StopReason | None = None
    settled: int | None = None

    def record(self, *, loss: float, rate: float, score: float, excess: float, measures: dict[str, float]) -> None:
        """Add a validation at the present step."""
        rows = ((self.train, "loss", loss), (self.learning_rate, "value", rate), (self.validation, "score", score))
        for curve, key, value in rows:
            curve["step"].append(self.steps)
            curve[key].append(value)
        self.validation["excess"].append(excess)
        for name, value in measures.items():
            self.measures.setdefault(name, []).append(value)

    def last_metrics(self) -> dict[str, float]:
        """The numbers of the latest validation, for a logger; none before the first one."""
        if not self.validation["score"]:
            return {}
        latest = {"training loss": self.train["loss"][-1], "validation score": self.validation["score"][-1]}
        latest["learning rate"] = self.learning_rate["value"][-1]
        return latest | {name: values[-1] for name, values in self.measures.items()}

    @property
    def lowest_score(self) -> float | None:
        """The lowest validation score."""
        return min(self.validation["score"], default=None)

    @property
    def lowest_step(self) -> int | None:
        """The step of the lowest validation score."""
        if not self.validation["score"]:
            return None
        return int(self.validation["step"][self.validation["score"].index(min(self.validation["score"]))])

    @property
    def validations_since_kept(self) -> int:
        """How many validations there were after the one whose weights are kept."""
        return sum(step > self.kept_step for step in self.validation["step"])

    def last_line(self) -> str:
        """The latest loss and validation score, and the score of the weights that are kept."""
        if self.kept_score is None:
            return ""
        loss, score = self.train["loss"][-1], self.validation["score"][-1]
        return f"loss {loss:.4g}, score {score:.4g}, kept {self.kept_score:.4g}"

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        data = asdict(self)
        data["validation"]["excess"] = [min(value, 1e300) for value in self.validation["excess"]]
        return {**data, "stopped": None if self.stopped is None else self.stopped.value}

    @classmethod
    def from_json(cls, data: Any) -> History:
        """From what :meth:`to_json` gave; anything else is an :class:`InputError`."""
        missing = sorted(
            {entry.name for entry in fields(cls)} - {"settled"} - set(data if isinstance(data, dict) else ())
        )
        if missing:
            raise InputError(f"A training history is damaged: '{missing[0]}' is missing.")
        history = read_as(cls, data, "training history")
        for name, keys in (("train", ("loss",)), ("validation", ("score", "excess")), ("learning_rate", ("value",))):
            curve = getattr(history, name)
            if set(curve) != {"step", *keys} or len({len(column) for column in curve.values()}) != 1:
                raise InputError(f"A training history is damaged: the curve '{name}' is incomplete.")
        if history.settled is not None and history.settled > history.steps:
            raise InputError("A training history is damaged: it settled after its last step.")
        return history
