"""Pictures of how training went and of how well a posterior keeps its word."""

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
    PAGE,
    PANELS,
    POSTERIOR,
    PRIOR,
    REFERENCE,
    SERIES,
    SMALL,
    TRUTH,
    columns,
    is_math,
    label,
    legend_above,
    named,
    panels,
    rows,
    say_shown,
    short,
    span,
)  # fmt: skip
from propersbi.types import Array

__all__ = ["coverage", "losses", "rank_lines", "ranks", "recovery", "rounds"]


def losses(history: Mapping[str, Any]) -> Figure:
    """The training loss, the validation score and the best step, from a training history.

    Arguments:
        history: ``{"train": {"step", "loss"}, "validation": {"step", "score"}, "best_step"}``; every part is optional.

    Examples:
        >>> history = {"train": {"step": [1, 2], "loss": [1.0, 0.5]}, "best_step": 2}
        >>> len(losses(history).axes)
        1
    """
    figure, (axes,) = panels(1, shape=0.38, widest=PAGE)
    steps, loss = _curve(history.get("train"), "loss")
    smooth = _running_mean(loss)
    if len(loss) > 50:
        axes.plot(steps, loss, color=PRIOR, lw=0.7, alpha=0.35)
    axes.plot(steps, smooth, color=PRIOR, lw=1.5, label="training loss")
    steps, score = _curve(history.get("validation"), "score")
    axes.plot(steps, score, color=POSTERIOR, lw=1.8, label="validation score")
    if history.get("best_step") is not None:
        axes.axvline(float(history["best_step"]), color=REFERENCE, lw=1.2, ls="--", label="best step, kept")
    _limit_to_bulk(axes, np.concatenate([smooth, score]))
    label(axes, x="training step", y="score (lower is better)")
    legend_above(figure, axes)
    return figure


def ranks(ranks: Array, draws: int, names: Sequence[str] | None = None, *, bins: int = 20) -> Figure:
    """Simulation-based calibration: the rank of the truth among the draws, flat for a calibrated posterior.

    Arguments:
        ranks: ``(n, d)``, each from 0 to ``draws``.
        draws: How many draws each rank was taken among.
        names: One name per parameter.
        bins: Bars per histogram; the grey band holds a bar in 99 % of calibrated cases. Bars outside are orange.
    """
    table = rows("ranks", ranks)
    names, shown = named(names, table.shape[1]), min(table.shape[1], PANELS)
    figure, axes = panels(shown, shape=0.68)
    low, high = (float(end) for end in rank_band(len(table), bins, level=0.99))
    counts = np.asarray(rank_histogram(table[:, :shown].astype(int), draws, bins=bins)).reshape(bins, -1)
    left = np.arange(bins) / bins
    for j, (one, bars) in enumerate(zip(axes, counts.T, strict=True)):
        one.axhspan(low, high, color=BAND, lw=0)
        one.axhline(len(table) / bins, color=PRIOR, lw=1)
        colours = [POSTERIOR if low <= bar <= high else REFERENCE for bar in bars]
        one.bar(left, bars, width=0.9 / bins, align="edge", color=colours, alpha=0.85)
        one.set(xlim=(0, 1), ylim=(0, max(bars.max(), high) * 1.1), yticks=[], xticks=[0, 0.5, 1])
        label(one, x="rank of the truth" if j + columns(shown) >= shown else "", title=names[j])
    say_shown(figure, shown, table.shape[1])
    return figure


def rank_lines(ranks: Array, draws: int) -> Figure:
    """Simulation-based calibration of many parameters at once: the distribution of each one's ranks, less the diagonal.

    Arguments:
        ranks: ``(n, d)``, each from 0 to ``draws``.
        draws: How many draws each rank was taken among.

    The grey band holds the whole line of a calibrated parameter in 99 % of cases; lines that leave it are orange.
    """
    table = rows("ranks", ranks)
    places, low, high = ecdf_band(len(table), points=100, level=0.99)
    share = (np.sort((table + 0.5) / (draws + 1), axis=0)[None] <= places[:, None, None]).mean(1)
    figure, (one,) = panels(1, shape=0.5, widest=0.7 * PAGE)
    one.fill_between(places, low - places, high - places, color=BAND, lw=0, label="99 % band")
    inside = ((share >= low[:, None]) & (share <= high[:, None])).all(0)
    for line, good in zip(share.T, inside, strict=True):
        one.plot(places, line - places, color=POSTERIOR if good else REFERENCE, lw=0.7, alpha=0.6)
    one.axhline(0, color=PRIOR, lw=1)
    one.set(xlim=(0, 1))
    title = f"{int(inside.sum())} of {len(inside)} lines inside the band"
    label(one, x="rank of the truth", y="share less what is expected", title=title)
    return figure


