"""Tables of results beside the published figures: as Markdown, LaTeX and HTML.

A table with several numbers of simulations has one part per metric, with the layout of the paper: a row for each
number, a column for each method and m. One with a single number has a row for each method and a column for each metric.
"""

from __future__ import annotations

import html
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.bench import HERE, Cell, Spec, read_rows
from propersbi.storage.files import write_text

__all__ = ["Entry", "entry", "grids", "published_values", "write_tables"]

NAMES = {
    "c2st": "C2ST",
    "calibration_error": "Calibration error",
    "r2": "R2",
    "nrmse": "NRMSE",
    "rmse": "RMSE",
    "crps": "CRPS (twice the usual one)",
    "runtime": "Seconds in all",
    "stop_step": "Steps",
}
# Differences above which a value is marked: single runs differ by about as much from each other.
MARKED = {"c2st": 0.03, "calibration_error": 0.03, "r2": 0.03, "nrmse": 0.01, "rmse": 0.01, "crps": 0.05}
LEGEND = (
    "Measured / published (difference). ▲ is better than published, ▼ worse, by more than single runs differ; † was "
    "measured with fewer steps, simulations or observations than in the paper; — is not measured yet. A published ± is "
    "the standard deviation over observations (C2ST) or parameters in one run; a measured one is over seeds, where "
    "there are several."
)


@dataclass(frozen=True)
class Entry:
    """One value of a table: measured over some seeds, and published, with the published standard deviation."""

    metric: str
    values: tuple[float, ...] = ()
    published: float | None = None
    reduced: bool = False
    sd: float | None = None

    @property
    def difference(self) -> float | None:
        return None if self.published is None or not self.values else statistics.mean(self.values) - self.published

    @property
    def verdict(self) -> str:
        """``"better"`` or ``"worse"`` than published by more than chance, else empty."""
        if self.difference is None or abs(self.difference) <= MARKED.get(self.metric, float("inf")):
            return ""
        return "better" if (self.difference > 0) == (self.metric == "r2") else "worse"

    @property
    def measured(self) -> str:
        """The mean; over several seeds, with the standard deviation."""
        text = "—"
        if self.values:
            text = _number(self.metric, statistics.mean(self.values))
            if len(self.values) > 1:
                text += f" ± {_number(self.metric, statistics.stdev(self.values))}"
        return text + ("†" if self.reduced else "")

    @property
    def comparison(self) -> str:
        """The published value and the difference to it."""
        if self.published is None:
            return ""
        text = _short(self.metric, self.published) + (f" ± {_short(self.metric, self.sd)}" if self.sd else "")
        if self.difference is None or self.metric not in MARKED:
            return text
        return f"{text} ({_number(self.metric, self.difference, sign='+')})"

    @property
    def text(self) -> str:
        return f"{self.measured} / {self.comparison}" if self.comparison else self.measured


@dataclass(frozen=True)
class Grid:
    """A part of a table: a title, the names of its columns, and rows of a name and its entries."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Entry, ...]], ...]


def _number(metric: str, value: float, sign: str = "") -> str:
    if metric in ("runtime", "stop_step"):
        return f"{value:{sign},.0f}"
    text = f"{value:{sign}.{4 if metric in ('nrmse', 'rmse') else 3}f}".replace("0.", ".", 1)
    return text if text.strip("+-.0") else text.lstrip("+-")  # no sign before zero


def _short(metric: str, value: float) -> str:
    """A published value with the digits it was published with, at least two."""
    if metric in ("runtime", "stop_step"):
        return f"{value:,.0f}"
    text = max(f"{value:g}", f"{value:.2f}" if abs(value) < 10 else "", key=len)
    return text.replace("0.", ".", 1) if abs(value) < 1 else text


Key = tuple[str, int, int, str]
"""Method, m, n and metric."""
Published = tuple[float, float]
"""A published value and its standard deviation, 0 where none is given."""


def published_rows(spec: Spec) -> list[dict[str, str]]:
    """What the paper, or its repository, says about a specification's task."""
    key = (spec.content.get("published", "2022"), spec.content["task"])
    return [row for row in read_rows(HERE / "published.csv") if (row["family"], row["task"]) == key]


