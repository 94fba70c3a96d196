"""From stored simulations (NumPy rows, in memory or on disk) to training batches (torch, standardised).

Which rows a batch holds depends on the seed and the batch's number alone: training resumes anywhere without having
to remember more than a count, and only the rows of one batch are ever read at once.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from propersbi.layouts import Layout, is_structured, pack
from propersbi.observations import as_numbers
from propersbi.types import Batch, InputError, Rows

__all__ = [
    "BatchSource",
    "Batches",
    "FreshSource",
    "Pairs",
    "as_tensor",
    "checked_pairs",
    "prepared_rows",
    "share_of",
    "split",
    "validation_size",
]


@runtime_checkable
class BatchSource(Protocol):
    """``batches[i]`` is the i-th batch: a function of the seed and i alone."""

    def __getitem__(self, number: int, /) -> Batch: ...


class FreshSource(Protocol):
    """``source[i]``: parameters and data of batch i, a function of i alone."""

    def __getitem__(self, number: int, /) -> tuple[Any, Any]: ...


LOOKED_AT = 2000  # pairs that choices by the numbers themselves are made on
TESTED, TESTED_NUMBERS = 10_000, 1_000_000  # pairs and numbers of x, at most, that are tested for independence
PREPARED_NUMBERS = 10_000_000  # of x, at most, that units, regression and bandwidths are found on
CONVERTED_NUMBERS = 10_000_000  # of theta and x, at most, that are converted to the network's units all at once
MANY_MISSING = 0.01  # share of rows with missing entries above which these are taken as data


@dataclass(frozen=True)
class Batches:
    """Shuffled batches of chosen rows: every pass visits each row once, in its own order.

    Arguments:
        theta: Parameters, ``(n, *theta_shape)``.
        x: Data, ``(n, *x_shape)``.
        rows: The rows to draw from.
        size: Rows per batch.
        theta_units: From the user's parameters to the network's units; noise is added to whole numbers.
        x_units: Likewise for data.
        seed: Of the shuffling.
        weight: Importance weights of all rows, where they do not count alike.
        noise: What is done to data, in the user's units, whenever they are read.
        fresh: Batches of other parameters and data by number, simulated afresh, in place of the rows.
        final: A batch number, and the rows to draw from instead from there on.

    Examples:
        >>> from propersbi.samplers import Standardize
        >>> theta, x = np.arange(6.0).reshape(6, 1), np.zeros((6, 2))
        >>> batches = Batches(theta, x, np.arange(6), 3, Standardize((1,)), Standardize((2,)))
        >>> sorted(batches[0].theta.flatten().tolist() + batches[1].theta.flatten().tolist())
        [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    """

    theta: Rows
    x: Rows
    rows: np.ndarray
    size: int
    theta_units: Callable[[Tensor], Tensor]
    x_units: Callable[[Tensor], Tensor]
    seed: int = 0
    weight: np.ndarray | None = None
    noise: Callable[[Tensor], Tensor] | None = None
    fresh: FreshSource | None = None
    final: tuple[int, np.ndarray] | None = None
    _order: Any = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not 0 < self.size <= len(self.rows):
            raise InputError(f"A batch of {self.size} rows cannot be drawn from {len(self.rows)}.")
        # Only the running pass is needed again; a property of the object, so that two trainings do not share it.
        object.__setattr__(self, "_order", lru_cache(maxsize=2)(self._shuffled))

    def __getitem__(self, number: int) -> Batch:
        """The batch with this number, counted over all passes."""
        if self.fresh is not None:
            return self.in_units(*self.fresh[number])
        return self.read(self.places(number))

    def places(self, number: int) -> np.ndarray:
        """The rows of a batch."""
        last = self.final is not None and number >= self.final[0]
        start, chosen = self.final if self.final is not None and last else (0, self.rows)
        size = min(self.size, len(chosen))
        turn, place = divmod(number - start, len(chosen) // size)
        rows: np.ndarray = self._order(turn, last)[place * size : (place + 1) * size]
        return rows

    def read(self, rows: np.ndarray) -> Batch:
        """These rows as one batch."""
        weight = None if self.weight is None else as_tensor(self.weight[rows]).float()
        return self.in_units(self.theta[rows], self.x[rows], weight)

    def in_units(self, theta: Any, x: Any, weight: Tensor | None = None) -> Batch:
        """Parameters and data as a batch in the network's units."""
        theta, x = as_tensor(theta), as_tensor(x)
        return Batch(self.theta_units(theta), self.x_units(x if self.noise is None else self.noise(x.float())), weight)

    def converted(self) -> Batches:
        """The same batches, with all rows in the network's units already: for rows in memory, units without noise."""
        rows = self.theta, self.x
        in_memory = all(isinstance(part, np.ndarray) and not isinstance(part, np.memmap) for part in rows)
        few = sum(math.prod(part.shape) for part in rows) <= CONVERTED_NUMBERS
        if self.noise is not None or self.fresh is not None or not (few and in_memory):
            return self
        whole = self.in_units(*rows)
        return replace(self, theta=whole.theta, x=whole.x, theta_units=_as_it_is, x_units=_as_it_is)

    def _shuffled(self, turn: int, last: bool) -> np.ndarray:
        if last and self.final is not None:
            return np.random.default_rng([self.seed, turn, 1]).permutation(self.final[1])
        return np.random.default_rng([self.seed, turn]).permutation(self.rows)


def _as_it_is(values: Tensor) -> Tensor:
    return values


def share_of(batches: BatchSource, number: int, rank: int, count: int) -> tuple[Batch, float]:
    """The rows of a batch that one of several devices takes, and their weight in the mean over devices.

    Only these rows are read, unless the batch is fresh.

    Arguments:
        batches: The batches.
        number: Of the batch.
        rank: Of the device.
        count: How many devices there are.

    >>> batches = [Batch(torch.arange(5.0)[:, None], torch.zeros(5, 1))]
    >>> [(len(batch), weight) for batch, weight in (share_of(batches, 0, rank, 2) for rank in (0, 1))]
    [(3, 1.2), (2, 0.8)]
    """
    if count > 1 and isinstance(batches, Batches) and batches.fresh is None:
        places = batches.places(number)
        share, rows = batches.read(places[rank::count]), len(places)
    else:
        whole = batches[number]
        share, rows = whole if count == 1 else whole[rank::count], len(whole)
    return share, len(share) * count / rows


def split(n: int, fraction: float, *, most: int = 5000, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows for training and rows held out for validation, see :func:`validation_size`.

    Examples:
        >>> train, validation = split(100, 0.1)
        >>> len(train), len(validation), len(np.intersect1d(train, validation))
        (90, 10, 0)
    """
    size = validation_size(n, fraction, most)
    order = np.random.default_rng([seed, n]).permutation(n)
    return np.sort(order[size:]), np.sort(order[:size])


def validation_size(n: int, fraction: float, most: int = 5000) -> int:
    """The number of rows held out for validation: a fraction of ``n``, at least one row and ``most`` at most."""
    if not 0 < fraction < 1:
        raise InputError(f"The validation fraction must lie in (0, 1), got {fraction}.")
    if n < 4:
        raise InputError(f"Training needs at least 4 simulations, got {n}.")
    return min(max(1, round(fraction * n)), most)


def prepared_rows(n: int, x_shape: Sequence[int]) -> int:
    """How many of ``n`` training pairs units, regression and bandwidths are found on."""
    return min(n, max(100, PREPARED_NUMBERS // math.prod(x_shape)))


def as_tensor(values: Any) -> Tensor:
    """A floating-point tensor of NumPy or torch numbers, without a copy where possible."""
    tensor = values if isinstance(values, Tensor) else torch.from_numpy(np.ascontiguousarray(values))
    return tensor.detach() if tensor.is_floating_point() else tensor.detach().float()


class Pairs(NamedTuple):
    """Parameters and data as rows that fit each other.

    Arguments:
        theta: Parameters, with an event axis.
        x: Data, packed, with an event axis.
        layout: The parts of the data, if they are structured.
        missing: Whether entries of the data are missing.
    """

    theta: Rows
    x: Rows
    layout: Layout | None = None
    missing: bool = False

    @property
    def some(self) -> tuple[Tensor, Tensor]:
        """A few pairs, for choices that depend on more than shapes."""
        few = max(1, min(len(self.theta), LOOKED_AT, PREPARED_NUMBERS // math.prod(self.x.shape[1:])))
        return as_tensor(self.theta[:few]).double(), as_tensor(self.x[:few]).double()

    @property
    def many(self) -> tuple[np.ndarray, np.ndarray]:
        """As many pairs as a test of independence can use in a few seconds; of vectors."""
        most = min(len(self.theta), TESTED, TESTED_NUMBERS // math.prod(self.x.shape[1:]))
        return np.asarray(self.theta[:most], float), np.asarray(self.x[:most], float)


def checked_pairs(theta: Any, x: Any, missing: Any = None) -> Pairs:
    """Parameters and data as rows that fit each other, with an event axis each.

    Rows with infinite numbers are left out, and so are rows with missing entries where ``missing`` is ``"exclude"``.
    By default these are data if more than one row in a hundred has some.

    Columns on disk are taken as they are: their store has checked every row when it was written.
    """
    structured = is_structured(x)
    x, layout = pack(x)
    structured |= layout is not None
    allowed = structured or missing not in (None, "exclude")
    theta, x = _rows(theta, "theta"), _rows(x, "x", missing=missing != "exclude")
    if len(theta) != len(x):
        raise InputError(f"theta has {len(theta)} rows but x has {len(x)}.")
    if not len(theta):
        raise InputError("There are no simulations: theta and x are empty.")
    if not (isinstance(theta, np.ndarray) and isinstance(x, np.ndarray)):
        pairs = Pairs(theta, x, layout)
        return pairs._replace(missing=bool(pairs.some[1].isnan().any()) or missing not in (None, "exclude"))
    n = len(theta)
    absent = np.isnan(x).reshape(n, -1)
    partly = absent.any(1) & ~absent.all(1) & np.isfinite(theta).reshape(n, -1).all(1)
    if missing is None and not structured and partly.mean() > MANY_MISSING:
        warnings.warn(
            f"{int(partly.sum())} of {n} simulations have missing entries, which are taken as data; "
            "missing='exclude' would leave them out.",
            stacklevel=3,
        )
        allowed = True
    valid = np.isfinite(theta).reshape(n, -1).all(1) & ~np.isinf(x).reshape(n, -1).any(1)
    valid &= ~absent.all(1) if allowed else ~absent.any(1)
    if not valid.any():
        raise InputError(f"All {n} simulations hold NaN or infinite numbers.")
    if not valid.all():
        bad = int((~valid).sum())
        warnings.warn(f"{bad} of {n} simulations hold NaN or infinite numbers and are left out.", stacklevel=4)
        theta, x, absent = theta[valid], x[valid], absent[valid]
    return Pairs(theta, x, layout, bool(absent.any()) or missing not in (None, "exclude"))


def _rows(values: Any, name: str, *, missing: bool = False) -> Any:
    in_memory = isinstance(values, np.ndarray | Tensor) or not hasattr(values, "shape")
    if isinstance(values, np.ndarray) and values.dtype.kind not in "fiubcO":
        raise InputError(f"'{name}' must hold numbers, got {values.dtype}.")
    if in_memory or hasattr(values, "to_numpy"):  # a DataFrame
        values = as_numbers(values, name, missing=missing)
    if len(values.shape) == 0:
        raise InputError(f"'{name}' must have a row for each simulation, got a single number.")
    if math.prod(values.shape[1:]) == 0:
        raise InputError(f"'{name}' has empty rows: its shape is {tuple(values.shape)}.")
    return values[:, None] if len(values.shape) == 1 else values
