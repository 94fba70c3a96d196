"""How close are posteriors that were trained while simulating? Mean C2ST over the first observations of each task.

    python -m benchmarks.online                       # SLCP and Two Moons, ten minutes each
    python -m benchmarks.online --tasks slcp --seed 1

Trains by ``ps.fit_online`` with its defaults: one process trains, one simulates. Adds its rows to
``benchmarks/results/online.csv`` and writes ``online.md``. Draws are compared as in ``benchmarks.accuracy``. Posterior
and scores are kept in ``benchmarks/runs``: a run that was interrupted continues.
"""

from __future__ import annotations

import argparse
import csv
import time
from datetime import date

import numpy as np

import propersbi as ps
from benchmarks.accuracy import RESULTS, RUNS, c2st_scores, machine, read

FIELDS = ["task", "seconds", "seed", "c2st", "c2st_sd", "observations", "steps", "simulations", "cpu_seconds", "draws"]
FIELDS += ["version", "machine", "date"]
BARS = {"slcp": 0.65, "two_moons": 0.505}  # for ten minutes


def measure(task_name: str, seconds: float, seed: int, draws: int, observations: int) -> dict[str, object]:
    """Train and compare; one row of the table."""
    task = ps.tasks.get(task_name)
    folder = RUNS / f"{task_name}-online-{seconds:g}-{seed}"
    started = time.process_time()
    posterior = ps.fit_online(task.prior, task.simulate, time_limit=seconds, folder=folder, seed=seed)
    cpu = time.process_time() - started
    samples = [posterior.sample((draws,), x=task.observation(i + 1), seed=seed).numpy() for i in range(observations)]
    scores = c2st_scores(task, samples, draws, seed, folder, f"{task_name} online, seed {seed}")
    steps = posterior.info["steps"]
    return {
        "task": task_name,
        "seconds": f"{seconds:g}",
        "seed": seed,
        "c2st": round(float(np.mean(scores)), 4),
        "c2st_sd": round(float(np.std(scores)), 4),
        "observations": observations,
        "steps": steps,
        "simulations": steps * posterior.info["batch_size"],
        "cpu_seconds": round(cpu, 1),
        "draws": draws,
        "version": ps.__version__,
        "machine": machine(),
        "date": date.today().isoformat(),
    }


def write(rows: list[dict[str, str]]) -> None:
    """The rows as a table for machines and one for people."""
    with (RESULTS / "online.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        writer.writeheader()
        writer.writerows(rows)
    (RESULTS / "online.md").write_text(table(rows))


def table(rows: list[dict[str, str]]) -> str:
    """The results as Markdown."""
    lines = [
        "# Training while simulating",
        "",
        "Mean C2ST over the first observations of each task, and in brackets the standard deviation over them, of",
        "posteriors that `ps.fit_online` trained with its defaults: one process trains, one simulates, every",
        "simulation is used once. Processor time is that of the process that trains, with its first simulations.",
        "Figures of stored simulations are in [accuracy.md](accuracy.md). Written by `python -m benchmarks.online`.",
        "",
        "| task | training | seed | C2ST | goal | gradient steps | simulations | processor time | observations |",
        "|" + "---|" * 9,
    ]
    for row in rows:
        bar = BARS.get(row["task"], "") if float(row["seconds"]) == 600 else ""
        lines.append(
            f"| {row['task']} | {float(row['seconds']):.0f} s by clock | {row['seed']} "
            f"| {float(row['c2st']):.3f} ({float(row['c2st_sd']):.3f}) | {bar} | {int(row['steps']):,} "
            f"| {int(row['simulations']):,} | {float(row['cpu_seconds']):.0f} s | {row['observations']} |"
        )
    machines, dates = (", ".join(sorted({row[name] for row in rows})) for name in ("machine", "date"))
    note = f"Machine: {machines}, one thread a process, often with both cores busy. Dates: {dates}."
    return "\n".join([*lines, "", note, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=["slcp", "two_moons"])
    parser.add_argument("--seconds", type=float, default=600.0, help="of training, by the clock")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--draws", type=int, default=10_000)
    parser.add_argument("--observations", type=int, default=10)
    options = parser.parse_args()
    for task in options.tasks:
        new = measure(task, options.seconds, options.seed, options.draws, options.observations)
        row = {name: str(value) for name, value in new.items()}
        key = ("task", "seconds", "seed")
        others = [old for old in read(RESULTS / "online.csv") if any(old[name] != row[name] for name in key)]
        write(sorted([*others, row], key=lambda row: (row["task"], float(row["seconds"]), int(row["seed"]))))
    print(table(read(RESULTS / "online.csv")))


if __name__ == "__main__":
    main()
