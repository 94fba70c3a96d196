"""How close are the posteriors to the true ones? Mean C2ST over the ten observations of each task.

    python -m benchmarks.accuracy --tasks two_moons slcp --simulations 1000 10000 --seeds 1
    python -m benchmarks.accuracy --tasks two_moons slcp --methods "sbi NPE" "sbi NPSE"   # pip install propersbi[peers]

Runs what is not yet in ``benchmarks/results/accuracy.csv``, or was measured with an earlier version, adds it there and
writes ``accuracy.md``, which also has published figures, and the README's table. Training, draws and scores are kept in
``benchmarks/runs``: a run that was interrupted continues. Samples are compared as in sbibm: 10 000 draws against 10 000
of the reference posterior, five-fold accuracy of a classifier.
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
FIELDS = ["task", "method", "simulations", "seed", "c2st", "c2st_sd", "observations", "train_seconds", "cpu_seconds"]
FIELDS += ["steps", "sample_seconds", "draws", "version", "machine", "date"]
ALONE = "simulations alone"
OURS: dict[str, dict[str, Any]] = {
    "default": {},
    ALONE: {"emulated": 0},
    "emulated": {"emulated": 100_000},
    "AdamW": {"optimizer": "adamw"},
    "one pass": {"refinement_steps": 1},
}
METHODS = [*OURS, *PEERS]
PUBLISHED = ["energy score", "GATSBI", "NPE", "NLE", "FMPE", "NPSE", "Simformer", "Simformer, structure given"]
PUBLISHED += ["NPE-PFN", "filtered NPE-PFN", "GenSBI"]
IN_README = ["energy score", "NPE", "FMPE", "NPSE"]  # beside the best of all
READ_OFF = "≈"  # marks figures that were read off a plot
EARLIER = "†"  # marks rows that were measured with the defaults of an earlier version


def machine() -> str:
    """The processor, with family and model where its name does not tell it from others, and the number of cores."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    facts = dict(reversed([[part.strip() for part in line.split(":", 1)] for line in lines if ":" in line]))
    kind = f" family {facts['cpu family']} model {facts['model']}" if "cpu family" in facts else ""
    return f"{facts.get('model name', platform.processor())}{kind}, {os.cpu_count()} cores"


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
) -> tuple[np.ndarray, dict[str, Any]]:
    """The draws ``(observations, draws, dim theta)`` and their cost; made once and kept in the folder."""
    if (folder / "cost.json").exists():
        return np.load(folder / "draws.npy"), read_json(folder / "cost.json")
    sims = ps.simulate(task.prior, task.simulate, simulations, seed=seed)
    resumed, started = (folder / "checkpoint.ckpt").exists(), time.process_time()
    sample, train_seconds, steps = train(method, task, sims, seed, folder)
    cpu = "" if resumed else round(time.process_time() - started, 1)
    sample(task.observation(1), 10)  # warm-up
    samples, seconds = [], 0.0
    for i in range(1, observations + 1):
        started = time.perf_counter()
        samples.append(sample(task.observation(i), draws))
        seconds += time.perf_counter() - started
    cost = {"train_seconds": train_seconds, "cpu_seconds": cpu, "steps": steps}
    cost["sample_seconds"] = seconds / observations
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
        "cpu_seconds": cost["cpu_seconds"],
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
        "indistinguishable from the true posterior; 1.0: always distinguished. `default` is `ps.fit` as it is: up to",
        "30,000 simulations of data of fewer than 50 numbers (not counting those that it ignores), with 100,000 pairs",
        "of an emulator besides (training includes the emulator's). `simulations alone` has `emulated=0`, `emulated`",
        'has them where they are not the default, `AdamW` has `optimizer="adamw"`, and `one pass` has',
        "`refinement_steps=1`; sbi's methods have their own defaults. The last columns are published figures",
        f"([sources](../published_c2st.csv); {READ_OFF}: read off a plot) and the difference to the best of them.",
        "Training is in seconds of the processor, or of the clock",
        "where those were not recorded.",
        f"{EARLIER}: measured with the defaults of an earlier version. Written by `python -m benchmarks.accuracy`.",
        "",
        f"| {' | '.join(columns)} |",
        "|" + "---|" * len(columns),
    ]
    for row in rows:
        figures = published(row)
        lowest = min((float(other["c2st"]) for other in figures.values()), default=None)
        best = "" if lowest is None else f"{float(row['c2st']) - lowest:+.3f}"
        bold = "**" if lowest is not None and round(float(row["c2st"]), 3) <= lowest else ""
        lines.append(
            f"| {row['task']} | {int(row['simulations']):,} | {row['method']}{mark(row)} | {row['seed']} "
            f"| {bold}{float(row['c2st']):.3f}{bold} ({float(row['c2st_sd']):.3f}) "
            f"| {training(row)} "
            f"| {float(row['sample_seconds']) * 10_000 / int(row['draws']):.2f} s "
            f"| {' | '.join(short(figures.get(name)) for name in PUBLISHED)} | {best} |"
        )
    machines = sorted({row["machine"] for row in rows})
    dates = sorted({row["date"] for row in rows})
    note = f"Machine: {'; '.join(machines)}, one thread, often with the other core busy. Dates: {', '.join(dates)}."
    return "\n".join([*lines, "", note, ""])


