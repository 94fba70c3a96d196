"""Training reports to Fabric's loggers, to anything with their method, and to functions."""

import csv

import numpy as np
import pytest
from lightning_fabric.loggers import CSVLogger

import propersbi as ps

RNG = np.random.default_rng(0)
THETA = RNG.normal(size=(100, 1)).astype(np.float32)
QUICK = {"max_steps": 6, "validate_every": 2, "draws": 2, "refinement_steps": 1, "progress": False}


def test_fabrics_logger_gets_every_validation(tmp_path):
    logger = CSVLogger(tmp_path, name="run", version=0)
    posterior = ps.fit(THETA, THETA, logger=logger, **QUICK)
    with open(tmp_path / "run" / "version_0" / "metrics.csv") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["step"]) for row in rows] == [2, 4, 6]
    scores = [float(row["validation score"]) for row in rows]
    assert scores == pytest.approx(posterior.history.validation["score"])
    assert set(rows[0]) == {"step", "training loss", "validation score", "learning rate"}


def test_a_function_is_a_logger_and_changes_no_number():
    seen = []
    logged = ps.fit(THETA, THETA, logger=lambda metrics, step: seen.append((step, *metrics)), ensemble=2, **QUICK)
    assert [step for step, *_ in seen] == [2, 4, 6] * 2
    assert seen[0][1] == "member 1/training loss"
    assert seen[-1][1] == "member 2/training loss"
    plain = ps.fit(THETA, THETA, ensemble=2, **QUICK)
    assert logged.sample((5,), x=[0.1], seed=0).tolist() == plain.sample((5,), x=[0.1], seed=0).tolist()


def test_what_is_no_logger_is_refused_before_training():
    with pytest.raises(
        ps.InputError, match=r"must have a method log_metrics\(metrics, step\) or be a function, got 'x'"
    ):
        ps.fit(THETA, THETA, logger="x", **QUICK)


@pytest.mark.filterwarnings("ignore")
def test_rounds_are_told_apart():
    seen = set()

    def simulator(theta, rng):
        return theta + rng.normal(size=theta.shape)

    def logger(metrics, step):
        seen.update(metrics)

    ps.fit_sequential(THETA, simulator, [0.1], simulations=100, rounds=2, logger=logger, **QUICK)
    assert {"round 1/validation score", "round 2/validation score"} <= seen
