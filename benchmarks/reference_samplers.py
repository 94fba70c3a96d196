"""Do the tasks' posterior samplers agree with sbibm? C2ST against its published reference samples.

    python -m benchmarks.reference_samplers --data FOLDER

``FOLDER`` holds sbibm's files, ``FOLDER/<task>/num_observation_<i>/reference_posterior_samples.csv.bz2``.
Equal distributions give 0.5 up to noise of about 0.005. The table is written after each row; all tasks take an hour.
"""

from __future__ import annotations

import argparse
import os
import platform
import time
from datetime import date
from pathlib import Path

import numpy as np

from propersbi import tasks
from propersbi.metrics.scores import c2st
from propersbi.storage.files import write_text
from propersbi.types import InputError

SAME_POSTERIOR = {"slcp_distractors": "slcp"}
RESULT = Path(__file__).parent / "results" / "reference_samplers.md"


def main() -> None:
    parser = argparse.ArgumentParser(description="C2ST of the posterior samplers against sbibm's samples.")
    parser.add_argument("--data", type=Path, required=True, help="the folder with sbibm's files")
    parser.add_argument("--tasks", nargs="+", default=tasks.names())
    parser.add_argument("--observations", nargs="+", type=int, default=[1, 2, 3, 4, 5])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=RESULT)
    arguments = parser.parse_args()

    lines = ["| task | observation | C2ST | seconds to sample |", "|---|---|---|---|"]
    print("\n".join(lines))
    for name in arguments.tasks:
        for i in arguments.observations:
            lines.append(compare(name, i, arguments.data, arguments.seed))
            print(lines[-1], flush=True)
            write_text(arguments.output, page(lines, arguments.seed))


def compare(name: str, i: int, data: Path, seed: int) -> str:
    """One row of the table: a classifier between as many draws as published ones and those."""
    task, published = tasks.get(name), read_reference(data, name, i)
    start = time.perf_counter()
    draws = task.reference_posterior(task.observation(i), len(published), np.random.default_rng([seed, i]))
    seconds = time.perf_counter() - start
    # The published draws are float32, and so must ours be: a classifier could see the rounding.
    return f"| {name} | {i} | {c2st(draws.astype(np.float32), published):.4f} | {seconds:.2f} |"


def read_reference(data: Path, name: str, i: int) -> np.ndarray:
    path = data / SAME_POSTERIOR.get(name, name) / f"num_observation_{i}" / "reference_posterior_samples.csv.bz2"
    if not path.is_file():
        raise InputError(f"There is no file '{path}'.")
    return np.loadtxt(path, delimiter=",", skiprows=1, dtype=np.float32)


def page(lines: list[str], seed: int) -> str:
    return (
        "# Posterior samplers against sbibm's reference samples\n\n"
        "C2ST by sbibm's definition, 10 000 of our draws against 10 000 published ones; 0.5: indistinguishable.\n\n"
        + "\n".join(lines)
        + f"\n\nMade with `python -m benchmarks.reference_samplers --seed {seed}` on {date.today().isoformat()}, "
        f"{machine()}.\n"
    )


def machine() -> str:
    """The processor and the versions, for the record."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        names = [line.partition(":")[2].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line]
        model = names[0] if names else model
    return f"{model}, {os.cpu_count()} cores, Python {platform.python_version()}, NumPy {np.__version__}"


if __name__ == "__main__":
    main()
