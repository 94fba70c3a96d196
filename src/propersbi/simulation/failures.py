"""Rows whose simulation failed: what becomes of them, which they were, and when there are too many.

A row fails when the simulator raises, calls ``sys.exit`` or takes too long. It is then excluded and recorded, and the
others go on; so many that something must be wrong stop the run.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from numbers import Real
from typing import Any, overload

import numpy as np

from propersbi.simulation.calls import is_tensor, nearest
from propersbi.storage.checks import list_of_names
from propersbi.storage.schema import read_as
from propersbi.types import Array, InputError

__all__ = ["Failure", "Failures", "Options", "SimulationError", "describe", "find_options", "too_many"]

MAX_RECORDS, MAX_CHUNK_RECORDS = 100, 20
MAX_MESSAGE, MAX_THETA = 300, 100  # characters and numbers of a record
MIN_ROWS, DEVIATIONS = 20, 4.0  # a run is stopped early after so many rows and by so many standard deviations


class SimulationError(RuntimeError):
    """The simulator or its executor failed; the message gives the parameter and the number of finished chunks."""


@dataclass(frozen=True)
class Options:
    """What :func:`~propersbi.simulation.simulations.simulate` takes besides its own arguments.

    Arguments:
        on_error: ``"record"`` excludes rows that fail and records them; ``"raise"`` stops at the first one.
        max_failed: The largest share of rows that may fail.
        timeout: Seconds after which a row is ended and counts as failed.
        parameter_names: One for each parameter, if the prior does not name them.
        force: Whether to continue simulations that another prior or simulator seems to have begun.
        missing: ``"exclude"`` leaves out rows with NaN; ``"allow"`` takes NaN as a missing entry.
    """

    on_error: str = "record"
    max_failed: float = 0.2
    timeout: float | None = None
    parameter_names: Sequence[str] | None = None
    force: bool = False
    missing: str = "exclude"

    @property
    def nan(self) -> bool:
        """Whether NaN in data is a missing entry."""
        return self.missing == "allow"

    def __post_init__(self) -> None:
        if not isinstance(self.on_error, str) or self.on_error not in ("record", "raise"):
            raise InputError(f"'on_error' must be 'record' or 'raise', got {self.on_error!r:.80}.")
        if self.missing not in ("exclude", "allow"):
            raise InputError(f"'missing' must be 'exclude' or 'allow', got {self.missing!r}.")
        if not _is_number(self.max_failed) or not 0 <= self.max_failed <= 1:
            raise InputError(f"'max_failed' must be a share from 0 to 1, got {self.max_failed!r:.80}.")
        if self.timeout is not None and not (_is_number(self.timeout) and 0 < self.timeout < math.inf):
            raise InputError(f"'timeout' must be a positive number of seconds, or None, got {self.timeout!r:.80}.")
        names = self.parameter_names
        if names is not None:
            list_of_names("parameter_names", names)
        if not isinstance(self.force, bool):
            raise InputError(f"'force' must be True or False, got {self.force!r:.80}.")


def find_options(given: Mapping[str, Any]) -> Options:
    """The options that were given by name.

    >>> find_options({"timeout": 5}).timeout
    5
    """
    names = [option.name for option in fields(Options)]
    for name in given:
        if name not in names:
            advice = nearest(name, names) or f"There are {', '.join(names)}."
            raise InputError(f"simulate() has no argument '{name}': {advice}")
    return Options(**given)


@dataclass(frozen=True)
class Failure:
    """A row that failed.

    Arguments:
        row: Its number among the rows of its group.
        theta: Its parameter, flattened; at most a hundred numbers.
        message: The type and the text of the error.
        seed: The seed of the simulations.
    """

    row: int
    theta: tuple[float, ...]
    message: str
    seed: int

    @classmethod
    def of(cls, row: int, theta: Array, error: BaseException, seed: int) -> Failure:
        """The record of an error."""
        theta = theta.detach().cpu().numpy() if is_tensor(theta) else np.asarray(theta)
        numbers = tuple(float(value) for value in theta.ravel()[:MAX_THETA])
        return cls(row, numbers, describe(error)[:MAX_MESSAGE], seed)

    def __str__(self) -> str:
        theta = ", ".join(f"{value:.6g}" for value in self.theta[:20])
        return f"row {self.row}, theta = [{theta}{', ...' * (len(self.theta) > 20)}]: {self.message}"


@dataclass(frozen=True)
class Failures(Sequence[Failure]):
    """The records of rows that failed: the first hundred, and the numbers of all.

    >>> failures = Failures.of([Failure(3, (0.5,), "ValueError: negative rate", 0)])
    >>> failures.total, failures[0].theta, failures.most_frequent
    (1, (0.5,), 'ValueError: negative rate')
    """

    records: tuple[Failure, ...] = ()
    rows: tuple[int, ...] = field(default=(), repr=False)

    @classmethod
    def of(cls, records: Iterable[Failure], most: int = MAX_RECORDS) -> Failures:
        """The records in the order of rows, at most ``most`` of them."""
        ordered = sorted(records, key=lambda failure: failure.row)
        return cls(tuple(ordered[:most]), tuple(failure.row for failure in ordered))

    @overload
    def __getitem__(self, index: int) -> Failure: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Failure]: ...
    def __getitem__(self, index: int | slice) -> Failure | Sequence[Failure]:
        return self.records[index]

    def __len__(self) -> int:
        return len(self.records)

    @classmethod
    def join(cls, parts: Iterable[Failures]) -> Failures:
        """All of several parts, in the order of rows."""
        parts = list(parts)
        records = sorted((failure for part in parts for failure in part), key=lambda failure: failure.row)
        return cls(tuple(records[:MAX_RECORDS]), tuple(sorted(row for part in parts for row in part.rows)))

    @property
    def total(self) -> int:
        """The number of rows that failed, with those that have no record."""
        return len(self.rows)

    @property
    def most_frequent(self) -> str | None:
        """The most frequent message; numbers in it do not count."""
        kinds = Counter(_kind(failure.message) for failure in self.records)
        kind = kinds.most_common(1)[0][0] if kinds else None
        return next((failure.message for failure in self.records if _kind(failure.message) == kind), None)

    def before(self, row: int) -> Failures:
        """Those of the rows before ``row``."""
        return Failures(tuple(f for f in self.records if f.row < row), tuple(r for r in self.rows if r < row))

    def check(self, done: int, n: int, most: float) -> None:
        """Refuse more than a share ``most`` of ``n`` rows, as soon as ``done`` of them show it."""
        if too_many(self.total, done, n, most):
            share = f"{self.total} of {done} simulations failed, more than max_failed = {most:g} allows"
            raise SimulationError(f"{share}. The most frequent error was {self.most_frequent}.")

    def to_json(self) -> dict[str, Any]:
        """Plain data; numbers that are not finite become ``null``."""
        records = [
            {"row": f.row, "theta": [v if math.isfinite(v) else None for v in f.theta], "message": f.message}
            for f in self.records
        ]
        return {"rows": list(self.rows), "records": records}

    @classmethod
    def from_json(cls, content: Any, seed: int, place: str) -> Failures:
        """What :meth:`to_json` wrote."""
        saved = read_as(_SavedFailures, content, place)
        records = tuple(
            Failure(one.row, tuple(math.nan if v is None else float(v) for v in one.theta), one.message, seed)
            for one in saved.records
        )
        return cls(records, saved.rows)


@dataclass(frozen=True)
class _SavedFailure:
    row: int
    theta: list[float | None]
    message: str


@dataclass(frozen=True)
class _SavedFailures:
    """What the file of the failures of a chunk holds."""

    rows: tuple[int, ...]
    records: list[_SavedFailure]


def too_many(failed: int, done: int, n: int, most: float) -> bool:
    """Whether more than a share ``most`` of ``n`` rows fail, or will, judged by ``done`` of them.

    >>> too_many(6, 20, 1000, 0.2), too_many(12, 20, 1000, 0.2), too_many(3, 12, 12, 0.2)
    (False, True, True)
    """
    if done < min(n, MIN_ROWS):
        return False
    margin = 0.0 if done >= n else DEVIATIONS * math.sqrt(done * most * (1 - most))
    return failed > min(most * n, most * done + margin)


def describe(error: BaseException) -> str:
    """The type and the text of an error, on one line.

    >>> describe(ZeroDivisionError("a rate was zero."))
    'ZeroDivisionError: a rate was zero'
    """
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}".rstrip(":. ")


def _kind(message: str) -> str:
    return re.sub(r"[-+]?\d[\d.e+-]*", "#", message)


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)
