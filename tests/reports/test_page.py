"""One self-contained page, whatever the run has or lacks."""

from __future__ import annotations

import html
import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from propersbi.recipes import Factory, Recipe
from propersbi.reports import report
from propersbi.reports.pictures import _smooth
from propersbi.samplers import Box
from propersbi.scoring import EnergyScore
from propersbi.storage.records import (
    ObservationRecord,
    RoundRecord,
    RunRecord,
    SimulationsRecord,
    TrainingRecord,
)
from propersbi.training.history import History, StopReason
from propersbi.training.stopping import Patience
from propersbi.types import InputError
from propersbi.typicality import Deviation, Typicality
from tests.diagnostics.test_diagnostics import Normal, run, simulator

RECIPE = Recipe(
    Factory("MLPGenerator", {"width": 128}),
    rule=EnergyScore(beta=1.0),
    draws=20,
    reasons={"network": "3 numbers in x", "rule": "chosen", "draws": "refinement: 8 steps"},
)
TRAINING = TrainingRecord(
    seed=0, recipe=RECIPE.to_json(), objective="ScoreMinimization", batch_size=256, weights=35_842, steps=4000,
    seconds=133.2, stopped="patience", kept_step=3850, kept_score=0.5, lowest_step=3850, lowest_score=0.5,
)  # fmt: skip
RUN = RunRecord(
    problem="normal",
    created="2025-01-31T12:00:00+00:00",
    simulations=SimulationsRecord(n=10_000, test=300, invalid=3, seed=4, seconds=1.2),
    training=TRAINING,
    observation=ObservationRecord("observation 1"),
    versions={"propersbi": "0.1.0", "torch": "2.6.0"},
    machine={"system": "Linux", "cores": 2},
    command="propersbi run normal --seed 4",
)
HISTORY = History(
    train={"step": [1, 2, 3], "loss": [3.0, 2.0, 1.0]},
    validation={"step": [1, 2, 3], "score": [3.0, 2.1, 1.5], "excess": [0.0, 0.0, 0.0]},
    learning_rate={"step": [1, 2, 3], "value": [0.1, 0.1, 0.1]},
    kept_step=3,
    kept_score=1.5,
    steps=3,
    stopped=StopReason.MAX_STEPS,
)
SECTIONS = ["posterior", "calibration", "recovery", "predictive", "run", "metrics", "reproduce"]


@pytest.fixture(scope="module")
def checks():
    return run(n=100, num_samples=100, event=(2,), observation=np.zeros(2), simulator=simulator)


def written(folder, *, checks=None, record=None, history=None):
    for name, content in (("run.json", record), ("history.json", history)):
        if content is not None:
            (folder / name).write_text(json.dumps(content.to_json()))
    if checks is not None:
        checks.save(folder)
    path = report(folder)
    assert path == folder / "report.html"
    page = path.read_text(encoding="utf-8")
    assert_whole(page)
    return page


def assert_whole(page):
    """Nothing comes from outside, and every tag that opens closes."""
    assert not re.search(r"@import|url\(|<script|<link|<iframe|(src|href)=[\"']?https?:", page)
    void, stack = {"meta", "img"}, []

    class Parser(HTMLParser):
        def handle_starttag(self, tag, attrs):
            assert all(value.startswith("data:") for name, value in attrs if name in ("src", "href", "srcset"))
            assert not any(name.startswith("on") for name, _ in attrs)
            if tag not in void:
                stack.append(tag)

        def handle_endtag(self, tag):
            assert stack.pop() == tag

    Parser().feed(page)
    assert stack == []


def test_full_report(tmp_path, checks):
    page = written(tmp_path, checks=checks, record=RUN, history=HISTORY)
    for section in SECTIONS:
        assert f'id="{section}"' in page
    assert page.count("data:image/png;base64,") == 6
    assert "could not be drawn" not in page
    assert "<strong>Usable with care</strong>" in page
    assert "100 test pairs are too few" in page
    for text in ("normal", "10,000 to train on", "3 more were not finite", "2 min 13 s", "energy score (beta 1",
                 "MLP generator (width 128)", "20 draws per pair", "refinement: 8 steps", "cut off after 3 steps",
                 "35,842 weights", "no longer improved", "propersbi run normal --seed 4",
                 "torch 2.6.0", "2025-01-31", "observation 1"):  # fmt: skip
        assert text in page, text
    for row in checks.verdicts:
        assert row.name in page


