"""What is seen of a problem before it is run."""

import re
import time

import numpy as np
import pytest
import torch

import propersbi as ps
from propersbi.app.checking import check_problem


def one_by_one(theta, rng):
    return float(theta[0]) + 0.1 * rng.normal(size=3)


def in_batches(theta):
    return theta @ torch.ones(2, 3)


def fails(theta, rng):
    if theta[0] > 0.7:
        raise ZeroDivisionError("a rate was zero")
    return theta


def nan(theta, rng):
    return np.log(theta - 0.1)


def own(simulator=one_by_one, prior=((0.0, 1.0), (0.0, 2.0)), **options):
    prior = list(prior) if isinstance(prior, tuple) else prior
    return ps.Problem(prior=prior, simulator=simulator, name="own", **options)


def test_a_simulator_of_one_set_of_parameters():
    seen = check_problem(own(parameter_names=["a", "b"], x_o=[1.0, 1.0, 1.0]), simulations=1000)
    assert (seen.parameter_names, seen.theta_shape) == (("a", "b"), (2,))
    assert (seen.style.batched, seen.in_torch, seen.style.x_shape) == (False, False, (3,))
    assert (seen.rows, seen.failed, seen.invalid, seen.problems, seen.notes) == (15, 0, 0, (), ())
    assert seen.run == (1000, 300)
    assert seen.run_seconds == pytest.approx(1300 * seen.seconds)
    text = seen.summary()
    assert text.startswith("own\n")
    assert "a from 0 to 1, b from 0 to 2" in text
    assert "takes one set of parameters at a time, in NumPy" in text
    assert "from the problem itself" in text


def test_a_simulator_of_many_sets_in_torch():
    prior = torch.distributions.MultivariateNormal(torch.zeros(2), torch.eye(2))
    seen = check_problem(own(in_batches, prior), workers=2)
    assert (seen.style.batched, seen.in_torch, seen.rows) == (True, True, 105)
    assert seen.run_seconds == pytest.approx(11_000 * seen.seconds / 2)
    assert "many sets of parameters at once, in torch" in seen.summary()
    assert "support      the whole space" in seen.summary()
    assert "There is no observation" in seen.notes[0]


def test_named_parameters_and_data():
    prior = {"rate": (0.0, 1.0), "count": torch.distributions.Poisson(3.0)}
    seen = check_problem(own(lambda rate, count, rng: {"sum": rate + count, "both": [rate, count]}, prior))
    text = seen.summary()
    assert "at a time, by name, in NumPy" in text
    assert "shape (3,): sum, both_1, both_2" in text
    assert "whole numbers: count" in text


@pytest.mark.filterwarnings("error")
def test_rows_that_fail_or_are_not_finite():
    seen = check_problem(own(fails))
    assert 0 < seen.failed < seen.rows
    assert "of the rows failed, for example with ZeroDivisionError: a rate was zero" in seen.notes[-2]
    with np.errstate(invalid="ignore", divide="ignore"):
        seen = check_problem(own(nan))
    assert seen.invalid > 0 == seen.failed
    assert "not finite" in seen.summary()


def test_an_unknown_support_is_said():
    class Prior:
        def sample(self, n, rng):
            return rng.uniform(size=(n, 2))

    seen = check_problem(own(prior=Prior()))
    assert "may lie anywhere: give 'support'" in seen.notes[0]
    assert "support      unknown" in seen.summary()
    assert not check_problem(own(prior=Prior(), support=(0.0, 1.0), x_o=np.zeros(3))).notes


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        (own(prior="normal"), "A prior must"),
        (own(parameter_names=["a"]), "1 parameter names for 2 parameters"),
        (own(support=(0.0, 0.5)), "draws from the prior lie outside the support"),
        (own(lambda theta: "text"), "must return real numbers"),
        (own(lambda theta: 1 / 0), "failed: ZeroDivisionError: division by zero.$"),
        (own(lambda theta, rng, scale: theta), "must be a function of"),
        (own(x_o=[1.0]), r"'observation' must have shape \(3,\), got \(1,\)"),
        (own(x_o=[1.0, np.nan, 1.0]), "'observation' must be finite"),
        (own(prior=[(1.0, 0.0)]), "low < high"),
    ],
)
def test_problems_are_sentences(problem, message):
    seen = check_problem(problem)
    assert len(seen.problems) == 1
    assert re.search(message, seen.problems[0])
    assert f"Problem: {seen.problems[0]}" in seen.summary()


def test_slow_simulators_are_not_simulated_often():
    def slow(theta):
        time.sleep(1.0)
        return theta[0]

    seen = check_problem(own(slow), batched=False)
    assert seen.rows == 5
    assert seen.seconds == pytest.approx(1, abs=0.5)


def test_a_task_can_be_checked():
    seen = check_problem("two_moons")
    assert not seen.problems
    assert "observation 1 of two_moons" in seen.summary()
    seen = check_problem("two_moons", batched=False)
    assert "'theta' of two_moons must have shape (n, 2), got (2,)" in seen.problems[0]
