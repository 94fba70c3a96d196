"""A task, a file and an object of Python are the same kind of problem."""

import numpy as np
import pytest

import propersbi as ps
from propersbi import tasks
from propersbi.app.observed import read_observation
from propersbi.app.problems import check_ready, load_problem
from propersbi.problem import Problem
from propersbi.tasks.task import Task
from propersbi.types import InputError

NAMES = """
import numpy as np
prior = np.random.default_rng(0).normal(size=(100, 1))
def simulator(theta):
    return 2 * theta
parameter_names = ["a"]
observation = [0.5]
support = (-10.0, 10.0)
"""
OBJECT = """
import numpy as np
import propersbi as ps
problem = ps.Problem(
    prior=np.zeros((10, 1)),
    simulator=lambda theta: theta,
    x_o=[1.5],
    training={"max_steps": 7, "rule": ps.EnergyScore()},
)
"""


def test_a_task_is_a_problem():
    task = load_problem("two_moons")
    assert isinstance(task, Task)
    assert isinstance(task, Problem)
    assert task is load_problem(task) is tasks.get("two_moons")
    assert task.reference is not None
    assert tasks.get("camera").reference is None


def test_a_file_defines_names_or_a_problem(tmp_path):
    (tmp_path / "names.py").write_text(NAMES)
    (tmp_path / "object.py").write_text(OBJECT)
    names, made = (load_problem(tmp_path / file) for file in ("names.py", "object.py"))
    assert type(names) is type(made) is Problem
    assert (names.name, names.parameter_names) == (str(tmp_path / "names.py"), ["a"])
    assert names.support == (-10.0, 10.0)
    assert names.observation() == 0.5
    assert made.name == str(tmp_path / "object.py")
    assert made.observation() == 1.5
    assert made.training["max_steps"] == 7
    assert names.digest != made.digest
    assert names.reference is None


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("prior = 1", "must define 'simulator'"),
        ("prior = 1\nsimulator = 2", "'simulator' in '.*' must be a function, got int"),
        ("problem = 3", "'problem' in '.*' must be a propersbi.Problem, got int"),
        ("import propersbi as ps\nproblem = ps.Problem(prior=1, simulator=2)", "'simulator' must be a function"),
        ("import propersbi as ps\nproblem = ps.Problem(prior=1, simulator=print, settings={})", "must be a Settings"),
        ("raise KeyError('x')", "cannot be run: KeyError"),
        ("import sys\nsys.exit()", "cannot be run: SystemExit"),
    ],
)
def test_wrong_files_are_sentences(tmp_path, content, message):
    (tmp_path / "m.py").write_text(content)
    with pytest.raises(InputError, match=message):
        load_problem(tmp_path / "m.py")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"parameter_names": ["a", "b", "a"]}, "'parameter_names' must differ, but 'a' is there twice"),
        ({"parameter_names": "ab"}, "'parameter_names' must be a list of names, got 'ab'"),
        ({"parameter_names": [1, 2]}, "'parameter_names' must be a list of names"),
        ({"support": 5}, r"'support' must be bounds \(lower, upper\), .*, got 5"),
        ({"support": "positive"}, "'support' must be bounds"),
        ({"support": np.zeros((2, 2))}, "'support' must be bounds"),
        ({"support": {1.0, 2.0}}, "'support' must be bounds"),
    ],
)
def test_wrong_names_and_supports_are_sentences(options, message):
    with pytest.raises(InputError, match=message):
        ps.Problem(prior=np.zeros((10, 2)), simulator=lambda theta: theta, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prior": "normal"}, "A prior must"),
        ({"parameter_names": ["a", "b", "c"]}, "There are 3 parameter names for 2 parameters"),
        ({"support": [(0.0, 1.0), 5.0, "high"]}, "'support' must be"),
        ({"support": ((0.0, 1.0, 2.0), 9.0)}, "do not fit parameters of shape"),
    ],
)
def test_what_cannot_be_used_is_refused_before_anything_is_simulated(options, message):
    with pytest.raises(InputError, match=message):
        check_ready(ps.Problem(**{"prior": np.zeros((10, 2)), "simulator": lambda theta: theta, **options}))


def test_observations_come_from_numbers_files_arrays_and_problems(tmp_path):
    moons = load_problem("two_moons")
    own = ps.Problem(prior=np.zeros((10, 2)), simulator=lambda theta: theta, x_o=[1, 2])
    np.save(tmp_path / "x.npy", np.arange(2.0))
    (tmp_path / "x.csv").write_text("a,b\n3.0,4.0\n")
    for source, problem, values, text in (
        (2, moons, moons.observation(2), "observation 2 of two_moons"),
        ("2", moons, moons.observation(2), "observation 2 of two_moons"),
        (None, moons, moons.observation(1), "observation 1 of two_moons"),
        (None, own, [1, 2], "the problem itself"),
        (tmp_path / "x.npy", None, [0, 1], str(tmp_path / "x.npy")),
        (str(tmp_path / "x.csv"), own, [3, 4], str(tmp_path / "x.csv")),
        (np.ones(2), own, [1, 1], "an array of shape (2,)"),
        ({"a": 1, "b": [2.0]}, own, [1, 2], "an array of shape (2,)"),
    ):
        found = read_observation(source, problem)
        assert np.array_equal(found.values, values)
        assert found.source == text
    assert read_observation(None, None) is None
    assert read_observation(None, ps.Problem(prior=np.zeros((3, 1)), simulator=print)) is None


def test_only_a_task_has_numbered_observations():
    own = ps.Problem(prior=np.zeros((10, 2)), simulator=lambda theta: theta)
    with pytest.raises(InputError, match="Only a task has numbered observations"):
        read_observation("3", own)
    with pytest.raises(InputError, match="'problem' has no observation 3"):
        own.observation(3)
