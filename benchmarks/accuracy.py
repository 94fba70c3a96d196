"""How close are the posteriors to the true ones? Mean C2ST over the ten observations of each task.

    python -m benchmarks.accuracy --tasks two_moons slcp --simulations 1000 10000 --seeds 1
    python -m benchmarks.accuracy --tasks two_moons slcp --methods "sbi NPE" "sbi NPSE"   # pip install propersbi[peers]

Runs what is not yet in ``benchmarks/results/accuracy.csv``, adds it there and writes ``accuracy.md``, which also has
published figures, and the README's table. Training, draws and scores are kept in ``benchmarks/runs``: a run that was
interrupted continues. Samples are compared as in sbibm: 10 000 draws against 10 000 of the reference posterior,
five-fold accuracy of a classifier.
"""

from __future__ import annotations

import argparse
import csv
import os
import platform
import time
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

import propersbi as ps
from benchmarks.peers import PEERS, Trained
from propersbi.simulation import Simulations
from propersbi.storage.files import read_json, write_json, write_with
from propersbi.tasks.task import Task

HERE = Path(__file__).parent
RESULTS, RUNS, README = HERE / "results", HERE / "runs", HERE.parent / "README.md"
FIELDS = ["task", "method", "simulations", "seed", "c2st", "c2st_sd", "observations", "train_seconds", "steps"]
FIELDS += ["sample_seconds", "draws", "version", "machine", "date"]
OURS: dict[str, dict[str, Any]] = {"default": {}, "one pass": {"refinement_steps": 1}}
METHODS = [*OURS, *PEERS]
PUBLISHED = ["energy score", "GATSBI", "NPE", "FMPE", "NPSE", "NPE-PFN"]


