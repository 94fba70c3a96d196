"""Pictures of a field along one axis that makes a wave in time: the field, the wave of one draw, and slices of many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from propersbi.plots.style import PAGE, POSTERIOR, PRIOR, SMALL, TRUTH, label, style
from propersbi.types import Array, InputError

__all__ = ["waves"]

LINES = 50  # draws that are shown
EVERY = 4  # of the times of a wave, one line


def waves(
    truth: tuple[Array | None, Array], rows: Mapping[str, tuple[Array, Array]], *, times: Sequence[int] = (22, 69, 94)
) -> Figure:
    """For each row draws of the field, the wave over the first of them, and what many waves look like at some times.

    Arguments:
        truth: The true field ``(points,)``, if it is known, and its wave ``(times, points)``, drawn dark everywhere.
        rows: By name, draws of the field ``(m, points)`` and their waves ``(m, times, points)``. A row called "prior"
            is grey.
        times: Which times are cut out.

    Examples:
        >>> field, wave = np.ones(9), np.zeros((5, 9))
        >>> figure = waves((field, wave), {"posterior": (np.ones((3, 9)), np.zeros((3, 5, 9)))}, times=(1, 4))
        >>> len(figure.axes)
        4
    """
    wave = np.asarray(truth[1], dtype=float)
    field = None if truth[0] is None else np.asarray(truth[0], dtype=float)
    if wave.ndim != 2 or (field is not None and field.shape != wave.shape[1:]) or max(times) >= len(wave):
        known = None if field is None else field.shape
        raise InputError(f"A field (points,) and a wave (times, points) are needed, got {known} and {wave.shape}.")
    width, height = PAGE, 1.75 * len(rows) + 0.2
    figure = Figure(figsize=(width, height), layout="constrained")
    grid = figure.subplots(len(rows), 2 + len(times), squeeze=False, sharex=True)
    reach = 1.2 * np.abs(wave[list(times)]).max() + 1e-12
    for number, (line, (name, (fields, heights))) in enumerate(zip(grid, rows.items(), strict=True)):
        colour = PRIOR if name == "prior" else POSTERIOR
        draws, their = np.asarray(fields, dtype=float)[:LINES], np.asarray(heights, dtype=float)[:LINES]
        for axes in line:
            style(axes)
        _lines(line[0], draws, field, colour)
        line[0].set_ylim(_ends(draws if field is None else field))
        _ridges(line[1], their[0], reach)
        for axes, time in zip(line[2:], times, strict=True):
            _lines(axes, their[:, time], wave[time], colour)
            axes.set_ylim(-reach, reach)
        titles = ("field", "wave of one draw", *(f"at time {time}" for time in times))
        for axes, title in zip(line, titles, strict=True):
            label(axes, title=title if number == 0 else "", x="place" if number == len(rows) - 1 else "")
        line[0].set_ylabel(name, fontsize=SMALL, color=TRUTH)
    return figure


def _lines(axes: Axes, draws: np.ndarray, truth: np.ndarray | None, colour: str) -> None:
    axes.plot(draws.T, color=colour, lw=0.6, alpha=0.35)
    if truth is not None:
        axes.plot(truth, color=TRUTH, lw=1.1)


def _ridges(axes: Axes, wave: np.ndarray, reach: float) -> None:
    """Lines of the wave one above the other, early ones below."""
    for time in range(0, len(wave), EVERY):
        axes.plot(time + wave[time] * 2 * EVERY / reach, color=TRUTH, lw=0.5)
    axes.set_yticks([])
    label(axes, y="time")


def _ends(field: np.ndarray) -> tuple[float, float]:
    low, high = field.min(), field.max()
    margin = 0.6 * (high - low) + 1e-12
    return low - margin, high + margin
