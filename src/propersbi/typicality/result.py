"""How like the simulations an observation is, as a value: a p-value, the deviant numbers, a sentence."""

from __future__ import annotations

from typing import Any, NamedTuple

from propersbi.storage.schema import read_as
from propersbi.types import InputError

__all__ = ["UNLIKE", "Deviation", "Typicality", "UnlikeSimulations"]

UNLIKE = 0.01  # p-values below it are warned of


class UnlikeSimulations(UserWarning):
    """An observation is unlike the simulations."""


class Deviation(NamedTuple):
    """A number of the data that is unlike the simulations.

    Arguments:
        name: What it is called, ``x[3]`` if it has no name of its own.
        place: Its index in the data.
        deviation: In standard deviations, from the mean of the simulations or from what the other numbers predict.
        given_others: Which of the two.
    """

    name: str
    place: tuple[int, ...]
    deviation: float
    given_others: bool

    def __str__(self) -> str:
        side = "above" if self.deviation > 0 else "below"
        what = "what the other numbers predict" if self.given_others else "the mean"
        return f"{self.name} lies {abs(self.deviation):.3g} standard deviations {side} {what}"


class Typicality(NamedTuple):
    """How like the simulations an observation is.

    Arguments:
        p_value: The probability of a simulation that is at least as extreme.
        deviant: The numbers that deviate most, if single ones do, the most deviant first.
    """

    p_value: float
    deviant: tuple[Deviation, ...]

    @property
    def unlike(self) -> bool:
        """Whether the observation is unlike the simulations."""
        return self.p_value < UNLIKE

    @property
    def sentence(self) -> str:
        """The result in words.

        >>> print(Typicality(0.0004, (Deviation("x[3]", (3,), -7.25, False),)).sentence)
        The observation is unlike the simulations (p = 0.0004): x[3] lies 7.25 standard deviations below the mean.
        >>> print(Typicality(0.3, ()).sentence)
        The observation is like the simulations (p = 0.3).
        """
        p = "p < 1e-06" if self.p_value < 1e-6 else f"p = {self.p_value:.2g}"
        if not self.unlike:
            return f"The observation is like the simulations ({p})."
        numbers = ", ".join(map(str, self.deviant)) or "no single number stands out, but all of them together do"
        return f"The observation is unlike the simulations ({p}): {numbers}."

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        deviant = [{**part._asdict(), "place": list(part.place)} for part in self.deviant]
        return {"p_value": self.p_value, "deviant": deviant}

    @classmethod
    def from_json(cls, data: Any) -> Typicality:
        """From what :meth:`to_json` gave; anything else is an :class:`InputError`."""
        found = read_as(cls, data, "typicality")
        if not 0 <= found.p_value <= 1:
            raise InputError(f"A typicality has a p-value between 0 and 1, got {found.p_value}.")
        return found
