"""What the steps of a run tell one another: frozen records, checked when they are read from ``run.json``.

A record is a JSON object with the names of its fields, which are its schema (:mod:`propersbi.storage.schema`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from propersbi.storage.files import read_json, write_json
from propersbi.storage.schema import read_as
from propersbi.types import InputError

__all__ = [
    "DiagnosisRecord",
    "ObservationRecord",
    "RoundRecord",
    "RunRecord",
    "SequentialRecord",
    "SimulationsRecord",
    "TrainingRecord",
    "read_rounds",
]

FORMAT = 2
Curve = list[list[float]]


@dataclass(frozen=True)
class SimulationsRecord:
    """What was simulated.

    Arguments:
        n: Pairs to train on.
        test: Pairs to test with.
        invalid: How many of both were left out, because they failed or were not finite.
        seed: Of the simulations.
        seconds: How long they took.
        failed: How many of the invalid ones failed.
        failure: The most frequent error.
    """

    n: int
    test: int
    invalid: int
    seed: int
    seconds: float | None = None
    failed: int = 0
    failure: str | None = None


@dataclass(frozen=True)
class TrainingRecord:
    """How a posterior was trained.

    Arguments:
        seed: Of the training.
        recipe: The recipe, as :meth:`propersbi.recipes.Recipe.to_json` gives it.
        objective: What was minimised.
        batch_size: Pairs per step.
        weights: How many a network has.
        steps: Gradient steps that were done.
        seconds: How long they took.
        stopped: The value of a :class:`~propersbi.training.history.StopReason`.
        kept_step: The step whose weights were kept.
        kept_score: Their validation score.
        lowest_step: The step with the lowest validation score.
        lowest_score: That score.
        members: How many networks were trained: of an ensemble, more than 1.
    """

    seed: int
    recipe: Mapping[str, Any] | None = None
    objective: str | None = None
    batch_size: int | None = None
    weights: int | None = None
    steps: int | None = None
    seconds: float | None = None
    stopped: str | None = None
    kept_step: int | None = None
    kept_score: float | None = None
    lowest_step: int | None = None
    lowest_score: float | None = None
    members: int = 1


@dataclass(frozen=True)
class DiagnosisRecord:
    """What a diagnosis was made of; it need not be made again for the same."""

    posterior: str
    observation: str | None
    num_samples: int
    seed: int


@dataclass(frozen=True)
class ObservationRecord:
    """Where the observation is from."""

    source: str


@dataclass(frozen=True)
class RunRecord:
    """All of ``run.json``: what was asked and what came of it."""

    problem: str
    created: str = ""
    digest: str | None = None
    command: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    machine: Mapping[str, Any] = field(default_factory=dict)
    simulations: SimulationsRecord | None = None
    training: TrainingRecord | None = None
    diagnosis: DiagnosisRecord | None = None
    observation: ObservationRecord | None = None

    def to_json(self) -> dict[str, Any]:
        """The record as plain data."""
        return {"format": FORMAT, **asdict(self)}

    @classmethod
    def from_json(cls, data: Any, place: str = "run.json") -> RunRecord:
        """The record of what :meth:`to_json` gave.

        >>> RunRecord.from_json({"format": 2, "problem": "two_moons", "simulations": {"n": "many"}})
        Traceback (most recent call last):
        propersbi.types.InputError: 'run.json' is damaged: 'simulations.n' must be a whole number, got 'many'.
        """
        if not isinstance(data, Mapping):
            raise InputError(f"'{place}' must hold a JSON object, got {type(data).__name__}.")
        if data.get("format") != FORMAT:
            raise InputError(f"'{place}' has format {data.get('format')}; this version reads format {FORMAT}.")
        return read_as(cls, {key: value for key, value in data.items() if key != "format"}, place)

    @classmethod
    def load(cls, folder: Path) -> RunRecord:
        """Read ``run.json`` of a folder."""
        return cls.from_json(read_json(folder / "run.json"), str(folder / "run.json"))

    def save(self, folder: Path) -> None:
        """Write ``run.json`` into a folder."""
        write_json(folder / "run.json", self.to_json())


@dataclass(frozen=True)
class RoundRecord:
    """What one round of sequential inference brought.

    Arguments:
        round: Its number, from 1.
        simulations: How many it made, the invalid ones included.
        invalid: How many were not finite.
        score: The validation score of the weights that were kept.
        steps: Gradient steps.
        seconds: Of training.
        distance: The energy distance between the round's proposal and its posterior.
        proposal: 5 %, 50 % and 95 % quantiles of the first parameters, under the proposal.
        posterior: Likewise, under the posterior of the observation.
        facts: What the correction says of itself, for example the effective share of weighted pairs.
    """

    round: int
    simulations: int
    score: float | None = None
    invalid: int = 0
    steps: int | None = None
    seconds: float | None = None
    distance: float | None = None
    proposal: Curve = field(default_factory=list)
    posterior: Curve = field(default_factory=list)
    facts: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The record as plain data, its facts beside the rest."""
        content = asdict(self)
        facts = content.pop("facts")
        return {**content, **facts}

    @classmethod
    def from_json(cls, data: Any, place: str = "rounds.json") -> RoundRecord:
        """The record of what :meth:`to_json` gave; entries of other names are facts."""
        if not isinstance(data, Mapping):
            raise InputError(f"'{place}' is damaged: a round must be a JSON object, got {type(data).__name__}.")
        names = {part.name for part in fields(cls)} - {"facts"}
        facts = {key: value for key, value in data.items() if key not in names}
        return read_as(cls, {**{key: data[key] for key in data if key in names}, "facts": facts}, place)


@dataclass(frozen=True)
class SequentialRecord:
    """All rounds, and by which correction they were learnt from."""

    correction: str
    rounds: tuple[RoundRecord, ...]


def read_rounds(folder: Path) -> SequentialRecord | None:
    """What ``rounds.json`` says, if it is there."""
    path = folder / "rounds.json"
    if not path.exists():
        return None
    data = read_json(path)
    if not isinstance(data, Mapping) or not isinstance(data.get("rounds"), list):
        raise InputError(f"'{path}' is damaged: it must hold an object with a list of rounds.")
    rounds = tuple(RoundRecord.from_json(part, str(path)) for part in data["rounds"])
    return SequentialRecord(str(data.get("correction", "")), rounds)