def published_values(spec: Spec) -> dict[Key, Published]:
    """Values of the paper for a specification's task, with their standard deviations."""
    return {
        (row["method"], int(row["m"]), int(row["n"]), row["metric"]): (float(row["value"]), float(row["sd"] or 0))
        for row in published_rows(spec)
    }


def entry(cell: Cell, metric: str, rows: list[dict[str, str]], published: Mapping[Key, Published]) -> Entry:
    """All seeds of a cell; of several measurements of one seed the complete one, else the longest."""
    best: dict[str, dict[str, str]] = {}
    for row in rows:
        key = (cell.spec, cell.method["name"], str(cell.m), str(cell.n), metric)
        if (row["spec"], row["method"], row["m"], row["n"], row["metric"]) == key:
            other = best.get(row["seed"])
            if other is None or _worth(row) > _worth(other):
                best[row["seed"]] = row
    name = cell.method.get("as", cell.method["name"])
    value, sd = published.get((name, cell.m, cell.n, metric), (None, None))
    values = tuple(float(row["value"]) for row in best.values())
    return Entry(metric, values, value, any(row["reduced"] == "True" for row in best.values()), sd)


def _worth(row: dict[str, str]) -> tuple[bool, float]:
    return row["reduced"] != "True", float(row["seconds"])


def grids(spec: Spec, results: Path) -> list[Grid]:
    """The parts of a specification's table."""
    rows, published = read_rows(results / "bench.csv"), published_values(spec)
    first = spec.content["seeds"][0]
    cells = [cell for cell in spec.cells() if cell.seed == first]
    numbers, metrics = spec.content["simulations"], spec.content["metrics"]
    several = any(len(method["m"]) > 1 for method in spec.content["methods"])

    def name(cell: Cell) -> str:
        return f"{cell.method['name']}, m = {cell.m}" if several and "gan" not in cell.method else cell.method["name"]

    if len(numbers) == 1:
        lines = tuple((name(cell), tuple(entry(cell, metric, rows, published) for metric in metrics)) for cell in cells)
        return [Grid(f"{numbers[0]:,} simulations", ("method", *(NAMES[metric] for metric in metrics)), lines)]
    parts = []
    for metric in metrics:
        lines = tuple(
            (f"{n:,}", tuple(entry(cell, metric, rows, published) for cell in cells if cell.n == n)) for n in numbers
        )
        heads = tuple(name(cell) for cell in cells if cell.n == numbers[0])
        parts.append(Grid(NAMES[metric], ("simulations", *heads), lines))
    return parts


def write_tables(spec: Spec, results: Path) -> str:
    """Write a specification's table in all formats; the Markdown is returned."""
    parts, title = grids(spec, results), spec.content["title"]
    notes = _notes(spec, results)
    text = markdown(title, parts, notes)
    write_text(results / "tables" / f"{spec.name}.md", text)
    write_text(results / "tables" / f"{spec.name}.tex", latex(title, parts))
    write_text(results / "tables" / f"{spec.name}.html", page(title, parts, notes))
    return text


def _notes(spec: Spec, results: Path) -> list[str]:
    """What was measured, where and when, and in what it was reduced."""
    rows = [row for row in read_rows(results / "bench.csv") if row["spec"] == spec.name]
    complete = {row["cell"] for row in rows if row["reduced"] != "True"}
    reduced = {row["cell"] for row in rows} - complete
    counts = f"{len(complete)} of {len(spec.cells())} cells are measured as in the paper, {len(reduced)} reduced (†)"
    notes = [f"{counts}; `python -m benchmarks run {spec.name}` measures the others."]
    if rows:
        places = sorted({f"{row['machine']} ({row['versions']}, {row['date']})" for row in rows})
        notes.append(f"Measured on {'; '.join(places)}.")
    if any("digits" in row["source"] for row in published_rows(spec)):
        notes.append("Published values with more than two digits have these from the paper's repository.")
    remarks = {row["cell"]: row["note"] for row in rows if row["reduced"] == "True" and row["cell"] in reduced}
    return notes + [f"† {name}: {note}." for name, note in sorted(remarks.items())]


