"""Training on simulations made while training: the same whoever simulates and whatever interrupts."""

import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

import propersbi as ps
from propersbi.app.online import propose_online
from propersbi.simulation.online import AHEAD, AT_ONCE, fresh_batches
from propersbi.types import InputError

PRIOR = [(0.0, 1.0), (0.0, 1.0)]
TINY = {"simulations": 300, "max_steps": 12, "refinement_steps": 1, "draws": 4, "batch_size": 32, "validate_every": 4}


def simulator(theta, rng):
    return theta + 0.1 * rng.normal(size=theta.shape)


def test_a_batch_is_a_function_of_seed_and_number_alone():
    here = fresh_batches(PRIOR, simulator, 16, workers=0)
    there = fresh_batches(PRIOR, simulator, 16, workers=2)
    try:
        for number in (0, 1, 2, 30, 31, 5):  # forwards, a jump, and back
            for a, b in zip(here[number], there[number], strict=True):
                assert a.tobytes() == b.tobytes()
                assert a.shape == (16, 2)
        assert len(there._pending) <= 2 * AHEAD
        assert len(there._ready) <= AT_ONCE
    finally:
        there.close()
    assert not np.array_equal(here[0][0], here[1][0])
    assert not np.array_equal(here[0][0], fresh_batches(PRIOR, simulator, 16, workers=0, seed=1)[0][0])


def test_rows_that_fail_are_left_out_and_too_many_are_refused():
    def fails(theta, rng):
        if theta[0] < 0.2:
            raise ValueError("too cold")
        return theta

    batches = fresh_batches(PRIOR, fails, 64, workers=0, batched=False)
    theta, x = batches[0]
    assert 30 < len(theta) == len(x) < 64
    assert (theta[:, 0] >= 0.2).all()

    def always(theta, rng):
        raise ValueError("broken")

    with pytest.raises(ps.SimulationError, match=r"64 of 64 simulations of a batch failed.*broken"):
        fresh_batches(PRIOR, always, 64, workers=0, batched=False)[0]


def test_as_many_rows_may_fail_as_are_allowed_to():
    def fails(theta, rng):
        if theta[0] < 0.6:
            raise ValueError("too cold")
        return theta + 0.1 * rng.normal(size=theta.shape)

    options = {**TINY, "workers": 0, "batched": False, "progress": False}
    with pytest.raises(ps.SimulationError, match=r"more than max_failed = 0.2 allows.*too cold"):
        ps.fit_online(PRIOR, fails, **options)
    with pytest.warns(UserWarning, match="failed"):
        posterior = ps.fit_online(PRIOR, fails, max_failed=0.9, **options)
    assert posterior.info["steps"] == 12
    with pytest.raises(ps.SimulationError, match="too cold"):
        ps.fit_online(PRIOR, fails, on_error="raise", **options)
    with pytest.raises(InputError, match="'timeout' is for stored simulations"):
        ps.fit_online(PRIOR, fails, timeout=5, **options)


def test_neither_workers_nor_defaults_of_torch_change_the_posterior():
    def draws(workers):
        return ps.fit_online(PRIOR, simulator, workers=workers, progress=False, **TINY).sample(5, x=[0.5, 0.5], seed=0)

    alone = draws(0)
    torch.set_default_dtype(torch.float64)
    try:
        assert torch.equal(draws(2), alone)
    finally:
        torch.set_default_dtype(torch.float32)


SCRIPT = """
import os, sys
import propersbi as ps
from propersbi.training import loop

calls = 0
def simulator(theta, rng):
    global calls
    calls += len(theta) == 32
    if calls == int(sys.argv[1]):
        os._exit(9)
    return theta + 0.1 * rng.normal(size=theta.shape)

ps.fit_online([(0.0, 1.0), (0.0, 1.0)], simulator, workers=0, folder="run", progress=False, batched=True,
              simulations=300, max_steps=12, refinement_steps=1, draws=4, batch_size=32, validate_every=4,
              checkpoint_every=0.0)
"""