def coverage(
    levels: Array,
    coverage: Array,
    *,
    n: int,
    names: Sequence[str] | None = None,
    tarp: tuple[Array, Array] | None = None,
) -> Figure:
    """How often credible regions hold the truth, against how often they should: on the diagonal when calibrated.

    Arguments:
        levels: Nominal levels, ``(k,)``.
        coverage: Measured coverage of the central intervals, ``(k,)`` or ``(k, d)``.
        n: Test pairs behind each number; it sets the grey 99 % band.
        names: One name per parameter.
        tarp: Levels and coverage of the joint test of all parameters.
    """
    curves = np.asarray(coverage, dtype=float)
    curves = curves.reshape(len(curves), -1)
    names, few = named(names, curves.shape[1]), curves.shape[1] <= PANELS
    figure, axes = panels(1 if tarp is None else 2, shape=0.95)
    _coverage_axes(axes[0], np.asarray(levels, dtype=float), n, "each parameter", "share that holds the truth")
    for j, curve in enumerate(curves.T):
        axes[0].plot(
            levels, curve, color=SERIES[j] if few else POSTERIOR, lw=1.6 if few else 0.6, alpha=1 if few else 0.35
        )
    if few:
        legend = axes[0].legend(axes[0].lines[-len(names) :], names, frameon=False, fontsize=SMALL, loc="upper left")
        for text, name in zip(legend.get_texts(), names, strict=True):
            text.set_parse_math(is_math(name))
            text.set_text(short(name))
    if tarp is not None:
        _coverage_axes(axes[1], np.asarray(tarp[0], dtype=float), n, "all parameters together (TARP)", "")
        axes[1].plot(*tarp, color=POSTERIOR, lw=1.8)
    return figure


def recovery(theta: Array, mean: Array, lower: Array, upper: Array, names: Sequence[str] | None = None) -> Figure:
    """The posterior mean and an interval of each test pair against the truth; all arrays are ``(n, d)``."""
    truth = rows("theta", theta)
    names, d = named(names, truth.shape[1]), truth.shape[1]
    centre, low, high = (rows(what, part, d) for what, part in (("mean", mean), ("lower", lower), ("upper", upper)))
    shown, some = min(d, PANELS), slice(300)  # more intervals than this merge into a blot
    figure, axes = panels(shown, shape=0.9)
    for j, one in enumerate(axes):
        ends = span(truth[:, j], centre[some, j])
        one.vlines(truth[some, j], low[some, j], high[some, j], color=POSTERIOR, lw=0.8, alpha=0.22)
        one.scatter(truth[some, j], centre[some, j], s=9, color=POSTERIOR, lw=0, alpha=0.8)
        one.plot(ends, ends, color=TRUTH, lw=1, ls="--")
        one.set(xlim=ends)
        one.xaxis.set_major_locator(MaxNLocator(5, prune="both"))
        label(
            one,
            x="true value" if j + columns(shown) >= shown else "",
            y="posterior" if j % columns(shown) == 0 else "",
            title=names[j],
        )
    say_shown(figure, shown, d)
    return figure


def rounds(records: Sequence[Mapping[str, Any]], names: Sequence[str] | None = None) -> Figure:
    """Where each round looked and what it found: 90 % intervals and medians of the proposal and of the posterior.

    Arguments:
        records: For each round ``{"proposal": (d, 3), "posterior": (d, 3)}``: 5 %, 50 % and 95 % quantiles.
        names: One name per parameter.

    Examples:
        >>> record = {"proposal": [[-1.0, 0.0, 1.0]], "posterior": [[-0.5, 0.1, 0.6]]}
        >>> len(rounds([record, record]).axes)
        1
    """
    parts = (("proposal", PRIOR, -0.12), ("posterior", POSTERIOR, 0.12))
    tables = {name: np.asarray([record[name] for record in records], dtype=float) for name, *_ in parts}
    d, number = tables["posterior"].shape[1], np.arange(1, len(records) + 1)
    names, shown = named(names, d), min(d, PANELS)
    figure, axes = panels(shown, shape=0.68)
    for j, one in enumerate(axes):
        for name, colour, aside in parts:
            low, median, high = tables[name][:, j].T
            one.vlines(number + aside, low, high, color=colour, lw=3, alpha=0.6, label=name)
            one.scatter(number + aside, median, s=16, color=colour, zorder=3)
        one.xaxis.set_major_locator(MaxNLocator(integer=True))
        label(one, x="round" if j + columns(shown) >= shown else "", title=names[j])
    legend_above(figure, axes[0])
    say_shown(figure, shown, d)
    return figure


def _coverage_axes(axes: Axes, levels: np.ndarray, n: int, title: str, y: str) -> None:
    low, high = coverage_band(n, levels, level=0.99)
    axes.fill_between(levels, low, high, color=BAND, lw=0)
    axes.plot([0, 1], [0, 1], color=TRUTH, lw=1, ls="--")
    axes.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    for height, text in ((0.11, "below: too narrow"), (0.03, "above: too wide")):
        axes.text(0.97, height, text, ha="right", color=FRAME, fontsize=SMALL, style="italic")
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
    known = np.convolve(np.isfinite(values), kernel, mode="same")
    total = np.convolve(np.nan_to_num(values, nan=0, posinf=0, neginf=0), kernel, mode="same")
    return np.where(known > 0, total / np.maximum(known, 1), np.nan)


def _limit_to_bulk(axes: Axes, values: np.ndarray) -> None:
    """The first steps of training are off the scale of all the others; they may leave the picture."""
    values = values[np.isfinite(values)]
    if len(values) > 20:
        low, high = values.min(), np.percentile(values, 97)
        margin = 0.08 * (high - low) or 1.0
        axes.set_ylim(low - margin, high + 2 * margin)
