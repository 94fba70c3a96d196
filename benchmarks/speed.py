"""How fast is a training step of the paper's configuration? Two Moons, 100 000 simulations, m = 20, batches of 1000.

    python -m benchmarks.speed          some tens of seconds; writes results/speed.md

Our loop on one thread and on two; then, on one thread, the same step with the network run m times, one draw after the
other; and that with the data walked as the reference code does, whose loader hands out every item of the training set,
in batches, at every step, of which the first batch is used. The products of the one large matrix alone show the limit.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import date
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

import propersbi as ps
from benchmarks.accuracy import RESULTS, machine
from benchmarks.paper import FreshBatches
from propersbi.training.batches import Batches
from propersbi.storage.files import write_text
from propersbi.networks import PaperMLP
from propersbi.training.objectives import ScoreMinimization
from propersbi.samplers.bounds import Standardize
from propersbi.training.loop import TrainConfig, train

SIMULATIONS, HELD_OUT, SIZE, M, SEED = 100_000, 20_000, 1000, 20, 0
PUBLISHED = 10_805 / 20_000  # seconds per step: runtime over steps, with its evaluation


class Items(Dataset[Any]):
    """Pairs that are handed out one by one."""

    def __init__(self, theta: torch.Tensor, x: torch.Tensor) -> None:
        self.theta, self.x = theta, x

    def __len__(self) -> int:
        return len(self.theta)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.theta[index], self.x[index]


def ours(sims: Any, steps: int, threads: int) -> float:
    """Seconds per step of the library's own loop; the one look at the held-out score at its end is paid for, too."""
    rows = np.arange(SIMULATIONS - HELD_OUT)
    source = Batches(sims.theta, sims.x, rows, SIZE, Standardize((2,)), Standardize((2,)), SEED)
    aim = ScoreMinimization(PaperMLP((2,), (2,)), ps.EnergyScore(), M)
    held_out = source.read(np.arange(SIMULATIONS - HELD_OUT, SIMULATIONS))[:SIZE]
    config = TrainConfig(
        max_steps=steps, validate_every=steps, learning_rate=1e-4, average=0.0, clip=None, decay=False, threads=threads
    )
    return train(aim, FreshBatches(source), held_out, config, progress=False).seconds / steps


def one_by_one(batch: Callable[[], tuple[torch.Tensor, torch.Tensor]], steps: int) -> float:
    """Seconds per step with a whole pass of the network for every draw."""
    network, rule = PaperMLP((2,), (2,)), ps.EnergyScore()
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-4, betas=(0.9, 0.99))
    started = time.perf_counter()
    for _ in range(steps):
        theta, x = batch()
        samples = torch.cat([network.sample(1, x) for _ in range(M)])
        optimizer.zero_grad()
        rule(samples, theta).mean().backward()
        optimizer.step()
    return (time.perf_counter() - started) / steps


def products(repeats: int) -> float:
    """Seconds for the products of all draws with the layer of 128 x 128: one forward, two backward."""
    draws, weight = torch.randn(M * SIZE, 128), torch.randn(128, 128)
    started = time.perf_counter()
    for _ in range(repeats):
        _ = draws @ weight, draws @ weight.T, draws.T @ draws
    return (time.perf_counter() - started) / repeats


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    task = ps.tasks.get("two_moons")
    sims = ps.simulate(task.prior, task.simulate, SIMULATIONS, seed=SEED, progress=False)
    theta, x = (torch.as_tensor(column)[:-HELD_OUT] for column in (sims.theta, sims.x))
    loader = DataLoader(Items(theta, x), batch_size=SIZE, shuffle=True)

    def at_random() -> tuple[torch.Tensor, torch.Tensor]:
        rows = torch.randint(len(theta), (SIZE,))
        return theta[rows], x[rows]

    def walked() -> tuple[torch.Tensor, torch.Tensor]:
        first, *_ = list(loader)
        return first[0], first[1]

    ours(sims, 3, 1)  # warm-up
    ways = {
        "our loop": ours(sims, 100, 1),
        "our loop on two threads": ours(sims, 100, 2),
        "its large matrix products alone": products(50),
        "the network run m times": one_by_one(at_random, 20),
        "and all data walked for every step": one_by_one(walked, 4),
    }
    usual = ways["our loop"]
    lines = [
        "# The training step of the paper's configuration",
        "",
        f"Two Moons, {SIMULATIONS:,} simulations, batches of {SIZE:,}, m = {M}, energy score, the paper's network, one",
        "thread unless said. The last row but one is an own re-creation of the reference's way; the published one is",
        "the paper's runtime over its 20 000 steps, with its evaluation, on its authors' machine.",
        "",
        "| | seconds per step | as many times ours |",
        "|---|---|---|",
        *(f"| {name} | {seconds:.4f} | {seconds / usual:.1f} |" for name, seconds in ways.items()),
        f"| published | {PUBLISHED:.2f} | {PUBLISHED / usual:.1f} |",
        "",
        f"By `python -m benchmarks.speed`, seed {SEED}. Machine: {machine()}; date: {date.today().isoformat()}.",
    ]
    write_text(RESULTS / "speed.md", "\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
