"""Sequential against amortised inference: C2ST on Two Moons (0.5: indistinguishable from the true posterior).

    python -m benchmarks.sequential --simulations 2000
    python -m benchmarks.sequential --simulations 1000 10000 --observations 1 --methods truncated weights

Runs the cells that are not yet in ``benchmarks/results/sequential.csv``, one at a time, and writes ``sequential.md``.
Simulations and training are kept in ``benchmarks/runs``: a cell that was interrupted continues. 10 000 draws are
compared with 10 000 of the exact posterior; one comparison has an error of about .01, so the mean of five is taken,
with fresh draws each. All are trained with the defaults of ``ps.fit_sequential`` and ``ps.fit``.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import date
from itertools import product
from typing import Any

import numpy as np

import propersbi as ps
from benchmarks.accuracy import RESULTS, RUNS, machine
from benchmarks.bench import lock
from propersbi.posterior import Posterior

TASK, ROUNDS, DRAWS, REPEATS = "two_moons", 4, 10_000, 5
METHODS: dict[str, Any] = {
    "amortised": None,
    "amortised, one pass": None,
    "truncated": ps.Truncated(),
    "truncated, 99 %": ps.Truncated(level=0.99),
    "weights": ps.ImportanceWeights(),
    "latent, rejection": ps.CorrectedLatent(ps.Rejection()),
    "latent, Metropolis": ps.CorrectedLatent(ps.Metropolis()),
    "uncorrected": ps.Uncorrected(),
}
PUBLISHED = {1000: 0.643, 10_000: 0.554}  # SNPE, mean of ten observations (Lueckmann et al. 2021)
FIELDS = ["simulations", "method", "observation", "seed", "c2st", "sd", "seconds", "steps", "machine", "date"]
PATH = RESULTS / "sequential.csv"


@dataclass(frozen=True)
class Cell:
    """One posterior for one observation."""

    simulations: int
    method: str
    observation: int
    seed: int

    def train(self) -> Posterior:
        """The posterior; what is in its folder is not done again."""
        task, correction, seed = ps.tasks.get(TASK), METHODS[self.method], self.seed
        x_o = task.observation(self.observation)
        name = self.method.replace(",", "").replace(" ", "-").replace("%", "percent")
        folder = RUNS / f"sequential-{self.simulations}-{name}{f'-seed{seed}' if seed else ''}"
        if correction is None:
            sims = ps.simulate(task.prior, task.simulate, self.simulations, seed=seed, progress=False)
            changes: dict[str, Any] = {"refinement_steps": 1} if self.method.endswith("one pass") else {}
            changes["emulated"] = 0  # as in the rounds
            posterior = ps.fit(sims.theta, sims.x, prior=task.prior, seed=seed, folder=folder, **changes)
            return posterior.set_default_x(x_o)
        return ps.fit_sequential(
            task.prior,
            task.simulate,
            x_o,
            simulations=self.simulations,
            rounds=ROUNDS,
            correction=correction,
            seed=seed,
            folder=folder.with_name(f"{folder.name}-{self.observation}"),
        )

    def measure(self) -> dict[str, str]:
        """A row of the table."""
        posterior = self.train()
        seconds = sum(part["seconds"] for part in posterior.info.get("rounds", [posterior.info]))
        scores = [c2st(posterior, self.observation, repeat) for repeat in range(REPEATS)]
        row = {**asdict(self), "c2st": f"{np.mean(scores):.4f}", "sd": f"{np.std(scores):.4f}"}
        row |= {"seconds": round(seconds), "steps": posterior.info["steps"], "machine": machine(), "date": date.today()}
        print(row, flush=True)
        return {name: str(value) for name, value in row.items()}


def c2st(posterior: Posterior, observation: int, repeat: int) -> float:
    """C2ST of fresh draws against exact ones."""
    task, rng = ps.tasks.get(TASK), np.random.default_rng([0, observation, repeat])
    exact = task.reference_posterior(task.observation(observation), DRAWS, rng)
    return ps.metrics.c2st(posterior.sample((DRAWS,), seed=repeat, show_progress_bars=False).numpy(), exact)


def read() -> list[dict[str, str]]:
    if not PATH.exists():
        return []
    with PATH.open(newline="") as file:
        return list(csv.DictReader(file))


def write(rows: list[dict[str, str]]) -> None:
    names = list(METHODS)
    rows = sorted(
        rows, key=lambda r: (int(r["simulations"]), names.index(r["method"]), int(r["observation"]), int(r["seed"]))
    )
    with PATH.open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        writer.writeheader()
        writer.writerows(rows)
    PATH.with_suffix(".md").write_text(table(rows))


def table(rows: list[dict[str, str]]) -> str:
    """The results as Markdown."""
    lines = [
        "# Sequential inference",
        "",
        f"C2ST on Two Moons, {ROUNDS} rounds, {DRAWS:,} against {DRAWS:,} draws, mean of {REPEATS}",
        "comparisons each (0.5: indistinguishable). All with the defaults: one sequential posterior per observation,",
        "in one pass with corrected latent variables; one amortised posterior for all. Times are rough: the machine",
        "did other work at the same time.",
        "Published: SNPE (Lueckmann et al. 2021), mean of ten observations, "
        + ", ".join(f"{value:.3f} at {n:,} simulations" for n, value in PUBLISHED.items())
        + ". Written by `python -m benchmarks.sequential`.",
        "",
        "| simulations | method | observation 1 | 2 | 3 | mean C2ST | seeds | training of one posterior |",
        "|---|---|---|---|---|---|---|---|",
        *_lines(rows),
    ]
    machines, dates = ({row[key] for row in rows} for key in ("machine", "date"))
    note = f"Machine: {'; '.join(sorted(machines))}, one thread. Dates: {', '.join(sorted(dates))}."
    return "\n".join([*lines, "", note, ""])


def _lines(rows: list[dict[str, str]]) -> Iterator[str]:
    for simulations, method in dict.fromkeys((row["simulations"], row["method"]) for row in rows):
        cell = [row for row in rows if (row["simulations"], row["method"]) == (simulations, method)]
        each = {o: [float(row["c2st"]) for row in cell if row["observation"] == o] for o in "123"}
        columns = " | ".join(f"{np.mean(scores):.3f}" if scores else "" for scores in each.values())
        mean = f"**{np.mean([np.mean(scores) for scores in each.values()]):.3f}**" if all(each.values()) else ""
        seconds, seeds = np.mean([float(row["seconds"]) for row in cell]), len({row["seed"] for row in cell})
        yield f"| {int(simulations):,} | {method} | {columns} | {mean} | {seeds} | {seconds:.0f} s |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--simulations", nargs="+", type=int, default=[2000])
    parser.add_argument("--observations", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    options = parser.parse_args()
    for key in product(options.simulations, options.methods, options.observations, options.seeds):
        cell = Cell(*key)
        if not any(all(row[name] == str(value) for name, value in asdict(cell).items()) for row in read()):
            row = cell.measure()
            with lock(RUNS / "sequential.lock"):  # other processes may measure other cells
                write([*read(), row])


if __name__ == "__main__":
    main()
