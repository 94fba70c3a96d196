"""What is inferred on the command line: a task of the library, or the user's own file.

An own file is Python that defines ``prior`` and ``simulator`` and, where wanted, ``parameter_names``, ``embedding``,
``support``, ``batched`` (``False`` for a simulator that takes one parameter at a time) and ``observation``. It runs
only when the user names it; nothing that is stored in a run directory makes it run.
"""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from propersbi import tasks
from propersbi.types import InputError, Simulator

__all__ = ["Model", "load_model", "read_observation"]


@dataclass(frozen=True)
class Model:
    """A prior, a simulator and what is known about them."""

    name: str
    prior: Any
    simulator: Simulator
    parameter_names: Sequence[str] | None = None
    embedding: Any = None
    support: Any = None
    batched: bool = True
    observation: Callable[[int], np.ndarray] | np.ndarray | None = None
    truth: Callable[[int], np.ndarray] | None = None
    reference: Callable[..., np.ndarray] | None = None
    test_prior: Any = None
    parts: tuple[Simulator, Callable[[Any], Any]] | None = None
    view: Callable[[np.ndarray], np.ndarray] | None = None
    quick: Mapping[str, Any] = field(default_factory=dict)
    digest: str | None = None


def load_model(name: str) -> Model:
    """A task by its name, or the model in a Python file."""
    if not name.endswith(".py"):
        return _from_task(name)
    module = _import_file(Path(name))
    for needed in ("prior", "simulator"):
        if not hasattr(module, needed):
            raise InputError(f"'{name}' must define '{needed}'.")
    if not callable(module.simulator):
        raise InputError(f"'simulator' in '{name}' must be a function, got {type(module.simulator).__name__}.")
    optional = ("parameter_names", "embedding", "support", "batched", "observation")
    given = {key: getattr(module, key) for key in optional if hasattr(module, key)}
    digest = hashlib.sha256(Path(name).read_bytes()).hexdigest()[:16]
    return Model(name, module.prior, module.simulator, digest=digest, **given)


def _from_task(name: str) -> Model:
    task = tasks.get(name)
    return Model(
        name,
        task.prior,
        task.simulate,
        parameter_names=task.parameter_names,
        observation=task.observation,
        truth=task.true_parameters,
        reference=task.reference_posterior if task.posterior is not None else None,
        test_prior=task.test_prior,
        parts=task.parts,
        view=task.view,
        quick=task.quick,
    )


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


def read_observation(source: str | None, model: Model | None) -> np.ndarray | None:
    """The observed data: a file (``.npy``, ``.csv``, ``.txt``), the number of a task's observation, or the model's own.

    >>> read_observation("1", load_model("two_moons")).shape
    (2,)
    """
    known = model.observation if model else None
    if source is None:
        return None if known is None or callable(known) else np.asarray(known)
    if source.isdigit():
        if not callable(known):
            raise InputError(f"Only a task has numbered observations: give a file instead of '{source}'.")
        return np.asarray(known(int(source)))
    path = Path(source)
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
    return np.load(path, allow_pickle=False)


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
