"""All attacks, one table: ``python -m benchmarks.attacks`` (hours), or with ``--share 0.1`` a tenth of them.

Fails on any foreign exception, hang, changed bit or lost row. The table is written to ``results/attacks.md``, with the
number of attacks that were made.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.attacks.calls import attack_calls
from benchmarks.attacks.files import Outcome, attack_files, make_files
from benchmarks.attacks.kills import attack_by_kills
from propersbi.simulation.store import Store
from propersbi.storage.files import write_text

RESULTS = Path(__file__).parent.parent / "results" / "attacks.md"
MEMORY = 12 << 30  # bytes that a damaged file may not make the process take

DESCRIPTORS = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
import propersbi as ps
theta, x = ps.Store.open(sys.argv[1]).rows("train")
ps.fit(theta, x, max_steps=20, validate_every=10, refinement_steps=1, progress=False)
"""


def main() -> None:
    """Attack, print the table, write it, and fail if anything broke."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--share", type=float, default=1.0, help="of the full number of attacks")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    rows, broken = [], []
    with tempfile.TemporaryDirectory() as scratch:
        for name, attack in attacks(arguments.share, arguments.seed, Path(scratch)):
            started = time.monotonic()
            outcome = attack()
            seconds = time.monotonic() - started
            counts = f"{outcome.count:,} | {outcome.refused or ''} | {len(outcome.broken)}"
            rows.append(f"| {name} | {counts} | {seconds:.0f} s |")
            broken += outcome.broken
            sys.stdout.write(rows[-1] + "\n")
            sys.stdout.flush()
            write_text(RESULTS, page(rows, broken, arguments.share, arguments.seed))
    for line in broken:
        sys.stdout.write(line + "\n")
    raise SystemExit(1 if broken else 0)


def attacks(share: float, seed: int, scratch: Path) -> Iterator[tuple[str, Callable[[], Outcome]]]:
    """The name of each attack, and the attack."""
    shards = max(600, round(share * 5000))
    yield "nonsense in public calls", partial(_calls, max(60, round(share * 5000)), seed)
    yield f"training on {shards:,} shards with 256 descriptors", partial(_descriptors, scratch, shards)
    yield "damaged and hostile files", partial(_files, scratch, max(28, round(share * 10_000)), seed)
    for what, count in (("simulate", 100), ("save", 50), ("fit", 50), ("rounds", 20)):
        yield f"kill -9 in {what}", partial(attack_by_kills, what, max(1, round(share * count)), scratch, seed)


def _calls(count: int, seed: int) -> Outcome:
    return _joined(attack_calls(count, seed))


def _files(scratch: Path, count: int, seed: int) -> Outcome:
    make_files(scratch / "original")
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, before[1]))
    try:
        return _joined(attack_files(scratch / "original", scratch, count, seed))
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def _joined(outcomes: dict[str, Outcome]) -> Outcome:
    whole = Outcome()
    for outcome in outcomes.values():
        whole.add(outcome)
    return whole


def _descriptors(scratch: Path, shards: int) -> Outcome:
    store, rng = Store.create_or_open(scratch / "shards", seed=0, chunk_size=2), np.random.default_rng(0)
    for chunk in range(shards):
        theta = rng.normal(size=(2, 2)).astype(np.float32)
        store.write("train", chunk, theta, theta**2)
    command = [sys.executable, "-c", DESCRIPTORS, str(store.folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return Outcome(1, 0, [] if done.returncode == 0 else [f"descriptors: {done.stderr[-200:]}"])


def page(rows: list[str], broken: list[str], share: float, seed: int) -> str:
    """The table with date and machine."""
    machine = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    made = f"{datetime.date.today()}, {machine}, Python {platform.python_version()}, seed {seed}"
    lines = [
        "# Attacks",
        "",
        f"Made by `python -m benchmarks.attacks --share {share:g}` ({made}).",
        "`make attacks` makes all of them (`--share 1`).",
        "",
        "A killed run continues and ends with the same bytes as an undisturbed one. A damaged file is read as it is or",
        "refused by an `InputError` of at most 300 characters; half of the damage is hidden behind checksums that fit.",
        "A call with nonsense gives a result or an `InputError`. Whatever else happens counts as broken.",
        "",
        "| attack | number | refused | broken | time |",
        "|---|---|---|---|---|",
        *rows,
    ]
    if broken:
        lines += ["", "Broken:", "", *(f"- {' '.join(line.split())[:200]}" for line in broken[:50])]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
