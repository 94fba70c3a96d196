"""Pictures of many fields or images at once: what was true, what was seen, and what the posterior makes of it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from propersbi.plots.style import PAGE, PANELS, POSTERIOR, SMALL, TRUTH, label, legend_above, panels, tint
from propersbi.types import Array, InputError

__all__ = ["examples", "images"]


def images(theta: Array, x: Array | None, samples: Array | Mapping[str, Array], *, draws: int = 2) -> Figure:
    """Images in columns; in rows the truth, the observation, and for each method mean, spread and some draws.

    Arguments:
        theta: True images, ``(k, *event)``. The last two axes are rows and columns; of further axes the first slice is
            shown.
        x: What was observed, ``(k, *shape)``, if it is an image, too.
        samples: Draws ``(m, k, *event)``, or several methods' draws by their names.
        draws: How many of them to show.

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
    for name, drawn in by_name.items():
        rows += _described(name, _flat("samples", drawn, 4), draws)
    if len({len(row) for _, row in rows}) > 1:
        raise InputError(f"The rows have different numbers of images: {[len(row) for _, row in rows]}.")
    low, high = np.percentile(truth, [0.1, 99.9])
    spread = max(row.max() for name, row in rows if name.endswith("SD"))
    figure = Figure(figsize=(PAGE, PAGE * len(rows) / len(truth) * 0.98), layout="constrained")
    figure.get_layout_engine().set(w_pad=0.01, h_pad=0.01, wspace=0.02, hspace=0.02)  # type: ignore[union-attr,call-arg]
    grid = figure.subplots(len(rows), len(truth), squeeze=False)
    for line, (name, row) in zip(grid, rows, strict=True):
        deviation = name.endswith("SD")
        ends = (0.0, max(float(spread), 1e-12)) if deviation else (low, max(high, low + 1e-12))
        if name == "observed":  # in its own units
            ends = (float(row.min()), max(float(row.max()), float(row.min()) + 1e-12))
        for axes, picture in zip(line, row, strict=True):
            axes.imshow(picture, cmap="inferno" if deviation else "gray", vmin=ends[0], vmax=ends[1])
            axes.set(xticks=[], yticks=[])
            axes.spines[:].set_visible(False)
        line[0].set_ylabel(name, fontsize=SMALL, color=TRUTH)
    return figure


def examples(theta: Array, x: Array | None, draws: Array) -> Figure:
    """Some test pairs of a field or image: the truth beside the posterior.

    Arguments:
        theta: True parameters, ``(k, *event)``.
        x: Their data ``(k, *shape)``; drawn beside images of the same grid.
        draws: ``(m, k, *event)``.
    """
    truth = np.asarray(theta, dtype=float)
    if truth.ndim >= 3 and min(truth.shape[-2:]) >= PANELS:
        seen = None if x is None or np.shape(x)[-2:] != truth.shape[-2:] else x
        return images(truth, seen, draws)
    truth = truth.reshape(len(truth), -1)
    values = np.asarray(draws, dtype=float).reshape(len(draws), *truth.shape)
    count = min(len(truth), PANELS)
    figure, axes = panels(count, shape=0.55)
    index = np.arange(truth.shape[1])
    for k, one in enumerate(axes):
        for outer, strength in ((5, 0.25), (25, 0.5)):
            low, high = np.percentile(values[:, k], [outer, 100 - outer], axis=0)
            one.fill_between(index, low, high, color=tint(strength), lw=0, label=f"{100 - 2 * outer:.0f} %")
        one.plot(index, np.median(values[:, k], axis=0), color=POSTERIOR, lw=1.2, label="posterior median")
        one.plot(index, truth[k], color=TRUTH, lw=0.9, label="truth")
        one.set(xlim=(0, len(index) - 1))
        label(one, x="index" if k >= count - 4 else "")
    legend_above(figure, axes[0])
    return figure


def _described(name: str, draws: np.ndarray, shown: int) -> list[tuple[str, np.ndarray]]:
    start = f"{name}\n" if name else ""
    rows = [(f"{start}mean", draws.mean(0)), (f"{start}SD", draws.std(0))]
    return [*rows, *((f"{start}draw", draw) for draw in draws[:shown])]


def _flat(what: str, values: Array, axes: int) -> np.ndarray:
    """Images with as many axes, the first slice of any channels."""
    array = np.asarray(values, dtype=float)
    while array.ndim > axes:
        array = array[(slice(None),) * (axes - 2) + (0,)]
    if array.ndim < axes or array.size == 0 or not np.isfinite(array).all():
        raise InputError(f"'{what}' must be finite images, got an array of shape {np.shape(values)}.")
    return array