def test_a_machine_can_read_it(tmp_path, checks):
    enough = replace(checks, n=300, arrays=_repeated(checks.arrays), typicality=Typicality(0.4, ()))
    written(tmp_path, checks=enough, record=RUN, history=HISTORY)
    data = json.loads((tmp_path / "report.json").read_text())
    assert (data["verdict"], data["exit_code"], data["headline"]) == ("good", 0, enough.headline)
    assert [row["name"] for row in data["metrics"]] == [row.name for row in enough.verdicts]
    assert {row["verdict"] for row in data["metrics"]} == {"good", "info"}
    assert list(data["parameters"]) == ["theta_1", "theta_2"]
    assert data["parameters"]["theta_1"]["r2"] == pytest.approx(enough.parameters["r2"][0])
    assert data["observation"]["source"] == "observation 1"
    assert data["observation"]["typicality"] == {"p_value": 0.4, "deviant": []}
    assert data["observation"]["posterior"]["theta_1"]["sd"] == pytest.approx(0.7, abs=0.05)
    assert data["warnings"] == ["Of the simulations, 3 more were not finite and left out."]
    assert (data["problem"], data["command"]) == ("normal", "propersbi run normal --seed 4")
    assert data["versions"] == {"propersbi": "0.1.0", "torch": "2.6.0"}
    assert (data["simulations"]["n"], data["training"]["stopped"]) == (10_000, "patience")


def _repeated(arrays):
    tables = ("ranks", "theta", "mean", "lower", "upper")
    return {**arrays, **{name: np.tile(arrays[name], (3, 1)) for name in tables}}


def test_a_machine_reads_what_is_wrong(tmp_path):
    unlike = Typicality(1e-5, (Deviation("x[1]", (1,), 9.0, True),))
    poor = replace(run(n=60, event=(2,), observation=np.zeros(2)), typicality=unlike, notes=("A note.",))
    record = replace(RUN, simulations=replace(RUN.simulations, failed=2, failure="ValueError: negative rate"))
    page = written(tmp_path, checks=poor, record=record)
    data = json.loads((tmp_path / "report.json").read_text())
    assert (data["verdict"], data["exit_code"]) == ("poor", 4)
    assert data["observation"]["typicality"]["deviant"] == [
        {"name": "x[1]", "place": [1], "deviation": 9.0, "given_others": True}
    ]
    assert "2 more failed, most often with ValueError: negative rate" in data["warnings"][0]
    assert any("x[1] lies 9 standard deviations above what the other numbers predict" in w for w in data["warnings"])
    assert data["warnings"][-1] == "A note."
    assert "x[1] lies 9 standard deviations above what the other numbers predict" in page
    assert "2 more failed, most often with ValueError: negative rate" in page


def test_without_a_diagnosis_there_is_no_verdict(tmp_path):
    written(tmp_path, record=RUN)
    data = json.loads((tmp_path / "report.json").read_text())
    assert data["verdict"] is data["exit_code"] is data["observation"] is None
    assert data["metrics"] == []


def test_the_prior_is_drawn_from_its_own_draws(tmp_path, checks):
    prior = np.random.default_rng(0).normal(size=(10_000, 2))
    assert "Dotted: the prior" in written(tmp_path, checks=replace(checks, arrays={**checks.arrays, "prior": prior}))
    assert "Dotted: the prior" not in written(tmp_path, checks=checks)
    smooth = _smooth(np.random.default_rng(0).uniform(size=(10_000, 1)))
    assert smooth.min() >= 0
    assert smooth.max() <= 1
    heights = np.histogram(smooth, bins=40, range=(0, 1))[0]
    assert heights.std() / heights.mean() < 0.04


def test_nothing_is_shown_as_code_that_is_not_to_be_typed(tmp_path, checks):
    recipe = RECIPE.change(support=Box(-1.0, (1.0, None)), stopping=(Patience(20),)).to_json()
    page = written(tmp_path, checks=checks, record=replace(RUN, training=replace(TRAINING, recipe=recipe)))
    run_section = page[page.index('id="run"') : page.index("<h3>Training</h3>")]
    assert not re.search(r"\w\([^)]*=", run_section)


def test_headline_says_what_can_not_be_trusted(tmp_path):
    page = written(tmp_path, checks=run(Normal(width=0.5), n=300, num_samples=100, event=(1,)))
    assert "<strong>Not to be trusted yet</strong>" in page


def test_without_observation(tmp_path, checks):
    bare = {k: v for k, v in checks.arrays.items() if k not in ("x_o", "samples", "predictive")}
    page = written(tmp_path, checks=replace(checks, arrays=bare), record=RUN, history=HISTORY)
    assert "No observation was given" in page
    assert "needs an observation and its simulator" in page


def test_without_diagnostics(tmp_path):
    page = written(tmp_path, record=RUN, history=HISTORY)
    assert "Not checked yet" in page
    assert "calibration" not in re.findall(r'id="(\w+)"', page)


def test_only_diagnostics_of_a_simulator_that_failed(tmp_path, checks):
    bare = {k: v for k, v in checks.arrays.items() if k != "predictive"}
    note = "There is no posterior predictive check: the simulator failed (OSError: <no disk>)."
    page = written(tmp_path, checks=replace(checks, arrays=bare, notes=(note,)))
    assert "OSError: &lt;no disk&gt;" in page
    assert "There is no record of the simulations" in page
    assert "There is no history of the training" in page
    assert "The command line was not recorded" in page


@pytest.mark.parametrize("reason", list(StopReason))
def test_every_reason_to_stop_is_a_sentence(tmp_path, reason):
    page = written(tmp_path, record=replace(RUN, training=replace(TRAINING, stopped=reason.value)))
    assert f"it ended because {html.escape(reason.sentence, quote=True).replace('&#x27;', '&#39;')}." in page


