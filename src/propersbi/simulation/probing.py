"""Finding out how a simulator is called, by a few calls with random numbers of their own.

A function of one parameter hardly gives two rows for two parameters and three rows for three; one that does takes
batches, unless it also takes one parameter and a row depends on the others. Calls that raise decide nothing, since some
parameters may make the simulator fail, and are repeated with others. The results of these calls are not used.
"""

from __future__ import annotations

import sys
import threading
import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from propersbi.simulation.callers import Caller, RowError
from propersbi.simulation.calls import Argument, is_tensor
from propersbi.simulation.output import capture
from propersbi.simulation.results import ResultError, Values
from propersbi.simulation.styles import Style, check_rows
from propersbi.types import Array, InputError

__all__ = ["PLACE", "find_style"]

PLACE = (0, 2**32 - 1)  # of the random stream, after the seed: no chunk has this number
TRIES = 6
_LOCK = threading.Lock()  # warnings and printing are of the whole process
SIGNS = ("is ambiguous", "unpack", "length-1", "size-1", "0-dimensional", "one element", "real number")
"""In messages of Python, NumPy and torch: an array was given where a number was expected."""


def find_style(
    caller: Caller, prior: Any, arguments: tuple[Argument, ...] | None, *, seed: int, batched: bool | None = None
) -> Style:
    """How to call the simulator of ``caller``.

    If nothing works, as ``batched`` says, or in batches, unless the errors are those of a function of one parameter.

    Arguments:
        caller: What calls it, opened.
        prior: The prior.
        arguments: The parameters that it takes by name.
        seed: The seed of the random streams.
        batched: Whether it takes batches, if that is known.
    """
    style, in_batches = None, batched is not False
    with _LOCK, warnings.catch_warnings(), capture():
        warnings.simplefilter("ignore")
        try:
            probe = _Probe(caller, prior, arguments, seed, is_tensor(caller.draw(prior, 2)))
            if batched is not False:
                style = probe.find_batches()
            if style is None and batched is not True:
                style = probe.find_rows()
                in_batches = batched is None and not probe.wants_numbers
        except InputError:
            pass  # the prior cannot be drawn from, as the first chunk will say
    return style or Style(in_batches, None, arguments)


@dataclass
class _Probe:
    """Calls of a simulator.

    Arguments:
        caller: What calls it.
        prior: The prior.
        arguments: The parameters that it takes by name.
        seed: The seed of the random streams.
        in_torch: Whether the prior gives torch tensors.
    """

    caller: Caller
    prior: Any
    arguments: tuple[Argument, ...] | None
    seed: int
    in_torch: bool
    wants_numbers: bool = field(default=False, init=False)
    _rows: dict[str | None, Values] = field(default_factory=dict, init=False)

    @property
    def other(self) -> str | None:
        """The library that the prior does not use, if it is loaded."""
        return "numpy" if self.in_torch else "torch" if "torch" in sys.modules else None

    def find_batches(self) -> Style | None:
        """How the simulator takes batches, if it does."""
        style = Style(True, None, self.arguments)
        values = self.takes_batches(style)
        prefers_other = values is None or (self.in_torch and isinstance(values, Values) and not values.in_torch)
        if self.other and prefers_other:
            converted = Style(True, self.other, self.arguments)
            given = self.takes_batches(converted)
            if isinstance(given, Values):
                return converted.with_data(given)
        return style.with_data(values) if isinstance(values, Values) else None

    def find_rows(self) -> Style | None:
        """How the simulator takes one parameter at a time, if it does.

        If it does not care for the library, it gets NumPy, which is many times faster for single numbers.
        """
        libraries = ["numpy", None] if self.in_torch else [None, self.other]
        styles = [Style(False, library, self.arguments) for library in dict.fromkeys(libraries)]
        for _ in range(TRIES):
            theta = self.caller.draw(self.prior, 1)[0]
            last: Style | None = None
            for style in styles:
                values = self.row(style, theta)
                if values is None:
                    continue
                last = style.with_data(values)
                if not (values.in_torch and style.library == "numpy"):
                    return last
            if last is not None:
                return last
        return None

    def takes_batches(self, style: Style) -> Values | bool | None:
        """What the simulator returns for a batch; ``False`` if it takes none, ``None`` if it raises."""
        found: list[Values] = []
        for rows in (2, 3):
            doubt = 0
            for _ in range(TRIES):
                theta = self.caller.draw(self.prior, rows)
                values = self.attempt(style, theta)
                if values is not None:
                    break
                doubt += self.doubt(style, theta)
                if doubt > 1:
                    return False
            else:
                return None
            if values.numbers.ndim == 0 or len(values.numbers) != rows or values.numbers.size == 0:
                return False
            found.append(values)
        if found[0].numbers.shape[1:] != found[1].numbers.shape[1:] or self.mixes_rows(style, theta):
            return False
        return found[0]

    def mixes_rows(self, style: Style, theta: Array) -> bool:
        """Whether a simulator that also takes one parameter lets the last of three decide on the others."""
        if self.row(Style(False, style.library, style.arguments), theta[0]) is None:
            return False
        changed = theta.clone() if is_tensor(theta) else theta.copy()
        changed[-1] = self.caller.draw(self.prior, 1)[0]
        first: list[np.ndarray] = []
        for given in (theta, theta, changed):  # twice the same, since it may have random numbers of its own
            self.caller.restart(self.seed, *PLACE, len(theta))
            values = self.attempt(style, given)
            if values is None or len(values.numbers) != len(theta):
                return False
            first.append(values.numbers[:-1])
        return np.array_equal(first[0], first[1], equal_nan=True) and not np.allclose(
            first[0], first[2], rtol=1e-6, atol=0, equal_nan=True
        )

    def doubt(self, style: Style, theta: Array) -> int:
        """How much a batch that raised says against batches.

        Two: its first parameter works on its own, but not as a batch of one. One: all work as batches of one, so that
        only chance may have made it fail. Zero: some parameter fails anyway.
        """
        if self.attempt(style, theta[:1]) is None:
            return 2 * (self.row(Style(False, style.library, style.arguments), theta[0]) is not None)
        return int(all(self.attempt(style, theta[i : i + 1]) is not None for i in range(1, len(theta))))

    def row(self, style: Style, theta: Array) -> Values | None:
        """What the simulator returns for one parameter; once it has worked it is not called again."""
        if style.library not in self._rows:
            values = self.attempt(style, theta)
            if values is None:
                return None
            self._rows[style.library] = values
        return self._rows[style.library]

    def attempt(self, style: Style, theta: Array) -> Values | None:
        """What the simulator returns; ``None`` if it raises or gives no numbers."""
        try:
            values = self.caller(style, theta)
            if not style.batched:
                check_rows(values, theta, style)
        except (RowError, ResultError) as error:
            cause = error.cause if isinstance(error, RowError) else error
            self.wants_numbers |= style.batched and any(sign in str(cause) for sign in SIGNS)
            return None
        return values
