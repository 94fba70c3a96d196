"""Plots of draws: corner plots, fields and images, and data simulated from the posterior."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import MaxNLocator

from propersbi.plots.density import Limits, density, main_mode, mass_levels
from propersbi.plots.style import (
    FRAME,
    MAX_PANELS,
    MIN_IMAGE_SIDE,
    PAGE,
    POSTERIOR,
    PRIOR,
    REFERENCE,
    SMALL_TEXT,
    TEXT,
    TRUTH,
    AxesLike,
    NotebookFigure,
    label,
    legend_above,
    note_hidden,
    own_axes,
    panels,
    parameter_labels,
    rows,
    set_padding,
    span,
    style,
    tint,
)  # fmt: skip
from propersbi.types import Array, InputError

__all__ = ["corner", "fields", "predictive"]

MASSES = (0.98, 0.9, 0.75, 0.5, 0.25)  # of the highest-density regions that are filled
TINTS = (0.14, 0.3, 0.5, 0.72, 0.95)  # the strength of their colours


def corner(
    samples: Array,
    *,
    reference: Array | None = None,
    prior: Array | None = None,
    truth: Array | None = None,
    names: Sequence[str] | None = None,
    axes: AxesLike | None = None,
) -> Figure:
    """A corner plot: marginals on the diagonal, pairs below it; posterior regions are filled, the reference outlined.

    The smoothing adapts to the number of draws, so thin and multimodal posteriors keep their shape.

    Arguments:
        samples: Posterior draws, ``(m, d)``; of more than 8 parameters the first 8 are shown, as the figure notes.
        reference: Reference draws, ``(k, d)``: outlines of the 50 % and 95 % regions.
        prior: Prior draws, ``(k, d)``, shown on the diagonal.
        truth: The true parameter, ``(d,)``.
        names: One name per parameter.
        axes: Axes of your own to draw in, in place of a new figure: ``d`` rows of ``d``.

    Examples:
        >>> len(corner(np.random.default_rng(0).normal(size=(500, 3))).axes)
        6
    """
    posterior = rows("samples", samples)
    d = posterior.shape[1]
    others = {"reference": reference, "prior": prior}
    compared = {name: rows(name, draws, d) for name, draws in others.items() if draws is not None}
    point = [None] * d if truth is None else np.asarray(truth, dtype=float).reshape(d).tolist()
    names, shown = parameter_labels(names, d), min(d, MAX_PANELS)
    visible = [posterior, compared.get("reference", posterior)]
    spans = [span(*(draws[:, j] for draws in visible), point=point[j]) for j in range(shown)]
    figure, grid = _corner_grid(shown, axes)
    for row, column in ((i, j) for i in range(shown) for j in range(i + 1)):
        panel = grid[row][column]
        if row == column:
            _marginal(panel, posterior[:, row], {k: v[:, row] for k, v in compared.items()}, spans[row])
        else:
            pair = [column, row]
            outline = compared["reference"][:, pair] if "reference" in compared else None
            _joint(panel, posterior[:, pair], outline, [spans[column], spans[row]])
        _finish(panel, row, column, names[:shown], point)
    zoomed = d == 2 and axes is None and _zoom(figure, posterior, compared.get("reference"), spans)
    handles = _corner_handles(compared, truth is not None, d)
    if axes is not None:
        grid[0][-1].legend(handles=handles, frameon=False, fontsize=SMALL_TEXT, loc="upper right")
    elif zoomed or d == 1:
        figure.legend(handles=handles, frameon=False, fontsize=TEXT, loc="outside upper right", ncols=len(handles))
    else:
        figure.legend(handles=handles, frameon=False, fontsize=TEXT, loc="upper right")
    note_hidden(figure, shown, d, own=axes is not None)
    return figure


def predictive(
    x_draws: Array, x_o: Array, names: Sequence[str] | None = None, *, axes: AxesLike | None = None
) -> Figure:
    """A posterior predictive plot, with the observation: histograms, a band over a series, or images.

    Arguments:
        x_draws: Data simulated from posterior draws, ``(k, *event)``.
        x_o: The observation, ``(*event,)``.
        names: One name per coordinate of a short vector.
        axes: Axes of your own to draw in, in place of a new figure, one for each panel.

    Examples:
        >>> len(predictive(np.random.default_rng(0).normal(size=(50, 3)), np.zeros(3)).axes)
        3
    """
    observed = np.asarray(x_o, dtype=float)
    if np.shape(x_draws)[1:] != observed.shape:
        raise InputError(f"Data of shape {np.shape(x_draws)} do not fit an observation of shape {observed.shape}.")
    if observed.size > MAX_PANELS:
        return fields(x_draws, truth=observed, labels=("observed", "predicted"), axes=axes)
    simulated = rows("x_draws", x_draws)
    figure, drawn = panels(observed.size, shape=0.6, axes=axes)
    for panel, column, value, name in zip(
        drawn, simulated.T, observed.reshape(-1), parameter_labels(names, observed.size, "x"), strict=True
    ):
        limits = span(column, point=value)
        panel.hist(column, bins=30, range=limits, color=tint(0.55), label="predicted")
        panel.axvline(value, color=TRUTH, lw=1.8, label="observed")
        panel.set(xlim=limits, yticks=[])
        label(panel, x=name)
    legend_above(figure, drawn[0], inside=axes is not None)
    return figure


def fields(
    samples: Array,
    *,
    truth: Array | None = None,
    labels: tuple[str, str] = ("true", "posterior"),
    axes: AxesLike | None = None,
) -> Figure:
    """Draws of a long vector, a series or an image: median and bands over the index, or mean, one draw and SD.

    Arguments:
        samples: ``(m, *event)``. The last two axes of an image are its rows and columns; of further axes the first
            slice is shown. A grid with a side below 8 is plotted as one series per column.
        truth: The true value, ``(*event,)``.
        labels: The names of the truth and of the draws.
        axes: Axes of your own to draw in, in place of a new figure, one for each panel.

    Examples:
        >>> len(fields(np.random.default_rng(0).normal(size=(20, 100)), truth=np.zeros(100)).axes)
        1
    """
    draws = np.asarray(samples, dtype=float)
    draws = draws[np.isfinite(draws).reshape(len(draws), -1).all(axis=1)]
    if draws.size == 0 or draws.ndim < 2:
        raise InputError(f"'samples' of shape {np.shape(samples)} has no finite draws of a field.")
    true = None if truth is None else np.asarray(truth, dtype=float).reshape(draws.shape[1:])
    while draws.ndim > 3:
        draws, true = draws[:, 0], None if true is None else true[0]
    if draws.ndim == 3 and min(draws.shape[1:]) >= MIN_IMAGE_SIDE:
        return _images(draws, true, labels, axes)
    if draws.ndim == 3 and draws.shape[1] < draws.shape[2]:
        draws, true = draws.swapaxes(1, 2), None if true is None else true.T
    return _series(draws.reshape(*draws.shape[:2], -1), true, labels, axes)


def _series(draws: np.ndarray, truth: np.ndarray | None, labels: tuple[str, str], axes: AxesLike | None) -> Figure:
    count = min(draws.shape[2], 4)
    figure, drawn = panels(count, shape=0.36 if count == 1 else 0.65, widest=PAGE, axes=axes)
    index = np.arange(draws.shape[1])
    for j, panel in enumerate(drawn):
        for outer, strength in ((2.5, 0.25), (25, 0.5)):
            low, high = np.percentile(draws[:, :, j], [outer, 100 - outer], axis=0)
            panel.fill_between(index, low, high, color=tint(strength), lw=0, label=f"{100 - 2 * outer:.0f} %")
        panel.plot(index, np.median(draws[:, :, j], axis=0), color=POSTERIOR, lw=1.4, label=f"{labels[1]} median")
        if truth is not None:
            true = truth.reshape(len(index), -1)[:, j]
            panel.plot(index, true, color=TRUTH, lw=0.9, marker="o", ms=2.2, label=labels[0])
        panel.set(xlim=(0, max(len(index) - 1, 1)))
        label(panel, x="index", y="value" if j == 0 else "")
    legend_above(figure, drawn[0], inside=axes is not None)
    return figure


def _images(draws: np.ndarray, truth: np.ndarray | None, labels: tuple[str, str], axes: AxesLike | None) -> Figure:
    images = {} if truth is None else {labels[0]: truth}
    images |= {f"{labels[1]} mean": draws.mean(axis=0), "one draw": draws[0], f"{labels[1]} SD": draws.std(axis=0)}
    figure, drawn = panels(len(images), shape=0.95, axes=axes)
    low, high = np.percentile(
        np.concatenate([draws[:50].ravel(), *(image.ravel() for image in images.values())]), [0.5, 99.5]
    )
    for panel, (title, image) in zip(drawn, images.items(), strict=True):
        is_deviation = title.endswith("SD")
        limits = (0.0, max(float(image.max()), 1e-12)) if is_deviation else (low, max(high, low + 1e-12))
        artist = panel.imshow(image, cmap="cividis" if is_deviation else "gray", vmin=limits[0], vmax=limits[1])
        bar = figure.colorbar(artist, ax=panel, fraction=0.046, pad=0.03)
        bar.ax.tick_params(labelsize=SMALL_TEXT - 1.5, length=2)
        panel.set(xticks=[], yticks=[])
        panel.spines[:].set_visible(False)
        label(panel, title=title)
    return figure


def _corner_grid(shown: int, axes: AxesLike | None) -> tuple[Figure, list[list[Axes]]]:
    """A figure and the panels of its lower triangle, by row and column; those above are hidden in given axes."""
    if axes is not None:
        figure, given = own_axes(axes, shown * shown)
        grid = [given[row * shown : (row + 1) * shown] for row in range(shown)]
        for row, panels_of_row in enumerate(grid):
            for panel in panels_of_row[row + 1 :]:
                panel.set_axis_off()
        return figure, grid
    size = min(max(8.4 / shown, 1.3), 3.4) * shown + 0.8
    figure = NotebookFigure(figsize=(size, size), layout="constrained")
    set_padding(figure, 0.03)
    places = figure.add_gridspec(shown, shown)
    return figure, [[figure.add_subplot(places[row, column]) for column in range(row + 1)] for row in range(shown)]


def _marginal(axes: Axes, draws: np.ndarray, others: Mapping[str, np.ndarray], limits: Limits) -> None:
    (x,), height = density([draws], [limits], bins=160)
    axes.fill_between(x, height, color=tint(0.3), lw=0)
    axes.plot(x, height, color=POSTERIOR, lw=1.5)
    for name, values in others.items():
        (x,), height = density([values], [limits], bins=160)
        axes.plot(x, height, color=PRIOR if name == "prior" else REFERENCE, lw=1.3, ls=":" if name == "prior" else "-")
    axes.set(xlim=limits, yticks=[], ylim=(0, None))


def _joint(axes: Axes, draws: np.ndarray, outline: np.ndarray | None, limits: list[Limits]) -> None:
    (x, y), height = density(list(draws.T), limits, bins=128)
    top = height.max() * 1.01
    for level, strength in zip(mass_levels(height, MASSES), TINTS, strict=True):
        # Opaque regions on top of each other: adjacent bands would show a seam.
        axes.contourf(x, y, height.T, levels=[level, top], colors=[tint(strength)])
    if outline is not None:
        (x, y), height = density(list(outline.T), limits, bins=128)
        for level, width in zip(mass_levels(height, (0.95, 0.5)), (1.1, 0.8), strict=True):
            axes.contour(x, y, height.T, levels=[level], colors=[REFERENCE], linewidths=width)
    axes.set(xlim=limits[0], ylim=limits[1])


def _zoom(figure: Figure, draws: np.ndarray, outline: np.ndarray | None, limits: list[Limits]) -> bool:
    """Enlarge the main mode if it is small: a thin crescent would otherwise be a dot. Returns whether it did."""
    box = main_mode(*density(list(draws.T), limits, bins=64))
    if math.prod((high - low) / (end - start) for (low, high), (start, end) in zip(box, limits, strict=True)) > 0.1:
        return False
    (left, right), (bottom, top) = box
    figure.axes[1].add_patch(Rectangle((left, bottom), right - left, top - bottom, fill=False, ec=FRAME, lw=0.8))
    axes = figure.add_subplot(2, 2, 2)
    _joint(axes, draws, outline, box)
    style(axes)
    axes.spines[:].set(visible=True, color=FRAME)
    axes.tick_params(labelsize=SMALL_TEXT - 1)
    label(axes, title="enlarged")
    return True


def _finish(axes: Axes, row: int, column: int, names: list[str], truth: Sequence[float | None]) -> None:
    """Style one panel of a corner plot, with the true value, ticks and labels."""
    style(axes)
    true_x, true_y = truth[column], truth[row]
    if true_x is not None:
        axes.axvline(true_x, color=TRUTH, lw=0.9, ls="--")
    if true_y is not None and row != column:
        axes.axhline(true_y, color=TRUTH, lw=0.9, ls="--")
    is_last, is_first = row == len(names) - 1, column == 0 and row > 0
    axes.xaxis.set_major_locator(MaxNLocator(3 if len(names) > 3 else 5, prune="both"))
    if row != column:
        axes.yaxis.set_major_locator(MaxNLocator(3 if len(names) > 3 else 5, prune="both"))
    axes.tick_params(labelbottom=is_last, labelleft=is_first)
    label(axes, x=names[column] if is_last else "", y=names[row] if is_first else "")


def _corner_handles(compared: Mapping[str, Any], has_truth: bool, d: int) -> list[Any]:
    handles: list[Any] = [Patch(facecolor=tint(0.5), edgecolor=POSTERIOR, label="posterior")]
    if "reference" in compared:
        handles.append(Line2D([], [], color=REFERENCE, label="reference" + (" (50 %, 95 %)" if d > 1 else "")))
    if "prior" in compared:
        handles.append(Line2D([], [], color=PRIOR, ls=":", label="prior"))
    if has_truth:
        handles.append(Line2D([], [], color=TRUTH, ls="--", lw=0.9, label="true value"))
    return handles
