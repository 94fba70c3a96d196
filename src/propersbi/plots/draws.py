"""Pictures of draws: parameters by pairs, fields and images, and data simulated from the posterior."""

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

from propersbi.plots.style import (
    FRAME,
    PAGE,
    PANELS,
    POSTERIOR,
    PRIOR,
    REFERENCE,
    SMALL,
    TEXT,
    TRUTH,
    label,
    legend_above,
    named,
    panels,
    rows,
    say_shown,
    span,
    style,
    tint,
)  # fmt: skip
from propersbi.types import Array, InputError

__all__ = ["corner", "fields", "predictive"]

MASSES = (0.98, 0.9, 0.75, 0.5, 0.25)  # of the highest-density regions that are filled
TINTS = (0.14, 0.3, 0.5, 0.72, 0.95)  # how strongly
Span = tuple[float, float]


def corner(
    samples: Array,
    *,
    reference: Array | None = None,
    prior: Array | None = None,
    truth: Array | None = None,
    names: Sequence[str] | None = None,
) -> Figure:
    """Every parameter on the diagonal, every pair below it; filled for the posterior, outlined for the reference.

    The smoothing is as fine as the number of draws allows, so thin and multimodal posteriors keep their shape.

    Arguments:
        samples: Posterior draws, ``(m, d)``; of more than 8 parameters the first 8 are shown, and the figure says so.
        reference: Draws to compare with, ``(k, d)``: outlines of the 50 % and 95 % regions.
        prior: Prior draws, ``(k, d)``, on the diagonal.
        truth: The parameter that made the data, ``(d,)``.
        names: One name per parameter.

    Examples:
        >>> len(corner(np.random.default_rng(0).normal(size=(500, 3))).axes)
        6
    """
    posterior = rows("samples", samples)
    d = posterior.shape[1]
    others = {"reference": reference, "prior": prior}
    compared = {name: rows(name, draws, d) for name, draws in others.items() if draws is not None}
    point = [None] * d if truth is None else np.asarray(truth, dtype=float).reshape(d).tolist()
    names, shown = named(names, d), min(d, PANELS)
    seen = [posterior, compared.get("reference", posterior)]
    spans = [span(*(draws[:, j] for draws in seen), point=point[j]) for j in range(shown)]
    figure = _corner_figure(shown)
    grid = figure.add_gridspec(shown, shown)
    for row, column in ((i, j) for i in range(shown) for j in range(i + 1)):
        axes = figure.add_subplot(grid[row, column])
        if row == column:
            _marginal(axes, posterior[:, row], {k: v[:, row] for k, v in compared.items()}, spans[row])
        else:
            pair = [column, row]
            outline = compared["reference"][:, pair] if "reference" in compared else None
            _joint(axes, posterior[:, pair], outline, [spans[column], spans[row]])
        _finish(axes, row, column, names[:shown], point)
    zoomed = d == 2 and _zoom(figure, grid[0, 1], posterior, compared.get("reference"), spans)
    _corner_legend(figure, compared, truth is not None, d, above=zoomed or d == 1)
    return figure


def predictive(x_draws: Array, x_o: Array, names: Sequence[str] | None = None) -> Figure:
    """Data simulated from posterior draws against the observation: histograms, a band over a series, or images.

    Arguments:
        x_draws: Simulated data, ``(k, *event)``.
        x_o: The observation, ``(*event,)``.
        names: One name per coordinate of a short vector.
    """
    observed = np.asarray(x_o, dtype=float)
    if np.shape(x_draws)[1:] != observed.shape:
        raise InputError(f"Data of shape {np.shape(x_draws)} do not fit an observation of shape {observed.shape}.")
    if observed.size > PANELS:
        return fields(x_draws, truth=observed, labels=("observed", "predicted"))
    simulated = rows("x_draws", x_draws)
    figure, axes = panels(observed.size, shape=0.6)
    for one, column, value, name in zip(
        axes, simulated.T, observed.reshape(-1), named(names, observed.size, "x"), strict=True
    ):
        ends = span(column, point=value)
        one.hist(column, bins=30, range=ends, color=tint(0.55), label="predicted")
        one.axvline(value, color=TRUTH, lw=1.8, label="observed")
        one.set(xlim=ends, yticks=[])
        label(one, x=name)
    legend_above(figure, axes[0])
    return figure


def fields(samples: Array, *, truth: Array | None = None, labels: tuple[str, str] = ("true", "posterior")) -> Figure:
    """Draws of a long vector, a series or an image: median and bands over the index, or mean, one draw and spread.

    Arguments:
        samples: ``(m, *event)``. The last two axes of an image are its rows and columns; of further axes the first
            slice is shown. A grid thinner than 8 is drawn as one series per column.
        truth: What the draws are compared with, ``(*event,)``.
        labels: How to call the truth and the draws.
    """
    draws = np.asarray(samples, dtype=float)
    draws = draws[np.isfinite(draws).reshape(len(draws), -1).all(axis=1)]
    if draws.size == 0 or draws.ndim < 2:
        raise InputError(f"'samples' of shape {np.shape(samples)} has no finite draws of a field.")
    known = None if truth is None else np.asarray(truth, dtype=float).reshape(draws.shape[1:])
    while draws.ndim > 3:
        draws, known = draws[:, 0], None if known is None else known[0]
    if draws.ndim == 3 and min(draws.shape[1:]) >= PANELS:
        return _images(draws, known, labels)
    if draws.ndim == 3 and draws.shape[1] < draws.shape[2]:
        draws, known = draws.swapaxes(1, 2), None if known is None else known.T
    return _series(draws.reshape(*draws.shape[:2], -1), known, labels)


