r"""The vocabulary of the library: one page with every protocol.

A *simulator* generates data :math:`x` from parameters :math:`\theta`. A *sampler* draws parameters conditioned on
data. A *scoring rule* measures how well draws predict the true parameter. An *objective* combines both into losses, and
the training loop depends on objectives only. Everything here is structural: to extend the library, write an object with
the right methods.

Shapes: the sample axis is first, then one batch axis, then the event: draws are ``(m, n, *event)``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:  # simulation workers read this page too and need not load torch
    from torch import Tensor

__all__ = [
    "Array",
    "Batch",
    "Executor",
    "InputError",
    "Kernel",
    "Phase",
    "Prior",
    "Rows",
    "ScoringRule",
    "Simulator",
]

Array = Any
"""A NumPy array or a torch tensor."""

Simulator = Callable[..., Array]
"""``(theta) -> x`` or ``(theta, rng) -> x``, batch first."""


MAX_MESSAGE = 300


class InputError(ValueError):
    """An invalid argument; the message is one sentence with the value and what was expected.

    A message that quotes something long is shortened in its middle.

    >>> str(InputError("a" * 1000))[178:190], len(str(InputError("a" * 1000)))
    ('aa ... aaaaa', 300)
    """

    def __init__(self, message: object = "") -> None:
        text = str(message).encode("utf-8", "backslashreplace").decode()
        if len(text) > MAX_MESSAGE:
            text = f"{text[:180]} ... {text[180 + 5 - MAX_MESSAGE :]}"
        super().__init__(text)


@runtime_checkable
class Prior(Protocol):
    """Anything that can be sampled. A density is never required.

    A torch ``Distribution``, a list of one-dimensional ones and an array of draws are accepted in its place.
    """

    def sample(self, n: int, rng: Any) -> Array:
        """``n`` independent draws, ``(n, *event)``."""


@runtime_checkable
class Executor(Protocol):
    """Maps a job over chunk indices; results may be returned in any order."""

    def __call__(self, job: Callable[[int], Any], indices: Iterable[int]) -> Iterator[Any]: ...


@runtime_checkable
class Rows(Protocol):
    """A column of simulations, in memory or on disk, with a shape and rows by index."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    def __len__(self) -> int: ...
    def __getitem__(self, index: Any) -> Array: ...


@runtime_checkable
class Kernel(Protocol):
    """A radial kernel: a function of distance."""

    def __call__(self, distance: Tensor) -> Tensor: ...


@runtime_checkable
class ScoringRule(Protocol):
    """Scores ``m`` draws ``(m, n, *event)`` against the true value ``(n, *event)``, row by row; lower is better.

    Scores are not averaged over rows, so that they can be weighted and compared in pairs.
    """

    def __call__(self, samples: Tensor, theta: Tensor) -> Tensor: ...


@dataclass(frozen=True)
class Batch:
    """Parameters, the data they made and, where rows do not count alike, their weights ``(n,)``."""

    theta: Tensor
    x: Tensor
    weight: Tensor | None = None

    def __len__(self) -> int:
        return len(self.theta)

    def __getitem__(self, rows: slice) -> Batch:
        weight = None if self.weight is None else self.weight[rows]
        return Batch(self.theta[rows], self.x[rows], weight)

    def to(self, device: Any) -> Batch:
        weight = None if self.weight is None else self.weight.to(device)
        return Batch(self.theta.to(device), self.x.to(device), weight)


@dataclass(frozen=True)
class Phase:
    """A part of a training step: the named network descends ``loss`` ``repeats`` times. A GAN has two phases."""

    network: str
    loss: Callable[[Batch], Tensor]
    repeats: int = 1