def test_kept_weights_are_called_the_lowest_only_if_they_are(tmp_path):
    assert "those of step 3,850, validation score 0.5, the lowest" in written(tmp_path, record=RUN)
    others = replace(TRAINING, kept_step=4000, kept_score=0.75, lowest_step=1200, lowest_score=0.5)
    page = written(tmp_path, record=replace(RUN, training=others))
    assert "those of step 4,000, validation score 0.75; the lowest was 0.5 at step 1,200" in page
    assert "best" not in page
    page = written(tmp_path, record=replace(RUN, training=TrainingRecord(seed=0)))
    assert "Kept weights" not in page


def test_an_ensemble_says_so(tmp_path):
    page = written(tmp_path, record=replace(RUN, training=replace(TRAINING, members=3)))
    assert "35,842 weights in each of 3 networks" in page
    assert "Kept weights of the first network" in page


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("run.json", {**RUN.to_json(), "simulations": "many"}, "'simulations' must be an object, got 'many'"),
        (
            "run.json",
            {**RUN.to_json(), "training": {"seed": 0, "stopped": "trouble"}},
            "'trouble' is no reason to stop",
        ),
        ("run.json", {**RUN.to_json(), "training": {"seed": 0, "recipe": {}}}, "not a recipe"),
        (
            "run.json",
            {**RUN.to_json(), "training": {"seed": 0, "recipe": {"class": "Recipe"}}},
            "'Recipe' cannot be built",
        ),
        ("history.json", {"train": "nonsense"}, "history.json' cannot be used: A training history is damaged"),
        ("history.json", {**HISTORY.to_json(), "stopped": "trouble"}, "history.json' cannot be used"),
        ("rounds.json", {"rounds": 3}, "list of rounds"),
        ("rounds.json", {"rounds": [3]}, "a round must be a JSON object"),
        ("rounds.json", {"rounds": [{"round": 1}]}, "'simulations' is missing"),
        (
            "rounds.json",
            {"rounds": [{"round": 1, "simulations": 2, "proposal": [["x"]]}]},
            "'proposal.0.0' must be",
        ),
    ],
)
def test_damaged_files_are_sentences(tmp_path, name, content, message):
    (tmp_path / "run.json").write_text(json.dumps(RUN.to_json()))
    (tmp_path / name).write_text(json.dumps(content))
    with pytest.raises(InputError, match=message):
        report(tmp_path)
    assert not (tmp_path / "report.html").exists()


def test_names_are_escaped(tmp_path, checks):
    evil = ('<script>alert("1")</script>', "a & b $x_{ </td>")
    evil_recipe = RECIPE.change(network=Factory("MLPGenerator", {"width": "<b>'"})).to_json()
    record = replace(
        RUN,
        problem="<img src=x onerror=alert(1)>",
        command="run '<b>'",
        versions={"<i>": "<u>"},
        training=replace(TRAINING, recipe=evil_recipe),
    )
    page = written(tmp_path, checks=replace(checks, parameter_names=evil), record=record, history=HISTORY)
    assert "<script>" not in page
    assert "<b>'" not in page
    assert "&lt;script&gt;" in page
    assert "could not be drawn" not in page


def test_images(tmp_path):
    event = (9, 9)
    result = run(n=40, num_samples=100, event=event, observation=np.zeros(event), simulator=simulator)
    page = written(tmp_path, checks=result, record=RUN)
    assert "Eight of 81 parameters" in page
    assert "median of 81" in page
    assert "(95th percentile)" in page
    assert "Test pairs and their posteriors" in page
    assert "could not be drawn" not in page


def test_an_empty_folder_and_broken_files_are_sentences(tmp_path):
    with pytest.raises(InputError, match="holds no run"):
        report(tmp_path)
    with pytest.raises(InputError, match="holds no run"):
        report(tmp_path / "missing")
    (tmp_path / "run.json").write_text("[]")
    with pytest.raises(InputError, match="must hold a JSON object"):
        report(tmp_path)
    (tmp_path / "run.json").write_text("{broken")
    with pytest.raises(InputError, match="not valid JSON"):
        report(tmp_path)
    assert not (tmp_path / "report.html").exists()


def test_rounds_are_shown_with_what_they_know(tmp_path, checks):
    part = {"proposal": [[-1.0, 0.0, 1.0]] * 2, "posterior": [[-0.5, 0.1, 0.6]] * 2}
    records = [RoundRecord(round=1, simulations=500, score=0.7, **part)]
    records += [RoundRecord(round=2, simulations=500, score=0.5, facts={"effective": 0.25}, **part)]
    content = {"correction": "ImportanceWeights(<i>)", "rounds": [record.to_json() for record in records]}
    (tmp_path / "rounds.json").write_text(json.dumps(content))
    page = written(tmp_path, checks=checks, record=RUN, history=HISTORY)
    assert 'id="rounds"' in page
    assert "importance weights (&lt;i&gt;)" in page
    assert "Effective share" in page
    assert "Share of the prior" not in page
    assert "Proposal and posterior of each round" in page
