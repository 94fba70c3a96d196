"""What a run is about: a task of the library by its name, the user's own file, or a problem made in Python.

A file is Python that defines ``problem = propersbi.Problem(...)``, or ``prior`` and ``simulator`` and, where wanted,
``observation``, ``parameter_names``, ``support``, ``discrete``, ``batched`` and ``embedding``: see
``docs/problem_file.md``. It runs only when the user names it; nothing that is stored in a run directory makes it run.
"""

from __future__ import annotations

import difflib
import hashlib
import importlib.util
import math
import sys
from dataclasses import replace
from importlib import resources
from pathlib import Path
from types import ModuleType
from typing import Any

from propersbi import tasks
from propersbi.problem import Problem
from propersbi.simulation.priors import check_prior, event_shape
from propersbi.types import InputError

__all__ = ["check_ready", "load_problem", "write_example"]

OPTIONAL = ("parameter_names", "embedding", "support", "discrete", "batched")


def load_problem(problem: Problem | str | Path) -> Problem:
    """A task by its name, the problem in a Python file, or the problem itself.

    >>> load_problem("two_moons").name
    'two_moons'
    """
    if isinstance(problem, Problem):
        return problem
    name = str(problem)
    return _from_file(name) if name.endswith(".py") else tasks.get(name)


def check_ready(problem: Problem) -> None:
    """Refuse a prior, names or a support that cannot be used, before anything is simulated."""
    from propersbi.samplers.priors import UNKNOWN, what_is_known

    check_prior(problem.prior)
    try:
        shape = event_shape(problem.prior)
    except InputError:
        raise
    except Exception:
        return  # the simulations will say how the prior failed, and where
    if problem.parameter_names is not None and len(problem.parameter_names) != math.prod(shape):
        names = len(problem.parameter_names)
        raise InputError(f"There are {names} parameter names for {math.prod(shape)} parameters.")
    what_is_known(shape, problem.support, problem.prior, UNKNOWN)


def write_example(path: str | Path) -> Path:
    """Write a commented problem file that runs as it is; a file that is there already is kept."""
    path = Path(path)
    if path.suffix != ".py":
        raise InputError(f"A problem file has a name that ends in .py, for example my_model.py, got '{path}'.")
    text = resources.files("propersbi.app").joinpath("example.py.txt").read_text(encoding="utf-8")
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text.replace("FILE", path.name))
    except FileExistsError:
        raise InputError(f"'{path}' is there already: choose another name.") from None
    except OSError as error:
        raise InputError(f"'{path}' cannot be written: {error.strerror}.") from None
    return path


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
            close = difflib.get_close_matches(needed, (key for key in defined if not key.startswith("_")), n=1)
            hint = f" It defines '{close[0]}': is that meant?" if close else ""
            raise InputError(f"'{name}' must define '{needed}'.{hint}")
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
    except (Exception, SystemExit) as error:  # a file that ends the program would end it without a result
        raise InputError(f"'{path}' cannot be run: {type(error).__name__}: {error}") from error
    import cloudpickle

    cloudpickle.register_pickle_by_value(module)  # workers cannot import it by name
    return module
