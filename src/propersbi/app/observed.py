"""The observed data of a run: from a file, a task, an array, or the problem itself.

A text file holds one observation as a row or as a column of numbers, or a table of them; lines of names above the
numbers, lines that start with ``#`` and the row names that pandas and R write are skipped.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.format import MAGIC_PREFIX

from propersbi.observations import as_numbers, numbers
from propersbi.problem import Problem
from propersbi.tasks.task import Task
from propersbi.types import InputError

__all__ = ["Observation", "read_observation"]

MISSING = re.compile(r"|-|n/?a|null|none", re.IGNORECASE)  # what stands where a number is missing
Cells = list[tuple[int, list[str]]]


@dataclass(frozen=True, eq=False)
class Observation:
    """Observed data and where they are from.

    Arguments:
        values: The data.
        source: Where they are from, in words.
        names: Those of the numbers, if they were given as a dict.
    """

    values: np.ndarray
    source: str
    names: tuple[str, ...] | None = None

    def arranged(self, names: Sequence[str] | None) -> Observation:
        """The numbers in the order in which the simulator names them, if both have names."""
        if self.names is None or names is None or self.names == tuple(names):
            return self
        missing = [name for name in names if name not in self.names]
        extra = [name for name in self.names if name not in names]
        if missing:
            raise InputError(f"The observation has no number named '{missing[0]}', which the simulator returns.")
        if extra:
            raise InputError(f"The observation has a number named '{extra[0]}', which the simulator does not return.")
        return replace(self, values=self.values[[self.names.index(name) for name in names]], names=tuple(names))


def read_observation(source: Any, problem: Problem | None, *, missing: bool = False) -> Observation | None:
    """The observed data, finite numbers; of nothing, the problem's own, of which a task shows the first.

    Arguments:
        source: A ``.npy``, ``.csv`` or ``.txt`` file, the number of a task's observation, an array, a dict of numbers
            and arrays, or ``None``.
        problem: The problem, if it is at hand.
        missing: Whether entries may be missing, which the problem may say as well.

    >>> from propersbi import tasks
    >>> read_observation("1", tasks.get("two_moons")).source
    'observation 1 of two_moons'
    """
    missing = missing or takes_missing(problem)
    if source is None:
        return _own_observation(problem)
    if isinstance(source, int) or (isinstance(source, str) and source.isdecimal()):
        if not isinstance(problem, Task):
            raise InputError(f"Only a task has numbered observations: give a file instead of '{source}'.")
        return Observation(problem.observation(int(source)), f"observation {int(source)} of {problem.name}")
    if isinstance(source, str | Path):
        return Observation(numbers(_read_file(Path(source)), name="observation", missing=missing), str(source))
    found = _from_python(source, "", missing)
    return replace(found, source=f"an array of shape {found.values.shape}")


def _own_observation(problem: Problem | None) -> Observation | None:
    if problem is None or isinstance(problem, Task):
        return None if problem is None else read_observation(1, problem)
    source = "the problem itself" if problem.digest is None else "the model file"
    return None if problem.x_o is None else _from_python(problem.x_o, source, takes_missing(problem))


def takes_missing(problem: Problem | None) -> bool:
    """Whether the problem says that entries of the observation may be missing."""
    return problem is not None and problem.training.get("missing", "exclude") != "exclude"


def _from_python(values: Any, source: str, missing: bool) -> Observation:
    """An array or, as a simulator may return it, a dict of numbers and arrays."""
    if not isinstance(values, Mapping):
        return Observation(numbers(values, name="observation", missing=missing), source)
    if not values:
        raise InputError("The observation is an empty dict.")
    parts = {
        str(name): np.ravel(numbers(part, name=f"observation['{name}']", missing=missing))
        for name, part in values.items()
    }
    names = [name if part.size == 1 else f"{name}_{i + 1}" for name, part in parts.items() for i in range(part.size)]
    return Observation(np.concatenate(list(parts.values())), source, tuple(names))


def _read_file(path: Path) -> np.ndarray:
    readers = {".npy": _read_npy, ".csv": _read_text, ".txt": _read_text}
    if not path.is_file():
        raise InputError(f"There is no file '{path}'.")
    if not path.stat().st_size:
        raise InputError(f"'{path}' is empty.")
    suffix = path.suffix.lower()
    if suffix not in readers:
        raise InputError(f"An observation is read from .npy, .csv or .txt, not from '{path.name}'.")
    try:
        values = readers[suffix](path)
    except InputError as error:
        raise InputError(f"'{path}' does not hold numbers: {error}") from None
    except Exception as error:  # a file can be broken in any way
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(f"'{path}' does not hold numbers: {reason:.200}") from None
    return as_numbers(values, str(path))


def _read_npy(path: Path) -> np.ndarray:
    """An array; mapped first, so that a header that promises more numbers than the file holds takes no memory."""
    with path.open("rb") as file:
        start = file.read(len(MAGIC_PREFIX))
    if start != MAGIC_PREFIX:
        archive = start.startswith(b"PK")
        raise InputError("it is an archive (.npz): save a single array." if archive else "it is no file of NumPy.")
    return np.array(np.load(path, mmap_mode="r", allow_pickle=False))


def _read_text(path: Path) -> np.ndarray:
    """Numbers in rows, separated by commas, semicolons, tabs or blanks."""
    rows = _cells(path.read_text(encoding="utf-8-sig"))
    if not rows:
        raise InputError("it is blank.")
    rows = _without_names(rows)
    if not rows:
        raise InputError("there is no row of numbers.")
    widths = {len(cells) for _, cells in rows}
    if len(widths) > 1:
        raise InputError(f"its rows have from {min(widths)} to {max(widths)} entries.")
    values = np.array([[_number(cell, line) for cell in cells] for line, cells in rows])
    return values.reshape(-1) if 1 in values.shape else values


def _cells(text: str) -> Cells:
    """The entries of each line that holds any, with the number of the line."""
    lines = [(i, line.strip()) for i, line in enumerate(text.splitlines(), 1)]
    lines = [(i, line) for i, line in lines if line and not line.startswith("#")]
    sign = next((sign for sign in ";\t," if any(sign in line for _, line in lines)), None)
    if sign is None:
        return [(i, line.split()) for i, line in lines]
    parsed = csv.reader([line for _, line in lines], delimiter=sign, skipinitialspace=True)
    return [(i, [cell.strip() for cell in cells]) for (i, _), cells in zip(lines, parsed, strict=True)]


def _without_names(rows: Cells) -> Cells:
    """The rows below the lines of names; without a first column of row names, as pandas and R write it."""
    start = next((i for i, (_, cells) in enumerate(rows) if not any(map(_is_text, cells))), len(rows))
    if start == 0 and rows[0][1][0] == "" and _is_count(rows[1:]):
        start = 1  # a column without a name
    if not 0 < start < len(rows):
        return rows[start:]
    header, below = rows[start - 1][1], rows[start:]
    has_row_names = (header[0] == "" and len(header) > 1) or len(header) == len(below[0][1]) - 1
    return [(line, cells[1:]) for line, cells in below] if has_row_names else below


def _is_count(rows: Cells) -> bool:
    """Whether the first column counts the rows from 0."""
    return bool(rows) and [cells[0] for _, cells in rows] == [str(i) for i in range(len(rows))]


def _is_text(cell: str) -> bool:
    return not _is_number(cell) and not MISSING.fullmatch(cell)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _number(cell: str, line: int) -> float:
    if _is_number(cell):
        return float(cell)
    if MISSING.fullmatch(cell):
        raise InputError(f"an entry of line {line} is missing.")
    raise InputError(f"'{cell:.40}' in line {line} is not a number.")
