"""Some hundred calls of everything public by hypothesis: a result or a sentence (``make attacks`` makes 5 000)."""

import pytest
from benchmarks.attacks.calls import attack_calls
from benchmarks.attacks.public import WITHOUT_CALLS, public_calls

import propersbi as ps


@pytest.mark.usefixtures("unchecked_shapes")
def test_nonsense_is_refused_with_a_sentence(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    outcomes = attack_calls(400, seed=0)
    assert [line for outcome in outcomes.values() for line in outcome.broken] == []


def test_every_public_name_is_called():
    called = {name.split(".")[0].split("(")[0] for name in public_calls()}
    assert set(ps.__all__) - {"__version__"} <= called | WITHOUT_CALLS
