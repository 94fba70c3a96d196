"""Every table and figure of the paper, by one command.

    python -m benchmarks list                                  the specifications, and how much of each is measured
    python -m benchmarks run slcp-paper --workers 2            measure; run again to continue after Ctrl-C or kill -9
    python -m benchmarks run slcp-paper --budget 30m           fewer steps and observations, marked as such
    python -m benchmarks run all --budget 8h                   every table; its cells share the time
    python -m benchmarks table slcp-paper                      Markdown, LaTeX and HTML in results/tables
    python -m benchmarks figure figure-c2st-paper              results/figures/figure-c2st-paper.png

``run`` and ``figure`` take ``--only TEXT``: the cells whose name contains the text.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import bench
from propersbi.storage.progress import progress_bar
from propersbi.types import InputError

UNITS = {"s": 1, "m": 60, "h": 3600}


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        commands = {"list": show, "run": run, "cell": measure_one, "table": table, "figure": figure}
        return commands[options.command](options)
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("Stopped; the same command continues.", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m benchmarks", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("command", choices=["list", "run", "cell", "table", "figure"])
    parser.add_argument("spec", nargs="?", help="the name of a specification or its file; 'all' for every table")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="cells at the same time")
    parser.add_argument("--budget", help="a time limit for the run, such as 90s, 30m or 2h")
    parser.add_argument("--only", default="", help="only cells whose name contains this text")
    parser.add_argument("--runs", type=Path, default=bench.RUNS, help="where cells keep their files")
    parser.add_argument("--results", type=Path, default=bench.RESULTS, help="where tables go")
    parser.add_argument("--name", default="", help=argparse.SUPPRESS)  # of the one cell a worker measures
    return parser


def _spec(options: Any) -> bench.Spec:
    if options.spec is None:
        raise InputError(f"Say which specification: {', '.join(bench.spec_names())}, or a file.")
    return bench.read_spec(options.spec)


def _cells(options: Any) -> list[bench.Cell]:
    places = {"results": options.results, "runs": options.runs}
    seconds = seconds_of(options.budget) if options.budget else None
    return bench.choose_cells(_spec(options), options.only, seconds=seconds, workers=options.workers, **places)


def seconds_of(text: str) -> float:
    """Seconds of a time such as 90s, 30m or 2h."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", text)
    if not match or not float(match[1]):
        raise InputError(f"'--budget' must be a time such as 90s, 30m or 2h, got '{text}'.")
    return float(match[1]) * UNITS[match[2]]


def show(options: Any) -> int:
    for name in bench.spec_names():
        spec = bench.read_spec(name)
        cells = spec.cells()
        done = sum(bench.is_finished(cell, options.results, options.runs) for cell in cells)
        print(f"{name:24} {done:3} of {len(cells):3} cells measured   {spec.content['title']}")
    return 0


def run(options: Any) -> int:
    """Measure what is missing, each cell in a process of its own."""
    if options.workers < 1:
        raise InputError(f"'--workers' must be at least 1, got {options.workers}.")
    cells = _cells(options)
    waiting = [cell for cell in cells if not bench.is_finished(cell, options.results, options.runs)]
    bench.collect(cells, options.results, options.runs)
    print(f"{len(cells) - len(waiting)} of {len(cells)} cells are measured and skipped.", file=sys.stderr)
    print(long_runs(waiting), end="", file=sys.stderr)
    failed, shown = list[str](), 0.0
    running: dict[subprocess.Popen[bytes], bench.Cell] = {}
    bar = progress_bar(len(cells), "cells", "cell", show=True, done=len(cells) - len(waiting))
    try:
        while waiting or running:
            while waiting and len(running) < options.workers:
                cell = waiting.pop(0)
                running[_start(cell, options)] = cell
            time.sleep(0.2)
            if time.monotonic() - shown > (1 if sys.stderr.isatty() else 30):
                bar.set_postfix_str(", ".join(_state(cell, options.runs) for cell in running.values()))
                shown = time.monotonic()
            for process in [process for process in running if process.poll() is not None]:
                cell = running.pop(process)
                failed += [] if process.returncode == 0 else [_failure(cell, options.runs)]
                bench.collect(cells, options.results, options.runs)
                bar.update()
    finally:
        bar.close()
        for process in running:
            process.kill()
    for sentence in failed:
        print(sentence, file=sys.stderr)
    return 1 if failed else 0


def long_runs(cells: list[bench.Cell]) -> str:
    """A line on the cells that may take hours: adversarial training of the paper's size."""
    games = [cell.name for cell in cells if "gan" in cell.method and cell.seconds is None]
    if not games:
        return ""
    return f"Adversarial training of the paper's size can take hours; '--budget' reduces it: {', '.join(games)}.\n"


def _start(cell: bench.Cell, options: Any) -> subprocess.Popen[bytes]:
    folder = cell.folder(options.runs)
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "benchmarks", "cell", options.spec, "--name", f"{cell.name}-{cell.settings}"]
    command += ["--workers", str(options.workers), "--runs", str(options.runs), "--results", str(options.results)]
    command += ["--only", options.only, *(["--budget", options.budget] if options.budget else [])]
    threads = {"OMP_NUM_THREADS": "1"} | dict(os.environ)
    with (folder / "log.txt").open("ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, env=threads)


def _state(cell: bench.Cell, runs: Path) -> str:
    """The name of a cell and the last progress in its log."""
    end = (cell.folder(runs) / "log.txt").read_bytes()[-1000:].decode(errors="replace").strip()
    last = re.split(r"[\r\n]", end)[-1]
    return f"{cell.name} ({last})"


def _failure(cell: bench.Cell, runs: Path) -> str:
    log = cell.folder(runs) / "log.txt"
    lines = log.read_text(errors="replace").strip().splitlines()
    return f"{cell.name} failed: {lines[-1] if lines else 'its log is empty'} ('{log}')"


def measure_one(options: Any) -> int:
    """A worker: measures one cell and ends when the process that started it ends."""
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    from benchmarks.cells import measure  # loads torch, which the other commands do not need

    for cell in _cells(options):
        if f"{cell.name}-{cell.settings}" == options.name:
            measure(cell, options.runs)
            return 0
    raise InputError(f"'{options.spec}' has no cell '{options.name}'.")


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def table(options: Any) -> int:
    from benchmarks.rendering import write_tables

    spec = _spec(options)
    for part in spec.parts or (spec,):
        print(write_tables(part, options.results))
    return 0


def figure(options: Any) -> int:
    from benchmarks.figures import plot

    spec = _spec(options)
    if options.only and "figure" in spec.content:
        content = {**spec.content, "figure": {**spec.content["figure"], "only": options.only}}
        spec = replace(spec, content=content)
    for path in plot(spec, options.results, options.runs):
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
