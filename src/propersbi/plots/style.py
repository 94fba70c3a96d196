"""One style for every picture: the posterior is blue, what it is compared with orange, the prior grey, the truth dark.

The colours are those of Okabe and Ito, which people with any colour vision tell apart.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.mathtext import MathTextParser

from propersbi.types import Array, InputError

__all__ = ["label", "legend_above", "named", "panels", "rows", "say_shown", "span", "style", "tint"]

POSTERIOR, REFERENCE, PRIOR, TRUTH = "#0072B2", "#D55E00", "#8C8C8C", "#222222"
SERIES = (POSTERIOR, REFERENCE, "#009E73", "#CC79A7", "#56B4E9", "#E69F00", TRUTH, PRIOR)
BAND, FRAME = "#E3E3E3", "#777777"
SMALL, TEXT = 8.5, 10.0
PAGE = 8.8  # inches of text width
PANELS = 8  # more panels than this are not read by anyone


def panels(count: int, *, shape: float, widest: float = 3.8) -> tuple[Figure, list[Axes]]:
    """A figure with ``count`` styled axes, at most four in a row; ``shape`` is the height of one over its width."""
    wide = columns(count)
    tall = math.ceil(count / wide)
    width = min(PAGE / wide, widest)
    figure = Figure(figsize=(wide * width, tall * width * shape + 0.3), layout="constrained")
    axes = [figure.add_subplot(tall, wide, index + 1) for index in range(count)]
    for one in axes:
        style(one)
    return figure, axes


def columns(count: int) -> int:
    """How many panels stand in a row: rows as full as possible.

    >>> [columns(count) for count in range(1, 9)]
    [1, 2, 3, 4, 3, 3, 4, 4]
    """
    return count if count <= 4 else 3 if count <= 6 else 4


def style(axes: Axes) -> None:
    """Two thin spines, small ticks, no background (the page may be dark)."""
    axes.set_facecolor("none")
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(FRAME)
    axes.tick_params(labelsize=SMALL, color=FRAME, labelcolor=TRUTH, length=3)


def label(axes: Axes, *, x: str = "", y: str = "", title: str = "") -> None:
    """Axis labels and title; empty ones are left out."""
    setters: list[tuple[Any, str]] = [(axes.set_xlabel, x), (axes.set_ylabel, y), (axes.set_title, title)]
    for set_text, text in setters:
        if text:
            set_text(short(text), fontsize=TEXT, color=TRUTH, parse_math=is_math(text))


def legend_above(figure: Figure, axes: Axes) -> None:
    """One legend for all panels, above them."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, fontsize=SMALL, loc="outside upper right", ncols=len(handles))


def say_shown(figure: Figure, shown: int, d: int) -> None:
    """Say in the figure that there is more than it shows."""
    if shown < d:
        figure.supxlabel(f"the first {shown} of {d} parameters", fontsize=SMALL, color=FRAME, style="italic")


def tint(strength: float) -> tuple[float, float, float]:
    """The posterior's colour mixed with white."""
    red, green, blue = (1 - strength * (1 - part) for part in to_rgb(POSTERIOR))
    return red, green, blue


def short(text: str, length: int = 32) -> str:
    """A name that fits below a panel.

    >>> short("the growth rate of the second species")
    'the growth rate of the second s…'
    """
    text = " ".join(text.split())
    return text if len(text) <= length or is_math(text) else text[: length - 1] + "…"


def is_math(text: str) -> bool:
    r"""Whether the text is valid TeX mathematics; a dollar sign alone is a dollar sign.

    >>> is_math(r"$\theta_1$"), is_math("cost in $"), is_math("$a_$"), is_math(r"$\undefined$")
    (True, False, False, False)
    """
    if text.count("$") < 2:
        return False
    try:
        MathTextParser("path").parse(text)
    except (ValueError, RuntimeError):
        return False
    return True


def rows(what: str, values: Array, d: int | None = None) -> np.ndarray:
    """Finite rows ``(n, d)`` of an array whose event may have any shape."""
    table = np.asarray(values, dtype=float)
    table = table[:, None] if table.ndim == 1 else table.reshape(len(table), math.prod(table.shape[1:]))
    if d is not None and table.shape[1] != d:
        raise InputError(f"'{what}' has {table.shape[1]} columns, expected {d}.")
    table = table[np.isfinite(table).all(axis=1)]
    if table.size == 0:
        raise InputError(f"'{what}' has no finite rows to draw.")
    return table


def named(names: Sequence[str] | None, d: int, letter: str = "θ") -> list[str]:
    """The given names, or numbered ones."""
    if names is None:
        return [f"{letter}{j + 1}" for j in range(d)]
    if len(names) != d:
        raise InputError(f"Got {len(names)} names for {d} parameters.")
    return [str(name) for name in names]


def span(*columns: np.ndarray, point: float | None = None) -> tuple[float, float]:
    """A range that shows the bulk of all columns and the point, with a margin; never empty."""
    ends = np.concatenate([np.percentile(column, [0.1, 99.9]) for column in columns])
    ends = ends if point is None else np.append(ends, point)
    low, high = float(ends.min()), float(ends.max())
    margin = 0.06 * (high - low) or 0.5 * max(abs(low), 1e-3)
    return low - margin, high + margin
