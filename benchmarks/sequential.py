"""What rounds near the observation bring: C2ST on Two Moons, sequential against amortised (.5 is perfect).

    python -m benchmarks.sequential --simulations 2000
    python -m benchmarks.sequential --simulations 1000 10000 --observations 1 --methods truncated weights

Runs the cells that are not yet in ``benchmarks/results/sequential.csv``, one at a time, and writes ``sequential.md``
beside it. Simulations and training are kept in ``benchmarks/runs``: a cell that was cut off continues. 10 000 draws
against 10 000 of the exact posterior; the classifier of one comparison is good to about .01 only, so it is the mean of
five, with fresh draws each. All are trained by the defaults of ``ps.fit_sequential`` and ``ps.fit``.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterator
from datetime import date
from typing import Any

import numpy as np

import propersbi as ps
from benchmarks.accuracy import RESULTS, RUNS, machine
from benchmarks.bench import locked
from propersbi.latent import Metropolis, Rejection

TASK, ROUNDS, DRAWS, REPEATS, SEED = "two_moons", 4, 10_000, 5, 0
METHODS: dict[str, Any] = {
    "amortised": None,
    "truncated": ps.Truncated(),
    "truncated, 99 %": ps.Truncated(level=0.99),
    "weights": ps.ImportanceWeights(),
    "latent, rejection": ps.CorrectedLatent(Rejection()),
    "latent, Metropolis": ps.CorrectedLatent(Metropolis()),
    "uncorrected": ps.Uncorrected(),
}
PUBLISHED = {1000: 0.643, 10_000: 0.554}  # SNPE, mean of ten observations (Lueckmann et al. 2021)
FIELDS = ["method", "simulations", "observation", "c2st", "sd", "seconds", "steps", "machine", "date"]
PATH = RESULTS / "sequential.csv"


def train(method: str, simulations: int, observation: int) -> ps.Posterior:
    """The posterior of one cell; whatever of it is in its folder is not done again."""
    task, correction = ps.tasks.get(TASK), METHODS[method]
    x_o = task.observation(observation)
    name = f"sequential-{simulations}-{method.replace(',', '').replace(' ', '-').replace('%', 'percent')}"
    if correction is None:
        sims = ps.simulate(task.prior, task.simulate, simulations, seed=SEED, progress=False)
        posterior = ps.fit(sims.theta, sims.x, prior=task.prior, seed=SEED, folder=RUNS / name)
        return posterior.set_default_x(x_o)
    return ps.fit_sequential(
        task.prior,
        task.simulate,
        x_o,
        simulations=simulations,
        rounds=ROUNDS,
        correction=correction,
        seed=SEED,
        folder=RUNS / f"{name}-{observation}",
    )


def measure(method: str, simulations: int, observation: int) -> dict[str, str]:
    """One row of the table."""
    posterior = train(method, simulations, observation)
    seconds = sum(part["seconds"] for part in posterior.info.get("rounds", [posterior.info]))
    scores = [told_apart(posterior, observation, repeat) for repeat in range(REPEATS)]
    row = {"method": method, "simulations": simulations, "observation": observation}
    row |= {"c2st": round(np.mean(scores), 4), "sd": round(np.std(scores), 4)}
    row |= {"seconds": round(seconds), "steps": posterior.info["steps"]}
    print(row, flush=True)
    return {name: str(value) for name, value in {**row, "machine": machine(), "date": date.today()}.items()}


def told_apart(posterior: ps.Posterior, observation: int, repeat: int) -> float:
    """How well a classifier tells draws from exact ones."""
    task, rng = ps.tasks.get(TASK), np.random.default_rng([SEED, observation, repeat])
    exact = task.reference_posterior(task.observation(observation), DRAWS, rng)
    draws = posterior.sample((DRAWS,), seed=SEED + repeat, show_progress_bars=False).numpy()
    return ps.metrics.c2st(draws, exact)


def read() -> list[dict[str, str]]:
    if not PATH.exists():
        return []
    with PATH.open(newline="") as file:
        return list(csv.DictReader(file))


def write(rows: list[dict[str, str]]) -> None:
    names = list(METHODS)
    rows = sorted(rows, key=lambda r: (int(r["simulations"]), names.index(r["method"]), int(r["observation"])))
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
        f"C2ST on Two Moons, {ROUNDS} rounds, seed {SEED}, {DRAWS:,} against {DRAWS:,} draws, mean of {REPEATS}",
        "comparisons each: .5 is perfect. All by the defaults: sequential posteriors one for each observation, those",
        "with corrected latent variables in one pass; the amortised one for all. Other work ran beside: rough times.",
        "Published: SNPE (Lueckmann et al. 2021), mean of ten observations, "
        + ", ".join(f"{value:.3f} at {n:,} simulations" for n, value in PUBLISHED.items())
        + ". Written by `python -m benchmarks.sequential`.",
        "",
        "| simulations | method | mean C2ST | by observation | training of one posterior |",
        "|---|---|---|---|---|",
        *_lines(rows),
    ]
    machines, dates = ({row[key] for row in rows} for key in ("machine", "date"))
    made = f"Machine: {'; '.join(sorted(machines))}, one thread. Dates: {', '.join(sorted(dates))}."
    return "\n".join([*lines, "", made, ""])


def _lines(rows: list[dict[str, str]]) -> Iterator[str]:
    for simulations, method in dict.fromkeys((int(row["simulations"]), row["method"]) for row in rows):
        cell = [row for row in rows if (int(row["simulations"]), row["method"]) == (simulations, method)]
        each = ", ".join(f"{row['observation']}: {float(row['c2st']):.3f}" for row in cell)
        mean, seconds = (np.mean([float(row[key]) for row in cell]) for key in ("c2st", "seconds"))
        yield f"| {simulations:,} | {method} | **{mean:.3f}** | {each} | {seconds:.0f} s |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--simulations", nargs="+", type=int, default=[2000])
    parser.add_argument("--observations", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    options = parser.parse_args()
    for simulations in options.simulations:
        for method in options.methods:
            for observation in options.observations:
                key = (method, str(simulations), str(observation))
                if not any((row["method"], row["simulations"], row["observation"]) == key for row in read()):
                    found = measure(method, simulations, observation)
                    with locked(RUNS / "sequential.lock"):  # others may measure other cells
                        write([*read(), found])


if __name__ == "__main__":
    main()
