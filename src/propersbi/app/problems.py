"""What a run is about: a task of the library by its name, the user's own file, or a problem made in Python.

A file is Python that defines ``problem = propersbi.Problem(...)``, or ``prior`` and ``simulator`` and, where wanted,
``parameter_names``, ``embedding``, ``support``, ``batched`` (``False`` for a simulator that takes one parameter at a
time) and ``observation``. It runs only when the user names it; nothing that is stored in a run directory makes it run.
"""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from propersbi import tasks
from propersbi.observations import numbers
from propersbi.problem import Problem
from propersbi.tasks.task import Task
from propersbi.types import InputError

__all__ = ["Observation", "load_problem", "read_observation"]

OPTIONAL = ("parameter_names", "embedding", "support", "batched")


@dataclass(frozen=True, eq=False)
class Observation:
    """Observed data and where they are from."""

    values: np.ndarray
    source: str


def load_problem(problem: Problem | str | Path) -> Problem:
    """A task by its name, the problem in a Python file, or the problem itself.

    >>> load_problem("two_moons").name
    'two_moons'
    """
    if isinstance(problem, Problem):
        return problem
    name = str(problem)
    return _from_file(name) if name.endswith(".py") else tasks.get(name)


def _from_file(name: str) -> Problem:
    module = _import_file(Path(name))
    defined = vars(module)
    digest = hashlib.sha256(Path(name).read_bytes()).hexdigest()[:16]
    if "problem" in defined:
        problem = defined["problem"]
        if not isinstance(problem, Problem):
            raise InputError(f"'problem' in '{name}' must be a propersbi.Problem, got {type(problem).__name__}.")
        return replace(problem, name=name, digest=digest)
    for needed in ("prior", "simulator"):
        if needed not in defined:
            raise InputError(f"'{name}' must define '{needed}'.")
    if not callable(defined["simulator"]):
        raise InputError(f"'simulator' in '{name}' must be a function, got {type(defined['simulator']).__name__}.")
    given: dict[str, Any] = {key: defined[key] for key in ("prior", "simulator", *OPTIONAL) if key in defined}
    return Problem(name=name, digest=digest, x_o=defined.get("observation"), **given)


def _import_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise InputError(f"There is no file '{path}'.")
    name = f"propersbi_model_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickles look their module up here
    sys.path.insert(0, str(path.resolve().parent))  # so that the file can import its neighbours
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise InputError(f"'{path}' cannot be run: {type(error).__name__}: {error}") from error
    import cloudpickle

    cloudpickle.register_pickle_by_value(module)  # workers cannot import it by name
    return module


def read_observation(source: Any, problem: Problem | None) -> Observation | None:
    """The observed data, finite numbers; of nothing, the problem's own, of which a task shows the first.

    Arguments:
        source: A ``.npy``, ``.csv`` or ``.txt`` file, the number of a task's observation, an array, or ``None``.
        problem: The problem, if it is at hand.

    >>> read_observation("1", load_problem("two_moons")).source
    'observation 1 of two_moons'
    """
    if source is None:
        return _own_observation(problem)
    if isinstance(source, int) or (isinstance(source, str) and source.isdigit()):
        if not isinstance(problem, Task):
            raise InputError(f"Only a task has numbered observations: give a file instead of '{source}'.")
        return Observation(problem.observation(int(source)), f"observation {int(source)} of {problem.name}")
    if isinstance(source, str | Path):
        return Observation(numbers(_read_file(Path(source)), name="observation"), str(source))
    values = numbers(source, name="observation")
    return Observation(values, f"an array of shape {values.shape}")


def _own_observation(problem: Problem | None) -> Observation | None:
    if problem is None or isinstance(problem, Task):
        return None if problem is None else read_observation(1, problem)
    values = problem.observation()
    source = "the problem itself" if problem.digest is None else "the model file"
    return None if values is None else Observation(numbers(values, name="observation"), source)


def _read_file(path: Path) -> np.ndarray:
    if not path.is_file():
        raise InputError(f"There is no file '{path}'.")
    if not path.stat().st_size:
        raise InputError(f"'{path}' is empty.")
    readers = {".npy": _read_npy, ".csv": _read_text, ".txt": _read_text}
    if path.suffix not in readers:
        raise InputError(f"An observation is read from .npy, .csv or .txt, not from '{path.name}'.")
    try:
        values = readers[path.suffix](path)
    except (ValueError, OSError, EOFError) as error:
        raise InputError(f"'{path}' does not hold numbers: {str(error).splitlines()[0]}") from None
    if not np.issubdtype(values.dtype, np.number):
        raise InputError(f"'{path}' must hold numbers, got {values.dtype}.")
    return values


def _read_npy(path: Path) -> np.ndarray:
    return np.asarray(np.load(path, allow_pickle=False))


def _read_text(path: Path) -> np.ndarray:
    """Numbers in rows, separated by commas or blanks, perhaps below a line of names."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    rows = [line.replace(",", " ").split() for line in lines]
    try:
        [float(word) for word in rows[0]]
    except ValueError:
        rows = rows[1:]
    if not rows:
        raise ValueError("there is no row of numbers.")
    values = np.array(rows, dtype=float)
    return values[0] if len(values) == 1 else values