def machine() -> str:
    """The processor and the number of cores."""
    info = Path("/proc/cpuinfo")
    names = [line.split(":")[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")]
    return f"{names[0] if names else platform.processor()}, {os.cpu_count()} cores"


def train(method: str, task: Task, sims: Simulations, seed: int, folder: Path) -> Trained:
    """Train one method; ours continues from its folder."""
    if method in PEERS:
        return PEERS[method](task.prior, np.asarray(sims.theta), np.asarray(sims.x), seed)
    posterior = ps.fit(sims.theta, sims.x, prior=task.prior, seed=seed, folder=folder, **OURS[method])

    def sample(x: np.ndarray, n: int) -> np.ndarray:
        return posterior.sample((n,), x=x, seed=seed).numpy()

    return sample, posterior.info["seconds"], posterior.info["steps"]


def draw(
    method: str, task: Task, simulations: int, seed: int, draws: int, observations: int, folder: Path
) -> tuple[np.ndarray, dict[str, float]]:
    """The draws ``(observations, draws, dim theta)`` and their cost; made once and kept in the folder."""
    if (folder / "cost.json").exists():
        return np.load(folder / "draws.npy"), read_json(folder / "cost.json")
    sims = ps.simulate(task.prior, task.simulate, simulations, seed=seed)
    sample, train_seconds, steps = train(method, task, sims, seed, folder)
    sample(task.observation(1), 10)  # warm-up
    samples, seconds = [], 0.0
    for i in range(1, observations + 1):
        started = time.perf_counter()
        samples.append(sample(task.observation(i), draws))
        seconds += time.perf_counter() - started
    cost = {"train_seconds": train_seconds, "steps": steps, "sample_seconds": seconds / observations}
    write_with(folder / "draws.npy", lambda file: np.save(file, np.stack(samples)))
    write_json(folder / "cost.json", cost)
    return np.stack(samples), cost


def c2st_scores(
    task: Task, samples: Sequence[np.ndarray] | np.ndarray, draws: int, seed: int, folder: Path, name: str
) -> list[float]:
    """C2ST of the draws for each of the first observations; each score is saved in the folder at once."""
    done = folder / "scores.json"
    scores: list[float] = read_json(done) if done.exists() else []
    for i in range(len(scores) + 1, len(samples) + 1):
        reference = task.reference_posterior(task.observation(i), draws, np.random.default_rng([seed, i]))
        scores.append(ps.metrics.c2st(samples[i - 1], reference))
        write_json(done, scores)
        print(f"{name}: observation {i}: {scores[-1]:.3f}", flush=True)
    return scores


def measure(
    method: str, task_name: str, simulations: int, seed: int, draws: int, observations: int
) -> dict[str, object]:
    """Simulate, train and compare; one row of the table."""
    task = ps.tasks.get(task_name)
    folder = RUNS / f"{task_name}-{simulations}-{seed}-{method.replace(' ', '-')}-{observations}x{draws}"
    samples, cost = draw(method, task, simulations, seed, draws, observations, folder)
    scores = c2st_scores(task, samples, draws, seed, folder, f"{task_name} {simulations} {method}, seed {seed}")
    return {
        "task": task_name,
        "method": method,
        "simulations": simulations,
        "seed": seed,
        "c2st": round(float(np.mean(scores)), 4),
        "c2st_sd": round(float(np.std(scores)), 4),
        "observations": observations,
        "train_seconds": round(cost["train_seconds"], 1),
        "steps": cost["steps"],
        "sample_seconds": round(cost["sample_seconds"], 3),
        "draws": draws,
        "version": ps.__version__,
        "machine": machine(),
        "date": date.today().isoformat(),
    }


def read(path: Path = RESULTS / "accuracy.csv") -> list[dict[str, str]]:
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def write(rows: list[dict[str, str]]) -> None:
    RESULTS.mkdir(exist_ok=True)
    rows = sorted(
        rows,
        key=lambda row: (row["task"], int(row["simulations"]), METHODS.index(row["method"]), int(row["seed"])),
    )
    with (RESULTS / "accuracy.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        writer.writeheader()
        writer.writerows(rows)
    (RESULTS / "accuracy.md").write_text(table(rows))
    before, _, after = between(README.read_text(), "accuracy")
    README.write_text(before + brief(rows) + after)


def table(rows: list[dict[str, str]]) -> str:
    """The results as Markdown, beside the published figures."""
    columns = ["task", "simulations", "method", "seed", "C2ST", "training", "10,000 draws", *PUBLISHED, "difference"]
    lines = [
        "# Accuracy",
        "",
        "Mean C2ST over the observations of each task, and in brackets the standard deviation over them. 0.5:",
        "indistinguishable from the true posterior; 1.0: always distinguished. `default` is `ps.fit` as it is, `one",
        "pass` has `refinement_steps=1`; sbi's methods were trained here with their own defaults. The last columns are",
        "published figures ([sources](../published_c2st.csv)) and the difference to the best of them. Written by",
        "`python -m benchmarks.accuracy`.",
        "",
        f"| {' | '.join(columns)} |",
        "|" + "---|" * len(columns),
    ]
    published = read(HERE / "published_c2st.csv")
    for row in rows:
        figures = {
            other["method"]: float(other["c2st"])
            for other in published
            if (other["task"], other["simulations"]) == (row["task"], row["simulations"])
        }
        best = f"{float(row['c2st']) - min(figures.values()):+.3f}" if figures else ""
        bold = "**" if figures and float(row["c2st"]) <= min(figures.values()) else ""
        lines.append(
            f"| {row['task']} | {int(row['simulations']):,} | {row['method']} | {row['seed']} "
            f"| {bold}{float(row['c2st']):.3f}{bold} ({float(row['c2st_sd']):.3f}) "
            f"| {float(row['train_seconds']):.0f} s "
            f"| {float(row['sample_seconds']) * 10_000 / int(row['draws']):.2f} s "
            f"| {' | '.join(f'{figures[name]:.3f}' if name in figures else '' for name in PUBLISHED)} | {best} |"
        )
    machines = sorted({row["machine"] for row in rows})
    dates = sorted({row["date"] for row in rows})
    note = f"Machine: {'; '.join(machines)}, one thread, often with the other core busy. Dates: {', '.join(dates)}."
    return "\n".join([*lines, "", note, ""])


def between(text: str, name: str) -> list[str]:
    """A page up to the markers of this name, the text between them, and the rest."""
    first, last = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    before, rest = text.split(first)
    middle, after = rest.split(last)
    return [before + first, middle, last + after]


def brief(rows: list[dict[str, str]]) -> str:
    """The README's table: seed 0 of the defaults beside sbi's methods trained here, and published figures."""
    peers, others = list(PEERS), [name for name in PUBLISHED if name != "GATSBI"]
    columns = ["task", "simulations", "propersbi", "training", *(f"{name}, here" for name in peers), *others]
    lines = [f"| {' | '.join(columns)} |", "|" + "---|" * len(columns)]
    measured = {(row["task"], row["simulations"], row["method"]): row for row in rows if row["seed"] == "0"}
    published = {(row["task"], row["simulations"], row["method"]): row for row in read(HERE / "published_c2st.csv")}
    for (task, simulations, method), row in measured.items():
        if method == "default":
            cells = [measured.get((task, simulations, name)) for name in peers]
            cells += [published.get((task, simulations, name)) for name in others]
            figures = [f"{float(cell['c2st']):.3f}".removeprefix("0") if cell else "" for cell in (row, *cells)]
            seconds = f"{float(row['train_seconds']):.0f} s"
            lowest = min(figure for figure in figures if figure)
            figures = [f"**{figure}**" if figure == lowest else figure for figure in figures]  # the best of all methods
            columns = [task, f"{int(simulations):,}", figures[0], seconds, *figures[1:]]
            lines.append(f"| {' | '.join(columns)} |")
    return "\n".join([*lines, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=["two_moons", "slcp"])
    parser.add_argument("--simulations", nargs="+", type=int, default=[10_000])
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds, from 0")
    parser.add_argument("--methods", nargs="+", default=["default"], choices=METHODS)
    parser.add_argument("--draws", type=int, default=10_000)
    parser.add_argument("--observations", type=int, default=10)
    options = parser.parse_args()
    for task in options.tasks:
        for simulations in options.simulations:
            for method in options.methods:
                for seed in range(options.seeds):
                    key = (task, method, str(simulations), str(seed))
                    if any((row["task"], row["method"], row["simulations"], row["seed"]) == key for row in read()):
                        continue
                    new = measure(method, task, simulations, seed, options.draws, options.observations)
                    write([*read(), {name: str(value) for name, value in new.items()}])
    print(table(read()))


if __name__ == "__main__":
    main()