def markdown(title: str, parts: list[Grid], notes: list[str]) -> str:
    lines = [f"# {title}", "", LEGEND]
    for grid in parts:
        lines += ["", f"## {grid.title}", "", f"| {' | '.join(grid.columns)} |", "|---" * len(grid.columns) + "|"]
        lines += [f"| {name} | {' | '.join(e.text + MARKS[e.verdict] for e in row)} |" for name, row in grid.rows]
    lines += ["", *(f"- {note}" for note in notes)]
    return "\n".join(lines) + "\n"


def latex(title: str, parts: list[Grid]) -> str:
    marks = {"better": r" $\uparrow$", "worse": r" $\downarrow$", "": ""}
    lines = []
    for grid in parts:
        lines += [r"\begin{table}", rf"\caption{{{_escape(title)}: {_escape(grid.title)}.}}"]
        lines += [rf"\begin{{tabular}}{{l{'r' * (len(grid.columns) - 1)}}}", r"\hline"]
        lines += [" & ".join(map(_escape, grid.columns)) + r" \\", r"\hline"]
        for name, row in grid.rows:
            cells = (_escape(e.text) + marks[e.verdict] for e in row)
            lines.append(" & ".join([_escape(name), *cells]) + r" \\")
        lines += [r"\hline", r"\end{tabular}", r"\end{table}", ""]
    return "\n".join(lines)


def _escape(text: str) -> str:
    for mark, code in (("_", r"\_"), ("%", r"\%"), ("±", r"$\pm$"), ("†", r"$^\dagger$"), ("—", "---")):
        text = text.replace(mark, code)
    return text


STYLE = """body{font:15px/1.4 system-ui,sans-serif;margin:2em auto;max-width:76em;padding:0 1em;color:#222}
table{border-collapse:collapse;margin:.5em 0 2em}th,td{padding:.3em .6em;text-align:right;white-space:nowrap}
th:first-child,td:first-child{text-align:left}thead th{border-bottom:2px solid #777;vertical-align:bottom}
td{border-bottom:1px solid #ddd}small{display:block;color:#666}.better{background:#d9efe6}.worse{background:#fbe3d3}
div{overflow-x:auto}"""
MARKS = {"better": " ▲", "worse": " ▼", "": ""}


def page(title: str, parts: list[Grid], notes: list[str]) -> str:
    lines = [f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{html.escape(title)}</title>']
    legend = LEGEND.replace(" / published", ", and below it published")
    lines += [f"<style>{STYLE}</style>", f"<h1>{html.escape(title)}</h1>", f"<p>{html.escape(legend)}</p>"]
    for grid in parts:
        head = "".join(f"<th>{html.escape(name).replace(', ', '<br>')}</th>" for name in grid.columns)
        lines += [f"<h2>{html.escape(grid.title)}</h2>", f"<div><table><thead><tr>{head}</tr></thead><tbody>"]
        for name, row in grid.rows:
            lines.append(f"<tr><td>{html.escape(name)}</td>{''.join(map(_html_cell, row))}</tr>")
        lines.append("</tbody></table></div>")
    lines += ["<ul>", *(f"<li>{html.escape(note)}</li>" for note in notes), "</ul></html>"]
    return "\n".join(lines) + "\n"


def _html_cell(entry: Entry) -> str:
    """The measured value, and the published one below it."""
    below = f"<small>{html.escape(entry.comparison)}</small>" if entry.comparison else ""
    return f'<td class="{entry.verdict}">{html.escape(entry.measured)}{MARKS[entry.verdict]}{below}</td>'
