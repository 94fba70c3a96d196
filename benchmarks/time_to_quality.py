"""C2ST against the CPU seconds of training: propersbi, sbi and BayesFlow on the same simulations and core.

    pip install propersbi[peers]
    python -m benchmarks.time_to_quality                      # all that is not in results/time_to_quality.csv yet
    python -m benchmarks.time_to_quality --tasks slcp --methods propersbi "sbi NPE"

Each method is trained anew, by its defaults, for each number of seconds: propersbi with that time limit by the clock,
at which its learning rate has fallen to zero; the methods of sbi until the first epoch after so many seconds of the
processor, or until they end by themselves; BayesFlow's flow matching for as many epochs as take so long, since its
learning rate falls to zero at the last one. C2ST is the mean over observations 1 to 3, with 2 000 draws each.
"""

from __future__ import annotations

import argparse
import csv
import os
import time
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import torch

import propersbi as ps
from benchmarks.accuracy import machine
from benchmarks.peers import torch_prior
from propersbi.plots.style import label, legend_above, panels
from propersbi.storage.files import write_with
from propersbi.tasks.task import Task

RESULTS = Path(__file__).parent / "results"
TABLE = RESULTS / "time_to_quality.csv"
FIELDS = ["task", "method", "asked_seconds", "cpu_seconds", "c2st", "sample_seconds", "version", "machine", "date"]
SIMULATIONS, DRAWS, OBSERVATIONS, SEED = 10_000, 2000, 3, 0
SECONDS = (10, 30, 90)
Draw = Callable[[np.ndarray, int], np.ndarray]
Point = tuple[int, float, Draw]  # the seconds asked for, those used so far, and what draws


def ours(task: Task, theta: np.ndarray, x: np.ndarray, seconds: tuple[int, ...]) -> Iterator[Point]:
    """One training for each number of seconds."""
    for limit in seconds:
        started = time.process_time()
        posterior = ps.fit(theta, x, prior=task.prior, seed=SEED, time_limit=float(limit), progress=False)
        used = time.process_time() - started

        def draw(x: np.ndarray, n: int, posterior: ps.Posterior = posterior) -> np.ndarray:
            return posterior.sample((n,), x=x, seed=SEED).numpy()

        yield limit, used, draw


def sbi(name: str) -> Callable[..., Iterator[Point]]:
    """A method of sbi with its defaults, one training for each number of seconds."""

    def points(task: Task, theta: np.ndarray, x: np.ndarray, seconds: tuple[int, ...]) -> Iterator[Point]:
        import sbi.inference

        for limit in seconds:
            torch.manual_seed(SEED)
            options = {"density_estimator": "nsf"} if name == "NPE" else {}
            method = getattr(sbi.inference, name)(prior=torch_prior(task.prior), **options)
            method.append_simulations(torch.as_tensor(theta).float(), torch.as_tensor(x).float())
            started = time.process_time()
            method._converged = _until(started + limit, method._converged)
            method.train()
            yield limit, time.process_time() - started, _drawing(method.build_posterior())

    return points


def _until(end: float, converged: Callable[[int, int], bool]) -> Callable[[int, int], bool]:
    """The check of sbi after each epoch, without patience at the end: it then gives the network its best weights."""

    def check(epoch: int, patience: int) -> bool:
        return converged(epoch, patience if time.process_time() < end else 0)

    return check


def _drawing(posterior: Any) -> Draw:
    def draw(x: np.ndarray, n: int) -> np.ndarray:
        return np.asarray(posterior.sample((n,), x=torch.as_tensor(x).float(), show_progress_bars=False))

    return draw


def flow_matching(task: Task, theta: np.ndarray, x: np.ndarray, seconds: tuple[int, ...]) -> Iterator[Point]:  # noqa: ARG001
    """BayesFlow's flow matching with its defaults, on torch; one training for each number of seconds."""
    os.environ.setdefault("KERAS_BACKEND", "torch")
    import bayesflow
    import keras

    data = {"theta": theta.astype(np.float32), "x": x.astype(np.float32)}

    def train(epochs: int) -> tuple[Any, float]:
        keras.utils.set_random_seed(SEED)
        network = bayesflow.networks.FlowMatching()
        names: dict[str, Any] = {"inference_variables": "theta", "inference_conditions": "x", "standardize": "all"}
        workflow = bayesflow.BasicWorkflow(inference_network=network, **names)
        started = time.process_time()
        workflow.fit_offline(data, epochs=epochs, verbose=0)
        return workflow, time.process_time() - started

    epoch = train(2)[1] / 2
    for limit in seconds:
        workflow, used = train(max(1, round(limit / epoch)))

        def draw(x: np.ndarray, n: int, workflow: Any = workflow) -> np.ndarray:
            draws = workflow.sample(num_samples=n, conditions={"x": x[None].astype(np.float32)})
            return np.asarray(draws["theta"])[0]

        yield limit, used, draw


METHODS: dict[str, Callable[..., Iterator[Point]]] = {
    "propersbi": ours,
    "sbi NPE": sbi("NPE"),
    "sbi FMPE": sbi("FMPE"),
    "sbi NPSE": sbi("NPSE"),
    "BayesFlow FM": flow_matching,
}


