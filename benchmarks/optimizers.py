"""How many steps, and how much time, does each optimiser need? Held-out scores of AdamW and SOAP.

    python -m benchmarks.optimizers          # takes six minutes; writes results/optimizers.md

The default network is trained on 100 000 simulations of some tasks for several numbers of steps, by each optimiser,
one after the other on one thread: the same learning rate, warm-up and held-out pairs, without early stopping. SOAP also
with batches of twice the size and half the steps, as by default.
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

SIMULATIONS, SEED, STEPS, BATCH = 100_000, 0, (1000, 2000, 4000), 256
WAYS = {"AdamW": ("adamw", 1), "SOAP": ("soap", 1), "SOAP, batches of 512, half the steps": ("soap", 2)}


def trained(task_name: str, optimizer: str, larger: int, steps: int) -> tuple[float, float]:
    """The held-out score at the end of a training with larger batches and fewer steps, and its CPU seconds."""
    task = ps.tasks.get(task_name)
    sims = ps.simulate(task.prior, task.simulate, SIMULATIONS, seed=SEED, progress=False)
    steps //= larger
    options: dict[str, Any] = {"max_steps": steps, "settle": None, "stopping": (), "validate_every": steps}
    options |= {"optimizer": optimizer, "batch_size": larger * BATCH, "seed": SEED, "progress": False}
    started = time.process_time()
    posterior = ps.fit(sims.theta, sims.x, prior=task.prior, **options)
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
        f"Held-out scores (lower is better) after so many steps on {SIMULATIONS:,} simulations, in batches of {BATCH}",
        "pairs unless said otherwise, and CPU seconds of the training. All else is equal. Written by",
        "`python -m benchmarks.optimizers`.",
        "",
        "| task | steps | " + " | ".join(f"{name} | seconds" for name in WAYS) + " |",
        "|---" * (2 + 2 * len(WAYS)) + "|",
    ]
    for task in tasks:
        for steps in STEPS:
            found = [trained(task, *way, steps) for way in WAYS.values()]
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
