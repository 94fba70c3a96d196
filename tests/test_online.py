"""Training on simulations made while training: the same whoever simulates and whatever interrupts."""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch

import propersbi as ps
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


def test_workers_do_not_change_the_posterior(tmp_path):
    draws = [
        ps.fit_online(PRIOR, simulator, workers=workers, progress=False, **TINY).sample(5, x=[0.5, 0.5], seed=0)
        for workers in (0, 2)
    ]
    assert torch.equal(*draws)


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


def test_ensembles_are_refused():
    with pytest.raises(InputError, match="'ensemble' is for stored simulations"):
        ps.fit_online(PRIOR, simulator, ensemble=2)


def test_a_run_trains_online_and_is_diagnosed(tmp_path):
    own = ps.Problem(prior=PRIOR, simulator=simulator, x_o=[0.5, 0.5], parameter_names=("a", "b"))
    run = ps.run(own, folder=tmp_path / "r", online=True, test=30, progress=False, **TINY)
    assert run.diagnostics.n == 30
    assert run.record.training.steps == 12
    assert run.report.exists()
    with pytest.raises(InputError, match="Training online has no rounds"):
        ps.run(own, folder=tmp_path / "r", online=True, rounds=2, progress=False)
