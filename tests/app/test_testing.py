"""The number of test pairs: enough for a verdict, unless the simulator is too slow."""

import time

import numpy as np
import pytest

import propersbi as ps
from propersbi.app import testing
from propersbi.app.testing import simulate_test_pairs
from propersbi.problem import ENOUGH_PAIRS, Problem, Settings
from propersbi.storage.records import SimulationsRecord


def simulate(count, fails=0.0, seconds=0.0):
    time.sleep(seconds * count)
    rows = np.arange(float(count))[:, None]
    valid = np.random.default_rng(0).random(count) >= fails
    return ps.Simulations(rows[valid], rows[valid], int((~valid).sum()))


@pytest.mark.parametrize(("n", "expected"), [(100, 300), (2999, 300), (5000, 500), (100_000, 1000)])
def test_a_tenth_of_the_simulations_but_enough_for_a_verdict(n, expected):
    assert simulate_test_pairs(simulate, Settings(), n, None, progress=False)[1] == expected


def test_what_was_asked_for_counts(capsys):
    assert simulate_test_pairs(simulate, Settings(), 500, 20)[1] == 20
    assert simulate_test_pairs(simulate, Settings(test=30), 500, None)[1] == 30
    assert capsys.readouterr().err == ""
    assert simulate_test_pairs(simulate, Settings(), 500, None)[1] == 300
    assert "300 test pairs" in capsys.readouterr().err


def test_rows_that_fail_are_made_up_for():
    pairs, count = simulate_test_pairs(lambda n: simulate(n, fails=0.1), Settings(), 500, None, progress=False)
    assert len(pairs) >= ENOUGH_PAIRS
    assert 320 < count < 360


def test_a_slow_simulator_makes_do_with_few_and_says_so(monkeypatch):
    monkeypatch.setattr(testing, "MOST_SECONDS", 0.1)
    with pytest.warns(UserWarning, match=r"only 50 test pairs.*--test 300"):
        assert simulate_test_pairs(lambda n: simulate(n, seconds=1e-3), Settings(), 500, None)[1] == 50
    slow = SimulationsRecord(500, 50, invalid=0, seed=0, seconds=5500.0)  # all done before: it takes no time now
    with pytest.warns(UserWarning, match="A simulation takes 10 s"):
        assert simulate_test_pairs(simulate, Settings(), 500, None, before=slow)[1] == 50


def test_a_small_default_run_has_enough_test_pairs_for_a_good_verdict(tmp_path):
    own = Problem(prior=[(0.0, 1.0)], simulator=lambda theta, rng: theta + 0.1 * rng.normal(size=theta.shape))
    run = ps.run(own, folder=tmp_path / "r", simulations=200, max_steps=5, refinement_steps=1, progress=False)
    assert run.record.simulations.test == run.diagnostics.n == 300
    assert {row.name: row.verdict for row in run.diagnostics.verdicts}["Test pairs"] == "good"
