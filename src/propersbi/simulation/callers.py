"""Calling a simulator under a random stream of its own, here or in a process that can be ended.

A caller is opened at a place of the work, ``(seed, group, chunk)``, draws the parameters there and calls the simulator,
whose random numbers continue the same stream. Both kinds give identical results.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from propersbi.simulation.priors import draw
from propersbi.simulation.results import ResultError, Values
from propersbi.simulation.styles import Style, invoke
from propersbi.storage.randomness import stream
from propersbi.types import Array, Simulator

__all__ = ["Caller", "Direct", "RowError"]


class RowError(Exception):
    """The simulation of a row failed, as the error in ``cause`` says; ``lost`` if its random stream is lost with it."""

    def __init__(self, cause: BaseException, *, lost: bool = False) -> None:
        super().__init__(cause, lost)
        self.cause, self.lost = cause, lost


class Caller(ABC):
    """Draws parameters and calls the simulator, in one random stream."""

    @abstractmethod
    def restart(self, *place: int) -> None:
        """Continue with another random stream."""

    @abstractmethod
    def draw(self, prior: Any, n: int) -> Array:
        """``n`` draws from the prior."""

    @abstractmethod
    def __call__(self, style: Style, theta: Array) -> Values:
        """What the simulator returns; a :class:`RowError` if it fails."""


@dataclass
class Direct(Caller):
    """Calls the simulator in this process.

    Arguments:
        simulator: The simulator.
        place: Where its random stream belongs.
    """

    simulator: Simulator
    place: tuple[int, ...]
    _stream: ExitStack = field(default_factory=ExitStack, init=False, repr=False)
    _rng: np.random.Generator = field(init=False, repr=False)

    def __enter__(self) -> Direct:
        self.restart(*self.place)
        return self

    def __exit__(self, *error: object) -> None:
        self._stream.close()

    def restart(self, *place: int) -> None:
        """Continue with another random stream."""
        self._stream.close()
        self._rng = self._stream.enter_context(stream(*place))

    def draw(self, prior: Any, n: int) -> Array:
        """``n`` draws from the prior."""
        return draw(prior, n, self._rng)

    def __call__(self, style: Style, theta: Array) -> Values:
        """What the simulator returns."""
        try:
            return invoke(self.simulator, style, theta, self._rng)
        except ResultError:
            raise
        except (Exception, SystemExit) as error:
            raise RowError(error) from error