def _series(draws: np.ndarray, truth: np.ndarray | None, labels: tuple[str, str]) -> Figure:
    count = min(draws.shape[2], 4)
    figure, axes = panels(count, shape=0.36 if count == 1 else 0.65, widest=PAGE)
    index = np.arange(draws.shape[1])
    for j, one in enumerate(axes):
        for outer, strength in ((2.5, 0.25), (25, 0.5)):
            low, high = np.percentile(draws[:, :, j], [outer, 100 - outer], axis=0)
            one.fill_between(index, low, high, color=tint(strength), lw=0, label=f"{100 - 2 * outer:.0f} %")
        one.plot(index, np.median(draws[:, :, j], axis=0), color=POSTERIOR, lw=1.4, label=f"{labels[1]} median")
        if truth is not None:
            known = truth.reshape(len(index), -1)[:, j]
            one.plot(index, known, color=TRUTH, lw=0.9, marker="o", ms=2.2, label=labels[0])
        one.set(xlim=(0, max(len(index) - 1, 1)))
        label(one, x="index", y="value" if j == 0 else "")
    legend_above(figure, axes[0])
    return figure


def _images(draws: np.ndarray, truth: np.ndarray | None, labels: tuple[str, str]) -> Figure:
    pictures = {} if truth is None else {labels[0]: truth}
    pictures |= {f"{labels[1]} mean": draws.mean(axis=0), "one draw": draws[0], f"{labels[1]} SD": draws.std(axis=0)}
    figure, axes = panels(len(pictures), shape=0.95)
    low, high = np.percentile(
        np.concatenate([draws[:50].ravel(), *(one.ravel() for one in pictures.values())]), [0.5, 99.5]
    )
    for one, (title, picture) in zip(axes, pictures.items(), strict=True):
        spread = title.endswith("SD")
        scale = (0.0, max(float(picture.max()), 1e-12)) if spread else (low, max(high, low + 1e-12))
        image = one.imshow(picture, cmap="cividis" if spread else "gray", vmin=scale[0], vmax=scale[1])
        bar = figure.colorbar(image, ax=one, fraction=0.046, pad=0.03)
        bar.ax.tick_params(labelsize=SMALL - 1.5, length=2)
        one.set(xticks=[], yticks=[])
        one.spines[:].set_visible(False)
        label(one, title=title)
    return figure


def _corner_figure(shown: int) -> Figure:
    size = min(max(8.4 / shown, 1.3), 3.4) * shown + 0.8
    figure = Figure(figsize=(size, size), layout="constrained")
    figure.get_layout_engine().set(w_pad=0.03, h_pad=0.03, wspace=0.02, hspace=0.02)  # type: ignore[union-attr,call-arg]
    return figure


def _marginal(axes: Axes, draws: np.ndarray, others: Mapping[str, np.ndarray], ends: Span) -> None:
    (x,), height = density([draws], [ends], bins=160)
    axes.fill_between(x, height, color=tint(0.3), lw=0)
    axes.plot(x, height, color=POSTERIOR, lw=1.5)
    for name, values in others.items():
        (x,), height = density([values], [ends], bins=160)
        axes.plot(x, height, color=PRIOR if name == "prior" else REFERENCE, lw=1.3, ls=":" if name == "prior" else "-")
    axes.set(xlim=ends, yticks=[], ylim=(0, None))


def _joint(axes: Axes, draws: np.ndarray, outline: np.ndarray | None, ends: list[Span]) -> None:
    (x, y), height = density(list(draws.T), ends, bins=128)
    top = height.max() * 1.01
    for level, strength in zip(mass_levels(height, MASSES), TINTS, strict=True):
        # Filled one over the other, opaque: bands side by side would show a seam.
        axes.contourf(x, y, height.T, levels=[level, top], colors=[tint(strength)])
    if outline is not None:
        (x, y), height = density(list(outline.T), ends, bins=128)
        for level, width in zip(mass_levels(height, (0.95, 0.5)), (1.1, 0.8), strict=True):
            axes.contour(x, y, height.T, levels=[level], colors=[REFERENCE], linewidths=width)
    axes.set(xlim=ends[0], ylim=ends[1])


