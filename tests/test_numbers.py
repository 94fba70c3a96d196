"""Marked numbers in the documents are those of committed files.

A number with a comment behind it, ``.741<!-- results/bench.csv: a; b -->``, stands in a row of that table (below
``benchmarks``) with the cells ``a`` and ``b``, up to the digits that are shown.
"""

import csv
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MARK = re.compile(r"(?<![\w.])([-+]?[\d,]*\.?\d+)[^\w<.|]?<!-- (\S+): (.+?) -->")
PAGES = [ROOT / "README.md", *sorted(page for page in (ROOT / "docs").rglob("*.md") if "_build" not in page.parts)]
MARKS = [(page.name, *found) for page in PAGES for found in MARK.findall(page.read_text())]


def rounds_to(cell, shown):
    """Whether the first number of a cell rounds to what is shown, to as many digits."""
    found = re.match(r"[-+]?[\d,]*\.?\d+", cell)
    if not found:
        return False
    value, target = (float(text.replace(",", "")) for text in (found[0], shown))
    return abs(value - target) <= 0.5 * 10.0 ** -len(shown.partition(".")[2]) * (1 + 1e-6)


def rows_of(path):
    """The rows of all tables in a file, CSV or Markdown."""
    text = path.read_text()
    if path.suffix == ".csv":
        return list(csv.reader(text.splitlines()))
    return [[cell.strip(" *") for cell in line.split("|")] for line in text.splitlines() if line.startswith("|")]


def is_recorded(shown, file, cells):
    """Whether a row of the file with these cells has a number that rounds to the one that is shown."""
    wanted = cells.split("; ")
    there = [row for row in rows_of(ROOT / "benchmarks" / file) if all(cell in row for cell in wanted)]
    return any(rounds_to(cell, shown) for row in there for cell in row)


@pytest.mark.parametrize("mark", MARKS, ids=lambda mark: f"{mark[0]} {mark[1]} {mark[3]}")
def test_a_marked_number_is_recorded(mark):
    assert is_recorded(*mark[1:])


def test_every_mark_belongs_to_a_number():
    text = "".join(page.read_text() for page in PAGES)
    assert len(MARKS) == len(re.findall(r"<!-- (?:results/|published)\S*: ", text)) > 40


def test_a_wrong_number_is_noticed():
    words = "two_moons-paper; two_moons-energy-m20-n10000-seed0; c2st"
    assert is_recorded(".741", "results/bench.csv", words)
    assert not is_recorded(".742", "results/bench.csv", words)
    assert not is_recorded(".741", "results/bench.csv", words.replace("c2st", "r2"))
