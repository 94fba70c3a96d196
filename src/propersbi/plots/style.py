"""The style of all plots: the posterior is blue, references are orange, the prior is grey, true values are dark.

The colours are those of Okabe and Ito, which are distinguishable with any colour vision.
"""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.mathtext import MathTextParser

from propersbi.types import Array, InputError

__all__ = [
    "AxesLike",
    "NotebookFigure",
    "label",
    "legend_above",
    "note_hidden",
    "own_axes",
    "panels",
    "parameter_labels",
    "rows",
    "set_padding",
    "span",
    "style",
    "tint",
]

AxesLike = Axes | Sequence[Any] | np.ndarray
"""One axes of matplotlib, or an array or nested sequence of them."""

POSTERIOR, REFERENCE, PRIOR, TRUTH = "#0072B2", "#D55E00", "#8C8C8C", "#222222"
SERIES = (POSTERIOR, REFERENCE, "#009E73", "#CC79A7", "#56B4E9", "#E69F00", TRUTH, PRIOR)
BAND, FRAME = "#E3E3E3", "#777777"
SMALL_TEXT, TEXT = 8.5, 10.0
PAGE = 8.8  # the text width in inches
MAX_PANELS = 8  # panels per figure; further parameters are not shown
MIN_IMAGE_SIDE = 8  # pixels; a thinner grid is plotted as one series per column


class NotebookFigure(Figure):
    """A figure that a notebook shows as the last line of a cell, also where pyplot was never imported.

    >>> NotebookFigure(figsize=(1, 1))._repr_png_()[1:4]
    b'PNG'
    """

    def _repr_png_(self) -> bytes:
        content = io.BytesIO()
        self.savefig(content, format="png", dpi=110)
        return content.getvalue()


def panels(count: int, *, shape: float, widest: float = 3.8, axes: AxesLike | None = None) -> tuple[Figure, list[Axes]]:
    """A figure with ``count`` styled axes, at most four in a row; ``shape`` is the ratio of height to width of one.

    Axes of the caller's own are styled and used in place of new ones.
    """
    if axes is not None:
        return own_axes(axes, count)
    num_columns = columns(count)
    num_rows = math.ceil(count / num_columns)
    width = min(PAGE / num_columns, widest)
    figure = NotebookFigure(figsize=(num_columns * width, num_rows * width * shape + 0.3), layout="constrained")
    made = [figure.add_subplot(num_rows, num_columns, index + 1) for index in range(count)]
    for panel in made:
        style(panel)
    return figure, made


def own_axes(axes: AxesLike, count: int) -> tuple[Figure, list[Axes]]:
    """The caller's axes, styled, and their figure; an :class:`InputError` if they are not ``count``."""
    given: list[Axes] = [axes] if isinstance(axes, Axes) else list(np.asarray(axes, dtype=object).ravel())
    if len(given) != count or not all(isinstance(panel, Axes) for panel in given):
        raise InputError(f"This plot has {count} panels, but 'axes' holds {len(given)}.")
    for panel in given:
        style(panel)
    figure = given[0].get_figure(root=True)
    assert isinstance(figure, Figure)
    return figure, given


def columns(count: int) -> int:
    """The number of panels in a row, such that rows are as full as possible.

    >>> [columns(count) for count in range(1, 9)]
    [1, 2, 3, 4, 3, 3, 4, 4]
    """
    return count if count <= 4 else 3 if count <= 6 else 4


def style(axes: Axes) -> None:
    """Two thin spines, small ticks, transparent background (the page may be dark)."""
    axes.set_facecolor("none")
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(FRAME)
    axes.tick_params(labelsize=SMALL_TEXT, color=FRAME, labelcolor=TRUTH, length=3)


def set_padding(figure: Figure, padding: float) -> None:
    """Set the padding, in inches, between the panels of a figure with constrained layout."""
    engine = figure.get_layout_engine()
    if isinstance(engine, ConstrainedLayoutEngine):
        engine.set(w_pad=padding, h_pad=padding, wspace=0.02, hspace=0.02)


def label(axes: Axes, *, x: str = "", y: str = "", title: str = "") -> None:
    """Set axis labels and title; empty ones are omitted."""
    setters: list[tuple[Any, str]] = [(axes.set_xlabel, x), (axes.set_ylabel, y), (axes.set_title, title)]
    for set_text, text in setters:
        if text:
            set_text(short(text), fontsize=TEXT, color=TRUTH, parse_math=is_math(text))


def legend_above(figure: Figure, axes: Axes, *, inside: bool = False) -> None:
    """Add one legend for all panels: above them, or inside the given one where the figure is the caller's own."""
    handles, labels = axes.get_legend_handles_labels()
    if inside:
        axes.legend(handles, labels, frameon=False, fontsize=SMALL_TEXT)
        return
    figure.legend(handles, labels, frameon=False, fontsize=SMALL_TEXT, loc="outside upper right", ncols=len(handles))


def note_hidden(figure: Figure, shown: int, d: int, *, own: bool = False) -> None:
    """Note in the figure, unless it is the caller's own, if not all parameters are shown."""
    if shown < d and not own:
        figure.supxlabel(f"the first {shown} of {d} parameters", fontsize=SMALL_TEXT, color=FRAME, style="italic")


def tint(strength: float) -> tuple[float, float, float]:
    """The colour of the posterior mixed with white."""
    red, green, blue = (1 - strength * (1 - part) for part in to_rgb(POSTERIOR))
    return red, green, blue


def short(text: str, length: int = 32) -> str:
    """A name truncated to the width of a panel.

    >>> short("the growth rate of the second species")
    'the growth rate of the second s…'
    """
    text = " ".join(text.split())
    return text if len(text) <= length or is_math(text) else text[: length - 1] + "…"


def is_math(text: str) -> bool:
    r"""Whether the text contains valid TeX mathematics; a single dollar sign is taken literally.

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
    """The finite rows ``(n, d)`` of an array with events of any shape."""
    table: np.ndarray = np.asarray(values, dtype=float)
    table = table[:, None] if table.ndim == 1 else table.reshape(len(table), math.prod(table.shape[1:]))
    if d is not None and table.shape[1] != d:
        raise InputError(f"'{what}' has {table.shape[1]} columns, expected {d}.")
    table = table[np.isfinite(table).all(axis=1)]
    if table.size == 0:
        raise InputError(f"'{what}' has no finite rows to plot, got an array of shape {np.shape(values)}.")
    return table


def parameter_labels(names: Sequence[str] | None, d: int, letter: str = "θ") -> list[str]:
    """The given names, or numbered ones if there are none."""
    if names is None:
        return [f"{letter}{j + 1}" for j in range(d)]
    if len(names) != d:
        raise InputError(f"Got {len(names)} names for {d} parameters.")
    return [str(name) for name in names]


def span(*columns: np.ndarray, point: float | None = None) -> tuple[float, float]:
    """Axis limits, with a margin, that contain the bulk of all columns and the point; never of zero width."""
    extremes = np.concatenate([np.percentile(column, [0.1, 99.9]) for column in columns])
    extremes = extremes if point is None else np.append(extremes, point)
    low, high = float(extremes.min()), float(extremes.max())
    margin = 0.06 * (high - low) or 0.5 * max(abs(low), 1e-3)
    return low - margin, high + margin
