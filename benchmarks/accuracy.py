"""How close are the posteriors to the truth? Mean C2ST over the ten observations of each task (.5 is perfect).

    python -m benchmarks.accuracy --tasks two_moons slcp --simulations 10000 --seeds 1

Runs what is not yet in ``benchmarks/results/accuracy.csv``, adds it there and writes ``accuracy.md`` beside it. Samples
are compared as sbibm does: 10 000 draws against 10 000 of the reference posterior, five-fold accuracy of a classifier.
"""

from __future__ import annotations

import argparse
import csv
import os
import platform
from datetime import date
from pathlib import Path

import numpy as np

import propersbi as ps

RESULTS = Path(__file__).parent / "results"
FIELDS = ["task", "method", "simulations", "seed", "c2st", "c2st_sd", "observations", "train_seconds", "steps"]
FIELDS += ["sample_seconds", "draws", "version", "machine", "date"]

# Published mean C2ST over the ten observations: Pacchiardi & Dutta (2022), energy score with m = 20; NPE of sbibm.
PUBLISHED = {
    ("two_moons", 1000): {"paper": 0.85, "NPE": 0.725},
    ("two_moons", 10_000): {"paper": 0.74, "NPE": 0.606},
    ("two_moons", 100_000): {"paper": 0.73, "NPE": 0.542},
    ("slcp", 1000): {"paper": 0.99, "NPE": 0.975},
    ("slcp", 10_000): {"paper": 0.98, "NPE": 0.901},
    ("slcp", 100_000): {"paper": 0.95, "NPE": 0.831},
}


def machine() -> str:
    """The processor and how many cores there are."""
    info = Path("/proc/cpuinfo")
    names = [line.split(":")[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")]
    return f"{names[0] if names else platform.processor()}, {os.cpu_count()} cores"


def measure(
    task_name: str, simulations: int, seed: int, steps: int, draws: int, observations: int
) -> dict[str, object]:
    """Simulate, train and compare; one row of the table."""
    import time

    task = ps.tasks.get(task_name)
    sims = ps.simulate(task.prior, task.simulate, simulations, seed=seed)
    posterior = ps.fit(sims.theta, sims.x, prior=task.prior, steps=steps, seed=seed)
    scores, seconds = [], 0.0
    for i in range(1, observations + 1):
        x = task.observation(i)
        started = time.perf_counter()
        samples = posterior.sample((draws,), x=x, seed=seed).numpy()
        seconds += time.perf_counter() - started
        reference = task.reference_posterior(x, draws, np.random.default_rng([seed, i]))
        scores.append(ps.metrics.c2st(samples, reference))
        print(f"{task_name} {simulations} seed {seed}: observation {i}: {scores[-1]:.3f}", flush=True)
    return {
        "task": task_name,
        "method": method(steps),
        "simulations": simulations,
        "seed": seed,
        "c2st": round(float(np.mean(scores)), 4),
        "c2st_sd": round(float(np.std(scores)), 4),
        "observations": observations,
        "train_seconds": round(posterior.info["seconds"], 1),
        "steps": posterior.info["steps"],
        "sample_seconds": round(seconds / observations, 3),
        "draws": draws,
        "version": ps.__version__,
        "machine": machine(),
        "date": date.today().isoformat(),
    }


def method(steps: int) -> str:
    return "one pass" if steps == 1 else f"{steps} steps"


def read() -> list[dict[str, str]]:
    path = RESULTS / "accuracy.csv"
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def write(rows: list[dict[str, str]]) -> None:
    RESULTS.mkdir(exist_ok=True)
    rows = sorted(rows, key=lambda row: (row["task"], row["method"], int(row["simulations"]), int(row["seed"])))
    with (RESULTS / "accuracy.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        writer.writeheader()
        writer.writerows(rows)
    (RESULTS / "accuracy.md").write_text(table(rows))


def table(rows: list[dict[str, str]]) -> str:
    """The results as Markdown, beside the published figures."""
    lines = [
        "# Accuracy",
        "",
        "Mean C2ST over the observations of each task: .5 is perfect, 1 is told apart every time. Published: the",
        "paper's energy score with m = 20, and sbibm's NPE. Written by `python -m benchmarks.accuracy`.",
        "",
        "| task | simulations | method | seed | C2ST (sd) | training | sampling | paper | NPE | date |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        published = PUBLISHED.get((row["task"], int(row["simulations"])), {})
        lines.append(
            f"| {row['task']} | {int(row['simulations']):,} | {row['method']} | {row['seed']} "
            f"| **{float(row['c2st']):.3f}** ({float(row['c2st_sd']):.3f}) "
            f"| {row['train_seconds']} s | {row['sample_seconds']} s / {int(row['draws']):,} "
            f"| {published.get('paper', '')} | {published.get('NPE', '')} | {row['date']} |"
        )
    machines = sorted({row["machine"] for row in rows})
    return "\n".join([*lines, "", f"Machine: {'; '.join(machines)}; training on one thread.", ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=["two_moons", "slcp"])
    parser.add_argument("--simulations", nargs="+", type=int, default=[10_000])
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds, from 0")
    parser.add_argument("--steps", type=int, default=1, help="refinement steps; 1 is the one-pass generator")
    parser.add_argument("--draws", type=int, default=10_000)
    parser.add_argument("--observations", type=int, default=10)
    options = parser.parse_args()
    for task in options.tasks:
        for simulations in options.simulations:
            for seed in range(options.seeds):
                key = (task, method(options.steps), str(simulations), str(seed))
                if any((row["task"], row["method"], row["simulations"], row["seed"]) == key for row in read()):
                    continue
                new = measure(task, simulations, seed, options.steps, options.draws, options.observations)
                write([*read(), {name: str(value) for name, value in new.items()}])
    print(table(read()))


if __name__ == "__main__":
    main()