def measure(task: Task, draw: Draw) -> tuple[float, float]:
    """The mean C2ST over the first observations, and the seconds of one sampling."""
    scores, seconds = [], 0.0
    for i in range(1, OBSERVATIONS + 1):
        x = task.observation(i)
        started = time.process_time()
        samples = draw(x, DRAWS)
        seconds += time.process_time() - started
        reference = task.reference_posterior(x, DRAWS, np.random.default_rng([SEED, i]))
        scores.append(ps.metrics.c2st(samples, reference))
    return float(np.mean(scores)), seconds / OBSERVATIONS


def run(task_name: str, method: str, seconds: tuple[int, ...]) -> list[dict[str, Any]]:
    """The points of one method on one task."""
    task = ps.tasks.get(task_name)
    sims = ps.simulate(task.prior, task.simulate, SIMULATIONS, seed=SEED, progress=False)
    rows = []
    for asked, used, draw in METHODS[method](task, np.asarray(sims.theta), np.asarray(sims.x), seconds):
        c2st, sampling = measure(task, draw)
        row = {"task": task_name, "method": method, "asked_seconds": asked, "cpu_seconds": round(used, 1)}
        row |= {"c2st": round(c2st, 4), "sample_seconds": round(sampling, 3), "version": ps.__version__}
        rows.append({**row, "machine": machine(), "date": date.today().isoformat()})
        print(*rows[-1].values(), flush=True)
    return rows


def read() -> list[dict[str, str]]:
    if not TABLE.exists():
        return []
    with TABLE.open(newline="") as file:
        return list(csv.DictReader(file))


def write(rows: list[dict[str, Any]]) -> None:
    """The rows, the table made of them and the figure."""
    rows = sorted(rows, key=lambda row: (row["task"], list(METHODS).index(row["method"]), int(row["asked_seconds"])))
    with TABLE.open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    write_with(RESULTS / "time_to_quality.md", lambda file: file.write(table(rows).encode()))
    figure(rows)


def table(rows: list[dict[str, Any]]) -> str:
    """Each point with the seconds it took, the lowest C2ST of a number of seconds in bold."""
    setting = f"observations 1 to {OBSERVATIONS}, {DRAWS:,} draws, {SIMULATIONS:,} simulations, seed {SEED}"
    lines = ["# C2ST against seconds of training", "", "Written by `python -m benchmarks.time_to_quality`.", ""]
    lines += [f"Mean C2ST ({setting}) and, in parentheses, the CPU seconds that the training used;"]
    lines += ["the limit of propersbi is by the clock."]
    for task in dict.fromkeys(row["task"] for row in rows):
        mine = [row for row in rows if row["task"] == task]
        asked = sorted({int(row["asked_seconds"]) for row in mine})
        methods = list(dict.fromkeys(row["method"] for row in mine))
        points = {method: [_last(mine, method, seconds) for seconds in asked] for method in methods}
        best = [min(float(row["c2st"]) for row in column) for column in zip(*points.values(), strict=True)]
        lines += ["", f"## {task}", "", "| method | " + " | ".join(f"{s} s" for s in asked) + f" | {DRAWS:,} draws |"]
        lines += ["|---" * (len(asked) + 2) + "|"]
        for method, found in points.items():
            cells = [_cell(row, least) for row, least in zip(found, best, strict=True)]
            lines.append(f"| {method} | " + " | ".join(cells) + f" | {float(found[-1]['sample_seconds']):.2f} s |")
    days = ", ".join(sorted({row["date"] for row in rows}))
    lines += ["", f"Measured on {rows[-1]['machine']}, {days}." if rows else ""]
    return "\n".join(lines) + "\n"


def _last(rows: list[dict[str, Any]], method: str, seconds: int) -> dict[str, Any]:
    """The last point of a method within so many seconds."""
    return [row for row in rows if row["method"] == method and int(row["asked_seconds"]) <= seconds][-1]


def _cell(row: dict[str, Any], least: float) -> str:
    value = f"{float(row['c2st']):.3f}"
    return (f"**{value}**" if float(row["c2st"]) <= least else value) + f" ({float(row['cpu_seconds']):.0f})"


def figure(rows: list[dict[str, Any]]) -> None:
    """A panel for each task."""
    tasks = list(dict.fromkeys(row["task"] for row in rows))
    figure, axes = panels(len(tasks), shape=0.75)
    for axis, task in zip(axes, tasks, strict=True):
        for method in METHODS:
            points = [row for row in rows if row["task"] == task and row["method"] == method]
            seconds = [float(row["cpu_seconds"]) for row in points]
            axis.plot(seconds, [float(row["c2st"]) for row in points], marker="o", label=method)
        axis.set(xscale="log", ylim=(0.48, 1.0))
        axis.set_xticks(SECONDS, [str(seconds) for seconds in SECONDS], minor=False)
        axis.minorticks_off()
        label(axis, x="CPU seconds of training", y="mean C2ST (0.5 is exact)", title=task)
    legend_above(figure, axes[0], inside=True)
    figure.savefig(RESULTS / "figures" / "time_to_quality.png", dpi=150)


def main() -> None:
    """Measure what is asked for, or missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=["two_moons", "slcp"])
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--seconds", nargs="+", type=int, default=list(SECONDS))
    asked = parser.parse_args()
    torch.set_num_threads(1)
    for task in asked.tasks:
        for method in asked.methods:
            if not any(row["task"] == task and row["method"] == method for row in read()):
                found = run(task, method, tuple(asked.seconds))
                write([*read(), *found])


if __name__ == "__main__":
    main()
