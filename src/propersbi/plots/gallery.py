"""Plots of several fields or images: true values, observations and posterior summaries side by side."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from propersbi.plots.style import (
    MAX_PANELS,
    MIN_IMAGE_SIDE,
    PAGE,
    POSTERIOR,
    SMALL_TEXT,
    TRUTH,
    AxesLike,
    NotebookFigure,
    label,
    legend_above,
    own_axes,
    panels,
    set_padding,
    tint,
)  # fmt: skip
from propersbi.types import Array, InputError

__all__ = ["examples", "images"]


def images(
    theta: Array,
    x: Array | None,
    samples: Array | Mapping[str, Array],
    *,
    num_samples: int = 2,
    axes: AxesLike | None = None,
) -> Figure:
    """One column per image; rows show the truth, the observation and, for each method, mean, SD and some draws.

    Arguments:
        theta: True images, ``(k, *event)``. The last two axes are rows and columns; of further axes the first slice is
            shown.
        x: The observations, ``(k, *shape)``, if they are images, too.
        samples: Draws ``(m, k, *event)``, or the draws of several methods by name.
        num_samples: The number of draws to show.
        axes: Axes of your own to draw in, in place of a new figure: for each row one for each image.

    Examples:
        >>> rng = np.random.default_rng(0)
        >>> figure = images(rng.uniform(size=(3, 9, 9)), rng.uniform(size=(3, 9, 9)), rng.uniform(size=(5, 3, 9, 9)))
        >>> len(figure.axes)
        18
    """
    truth = _flat("theta", theta, 3)
    by_name = samples if isinstance(samples, Mapping) else {"": samples}
    rows: list[tuple[str, np.ndarray]] = [("truth", truth)]
    if x is not None:
        rows.append(("observed", _flat("x", x, 3)))
    for name, draws in by_name.items():
        rows += _summary_rows(name, _flat("samples", draws, 4), num_samples)
    if len({len(row) for _, row in rows}) > 1:
        raise InputError(f"The rows have different numbers of images: {[len(row) for _, row in rows]}.")
    low, high = np.percentile(truth, [0.1, 99.9])
    spread = max(row.max() for name, row in rows if name.endswith("SD"))
    figure, grid = _image_grid(len(rows), len(truth), axes)
    for row_axes, (name, row) in zip(grid, rows, strict=True):
        is_deviation = name.endswith("SD")
        limits = (0.0, max(float(spread), 1e-12)) if is_deviation else (low, max(high, low + 1e-12))
        if name == "observed":  # in its own units
            limits = (float(row.min()), max(float(row.max()), float(row.min()) + 1e-12))
        for panel, image in zip(row_axes, row, strict=True):
            panel.imshow(image, cmap="inferno" if is_deviation else "gray", vmin=limits[0], vmax=limits[1])
            panel.set(xticks=[], yticks=[])
            panel.spines[:].set_visible(False)
        row_axes[0].set_ylabel(name, fontsize=SMALL_TEXT, color=TRUTH)
    return figure


def _image_grid(rows: int, columns: int, axes: AxesLike | None) -> tuple[Figure, np.ndarray]:
    """A figure and its panels by row and column: new ones, or those of the caller."""
    if axes is not None:
        figure, given = own_axes(axes, rows * columns)
        return figure, np.array(given, dtype=object).reshape(rows, columns)
    figure = NotebookFigure(figsize=(PAGE, PAGE * rows / columns * 0.98), layout="constrained")
    set_padding(figure, 0.01)
    return figure, figure.subplots(rows, columns, squeeze=False)


def examples(theta: Array, x: Array | None, samples: Array) -> Figure:
    """Some test pairs of a field or image: true values and posterior.

    Arguments:
        theta: True parameters, ``(k, *event)``.
        x: The data ``(k, *shape)``; shown if they are images on the same grid.
        samples: Draws ``(m, k, *event)``.

    Examples:
        >>> rng = np.random.default_rng(0)
        >>> len(examples(rng.normal(size=(4, 60)), None, rng.normal(size=(20, 4, 60))).axes)
        4
    """
    truth = np.asarray(theta, dtype=float)
    if truth.ndim >= 3 and min(truth.shape[-2:]) >= MIN_IMAGE_SIDE:
        observed = None if x is None or np.shape(x)[-2:] != truth.shape[-2:] else x
        return images(truth, observed, samples)
    truth = truth.reshape(len(truth), -1)
    values = np.asarray(samples, dtype=float).reshape(len(samples), *truth.shape)
    count = min(len(truth), MAX_PANELS)
    figure, axes = panels(count, shape=0.55)
    index = np.arange(truth.shape[1])
    for k, panel in enumerate(axes):
        for outer, strength in ((5, 0.25), (25, 0.5)):
            low, high = np.percentile(values[:, k], [outer, 100 - outer], axis=0)
            panel.fill_between(index, low, high, color=tint(strength), lw=0, label=f"{100 - 2 * outer:.0f} %")
        panel.plot(index, np.median(values[:, k], axis=0), color=POSTERIOR, lw=1.2, label="posterior median")
        panel.plot(index, truth[k], color=TRUTH, lw=0.9, label="truth")
        panel.set(xlim=(0, len(index) - 1))
        label(panel, x="index" if k >= count - 4 else "")
    legend_above(figure, axes[0])
    return figure


def _summary_rows(name: str, draws: np.ndarray, num_samples: int) -> list[tuple[str, np.ndarray]]:
    """Mean, standard deviation and some draws, each with its label."""
    prefix = f"{name}\n" if name else ""
    rows = [(f"{prefix}mean", draws.mean(0)), (f"{prefix}SD", draws.std(0))]
    return [*rows, *((f"{prefix}draw", draw) for draw in draws[:num_samples])]


def _flat(what: str, values: Array, axes: int) -> np.ndarray:
    """Images with ``axes`` axes: the first slice of any channels."""
    array = np.asarray(values, dtype=float)
    while array.ndim > axes:
        array = array[(slice(None),) * (axes - 2) + (0,)]
    if array.ndim < axes or array.size == 0 or not np.isfinite(array).all():
        raise InputError(f"'{what}' must be finite images, got an array of shape {np.shape(values)}.")
    return array
