"""One self-contained page, whatever the run has or lacks."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from propersbi.reports.page import write_report
from propersbi.types import InputError
from tests.test_diagnostics import Normal, run, simulator

RUN = {
    "format": 1,
    "model": "normal",
    "created": "2025-01-31T12:00:00+00:00",
    "simulations": {"n": 10_000, "test": 300, "invalid": 3, "seed": 4, "seconds": 1.2},
    "training": {
        "steps": 4000, "best_step": 3850, "seconds": 133.2, "stopped": "patience", "batch_size": 256, "m": 20,
        "rule": {"class": "EnergyScore", "beta": 1.0}, "network": {"class": "MLPGenerator", "width": 128},
        "parameters": 35_842, "seed": 0,
    },
    "observation": {"source": "observation 1"},
    "versions": {"propersbi": "0.1.0", "torch": "2.6.0"},
    "machine": {"system": "Linux", "cores": 2},
    "command": "propersbi run normal --seed 4",
}  # fmt: skip
HISTORY = {
    "train": {"step": [1, 2, 3], "loss": [3.0, 2.0, 1.0]},
    "validation": {"step": [1, 2, 3], "score": [3.0, 2.1, 1.5]},
    "learning_rate": {"step": [1, 2, 3], "value": [0.1, 0.1, 0.1]},
    "best_step": 3,
}
SECTIONS = ["posterior", "calibration", "recovery", "predictive", "run", "metrics", "reproduce"]


@pytest.fixture(scope="module")
def checks():
    return run(n=100, draws=100, event=(2,), observation=np.zeros(2), simulator=simulator)


def written(folder, *, checks=None, record=None, history=None):
    for name, content in (("run.json", record), ("history.json", history)):
        if content is not None:
            (folder / name).write_text(json.dumps(content))
    if checks is not None:
        checks.save(folder)
    path = write_report(folder)
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
    assert "<strong>Well calibrated</strong>" in page
    for text in ("normal", "10,000 to train on", "3 more were not finite", "2 min 13 s", "EnergyScore(beta=1.0)",
                 "MLPGenerator(width=128)", "35,842 weights", "no longer improved", "propersbi run normal --seed 4",
                 "torch 2.6.0", "2025-01-31", "observation 1"):  # fmt: skip
        assert text in page, text
    for row in checks.verdicts:
        assert row.name in page


def test_headline_says_what_can_not_be_trusted(tmp_path):
    page = written(tmp_path, checks=run(Normal(width=0.5), n=300, draws=100, event=(1,)))
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
    note = "There is no posterior predictive check, the simulator failed (OSError: <no disk>)."
    page = written(tmp_path, checks=replace(checks, arrays=bare, notes=(note,)))
    assert "OSError: &lt;no disk&gt;" in page
    assert "There is no record of the simulations" in page
    assert "There is no history of the training" in page
    assert "The command line was not recorded" in page


@pytest.mark.parametrize(
    "record",
    [
        {"model": None, "simulations": None, "training": [], "versions": "1"},
        {"model": 7, "simulations": {"n": "many", "seconds": None}, "training": {"rule": 3, "stopped": None}},
        {"training": {"steps": None, "seconds": -1, "network": {"class": "custom", "name": "a.b"}}, "observation": "x"},
    ],
)
def test_odd_records(tmp_path, record):
    written(tmp_path, record=record)


def test_odd_history(tmp_path):
    assert "no history" in written(tmp_path, record=RUN, history={"train": "nonsense"})


def test_names_are_escaped(tmp_path, checks):
    evil = ('<script>alert("1")</script>', "a & b $x_{ </td>")
    record = {**RUN, "model": "<img src=x onerror=alert(1)>", "command": "run '<b>'", "versions": {"<i>": "<u>"}}
    page = written(tmp_path, checks=replace(checks, parameter_names=evil), record=record, history=HISTORY)
    assert "<script>" not in page
    assert "<b>'" not in page
    assert "&lt;script&gt;" in page
    assert "could not be drawn" not in page


def test_images(tmp_path):
    event = (9, 9)
    result = run(n=40, draws=100, event=event, observation=np.zeros(event), simulator=simulator)
    page = written(tmp_path, checks=result, record=RUN)
    assert "Eight of 81 parameters" in page
    assert "median of 81" in page
    assert "nearly the worst 90" in page
    assert "Test pairs and their posteriors" in page
    assert "could not be drawn" not in page


def test_an_empty_folder_and_broken_files_are_sentences(tmp_path):
    with pytest.raises(InputError, match="holds no run"):
        write_report(tmp_path)
    with pytest.raises(InputError, match="holds no run"):
        write_report(tmp_path / "missing")
    (tmp_path / "run.json").write_text("[]")
    with pytest.raises(InputError, match="must hold a JSON object"):
        write_report(tmp_path)
    (tmp_path / "run.json").write_text("{broken")
    with pytest.raises(InputError, match="not valid JSON"):
        write_report(tmp_path)
    assert not (tmp_path / "report.html").exists()


def test_rounds_are_shown_with_what_they_know(tmp_path, checks):
    part = {"proposal": [[-1.0, 0.0, 1.0]] * 2, "posterior": [[-0.5, 0.1, 0.6]] * 2}
    records = [{"round": 1, "simulations": 500, "score": 0.7, **part}]
    records += [{"round": 2, "simulations": 500, "score": 0.5, "effective": 0.25, **part}]
    (tmp_path / "rounds.json").write_text(json.dumps({"correction": "ImportanceWeights(<i>)", "rounds": records}))
    page = written(tmp_path, checks=checks, record=RUN, history=HISTORY)
    assert 'id="rounds"' in page
    assert "ImportanceWeights(&lt;i&gt;)" in page
    assert "Effective share" in page
    assert "Share of the prior" not in page
    assert "Proposal and posterior of each round" in page
