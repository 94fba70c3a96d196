"""Executors: every index once, errors are propagated, and closing the results stops the work."""

import contextlib
import os
import time

import pytest

from propersbi.simulation.executors import Joblib, Serial
from propersbi.types import InputError

EXECUTORS = [Serial(), Joblib(workers=1), Joblib(workers=2)]


@pytest.mark.parametrize("execute", EXECUTORS, ids=repr)
def test_every_index_gives_one_result(execute):
    offset = 10
    assert sorted(execute(lambda chunk: chunk + offset, range(23))) == list(range(10, 33))
    assert list(execute(lambda chunk: chunk, [])) == []


@pytest.mark.parametrize("execute", EXECUTORS, ids=repr)
def test_errors_are_propagated(execute):
    with pytest.raises(ZeroDivisionError):
        list(execute(lambda chunk: 1 // (chunk - 3), range(6)))


def test_results_are_computed_one_by_one():
    results = Serial()(lambda chunk: 1 // (chunk - 3), range(6))
    assert [next(results) for _ in range(3)] == [-1, -1, -1]


def test_work_runs_in_other_processes():
    pids = set(Joblib(workers=2)(lambda chunk: os.getpid(), range(4)))
    assert os.getpid() not in pids


def test_closing_early_stops_the_work():
    results = Joblib(workers=2)(lambda chunk: time.sleep(600 if chunk else 0) or chunk, range(5))
    assert next(results) == 0
    results.close()
    assert sorted(Joblib(workers=2)(lambda chunk: chunk, range(3))) == [0, 1, 2]


def test_an_error_in_the_consumer_stops_the_work():
    def interrupted():
        with contextlib.closing(
            Joblib(workers=2)(lambda chunk: time.sleep(600 if chunk > 1 else 0), range(6))
        ) as results:
            for _ in results:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()


@pytest.mark.parametrize("workers", [0, -1, 1.5, True, "two"])
def test_wrong_numbers_of_workers_are_refused(workers):
    with pytest.raises(InputError, match=r"'workers' must be 1 or more, or None for all cores, got "):
        Joblib(workers=workers)


@pytest.mark.parametrize("backend", ["threading", "multiprocessing"])
def test_backends_that_share_random_states_are_refused(backend):
    with pytest.raises(InputError, match=f"like 'loky', got '{backend}'"):
        Joblib(backend=backend)


def test_executors_are_equal_by_value():
    assert Joblib(2) == Joblib(workers=2)
    assert Serial() == Serial()
