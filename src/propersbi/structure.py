"""What the axes of data mean, decided from their shape, what is said of them and the data themselves, with a reason."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from propersbi.layouts import WHOLE, Kind, Layout, Part
from propersbi.networks import Embedding, image_axes
from propersbi.networks.parts import EMBEDDINGS
from propersbi.recipes import Factory
from propersbi.types import InputError

__all__ = ["Structure", "find_structure", "periods_of", "structure_for", "tail_of", "takes_embedding"]

SHORTEST_SERIES = 64  # numbers of a vector from which its neighbours are looked at
MAX_CHANNELS = 7  # of a series ``(times, channels)``; wider arrays are images
MANY_NUMBERS = 10_000  # in x up to which embeddings for series, sets and images are quick
NEIGHBOURS = 0.2  # correlation of neighbours, beyond that of any two numbers, that makes a series


@dataclass(frozen=True)
class Structure:
    """What was decided.

    Arguments:
        layout: The parts with their kinds; ``None`` for one vector.
        embedding: What makes the embedding; ``None`` for a vector without missing entries.
        reason: Why.
    """

    layout: Layout | None = None
    embedding: Factory | None = None
    reason: str = ""

    def inputs(self, x_shape: Sequence[int]) -> int:
        """How many numbers a regression starts from: the data, or the fixed statistics of the embedding."""
        if self.embedding is None:
            return math.prod(x_shape)
        with torch.device("meta"):
            made = self.embedding(tuple(x_shape))
        return made.fixed if isinstance(made, Embedding) else math.prod(x_shape)


def structure_for(
    x_shape: Sequence[int],
    rows: tuple[Any, Any] | None,
    layout: Layout | None,
    missing: bool,
    changes: Mapping[str, Any],
    *,
    custom: bool,
) -> Structure:
    """What data are, with what was asked for; no embedding if they are many, or the user has a ``custom`` one."""
    found = find_structure(
        x_shape,
        None if rows is None else rows[1].cpu().numpy(),
        layout=changes.get("layout", layout),
        exchangeable=changes.get("exchangeable", False),
        missing=missing or changes.get("missing", "exclude") != "exclude",
    )
    return replace(found, embedding=None) if custom or math.prod(x_shape) > MANY_NUMBERS else found


def takes_embedding(network: Any) -> bool:
    """Whether what makes a network is the library's, and takes an embedding."""
    return network is None or (isinstance(network, Factory) and network.name in ("MLPGenerator", "Flow"))


def find_structure(
    x_shape: Sequence[int],
    rows: np.ndarray | None = None,
    *,
    layout: Layout | None = None,
    exchangeable: bool | Sequence[str] = False,
    missing: bool = False,
) -> Structure:
    """What data of this shape are.

    Arguments:
        x_shape: The packed shape of one observation.
        rows: Some of the data, ``(n, *x_shape)``.
        layout: The parts, if there are some.
        exchangeable: Whether the first axis, or that of which parts, counts exchangeable trials.
        missing: Whether entries may be missing.

    >>> find_structure((20, 2), exchangeable=True).reason
    'x: a set of up to 20 trials, declared exchangeable'
    >>> find_structure((28, 28)).embedding.name
    'ImageEmbedding'
    """
    parts = (Part(WHOLE, tuple(x_shape)),) if layout is None else layout.parts
    _check_exchangeable(exchangeable, parts)
    columns = [None] * len(parts) if rows is None else list(Layout(parts).unpack(rows).values())
    decided, reasons = [], []
    for part, column in zip(parts, columns, strict=True):
        kind, reason = _kind(part, column, exchangeable is True or part.name in (exchangeable or ()))
        decided.append(replace(part, kind=kind))
        reasons += [f"{part.name}: {reason}"] if reason else []
    result = Layout(tuple(decided))
    if all(part.kind is Kind.VECTOR for part in result.parts):
        filled = (Factory("VectorEmbedding"), "entries may be missing") if missing else (None, "")
        return Structure(result if result.named else None, *filled)
    if result.named:
        return Structure(result, Factory("PartsEmbedding", {"layout": result}), "; ".join(reasons))
    return Structure(result, Factory(EMBEDDINGS[result.parts[0].kind or Kind.VECTOR]), "; ".join(reasons))