def test_a_training_that_was_killed_continues_exactly(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    killed = subprocess.run(
        [sys.executable, "script.py", "8"], cwd=tmp_path, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert killed.returncode == 9
    assert (tmp_path / "run" / "checkpoint.ckpt").exists()
    options = {**TINY, "checkpoint_every": 0.0}
    resumed = ps.fit_online(
        PRIOR, simulator, workers=0, folder=tmp_path / "run", batched=True, progress=False, **options
    )
    whole = ps.fit_online(PRIOR, simulator, workers=0, batched=True, progress=False, **options)
    assert torch.equal(resumed.sample(5, x=[0.5, 0.5], seed=0), whole.sample(5, x=[0.5, 0.5], seed=0))


def test_a_time_limit_ends_the_training():
    options = {**TINY, "time_limit": 1.0}
    del options["max_steps"]
    posterior = ps.fit_online({"a": (0.0, 1.0)}, simulator, progress=False, **options)
    assert posterior.parameter_names == ("a",)
    assert posterior.history.stopped.value == "time_limit"
    assert posterior.typicality_test is not None


def several_parts(theta, rng):
    series = theta[:, :1] + 0.1 * rng.normal(size=(len(theta), 20))
    return {"mean": theta[:, 1], "series": np.where(rng.random(series.shape) < 0.2, np.nan, series)}


def test_several_parts_with_missing_entries():
    options = {**TINY, "missing": "allow", "workers": 0, "progress": False}
    posterior = ps.fit_online(PRIOR, several_parts, **options)
    sims = ps.simulate(PRIOR, several_parts, 300, missing="allow", progress=False)
    recipe = ps.recipe(sims.theta, sims.x, prior=PRIOR, missing="allow", refinement_steps=1)
    assert posterior.recipe.layout == recipe.layout
    assert posterior.recipe.embedding == recipe.embedding
    x = {"series": np.where(np.arange(20) < 5, np.nan, 0.5), "mean": 0.5}
    assert posterior.sample(5, x=x, seed=0).shape == (5, 2)
    batch = fresh_batches(PRIOR, several_parts, 32, workers=0, options={"missing": "allow"})[0]
    assert len(batch[0]) == 32
    assert np.isnan(batch[1]).any()


def test_a_regression_needs_enough_first_simulations():
    def long(theta, rng):
        return np.repeat(theta, 40, 1) + rng.normal(size=(len(theta), 80))

    options = {**TINY, "workers": 0, "progress": False, "refinement_steps": 2, "max_steps": 2}
    few, many = (ps.fit_online(PRIOR, long, **{**options, "simulations": n}).recipe for n in (100, 400))
    assert (few.regression, few.training.settle) == (False, None)
    assert many.regression
    assert "too few first simulations" in str(few)


def test_ensembles_are_refused():
    with pytest.raises(InputError, match="'ensemble' is for stored simulations"):
        ps.fit_online(PRIOR, simulator, ensemble=2)


def test_a_run_trains_online_and_is_diagnosed(tmp_path):
    axes = set()

    def of_one(theta, rng):
        axes.add(theta.ndim)
        return simulator(theta, rng)

    own = ps.Problem(prior=PRIOR, simulator=of_one, x_o=[0.5, 0.5], parameter_names=("a", "b"), batched=False)
    run = ps.run(own, folder=tmp_path / "r", online=True, test=30, progress=False, **TINY)
    assert run.diagnostics.n == 30
    assert axes == {1}
    assert run.record.training.steps == 12
    assert run.report.exists()
    with pytest.raises(InputError, match="Training online has no rounds"):
        ps.run(own, folder=tmp_path / "r", online=True, rounds=2, progress=False)
    with pytest.raises(InputError, match="give either 'online' or a 'timeout'"):
        ps.run(own, folder=tmp_path / "r", online=True, timeout=5, progress=False)


@pytest.mark.filterwarnings("ignore:.*failed and are excluded")
def test_a_run_online_may_lose_as_many_rows_as_it_allows(tmp_path):
    def fails(theta, rng):
        if theta[0] < 0.4:
            raise ValueError("too cold")
        return simulator(theta, rng)

    own = ps.Problem(prior=PRIOR, simulator=fails, batched=False)
    run = ps.run(own, folder=tmp_path / "r", online=True, max_failed=0.6, test=30, progress=False, **TINY)
    assert run.record.training.steps == 12


def test_a_run_proposes_to_train_online_if_the_simulator_keeps_up(tmp_path, capsys):
    own = ps.Problem(prior=PRIOR, simulator=simulator)
    small = {"simulations": 100, "test": 30, "max_steps": 20, "refinement_steps": 1, "draws": 2}
    record = ps.run(own, folder=tmp_path, **small).record
    assert ("--online" in capsys.readouterr().err) == (propose_online(record) is not None)
    fast, slow = (replace(record, simulations=replace(record.simulations, seconds=seconds)) for seconds in (1e-3, 1e3))
    assert "would train on fresh ones only" in propose_online(fast)
    assert propose_online(slow) is None
    assert propose_online(replace(fast, training=None)) is None
    assert propose_online(replace(fast, training=replace(fast.training, steps=1))) is None  # each row was used once