def published(row: dict[str, str]) -> dict[str, dict[str, str]]:
    """The published figures for the task and simulations of a row, by method."""
    key = (row["task"], row["simulations"])
    return {
        other["method"]: other
        for other in read(HERE / "published_c2st.csv")
        if (other["task"], other["simulations"]) == key
    }


def short(row: dict[str, str] | None) -> str:
    """A figure without its leading zero, marked if it was read off a plot."""
    if row is None:
        return ""
    read_off = READ_OFF if "read off" in row.get("source", "") else ""
    return read_off + f"{float(row['c2st']):.3f}".removeprefix("0")


def mark(row: dict[str, str]) -> str:
    """Whether our own row was measured with the defaults of an earlier version."""
    return EARLIER if row["method"] in OURS and row["version"] != ps.__version__ else ""


def training(row: dict[str, str]) -> str:
    """The time of training: of the processor where it is known, else of the clock."""
    return (
        f"{float(row['cpu_seconds']):.0f} s" if row["cpu_seconds"] else f"{float(row['train_seconds']):.0f} s by clock"
    )


def between(text: str, name: str) -> list[str]:
    """A page up to the markers of this name, the text between them, and the rest."""
    first, last = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    before, rest = text.split(first)
    middle, after = rest.split(last)
    return [before + first, middle, last + after]


def brief(rows: list[dict[str, str]]) -> str:
    """The README's table: the defaults, averaged over seeds, sbi's methods trained here, and published figures."""
    peers = list(PEERS)
    columns = ["task", "simulations", "propersbi", "training", "simulations alone", "training"]
    columns += [*(f"{name}, here" for name in peers), *IN_README]
    columns += ["best published"]
    lines = [f"| {' | '.join(columns)} |", "|" + "---|" * len(columns)]
    measured = over_seeds(rows)
    for (task, simulations, method), row in measured.items():
        if method == "default":
            figures = published(row)
            further = measured.get((task, simulations, ALONE))
            others = [further, *(measured.get((task, simulations, name)) for name in peers)]
            others += [figures.get(name) for name in IN_README]
            lowest = min([float(other["c2st"]) for other in figures.values()], default=1.0)
            best = [other for other in figures.values() if float(other["c2st"]) == lowest]
            cells = [short(row), *(short(other) for other in others), short(best[0] if best else None)]
            least = min(float(cell.strip(READ_OFF)) for cell in cells if cell)
            cells = [f"**{cell}**" if cell and float(cell.strip(READ_OFF)) == least else cell for cell in cells]
            cells[-1] += f" {', '.join(other['method'] for other in best)}"
            own = [f"{cells[0]}{mark(row)}{several(row)}", training(row)]
            own += ["", ""] if further is None else [f"{cells[1]}{mark(further)}{several(further)}", training(further)]
            lines.append(f"| {task} | {int(simulations):,} | {' | '.join([*own, *cells[2:]])} |")
    return "\n".join([*lines, ""])


def several(row: dict[str, str]) -> str:
    """The number of seeds, if there are several."""
    return f" ({row['seeds']} seeds)" if row["seeds"] != "1" else ""


def over_seeds(rows: list[dict[str, str]]) -> dict[tuple[str, ...], dict[str, str]]:
    """Rows by task, simulations and method, averaged over the seeds that were measured with the version of seed 0."""
    groups: dict[tuple[str, ...], list[dict[str, str]]] = {}
    for row in sorted(rows, key=lambda row: int(row["seed"])):
        groups.setdefault((row["task"], row["simulations"], row["method"]), []).append(row)
    found = {}
    for key, group in groups.items():
        alike = [row for row in group if row["version"] == group[0]["version"]]
        means = {name: mean_of([row[name] for row in alike]) for name in ("c2st", "train_seconds", "cpu_seconds")}
        found[key] = {**group[0], **means, "seeds": str(len(alike))}
    return found


def mean_of(values: list[str]) -> str:
    """The mean of numbers as text, empty if one of them is.

    >>> mean_of(["1.0", "2.0"]), mean_of(["1.0", ""])
    ('1.5', '')
    """
    return str(float(np.mean([float(value) for value in values]))) if all(values) else ""


def _key(row: dict[str, str]) -> tuple[str, ...]:
    return row["task"], row["method"], row["simulations"], row["seed"]


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
                    if any(_key(row) == key and not mark(row) for row in read()):
                        continue
                    new = measure(method, task, simulations, seed, options.draws, options.observations)
                    others = [row for row in read() if _key(row) != key]
                    write([*others, {name: str(value) for name, value in new.items()}])
    print(table(read()))


if __name__ == "__main__":
    main()
