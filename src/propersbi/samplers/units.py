"""Units of numbers: centre and scale of each coordinate, found on data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from propersbi.samplers.bounds import Bounds
from propersbi.storage.checks import check_number, check_whole
from propersbi.types import InputError

__all__ = ["Standardize"]

SMALLEST = 1e-300  # stands for zero and less where logarithms are taken
NEXT_TO_ZERO = 1e-30  # bounds below it are zero
LARGEST_LOGARITHM = 88.0  # of what single precision can hold


class Standardize(nn.Module):
    r"""Centre and scale each coordinate: :math:`u = (v - \text{centre}) / \text{scale}`, single precision out.

    Vectors are scaled coordinate by coordinate, fields and images as a whole. Arithmetic is in double precision, so
    that data far from zero keep their digits. Missing numbers are left out and stay NaN; columns of zeros and ones,
    such as masks and one-hot categories, stay as they are.

    Arguments:
        shape: The event shape of what is standardised.
        tail: Beyond this many scales, values grow like a logarithm only; a single extreme number in the data then
            neither dominates the others nor overflows. ``None`` leaves tails alone, and the map can be inverted.
        logarithms: Which coordinates of a vector are replaced by their logarithm first; they must be positive.
        periods: Pairs ``(size, period)`` for consecutive parts of the flattened event, of which every ``period``-th
            number has the same units: ``((500, 1),)`` for a series, ``((100, 2),)`` for fifty trials of two numbers
            each. A single part may have another size than it says.
        given: Centre and scale, where they are not found on data: numbers, or one for each unit.
        ignored: Which coordinates of a vector are replaced by zero, whatever they are.

    Examples:
        >>> units = Standardize((2,)).fit(torch.tensor([[1.0, 10.0], [3.0, 30.0]]))
        >>> units(torch.tensor([[2.0, 10.0]]))
        tensor([[ 0.0000, -0.7071]])
        >>> units.inverse(units(torch.tensor([[5.0, 7.0]]))).float()
        tensor([[5., 7.]])
    """

    center: Tensor
    scale: Tensor

    def __init__(
        self,
        shape: Sequence[int],
        tail: float | None = None,
        logarithms: Sequence[int] = (),
        periods: Sequence[Sequence[int]] | None = None,
        given: Sequence[Any] | None = None,
        ignored: Sequence[int] = (),
    ) -> None:
        super().__init__()
        if tail is not None:
            check_number("tail", tail, "be positive", 0)
        self.shape, self.tail, self.logarithms = _wholes("shape", shape), tail, _wholes("logarithms", logarithms)
        self.ignored = _wholes("ignored", ignored)
        for what, places in (("Logarithms", self.logarithms), ("Ignored numbers", self.ignored)):
            if places and not (len(self.shape) == 1 and set(places) <= set(range(self.shape[0]))):
                raise InputError(f"{what} need a vector with numbers {places}, got the shape {self.shape}.")
        self.periods = None if periods is None else _periods(periods)
        size = self.shape if len(self.shape) == 1 else (1,) * len(self.shape)
        if self.periods is not None:
            if sum(part for part, _ in self.periods) != math.prod(self.shape):
                raise InputError(f"The periods {self.periods} do not fit data of shape {self.shape}.")
            size = (sum(period for _, period in self.periods),)
        if given is not None and not (isinstance(given, tuple | list) and len(given) == 2):
            raise InputError(f"'given' must be a pair of centre and scale, got {given!r:.80}.")
        self.given = None if given is None else tuple(given)
        self.register_buffer("center", torch.zeros(size, dtype=torch.float64))
        self.register_buffer("scale", torch.ones(size, dtype=torch.float64))
        if self.given is not None:
            self._take(*self.given)

    def fit(self, values: Tensor) -> Standardize:
        """Find centre and scale on ``values`` ``(n, *shape)``: moments, or quantiles where tails are compressed.

        Those that were given stay.
        """
        if self.given is not None:
            return self
        columns = self._columns(self._curved(values.detach().double()).cpu().numpy())
        found = [self._found(column) for column in columns]
        for buffer, numbers in zip((self.center, self.scale), zip(*found, strict=True), strict=True):
            buffer.copy_(torch.from_numpy(np.concatenate(numbers)).reshape(buffer.shape))
        return self

    def _take(self, center: Any, scale: Any) -> None:
        """Take a given centre and scale."""
        for buffer, values in ((self.center, center), (self.scale, scale)):
            try:
                numbers = torch.as_tensor(values, dtype=torch.float64)
            except (TypeError, ValueError, RuntimeError, OverflowError):
                raise InputError(f"Given units must be numbers, got {values!r:.80}.") from None
            if numbers.ndim and numbers.shape != buffer.shape:
                raise InputError(f"Given units must be one number or {buffer.numel()} of them, got {numbers.numel()}.")
            buffer.copy_(numbers.expand(buffer.shape))
        if self.scale.device.type != "meta" and not (self.scale > 0).all():
            raise InputError("Given scales must be positive.")

    def _columns(self, values: np.ndarray) -> list[np.ndarray]:
        """What has the same units in one column each, ``(k, numbers)`` for each part."""
        if self.periods is None or len(self.periods) == 1:
            return [values.reshape(-1, self.center.numel())]
        ends = np.cumsum([size for size, _ in self.periods])[:-1]
        parts = np.split(values.reshape(len(values), -1), ends, axis=1)
        return [part.reshape(-1, period) for part, (_, period) in zip(parts, self.periods, strict=True)]

    def _found(self, columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Centre and scale of columns."""
        missing = np.isnan(columns)
        if missing.any():
            center, spread = _nan_moments(columns, missing)
        else:
            spread = columns.std(0, ddof=1) if len(columns) > 1 else np.ones(columns.shape[1])
            center = columns.mean(0)
        if self.tail is not None:
            quantile = np.nanquantile if missing.any() else np.quantile
            low, center, high = quantile(np.where(missing.all(0), 0.0, columns), [0.1587, 0.5, 0.8413], axis=0)
            # Data with most values equal have no quantile width; their standard deviation is the next best.
            spread = np.where(high > low, (high - low) / 2, spread)
            binary = ((columns == 0) | (columns == 1) | missing).all(0)
            center, spread = np.where(binary, 0.0, center), np.where(binary, 1.0, spread)
        spread = np.where(np.isfinite(spread) & (spread > 0), spread, 1.0)
        return center, spread

    def _over(self, units: Tensor, values: Tensor) -> Tensor:
        """Centre or scale in a shape that fits ``values (..., *shape)``."""
        if self.periods is None:
            return units
        event = values.shape[values.ndim - len(self.shape) :]
        if len(self.periods) == 1:
            return units.repeat(math.prod(event) // len(units)).reshape(event)
        parts = units.split([period for _, period in self.periods])
        sizes = [size // period for size, period in self.periods]
        return torch.cat([part.repeat(size) for part, size in zip(parts, sizes, strict=True)]).reshape(event)

    def forward(self, values: Tensor) -> Tensor:
        units = (self._curved(values.double()) - self._over(self.center, values)) / self._over(self.scale, values)
        if self.tail is not None:
            beyond = (units.abs() - self.tail).clamp_min(0)
            units = units.clamp(-self.tail, self.tail) + units.sign() * beyond.log1p()
        if self.ignored:
            units[..., list(self.ignored)] = 0.0
        return units.float()

    def inverse(self, units: Tensor) -> Tensor:
        """Back to the user's numbers, in double precision while :class:`Box` still has to round them."""
        if self.tail is not None or self.ignored:
            raise InputError("Compressed tails and ignored numbers cannot be inverted.")
        values = units.double() * self._over(self.scale, units) + self._over(self.center, units)
        if self.logarithms:
            where = list(self.logarithms)
            values[..., where] = values[..., where].clamp(max=LARGEST_LOGARITHM).exp()
        return values

    def log_volume(self, values: Float[Tensor, "*batch"]) -> Tensor | float:
        r"""The logarithm of :math:`|\det \partial u / \partial v|` at the user's numbers."""
        volume = -self.scale.expand(self.shape).log().sum().float()
        return volume - self._curved(values.double())[..., list(self.logarithms)].sum(-1).float()

    def of_bounds(self, bounds: Bounds) -> Bounds:
        """Bounds of the user's numbers in units; a logarithm has no bound at zero."""
        lower, upper = (self(end.reshape(self.shape)).flatten() for end in (bounds.lower, bounds.upper))
        curved = torch.zeros(len(lower), dtype=torch.bool)
        curved[list(self.logarithms)] = True
        lower = torch.where(curved & (bounds.lower.flatten() < NEXT_TO_ZERO), -torch.inf, lower)
        return Bounds(lower, upper, point_masses=bounds.point_masses)

    def _curved(self, values: Tensor) -> Tensor:
        """The numbers with logarithms where they are asked for."""
        if not self.logarithms:
            return values
        where, curved = list(self.logarithms), values.clone()
        curved[..., where] = values[..., where].clamp_min(SMALLEST).log()
        return curved


def _nan_moments(columns: np.ndarray, missing: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation without missing numbers; 0 and 1 of columns that have none."""
    count = (~missing).sum(0)
    center = np.where(missing, 0.0, columns).sum(0) / np.maximum(count, 1)
    square = np.where(missing, 0.0, columns - center) ** 2
    return center, np.where(count > 1, np.sqrt(square.sum(0) / np.maximum(count - 1, 1)), 1.0)


def _wholes(name: str, values: Any) -> tuple[int, ...]:
    """Whole numbers, none negative, as a tuple."""
    if isinstance(values, str | bytes) or not isinstance(values, Sequence):
        raise InputError(f"'{name}' must be a list of whole numbers, got {values!r:.80}.")
    return tuple(check_whole(name, value, 0) for value in values)


def _periods(values: Any) -> tuple[tuple[int, int], ...]:
    """The size and the period of each part."""
    if isinstance(values, str | bytes) or not isinstance(values, Sequence):
        raise InputError(f"'periods' must be pairs of whole numbers, got {values!r:.80}.")
    pairs = [_wholes("periods", pair) for pair in values]
    if any(len(pair) != 2 for pair in pairs):
        raise InputError(f"'periods' must be pairs of whole numbers, got {values!r:.80}.")
    return tuple((size, period) for size, period in pairs)
