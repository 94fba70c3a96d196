"""How structured observations are packed into one array, so that all else sees rows of numbers.

Data may be a dict of named parts, sets or series of varying length, and have missing entries. Packed, each observation
is one row of numbers: parts are flattened side by side, and NaN stands for what is missing and for padding. A
:class:`Layout` says what stands where; it is plain data and kept with simulations and posteriors. Only NumPy is needed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from propersbi.types import InputError

__all__ = ["Kind", "Layout", "PackedArray", "Part", "is_structured", "layout_of", "pack"]

WHOLE = "x"  # the name of the only part of data without names


class Kind(StrEnum):
    """What the axes of a part mean."""

    VECTOR = "vector"
    SERIES = "series"
    SET = "set"
    IMAGE = "image"


@dataclass(frozen=True)
class Part:
    """A part of an observation.

    Arguments:
        name: Its name.
        shape: Its shape; of varying first axes the longest.
        kind: What its axes mean; ``None`` is not decided yet.
        ragged: Whether its first axis varies.
    """

    name: str
    shape: tuple[int, ...]
    kind: Kind | None = None
    ragged: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(int(size) for size in self.shape))
        try:
            object.__setattr__(self, "kind", None if self.kind is None else Kind(self.kind))
        except ValueError:
            raise InputError(f"A part is one of {', '.join(Kind)}, got {self.kind!r:.40}.") from None
        if min(self.shape, default=1) < 1:
            raise InputError(f"Part '{self.name}' is empty: its shape is {self.shape}.")

    @property
    def size(self) -> int:
        """Numbers in the packed row."""
        return math.prod(self.shape)

    @property
    def flexible(self) -> bool:
        """Whether observations of other lengths are taken."""
        return self.ragged or self.kind in (Kind.SET, Kind.SERIES)


@dataclass(frozen=True)
class Layout:
    """The parts of an observation, in the order in which they are packed.

    Arguments:
        parts: The parts; a single one with the name ``"x"`` stands for data without names, which keep their shape.

    Examples:
        >>> layout = Layout((Part("spectrum", (3,)), Part("magnitude", ())))
        >>> layout.pack_one({"magnitude": 4.0, "spectrum": [1.0, 2.0, 3.0]})
        array([1., 2., 3., 4.])
    """

    parts: tuple[Part, ...]

    def __str__(self) -> str:
        return ", ".join(f"{part.name} {part.kind or ''} {part.shape}" for part in self.parts)

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", tuple(self.parts))
        names = [part.name for part in self.parts]
        if not names or len(set(names)) < len(names):
            raise InputError(f"Data need parts with different names, got {names}.")

    def to_json(self) -> list[list[Any]]:
        """As plain data: names and shapes."""
        return [[part.name, list(part.shape)] for part in self.parts]

    @classmethod
    def from_json(cls, data: Any) -> Layout:
        """What :meth:`to_json` gave; a ``ValueError`` if it cannot be that."""
        try:
            return cls(tuple(Part(str(name), tuple(shape)) for name, shape in data))
        except TypeError:
            raise ValueError(f"parts are {data!r:.80}") from None

    @property
    def named(self) -> bool:
        """Whether observations are dicts."""
        return len(self.parts) > 1 or self.parts[0].name != WHOLE

    @property
    def packed_shape(self) -> tuple[int, ...]:
        """The shape of a packed row; of data without names their own."""
        return (sum(part.size for part in self.parts),) if self.named else self.parts[0].shape or (1,)

    @property
    def flexible(self) -> bool:
        """Whether packed rows may be longer than those of the simulations."""
        return not self.named and self.parts[0].flexible

    def pack_rows(self, x: Any, name: str = "x") -> np.ndarray:
        """Many observations: a dict of columns, a list of arrays of varying length, or rows that are packed already."""
        if not self.named:
            array = _column(x, name, self.parts[0].shape)
            return array if self.flexible or array.shape[1:] != () else array[:, None]
        if not isinstance(x, Mapping):
            array = _array(x, name)
            self._check_packed(array, 1, name)
            return array
        self._check_names(x, name)
        columns = [_fitted(_column(x[part.name], part.name, part.shape), part, 1) for part in self.parts]
        if len({len(column) for column in columns}) > 1:
            counts = ", ".join(f"'{part.name}' {len(c)}" for part, c in zip(self.parts, columns, strict=True))
            raise InputError(f"The parts of '{name}' must have as many rows as each other, got {counts}.")
        return np.concatenate([column.reshape(len(column), -1) for column in columns], 1)

    def pack_one(self, x: Any, name: str = "x") -> np.ndarray:
        """One observation."""
        if not self.named:
            return _one(x, self.parts[0], name)
        if not isinstance(x, Mapping):
            array = _array(x, name)
            array = array[0] if array.ndim == 2 and len(array) == 1 else array
            self._check_packed(array, 0, name)
            return array
        self._check_names(x, name)
        return np.concatenate([_fitted(_one(x[part.name], part, part.name), part, 0).ravel() for part in self.parts])

    def unpack(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """The parts of packed rows ``(n, numbers)``, by name, with NaN where something is missing."""
        ends = np.cumsum([part.size for part in self.parts])[:-1]
        pieces = np.split(np.asarray(rows).reshape(len(rows), -1), ends, axis=1) if self.named else [np.asarray(rows)]
        return {
            part.name: piece.reshape(len(rows), *part.shape) if self.named else piece
            for part, piece in zip(self.parts, pieces, strict=True)
        }

    def _check_names(self, x: Mapping[Any, Any], name: str) -> None:
        expected, found = {part.name for part in self.parts}, {str(key) for key in x}
        if expected != found:
            raise InputError(f"'{name}' must have the parts {sorted(expected)}, got {sorted(found)}.")

    def _check_packed(self, array: np.ndarray, axes: int, name: str) -> None:
        if array.ndim != axes + 1 or array.shape[-1] != self.packed_shape[0]:
            names = [part.name for part in self.parts]
            raise InputError(f"'{name}' must be a dict of {names}, got an array of shape {array.shape}.")


class PackedArray(np.ndarray):
    """Packed rows that remember their layout: an array like any other, whose columns stand for parts."""

    layout: Layout | None

    def __new__(cls, rows: np.ndarray, layout: Layout) -> PackedArray:
        array = np.asarray(rows).view(cls)
        array.layout = layout
        return array

    def __array_finalize__(self, other: Any) -> None:
        layout = getattr(other, "layout", None)  # any array may be viewed as this one
        fits = layout is not None and self.ndim > 1 and self.shape[1:] == layout.packed_shape
        self.layout = layout if fits else None

    def __reduce__(self) -> Any:
        return PackedArray, (np.asarray(self), self.layout) if self.layout else super().__reduce__()


def layout_of(x: Any) -> Layout | None:
    """The layout that packed rows, in memory or on disk, carry with them."""
    found = getattr(x, "layout", None)  # arrays of NumPy have none, and those of torch one of another kind
    return found if isinstance(found, Layout) else None


def is_structured(x: Any) -> bool:
    """Whether many observations are a dict of parts or a list of arrays of varying length.

    >>> is_structured([np.zeros((2, 3)), np.zeros((5, 3))]), is_structured(np.zeros((2, 3)))
    (True, False)
    """
    return isinstance(x, Mapping) or _is_ragged(x)


def pack(x: Any) -> tuple[Any, Layout | None]:
    """Many observations as packed rows, and their layout; data that are plain arrays stay as they are.

    >>> rows, layout = pack([np.ones((1, 2)), np.zeros((2, 2))])
    >>> rows[0], layout.parts[0].shape
    (array([[ 1.,  1.],
           [nan, nan]]), (2, 2))
    """
    if isinstance(x, Mapping):
        if not x:
            raise InputError("'x' is an empty dict.")
        columns = {str(key): _column(value, str(key)) for key, value in x.items()}
        parts = tuple(Part(key, column.shape[1:], None, _is_ragged(x[key])) for key, column in columns.items())
        layout = Layout(parts)
        return layout.pack_rows(columns), layout
    if _is_ragged(x):
        column = _column(x, "x")
        return column, Layout((Part(WHOLE, column.shape[1:], None, ragged=True),))
    return x, layout_of(x)


def _is_ragged(x: Any) -> bool:
    """A list, or an array of objects, of arrays of different lengths."""
    if isinstance(x, np.ndarray):
        return x.dtype == object and x.ndim == 1 and len(x) > 0 and all(np.ndim(row) > 0 for row in x)
    if not isinstance(x, list | tuple) or not x:
        return False
    try:
        return len({np.shape(row) for row in x}) > 1
    except (ValueError, TypeError):  # a list of lists of different lengths
        return all(np.ndim(np.asarray(row, dtype=object)) > 0 for row in x)


def _column(values: Any, name: str, shape: Sequence[int] | None = None) -> np.ndarray:
    """Rows of one part, ``(n, *shape)``; shorter ones padded with NaN."""
    if not _is_ragged(values):
        return _array(values, name)
    rows = [_array(row, name) for row in values]
    inner = {row.shape[1:] for row in rows}
    if len(inner) > 1 or any(row.ndim == 0 for row in rows):
        shapes = sorted({row.shape for row in rows}, key=str)[:3]
        raise InputError(f"Rows of '{name}' may differ in their first axis only, got shapes {shapes}.")
    longest = max(len(row) for row in rows)
    longest = longest if shape is None else max(longest, shape[0])
    packed = np.full((len(rows), longest, *inner.pop()), np.nan, np.result_type(*rows, np.float32))
    for place, row in zip(packed, rows, strict=True):
        place[: len(row)] = row
    return packed


def _one(x: Any, part: Part, name: str) -> np.ndarray:
    """One observation of a part, as it is or, where axes of length one do not matter, in its shape."""
    array = _array(x, name)
    if array.ndim == len(part.shape) + 1 and len(array) == 1:
        array = array[0]
    if part.flexible and array.ndim == len(part.shape) and array.shape[1:] == part.shape[1:] and len(array):
        return array
    if _long(array.shape) != _long(part.shape):
        raise InputError(f"'{name}' must have shape {part.shape}, got {array.shape}.")
    return array.reshape(part.shape)


def _fitted(array: np.ndarray, part: Part, axes: int) -> np.ndarray:
    """Padded to the length of the part, which cannot be exceeded between other parts."""
    if array.shape[axes:] == part.shape:
        return array
    if array.ndim != axes + len(part.shape) or array.shape[axes + 1 :] != part.shape[1:]:
        raise InputError(f"'{part.name}' must have shape {part.shape}, got {array.shape[axes:]}.")
    more = part.shape[0] - array.shape[axes]
    if more < 0 or not part.flexible:
        most = f"at most {part.shape[0]}, the longest of the simulations," if part.flexible else f"{part.shape[0]}"
        raise InputError(f"'{part.name}' must have {most} entries along its first axis, got {array.shape[axes]}.")
    padding = [(0, 0)] * axes + [(0, more)] + [(0, 0)] * (len(part.shape) - 1)
    return np.pad(array, padding, constant_values=np.nan)


def _array(values: Any, name: str) -> np.ndarray:
    """Floating-point numbers, NaN where something is missing."""
    if callable(getattr(values, "detach", None)):  # torch, which is not imported here
        values = values.detach().cpu().numpy()
    if isinstance(values, np.ma.MaskedArray):
        values = np.ma.filled(values.astype(float), np.nan)
    if callable(getattr(values, "to_numpy", None)):  # pandas
        values = values.to_numpy(dtype=float, na_value=np.nan)
    try:
        array = np.asarray(values)
        array = array if array.dtype.kind == "f" else array.astype(float)
    except (TypeError, ValueError):
        raise InputError(f"'{name}' must be an array of numbers, got {type(values).__name__}.") from None
    return array


def _long(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(size for size in shape if size != 1)
