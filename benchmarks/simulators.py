"""How fast the two large simulators are on one core, including prior and noise.

python -m benchmarks.simulators          takes a minute; writes results/simulators.md
"""

from __future__ import annotations

import time
from datetime import date

import numpy as np

import propersbi as ps
from benchmarks.accuracy import RESULTS, machine
from propersbi.storage.files import write_text

SIZES = {"shallow_water": 1000, "camera": 20_000}  # simulations in one run
RUNS, SEED = 5, 0


def rate(name: str, n: int) -> tuple[float, float]:
    """Draws of the prior and simulations per second of processor time, each the median of some runs."""
    task, rng = ps.tasks.get(name), np.random.default_rng(SEED)
    task.simulate(task.prior.sample(10, rng), rng)  # warm-up: what is compiled or read once is not counted
    drawing, simulating = [], []
    for _ in range(RUNS):
        started = time.process_time()
        theta = task.prior.sample(n, rng)
        between = time.process_time()
        task.simulate(theta, rng)
        drawing.append(between - started)
        simulating.append(time.process_time() - between)
    return n / float(np.median(drawing)), n / float(np.median(simulating))


def main() -> None:
    lines = [
        "# Speed of the simulators",
        "",
        f"Processor time on one thread, the median of {RUNS} runs.",
        "",
        "| task | draws of the prior per second | simulations per second |",
        "|---|---|---|",
    ]
    for name, n in SIZES.items():
        prior, simulator = rate(name, n)
        lines.append(f"| {name} | {prior:,.0f} | {simulator:,.0f} |")
    date_line = f"By `python -m benchmarks.simulators`, seed {SEED}. Machine: {machine()}. Date: {date.today()}."
    text = "\n".join([*lines, "", date_line, ""])
    write_text(RESULTS / "simulators.md", text)
    print(text)


if __name__ == "__main__":
    main()
