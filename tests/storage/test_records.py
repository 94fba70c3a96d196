"""Records survive the disk, and damaged ones are sentences."""

import json

import pytest

from propersbi.storage.records import (
    DiagnosisRecord,
    ObservationRecord,
    RoundRecord,
    RunRecord,
    SimulationsRecord,
    TrainingRecord,
    read_rounds,
)
from propersbi.types import InputError

RECORD = RunRecord(
    problem="two_moons",
    created="2025-01-31",
    command="propersbi run two_moons",
    versions={"torch": "2.6.0"},
    machine={"cores": 2},
    simulations=SimulationsRecord(n=100, test=50, invalid=0, seed=1, seconds=0.5),
    training=TrainingRecord(seed=1, recipe={"class": "Recipe"}, steps=10, kept_score=-1.5),
    diagnosis=DiagnosisRecord("abc", None, 250, 0),
    observation=ObservationRecord("observation 1"),
)


def test_round_trip(tmp_path):
    RECORD.save(tmp_path)
    assert RunRecord.load(tmp_path) == RECORD
    RunRecord("own").save(tmp_path)
    assert RunRecord.load(tmp_path) == RunRecord("own")


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (("format",), 3, "has format 3; this version reads format 2"),
        (("problem",), None, "'problem' must be text, got None"),
        (("versions",), "1", "'versions' must be an object"),
        (("simulations", "n"), -1, "'simulations.n' must be a whole number"),
        (("simulations", "n"), True, "'simulations.n' must be a whole number"),
        (("simulations", "seconds"), float("inf"), "it holds Infinity, which is no number of JSON"),
        (("training", "recipe"), [], "'training.recipe' must be an object"),
        (("training", "kept_score"), "low", "'training.kept_score' must be a finite number"),
        (("training", "more"), 1, "unknown entry 'training.more'"),
        (("diagnosis", "posterior"), 7, "'diagnosis.posterior' must be text"),
        (("observation",), "x.npy", "'observation' must be an object"),
    ],
)
def test_damage_is_a_sentence_that_names_the_entry(tmp_path, place, value, message):
    content = json.loads(json.dumps(RECORD.to_json()))
    part = content
    for key in place[:-1]:
        part = part[key]
    part[place[-1]] = value
    (tmp_path / "run.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match=message):
        RunRecord.load(tmp_path)


@pytest.mark.parametrize("name", ["n", "test", "invalid", "seed"])
def test_missing_entries_are_named(name):
    content = json.loads(json.dumps(RECORD.to_json()))
    del content["simulations"][name]
    with pytest.raises(InputError, match=f"'run.json' is damaged: 'simulations.{name}' is missing"):
        RunRecord.from_json(content)


def test_rounds_keep_what_corrections_say(tmp_path):
    assert read_rounds(tmp_path) is None
    record = RoundRecord(round=1, simulations=10, score=0.5, proposal=[[0.0, 1.0, 2.0]], facts={"effective": 0.25})
    assert record.to_json()["effective"] == 0.25
    content = {"correction": "Truncated()", "rounds": [record.to_json()]}
    (tmp_path / "rounds.json").write_text(json.dumps(content))
    found = read_rounds(tmp_path)
    assert (found.correction, found.rounds) == ("Truncated()", (record,))