def periods_of(layout: Layout | None) -> tuple[tuple[int, int], ...] | None:
    """Which numbers of packed rows share their units: those of a channel; see ``Standardize``.

    >>> periods_of(Layout((Part("trials", (50, 2), Kind.SET), Part("extra", (3,), Kind.VECTOR))))
    ((100, 2), (3, 3))
    """
    if layout is None or all(part.kind is Kind.VECTOR for part in layout.parts):
        return None
    return tuple((part.size, _period(part)) for part in layout.parts)


def tail_of(x_shape: tuple[int, ...], layout: Layout | None) -> tuple[float, str]:
    """Scales beyond which data are compressed; on grids, whose sums and transforms matter, extremes only."""
    if len(x_shape) == 1 and periods_of(layout) is None:
        return 5.0, "a single extreme number must not dominate a vector"
    return 100.0, "only extremes, since data on a grid are summed and transformed"


def _period(part: Part) -> int:
    if part.kind is Kind.VECTOR:
        return part.size
    if part.kind is Kind.IMAGE:
        axes = image_axes(part.shape)
        return axes[0] if axes is not None and axes[3] else 1
    return part.shape[1] if len(part.shape) == 2 else 1


def _kind(part: Part, column: np.ndarray | None, exchangeable: bool) -> tuple[Kind, str]:
    shape = part.shape
    if part.kind is not None:
        return part.kind, f"a {part.kind}, as given"
    if exchangeable and len(shape) in (1, 2) and shape[0] > 1:
        return Kind.SET, f"a set of up to {shape[0]} trials, declared exchangeable"
    if part.ragged:
        if len(shape) > 2:
            raise InputError(f"Part '{part.name}' of varying length must have one or two axes, got {shape}.")
        return Kind.SERIES, f"a series of up to {shape[0]} times; exchangeable=True would make it a set"
    if image_axes(shape) is not None:
        return Kind.IMAGE, f"an image, by its shape {shape}"
    if len(shape) == 2 and shape[0] >= 2 * shape[1] and shape[0] > MAX_CHANNELS >= shape[1]:
        return Kind.SERIES, f"a series of {shape[0]} times, by its shape; exchangeable=True would make it a set"
    if len(shape) == 1 and shape[0] >= SHORTEST_SERIES and column is not None and len(column) > 1:
        found, usual = neighbour_correlation(column)
        if found > usual + NEIGHBOURS:
            return Kind.SERIES, f"a series of {shape[0]} times, since neighbours correlate ({found:.2f})"
    return Kind.VECTOR, ""


def neighbour_correlation(column: Any) -> tuple[float, float]:
    """The correlation of neighbours within rows ``(n, d)``, and that of numbers in random order.

    Each number is standardised first, and the mean of its row is taken off.

    >>> rng = np.random.default_rng(0)
    >>> walks = rng.normal(size=(100, 64)).cumsum(1)
    >>> neighbour_correlation(walks)[0] > 0.8, abs(neighbour_correlation(rng.normal(size=(100, 64)))[0]) < 0.1
    (True, True)
    """
    values = np.array(column, dtype=float)
    center, scale = np.nanmean(values, 0), np.nanstd(values, 0)
    units = np.nan_to_num((values - center) / np.where(scale > 0, scale, 1.0))
    units = np.clip(units - units.mean(1, keepdims=True), -5, 5)
    order = np.random.default_rng(0).permutation(units.shape[1])
    found, usual = ((v[:, 1:] * v[:, :-1]).mean() / max(units.var(), 1e-12) for v in (units, units[:, order]))
    return float(found), float(usual)


def _check_exchangeable(exchangeable: Any, parts: Sequence[Part]) -> None:
    if isinstance(exchangeable, bool):
        return
    names = [part.name for part in parts]
    if isinstance(exchangeable, str) or not set(exchangeable) <= set(names):
        raise InputError(f"'exchangeable' must be true, false or a list of parts of {names}, got {exchangeable!r:.80}.")
