"""How many steps, and how much time, does each optimiser need? Held-out scores of AdamW and SOAP.

    python -m benchmarks.optimizers          # takes ten minutes; writes results/optimizers.md

The default network is trained on 100 000 simulations of some tasks for several numbers of steps, by each optimiser,
one after the other on one thread: the same learning rate, warm-up, batches and held-out pairs, without early stopping.
"""

from __future__ import annotations

import argparse
import time
from datetime import date
from typing import Any

import torch

import propersbi as ps
from benchmarks.accuracy import RESULTS, machine
from propersbi.storage.files import write_text

SIMULATIONS, SEED, STEPS, OPTIMIZERS = 100_000, 0, (1000, 2000, 4000), {"adamw": "AdamW", "soap": "SOAP"}


def trained(task_name: str, optimizer: str, steps: int) -> tuple[float, float]:
    """The held-out score at the end of a training, and its CPU seconds."""
    task = ps.tasks.get(task_name)
    sims = ps.simulate(task.prior, task.simulate, SIMULATIONS, seed=SEED, progress=False)
    options: dict[str, Any] = {"max_steps": steps, "settle": None, "stopping": (), "validate_every": steps}
    started = time.process_time()
    posterior = ps.fit(sims.theta, sims.x, prior=task.prior, seed=SEED, progress=False, optimizer=optimizer, **options)
    assert posterior.history is not None
    return posterior.history.validation["score"][-1], time.process_time() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=["two_moons", "slcp"])
    tasks = parser.parse_args().tasks
    torch.set_num_threads(1)
    lines = [
        "# Optimisers",
        "",
        f"Held-out scores (lower is better) after so many steps on {SIMULATIONS:,} simulations, and CPU seconds of the",
        "training. Only the optimiser and the number of steps differ. Written by `python -m benchmarks.optimizers`.",
        "",
        "| task | steps | " + " | ".join(f"{name} | seconds" for name in OPTIMIZERS.values()) + " |",
        "|---" * (2 + 2 * len(OPTIMIZERS)) + "|",
    ]
    for task in tasks:
        for steps in STEPS:
            found = [trained(task, name, steps) for name in OPTIMIZERS]
            best = min(score for score, _ in found)
            cells = [f"{_bold(f'{score:.4f}', score == best)} | {seconds:.0f}" for score, seconds in found]
            lines.append(f"| {task} | {steps:,} | {' | '.join(cells)} |")
            print(lines[-1], flush=True)
    lines += [
        "",
        f"Machine: {machine()}, often with the other core busy. Date: {date.today().isoformat()}. Seed {SEED}.",
    ]
    write_text(RESULTS / "optimizers.md", "\n".join([*lines, ""]))


def _bold(text: str, best: bool) -> str:
    return f"**{text}**" if best else text


if __name__ == "__main__":
    main()
