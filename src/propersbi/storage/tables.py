"""Tables for people: aligned text for terminals, HTML for notebooks."""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Mapping, Sequence

__all__ = ["Summary", "aligned", "html_table"]


def aligned(rows: Sequence[Sequence[str]], *, right: bool = False) -> str:
    """Rows of text under a head, in columns of equal width, the first one on the left.

    >>> print(aligned([["parameter", "mean"], ["mu", "0.5"]], right=True))
    parameter  mean
    ---------  ----
    mu          0.5
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    place = str.rjust if right else str.ljust
    cells = [[row[0].ljust(widths[0]), *map(place, row[1:], widths[1:])] for row in rows]
    cells.insert(1, ["-" * width for width in widths])
    return "\n".join("  ".join(row).rstrip() for row in cells)


def html_table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]], note: str = "") -> str:
    """A small table for notebooks; every text is escaped.

    >>> html_table("Draws", ["name"], [["<b>"]])
    '<p><b>Draws</b></p><table><thead><tr><th>name</th></tr></thead><tbody><tr><td>&lt;b&gt;</td></tr></tbody></table>'
    """
    top = "".join(f"<th>{html.escape(cell)}</th>" for cell in head)
    lines = ("".join(f"<td>{html.escape(cell)}</td>" for cell in row) for row in rows)
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    table = f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"
    return f"<p><b>{html.escape(title)}</b></p>{table}" + (f"<p>{html.escape(note)}</p>" if note else "")


class Summary(Mapping[str, dict[str, float]]):
    """Numbers for each parameter: a mapping that prints as a table.

    Arguments:
        rows: By the name of the parameter, its numbers by their names.

    Examples:
        >>> summary = Summary({"mu": {"mean": 0.5, "sd": 0.25}, "sigma": {"mean": 12345.678, "sd": 1.5}})
        >>> print(summary)
        parameter      mean     sd
        ---------  --------  -----
        mu            0.500  0.250
        sigma      12345.68   1.50
        >>> summary["mu"]["mean"], dict(summary)["sigma"]["sd"]
        (0.5, 1.5)
    """

    def __init__(self, rows: Mapping[str, Mapping[str, float]]) -> None:
        self._rows = {name: dict(row) for name, row in rows.items()}

    def __getitem__(self, name: str) -> dict[str, float]:
        return self._rows[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def __str__(self) -> str:
        return aligned(self._cells(), right=True)

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        head, *rows = self._cells()
        return html_table("Summary", head, rows)

    def _cells(self) -> list[list[str]]:
        head = ["parameter", *next(iter(self._rows.values()), {})]
        return [head, *([name, *(_number(v, row.get("sd", 0.0)) for v in row.values())] for name, row in self.items())]


def _number(value: float, scale: float) -> str:
    """As many digits as the standard deviation makes sense of: three of its own.

    >>> _number(3.14159, 0.021), _number(1e9 + 0.5, 0.25), _number(3.14159, 0.0)
    ('3.1416', '1000000000.500', '3.142')
    """
    if not 1e-6 < scale < 1e6:
        return f"{value:.4g}"
    return f"{value:.{max(0, 2 - math.floor(math.log10(scale)))}f}"
