"""Plots of training, calibration and sequential rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from propersbi.metrics.calibration import coverage_band, ecdf_band, rank_band, rank_histogram
from propersbi.plots.style import (
    BAND,
    FRAME,
    MAX_PANELS,
    PAGE,
    POSTERIOR,
    PRIOR,
    REFERENCE,
    SERIES,
    SMALL_TEXT,
    TRUTH,
    AxesLike,
    columns,
    is_math,
    label,
    legend_above,
    note_hidden,
    panels,
    parameter_labels,
    rows,
    short,
    span,
)  # fmt: skip
from propersbi.training.history import History
from propersbi.types import Array

__all__ = ["coverage", "losses", "rank_lines", "ranks", "recovery", "rounds"]

MAX_INTERVALS = 300  # more would overlap


def losses(history: History | Mapping[str, Any], *, axes: AxesLike | None = None) -> Figure:
    """The training loss, the validation score and the step whose weights were kept, from a training history.

    Arguments:
        history: That of a posterior, or ``{"train": {"step", "loss"}, "validation": {"step", "score"}, "kept_step"}``;
            every part is optional.
        axes: Axes of your own to draw in, in place of a new figure.

    Examples:
        >>> history = {"train": {"step": [1, 2], "loss": [1.0, 0.5]}, "kept_step": 2}
        >>> len(losses(history).axes)
        1
    """
    history = history.to_json() if isinstance(history, History) else history
    figure, (panel,) = panels(1, shape=0.38, widest=PAGE, axes=axes)
    steps, loss = _curve(history.get("train"), "loss")
    smooth = _running_mean(loss)
    if len(loss) > 50:
        panel.plot(steps, loss, color=PRIOR, lw=0.7, alpha=0.35)
    panel.plot(steps, smooth, color=PRIOR, lw=1.5, label="training loss")
    steps, score = _curve(history.get("validation"), "score")
    panel.plot(steps, score, color=POSTERIOR, lw=1.8, label="validation score")
    if history.get("kept_step") is not None:
        panel.axvline(float(history["kept_step"]), color=REFERENCE, lw=1.2, ls="--", label="kept weights")
    _limit_to_bulk(panel, np.concatenate([smooth, score]))
    label(panel, x="training step", y="score (lower is better)")
    legend_above(figure, panel, inside=axes is not None)
    return figure


def ranks(
    ranks: Array,
    num_samples: int,
    names: Sequence[str] | None = None,
    *,
    bins: int = 20,
    axes: AxesLike | None = None,
) -> Figure:
    """Simulation-based calibration: histograms of the rank of the true value, flat for a calibrated posterior.

    Arguments:
        ranks: ``(n, d)``, each from 0 to ``num_samples``.
        num_samples: The number of posterior draws per rank.
        names: One name per parameter.
        bins: Bars per histogram; for a calibrated posterior, a bar lies in the grey band with probability 99 %. Bars
            outside are orange.
        axes: Axes of your own to draw in, in place of a new figure, one for each parameter.

    Examples:
        >>> len(ranks(np.random.default_rng(0).integers(0, 101, (200, 2)), 100, ["mu", "sigma"]).axes)
        2
    """
    table = rows("ranks", ranks)
    names, shown = parameter_labels(names, table.shape[1]), min(table.shape[1], MAX_PANELS)
    figure, drawn = panels(shown, shape=0.68, axes=axes)
    low, high = (float(limit) for limit in rank_band(len(table), bins, level=0.99))
    counts = np.asarray(rank_histogram(table[:, :shown].astype(int), num_samples, bins=bins)).reshape(bins, -1)
    left = np.arange(bins) / bins
    for j, (panel, bars) in enumerate(zip(drawn, counts.T, strict=True)):
        panel.axhspan(low, high, color=BAND, lw=0)
        panel.axhline(len(table) / bins, color=PRIOR, lw=1)
        colours = [POSTERIOR if low <= bar <= high else REFERENCE for bar in bars]
        panel.bar(left, bars, width=0.9 / bins, align="edge", color=colours, alpha=0.85)
        panel.set(xlim=(0, 1), ylim=(0, max(bars.max(), high) * 1.1), yticks=[], xticks=[0, 0.5, 1])
        label(panel, x="rank of the true value" if j + columns(shown) >= shown else "", title=names[j])
    note_hidden(figure, shown, table.shape[1], own=axes is not None)
    return figure


def rank_lines(ranks: Array, num_samples: int) -> Figure:
    """Simulation-based calibration of many parameters: the distribution function of each rank, minus the diagonal.

    Arguments:
        ranks: ``(n, d)``, each from 0 to ``num_samples``.
        num_samples: The number of posterior draws per rank.

    The grey band contains the entire line of a calibrated parameter with probability 99 %; lines that leave it are
    orange.

    Examples:
        >>> len(rank_lines(np.random.default_rng(0).integers(0, 101, (200, 30)), 100).axes)
        1
    """
    table = rows("ranks", ranks)
    z, low, high = ecdf_band(len(table), points=100, level=0.99)
    ecdf = (np.sort((table + 0.5) / (num_samples + 1), axis=0)[None] <= z[:, None, None]).mean(1)
    figure, (panel,) = panels(1, shape=0.5, widest=0.7 * PAGE)
    panel.fill_between(z, low - z, high - z, color=BAND, lw=0, label="99 % band")
    inside = ((ecdf >= low[:, None]) & (ecdf <= high[:, None])).all(0)
    for line, is_inside in zip(ecdf.T, inside, strict=True):
        panel.plot(z, line - z, color=POSTERIOR if is_inside else REFERENCE, lw=0.7, alpha=0.6)
    panel.axhline(0, color=PRIOR, lw=1)
    panel.set(xlim=(0, 1))
    title = f"{int(inside.sum())} of {len(inside)} lines inside the band"
    label(panel, x="rank of the true value", y="ECDF minus uniform", title=title)
    return figure


def coverage(
    levels: Array,
    coverage: Array,
    *,
    n: int,
    names: Sequence[str] | None = None,
    tarp: tuple[Array, Array] | None = None,
    axes: AxesLike | None = None,
) -> Figure:
    """The coverage of credible regions against their nominal level: on the diagonal if calibrated.

    Arguments:
        levels: Nominal levels, ``(k,)``.
        coverage: Measured coverage of the central intervals, ``(k,)`` or ``(k, d)``.
        n: The number of test pairs, which determines the grey 99 % band.
        names: One name per parameter.
        tarp: Levels and coverage of the joint test of all parameters.
        axes: Axes of your own to draw in, in place of a new figure; two with ``tarp``.

    Examples:
        >>> levels = np.linspace(0, 1, 11)
        >>> len(coverage(levels, levels, n=100, tarp=(levels, levels)).axes)
        2
    """
    curves = np.asarray(coverage, dtype=float)
    curves = curves.reshape(len(curves), -1)
    names, few = parameter_labels(names, curves.shape[1]), curves.shape[1] <= MAX_PANELS
    figure, drawn = panels(1 if tarp is None else 2, shape=0.95, axes=axes)
    _coverage_axes(drawn[0], np.asarray(levels, dtype=float), n, "each parameter", "coverage of the true value")
    for j, curve in enumerate(curves.T):
        drawn[0].plot(
            levels, curve, color=SERIES[j] if few else POSTERIOR, lw=1.6 if few else 0.6, alpha=1 if few else 0.35
        )
    if few:
        legend = drawn[0].legend(
            drawn[0].lines[-len(names) :], names, frameon=False, fontsize=SMALL_TEXT, loc="upper left"
        )
        for text, name in zip(legend.get_texts(), names, strict=True):
            text.set_parse_math(is_math(name))
            text.set_text(short(name))
    if tarp is not None:
        _coverage_axes(drawn[1], np.asarray(tarp[0], dtype=float), n, "all parameters jointly (TARP)", "")
        drawn[1].plot(*tarp, color=POSTERIOR, lw=1.8)
    return figure


def recovery(
    theta: Array,
    mean: Array,
    lower: Array,
    upper: Array,
    names: Sequence[str] | None = None,
    *,
    axes: AxesLike | None = None,
) -> Figure:
    """Posterior means and intervals of test pairs against the true values.

    Arguments:
        theta: True parameters, ``(n, d)``.
        mean: Posterior means, ``(n, d)``.
        lower: Lower ends of the intervals, ``(n, d)``.
        upper: Their upper ends, ``(n, d)``.
        names: One name per parameter.
        axes: Axes of your own to draw in, in place of a new figure, one for each parameter.

    Examples:
        >>> truth = np.random.default_rng(0).normal(size=(50, 2))
        >>> len(recovery(truth, 0.9 * truth, truth - 1, truth + 1).axes)
        2
    """
    truth = rows("theta", theta)
    names, d = parameter_labels(names, truth.shape[1]), truth.shape[1]
    centre, low, high = (rows(what, part, d) for what, part in (("mean", mean), ("lower", lower), ("upper", upper)))
    shown, subset = min(d, MAX_PANELS), slice(MAX_INTERVALS)
    figure, drawn = panels(shown, shape=0.9, axes=axes)
    for j, panel in enumerate(drawn):
        limits = span(truth[:, j], centre[subset, j])
        panel.vlines(truth[subset, j], low[subset, j], high[subset, j], color=POSTERIOR, lw=0.8, alpha=0.22)
        panel.scatter(truth[subset, j], centre[subset, j], s=9, color=POSTERIOR, lw=0, alpha=0.8)
        panel.plot(limits, limits, color=TRUTH, lw=1, ls="--")
        panel.set(xlim=limits)
        panel.xaxis.set_major_locator(MaxNLocator(5, prune="both"))
        label(
            panel,
            x="true value" if j + columns(shown) >= shown else "",
            y="posterior" if j % columns(shown) == 0 else "",
            title=names[j],
        )
    note_hidden(figure, shown, d, own=axes is not None)
    return figure


def rounds(records: Sequence[Mapping[str, Any]], names: Sequence[str] | None = None) -> Figure:
    """90 % intervals and medians of the proposal and of the posterior of each round.

    Arguments:
        records: For each round ``{"proposal": (d, 3), "posterior": (d, 3)}``: 5 %, 50 % and 95 % quantiles.
        names: One name per parameter.

    Examples:
        >>> record = {"proposal": [[-1.0, 0.0, 1.0]], "posterior": [[-0.5, 0.1, 0.6]]}
        >>> len(rounds([record, record]).axes)
        1
    """
    styles = (("proposal", PRIOR, -0.12), ("posterior", POSTERIOR, 0.12))
    tables = {name: np.asarray([record[name] for record in records], dtype=float) for name, *_ in styles}
    d, number = tables["posterior"].shape[1], np.arange(1, len(records) + 1)
    names, shown = parameter_labels(names, d), min(d, MAX_PANELS)
    figure, axes = panels(shown, shape=0.68)
    for j, panel in enumerate(axes):
        for name, colour, offset in styles:
            low, median, high = tables[name][:, j].T
            panel.vlines(number + offset, low, high, color=colour, lw=3, alpha=0.6, label=name)
            panel.scatter(number + offset, median, s=16, color=colour, zorder=3)
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))
        label(panel, x="round" if j + columns(shown) >= shown else "", title=names[j])
    legend_above(figure, axes[0])
    note_hidden(figure, shown, d)
    return figure


def _coverage_axes(axes: Axes, levels: np.ndarray, n: int, title: str, y: str) -> None:
    low, high = coverage_band(n, levels, level=0.99)
    axes.fill_between(levels, low, high, color=BAND, lw=0)
    axes.plot([0, 1], [0, 1], color=TRUTH, lw=1, ls="--")
    axes.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    for height, text in ((0.11, "below: too narrow"), (0.03, "above: too wide")):
        axes.text(0.97, height, text, ha="right", color=FRAME, fontsize=SMALL_TEXT, style="italic")
    label(axes, x="credible level", y=y, title=title)


def _curve(record: Mapping[str, Any] | None, key: str) -> tuple[np.ndarray, np.ndarray]:
    record = record or {}
    values = np.asarray([np.nan if value is None else value for value in record.get(key, [])], dtype=float)
    return np.asarray(record.get("step", range(len(values))), dtype=float)[: len(values)], values


def _running_mean(values: np.ndarray) -> np.ndarray:
    if not len(values):
        return values
    width = max(len(values) // 60, 1)
    kernel = np.ones(width)
    count = np.convolve(np.isfinite(values), kernel, mode="same")
    total = np.convolve(np.nan_to_num(values, nan=0, posinf=0, neginf=0), kernel, mode="same")
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _limit_to_bulk(axes: Axes, values: np.ndarray) -> None:
    """Limit the axis to the bulk of the values: the first steps of training are often far above all others."""
    values = values[np.isfinite(values)]
    if len(values) > 20:
        low, high = values.min(), np.percentile(values, 97)
        margin = 0.08 * (high - low) or 1.0
        axes.set_ylim(low - margin, high + 2 * margin)