def _zoom(figure: Figure, place: Any, draws: np.ndarray, outline: np.ndarray | None, ends: list[Span]) -> bool:
    """The main island of a posterior of small islands, drawn large; a thin crescent would else be a dot."""
    near = _island(*density(list(draws.T), ends, bins=64))
    if math.prod((high - low) / (end[1] - end[0]) for (low, high), end in zip(near, ends, strict=True)) > 0.1:
        return False
    (left, right), (bottom, top) = near
    figure.axes[1].add_patch(Rectangle((left, bottom), right - left, top - bottom, fill=False, ec=FRAME, lw=0.8))
    axes = figure.add_subplot(place)
    _joint(axes, draws, outline, near)
    style(axes)
    axes.spines[:].set(visible=True, color=FRAME)
    axes.tick_params(labelsize=SMALL - 1)
    label(axes, title="the marked part")
    return True


def _island(centres: list[np.ndarray], height: np.ndarray) -> list[Span]:
    """The box around the connected part of the 98 % region that holds the highest point."""
    dense = height >= mass_levels(height, (0.98,))[0]
    island, before = np.zeros_like(dense), 0
    island[np.unravel_index(height.argmax(), height.shape)] = True
    while island.sum() > before:
        before = island.sum()
        for axis, step in ((0, 1), (0, -1), (1, 1), (1, -1)):
            island |= np.roll(island, step, axis) & dense  # nothing lies at the edge, so nothing wraps around
    found = [np.nonzero(island.any(axis))[0] for axis in (1, 0)]
    wide = [(values[1] - values[0]) * 2 for values in centres]
    return [
        (float(values[where[0]] - gap), float(values[where[-1]] + gap))
        for values, where, gap in zip(centres, found, wide, strict=True)
    ]


def density(columns: list[np.ndarray], ends: list[Span], bins: int) -> tuple[list[np.ndarray], np.ndarray]:
    """A histogram smoothed until a kernel holds some hundred draws: many draws on a thin set stay sharp.

    Examples:
        >>> (x,), height = density([np.random.default_rng(0).normal(size=5000)], [(-6.0, 6.0)], bins=100)
        >>> round(float(height.sum() * (x[1] - x[0])), 2), round(float(height.max()), 1)
        (1.0, 0.4)
    """
    counts, edges = np.histogramdd(np.stack(columns, axis=1), bins=bins, range=ends)
    n = counts.sum()
    same_bin = (counts * (counts - 1)).sum() / max(n * (n - 1), 1)  # unbiased for the sum of squared probabilities
    filled = 1 / max(same_bin, 1 / counts.size)
    volume = (250 if len(columns) == 1 else 150) * filled / max(n, 1)
    width = volume / math.sqrt(4 * math.pi) if len(columns) == 1 else math.sqrt(volume / (4 * math.pi))
    reach = math.ceil(3 * (width := min(max(width, 0.9), bins / 30)))
    kernel = np.exp(-0.5 * (np.arange(-reach, reach + 1) / width) ** 2)
    inside = np.convolve(np.ones(bins), kernel, mode="same")  # less at the ends, where the kernel is cut
    for axis in range(counts.ndim):
        counts = np.apply_along_axis(lambda line: np.convolve(line, kernel, mode="same") / inside, axis, counts)
    area = math.prod((high - low) / bins for low, high in ends)
    return [(edge[1:] + edge[:-1]) / 2 for edge in edges], counts / (len(columns[0]) * area)


def mass_levels(height: np.ndarray, masses: Sequence[float]) -> list[float]:
    """The densities above which the given shares of the mass lie."""
    ordered = np.sort(height.ravel())[::-1]
    mass = np.cumsum(ordered) / max(ordered.sum(), 1e-300)
    return [float(ordered[min(int(np.searchsorted(mass, share)), len(ordered) - 1)]) for share in masses]


def _finish(axes: Axes, row: int, column: int, names: list[str], truth: Sequence[Any]) -> None:
    style(axes)
    if truth[column] is not None:
        axes.axvline(truth[column], color=TRUTH, lw=0.9, ls="--")
        if row != column:
            axes.axhline(truth[row], color=TRUTH, lw=0.9, ls="--")
    last, first = row == len(names) - 1, column == 0 and row > 0
    axes.xaxis.set_major_locator(MaxNLocator(3 if len(names) > 3 else 5, prune="both"))
    if row != column:
        axes.yaxis.set_major_locator(MaxNLocator(3 if len(names) > 3 else 5, prune="both"))
    axes.tick_params(labelbottom=last, labelleft=first)
    label(axes, x=names[column] if last else "", y=names[row] if first else "")


def _corner_legend(figure: Figure, compared: Mapping[str, Any], has_truth: bool, d: int, *, above: bool) -> None:
    handles: list[Any] = [Patch(facecolor=tint(0.5), edgecolor=POSTERIOR, label="posterior")]
    if "reference" in compared:
        handles.append(Line2D([], [], color=REFERENCE, label="reference" + (" (50 %, 95 %)" if d > 1 else "")))
    if "prior" in compared:
        handles.append(Line2D([], [], color=PRIOR, ls=":", label="prior"))
    if has_truth:
        handles.append(Line2D([], [], color=TRUTH, ls="--", lw=0.9, label="true value"))
    if above:
        figure.legend(handles=handles, frameon=False, fontsize=TEXT, loc="outside upper right", ncols=len(handles))
    else:
        figure.legend(handles=handles, frameon=False, fontsize=TEXT, loc="upper right")
    say_shown(figure, min(d, PANELS), d)
