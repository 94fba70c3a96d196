"""Figures of the paper from the results: a metric against the number of simulations, measured and published."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.bench import HERE, Spec, read_rows
from benchmarks.rendering import NAMES, entry, published
from propersbi.plots.style import PRIOR, SERIES, label, panels
from propersbi.types import InputError

__all__ = ["draw", "lines"]

STYLES = {3: ":", 5: "--", 10: "-.", 20: "-"}  # of m, as in the paper


def lines(spec: Spec, metric: str, results: Path) -> dict[tuple[str, int], list[Any]]:
    """For every method and m, the entries at all numbers of simulations."""
    rows, known = read_rows(results / "bench.csv"), published(spec)
    found: dict[tuple[str, int], list[Any]] = {}
    for cell in spec.cells():
        if cell.seed == spec.content["seeds"][0]:
            found.setdefault((cell.method["name"], cell.m), []).append((cell.n, entry(cell, metric, rows, known)))
    return found


def draw(spec: Spec, results: Path = HERE / "results") -> Path:
    """The figure of a specification with ``[figure]``: a panel for each of its parts; the path of the picture."""
    if not spec.parts:
        raise InputError(f"'{spec.name}' is a table, not a figure: `python -m benchmarks table {spec.name}`.")
    metric = spec.content["figure"]["metric"]
    figure, axes = panels(len(spec.parts), shape=0.8, widest=4.4)
    for one, part in zip(axes, spec.parts, strict=True):
        curves = lines(part, metric, results)
        colours = {name: SERIES[i] for i, name in enumerate(dict.fromkeys(name for name, _ in curves))}
        for (name, m), points in curves.items():
            shape = STYLES.get(m, "-")
            _line(one, [(n, e.published) for n, e in points], colours[name], shape, alpha=0.3)
            measured = [(n, sum(e.values) / len(e.values) if e.values else None) for n, e in points]
            text = name if m == 1 else f"{name}, m = {m}"
            fill = "none" if any(e.reduced for _, e in points) else "full"
            _line(one, measured, colours[name], shape, marker="o", markersize=3.5, fillstyle=fill, label=text)
        one.set_xscale("log")
        label(one, x="simulations", y=NAMES[metric], title=part.content["task"])
    _legend(figure, axes)
    said = "points: measured (hollow: some with less than the paper took); faint lines: published"
    figure.supxlabel(said, fontsize=7.5, color=PRIOR)
    path = results / "figures" / f"{spec.name}.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    return path


def _legend(figure: Any, axes: list[Any]) -> None:
    """One for all panels, above them; every method once."""
    found: dict[str, Any] = {}
    for one in axes:
        found |= {text: handle for handle, text in zip(*one.get_legend_handles_labels(), strict=True)}
    if found:
        options = {"frameon": False, "fontsize": 7.5, "handlelength": 3.5, "ncols": min(5, len(found))}
        figure.legend(list(found.values()), list(found), loc="outside upper center", **options)


def _line(axes: Any, points: list[tuple[int, float | None]], colour: str, shape: str, **options: Any) -> None:
    known = [(n, value) for n, value in points if value is not None]
    if known:
        axes.plot(*zip(*known, strict=True), color=colour, linestyle=shape, linewidth=1.4, **options)
