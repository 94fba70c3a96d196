"""All attacks, one table: ``python -m benchmarks.attacks``; ``--only "kill -9 in fit"`` makes some of them.

Fails on any foreign exception, hang, changed bit or lost row. Each attack is a row of ``results/attacks.csv``, replaced
when it is made again; ``results/attacks.md`` is made of all rows.
"""

from __future__ import annotations

import argparse
import csv
import datetime
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.attacks.calls import attack_calls
from benchmarks.attacks.disk import attack_full_disk
from benchmarks.attacks.files import TARGETS, attack_files, make_files
from benchmarks.attacks.kills import attack_by_kills
from benchmarks.attacks.outcome import Outcome
from benchmarks.attacks.soak import attack_by_soak
from benchmarks.attacks.writers import attack_run, attack_saves, attack_simulate
from propersbi.simulation.store import Store
from propersbi.storage.files import write_text

RESULTS = Path(__file__).parent.parent / "results" / "attacks.csv"
MEMORY = 12 << 30  # bytes that a damaged file may not make the process take

DESCRIPTORS = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
import propersbi as ps
theta, x = ps.Store.open(sys.argv[1]).rows("train")
ps.fit(theta, x, max_steps=20, validate_every=10, refinement_steps=1, progress=False)
"""


@dataclass(frozen=True)
class Row:
    """A row of the table."""

    attack: str
    number: int
    refused: int
    broken: int
    seconds: int
    seed: int
    date: str
    machine: str
    note: str = ""


def main() -> None:
    """Attack, print the rows, write the table, and fail if anything broke."""
    known = attacks(1.0, 0, Path())
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=known, metavar="ATTACK", help=", ".join(known))
    parser.add_argument("--share", type=float, default=1.0, help="of the full number of attacks")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    broken = []
    with tempfile.TemporaryDirectory() as scratch:
        for name, attack in attacks(given.share, given.seed, Path(scratch)).items():
            if given.only and name not in given.only:
                continue
            started = time.monotonic()
            outcome = attack()
            row = _row(name, outcome, time.monotonic() - started, given.seed)
            print(_line(row), flush=True)
            print("".join(f"  {line}\n" for line in outcome.broken), end="", flush=True)
            broken += outcome.broken
            rows = _record(row)
            write_text(RESULTS.with_suffix(".md"), page(rows))
    raise SystemExit(1 if broken else 0)


def attacks(share: float, seed: int, scratch: Path) -> dict[str, Callable[[], Outcome]]:
    """Each attack by its name."""

    def of(count: int) -> int:
        return max(1, round(share * count))

    kills = {"simulate": 100, "save": 50, "fit": 50, "rounds": 20}
    disks = {"simulate": 30, "save": 20, "fit": 20, "rounds": 10}
    return {
        "nonsense in public calls": lambda: Outcome.joined(attack_calls(of(6000), seed).values()),
        **{f"damaged files: {name}": partial(_files, name, scratch, share, seed) for name in TARGETS},
        **{f"kill -9 in {what}": partial(attack_by_kills, what, of(n), scratch, seed) for what, n in kills.items()},
        **{f"disk full in {what}": partial(attack_full_disk, what, of(n), seed) for what, n in disks.items()},
        "two processes save one posterior": partial(attack_saves, of(200), scratch),
        "two processes run in one folder": partial(attack_run, of(20), scratch),
        "two processes simulate into one folder": partial(attack_simulate, of(20), scratch),
        "training on shards with 256 descriptors": partial(_descriptors, scratch, of(5000)),
        "fits in one process": partial(attack_by_soak, of(200)),
    }


def _files(name: str, scratch: Path, share: float, seed: int) -> Outcome:
    original = scratch / "original"
    if not original.exists():
        make_files(original)
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, before[1]))
    try:
        return attack_files(name, original, scratch, share, seed)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def _descriptors(scratch: Path, shards: int) -> Outcome:
    store, rng = Store.create_or_open(scratch / "shards", seed=0, chunk_size=2), np.random.default_rng(0)
    for chunk in range(shards):
        theta = rng.normal(size=(2, 2)).astype(np.float32)
        store.write("train", chunk, theta, theta**2)
    command = [sys.executable, "-c", DESCRIPTORS, str(store.folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return Outcome(shards, 0, [] if done.returncode == 0 else [f"descriptors: {done.stderr[-200:]}"])


def _row(name: str, outcome: Outcome, seconds: float, seed: int) -> Row:
    machine = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    date = str(datetime.date.today())
    numbers = outcome.count, outcome.refused, len(outcome.broken), round(seconds)
    return Row(name, *numbers, seed, date, machine, outcome.note)


def _record(row: Row) -> list[Row]:
    """All rows, this one among them in place of an earlier one; those of attacks that are no more are dropped."""
    kinds: dict[str, Callable[[str], Any]] = {field.name: int if field.type == "int" else str for field in fields(Row)}
    rows: dict[str, Row] = {}
    if RESULTS.exists():
        with RESULTS.open(newline="") as file:
            read = [Row(**{key: kinds[key](value) for key, value in line.items()}) for line in csv.DictReader(file)]
        rows = {one.attack: one for one in read}
    rows[row.attack] = row
    ordered = [rows[name] for name in attacks(1.0, 0, Path()) if name in rows]
    with RESULTS.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(kinds)
        writer.writerows([getattr(one, key) for key in kinds] for one in ordered)
    return ordered


def _line(row: Row) -> str:
    return (
        f"| {row.attack} | {row.number:,} | {row.refused or ''} | {row.broken} | {row.note} | {row.seconds} s | "
        f"{row.date} |"
    )


def page(rows: list[Row]) -> str:
    """The table."""
    machines = "; ".join(sorted({f"{row.machine}, seed {row.seed}" for row in rows}))
    lines = [
        "# Attacks",
        "",
        f"Made by `make attacks` (`python -m benchmarks.attacks`; {machines}).",
        "",
        "A killed run, and one whose disk was full, continues and ends with the same bytes as an undisturbed one. A",
        "damaged file is read as it is or refused by an `InputError` of at most 300 characters; half of the damage is",
        "hidden behind checksums that fit. A call with nonsense gives a result or an `InputError`. Two processes that",
        "write the same leave what one of them would have left. Whatever else happens counts as broken: another",
        "exception, a hang, a changed bit, a lost row.",
        "",
        "| attack | number | refused | broken | also | time | date |",
        "|---|---|---|---|---|---|---|",
        *map(_line, rows),
    ]
    missing = [name for name in attacks(1.0, 0, Path()) if name not in {row.attack for row in rows}]
    if missing:
        lines += ["", f"Not made in their full number yet: {', '.join(missing)}."]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
