"""Plots of a one-dimensional field and the wave over it: the field, the wave of one draw, and time slices of many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from propersbi.plots.style import PAGE, POSTERIOR, PRIOR, SMALL_TEXT, TRUTH, NotebookFigure, label, style
from propersbi.types import Array, InputError

__all__ = ["waves"]

MAX_DRAWS = 50  # draws shown
STRIDE = 4  # times between two lines of a wave


def waves(
    truth: tuple[Array | None, Array], rows: Mapping[str, tuple[Array, Array]], *, times: Sequence[int] = (22, 69, 94)
) -> Figure:
    """In each row, draws of the field, the wave of the first draw, and the waves of many draws at some times.

    Arguments:
        truth: The true field ``(points,)``, or ``None``, and its wave ``(times, points)``; plotted dark.
        rows: By name, draws of the field ``(m, points)`` and their waves ``(m, times, points)``. A row named "prior"
            is grey.
        times: The indices of the times to show.

    Examples:
        >>> field, wave = np.ones(9), np.zeros((5, 9))
        >>> figure = waves((field, wave), {"posterior": (np.ones((3, 9)), np.zeros((3, 5, 9)))}, times=(1, 4))
        >>> len(figure.axes)
        4
    """
    wave = np.asarray(truth[1], dtype=float)
    field = None if truth[0] is None else np.asarray(truth[0], dtype=float)
    if wave.ndim != 2 or (field is not None and field.shape != wave.shape[1:]) or max(times) >= len(wave):
        shape = None if field is None else field.shape
        raise InputError(f"A field (points,) and a wave (times, points) are needed, got {shape} and {wave.shape}.")
    width, height = PAGE, 1.75 * len(rows) + 0.2
    figure = NotebookFigure(figsize=(width, height), layout="constrained")
    grid = figure.subplots(len(rows), 2 + len(times), squeeze=False, sharex=True)
    amplitude = 1.2 * np.abs(wave[list(times)]).max() + 1e-12
    for number, (row_axes, (name, (fields, heights))) in enumerate(zip(grid, rows.items(), strict=True)):
        colour = PRIOR if name == "prior" else POSTERIOR
        draws, surfaces = np.asarray(fields, dtype=float)[:MAX_DRAWS], np.asarray(heights, dtype=float)[:MAX_DRAWS]
        for axes in row_axes:
            style(axes)
        _lines(row_axes[0], draws, field, colour)
        row_axes[0].set_ylim(_limits(draws if field is None else field))
        _ridges(row_axes[1], surfaces[0], amplitude)
        for axes, time in zip(row_axes[2:], times, strict=True):
            _lines(axes, surfaces[:, time], wave[time], colour)
            axes.set_ylim(-amplitude, amplitude)
        titles = ("field", "wave of one draw", *(f"at time {time}" for time in times))
        for axes, title in zip(row_axes, titles, strict=True):
            label(axes, title=title if number == 0 else "", x="position" if number == len(rows) - 1 else "")
        row_axes[0].set_ylabel(name, fontsize=SMALL_TEXT, color=TRUTH)
    return figure


def _lines(axes: Axes, draws: np.ndarray, truth: np.ndarray | None, colour: str) -> None:
    axes.plot(draws.T, color=colour, lw=0.6, alpha=0.35)
    if truth is not None:
        axes.plot(truth, color=TRUTH, lw=1.1)


def _ridges(axes: Axes, wave: np.ndarray, amplitude: float) -> None:
    """The wave at successive times, from bottom to top."""
    for time in range(0, len(wave), STRIDE):
        axes.plot(time + wave[time] * 2 * STRIDE / amplitude, color=TRUTH, lw=0.5)
    axes.set_yticks([])
    label(axes, y="time")


def _limits(field: np.ndarray) -> tuple[float, float]:
    low, high = field.min(), field.max()
    margin = 0.6 * (high - low) + 1e-12
    return low - margin, high + margin
