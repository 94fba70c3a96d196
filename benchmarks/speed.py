"""How fast is a training step? Of the default recipe, and of the paper's configuration.

    python -m benchmarks.speed          takes about four minutes; writes results/speed.md

The default recipe on one thread, for several tasks and both optimisers, against all matrix products of the network:
these are recorded at one step and repeated alone, which is a lower bound for these networks in single precision. And
the same step with products by MKL, PyTorch's usual library, where oneDNN is chosen. C2ST by both, too.

The paper's configuration on Two Moons, 100 000 simulations, m = 20, batches of 1000: the library's loop on one thread
and on two; then, on one thread, the same step with the network run m times, one draw
after the other; and that with the data read as in the reference code, whose loader goes through the whole training set
at every step, of which the first batch is used. The large matrix products alone are a lower bound.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date
from itertools import product
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import DataLoader, Dataset

import propersbi as ps
from benchmarks.accuracy import RESULTS, machine
from benchmarks.paper.networks import PaperMLP
from benchmarks.paper.training import FreshBatches
from propersbi.building import TrainingSet, build_objective, prepare_sampler
from propersbi.samplers import Standardize
from propersbi.simulation import Simulations
from propersbi.storage.files import write_text
from propersbi.storage.processor import quick_products
from propersbi.training import ScoreMinimization, TrainConfig, train
from propersbi.training.batches import Batches, BatchSource
from propersbi.types import Batch

SIMULATIONS, HELD_OUT, SIZE, DRAWS, SEED = 100_000, 20_000, 1000, 20, 0
TASKS, OPTIMIZERS, DEFAULT_SIMULATIONS = ("two_moons", "slcp", "gaussian_linear"), ("soap", "adamw"), 10_000
DIMENSIONS, SAMPLES = (2, 5, 10), 10_000  # of the two-sample test
PUBLISHED = 10_805 / 20_000  # seconds per step: runtime over steps, with its evaluation


class Items(Dataset[Any]):
    """Pairs, one by one."""

    def __init__(self, theta: torch.Tensor, x: torch.Tensor) -> None:
        self.theta, self.x = theta, x

    def __len__(self) -> int:
        return len(self.theta)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.theta[index], self.x[index]


def library_loop(sims: Simulations, steps: int, threads: int) -> float:
    """Seconds per step of the library's loop, including one validation at the end."""
    rows = np.arange(SIMULATIONS - HELD_OUT)
    source = Batches(sims.theta, sims.x, rows, SIZE, Standardize((2,)), Standardize((2,)), SEED)
    objective = ScoreMinimization(PaperMLP((2,), (2,)), ps.EnergyScore(), DRAWS)
    validation = source.read(np.arange(SIMULATIONS - HELD_OUT, SIMULATIONS))[:SIZE]
    config = TrainConfig(
        max_steps=steps, validate_every=steps, learning_rate=1e-4, average=0.0, clip=None, decay=False, threads=threads
    )
    return train(objective, FreshBatches(source), validation, config, progress=False).seconds / steps


def one_by_one(batch: Callable[[], tuple[torch.Tensor, torch.Tensor]], steps: int) -> float:
    """Seconds per step with a full pass of the network for every draw."""
    network, rule = PaperMLP((2,), (2,)), ps.EnergyScore()
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-4, betas=(0.9, 0.99))
    started = time.perf_counter()
    for _ in range(steps):
        theta, x = batch()
        samples = torch.cat([network.sample(1, x) for _ in range(DRAWS)])
        optimizer.zero_grad()
        rule(samples, theta).mean().backward()
        optimizer.step()
    return (time.perf_counter() - started) / steps


class RecordedProducts(TorchDispatchMode):
    """Records the matrix products of what runs inside it: their functions, shapes and strides."""

    FUNCTIONS = (torch.ops.aten.mm, torch.ops.aten.addmm, torch.ops.aten.bmm, torch.ops.aten.baddbmm)

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[tuple[Any, list[tuple[Any, Any]]]] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function.overloadpacket in self.FUNCTIONS:
            self.calls.append((function, [(a.shape, a.stride()) for a in args if isinstance(a, torch.Tensor)]))
        return function(*args, **(kwargs or {}))

    def seconds(self, repeats: int) -> float:
        """CPU seconds of the products, with other numbers of the same layout: the median."""
        calls = [(function, [_tensor(*layout) for layout in layouts]) for function, layouts in self.calls]
        times = []
        for _ in range(repeats):
            started = time.process_time()
            for function, args in calls:
                function(*args)
            times.append(time.process_time() - started)
        return float(np.median(times))


def _tensor(shape: torch.Size, stride: tuple[int, ...]) -> torch.Tensor:
    length = 1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))
    return torch.randn(length).as_strided(shape, stride)


class Timed:
    """Batches, and the CPU time at which each was taken."""

    def __init__(self, batches: BatchSource) -> None:
        self.batches, self.times = batches, list[float]()

    def __getitem__(self, number: int) -> Batch:
        self.times.append(time.process_time())
        return self.batches[number]


def default_step(name: str, optimizer: str, steps: int) -> tuple[int, float, float]:
    """Pairs of a default step, its CPU seconds and those of its network's matrix products alone: medians."""
    task = ps.tasks.get(name)
    sims = ps.simulate(task.prior, task.simulate, DEFAULT_SIMULATIONS, seed=SEED, progress=False)
    recipe = ps.recipe(sims.theta, sims.x, prior=task.prior, emulated=0, optimizer=optimizer)
    recipe = recipe.change(max_steps=steps, validate_every=steps)
    prepared = prepare_sampler(TrainingSet(sims.theta, sims.x), recipe, {}, SEED, None)
    objective = build_objective(recipe, prepared, None, SEED)
    batches, recorded = Timed(prepared.batches), RecordedProducts()
    train(objective, batches, prepared.validation, recipe.training, progress=False)
    with recorded:
        (phase,) = objective.phases()
        phase.loss(batches[0]).backward()
    with quick_products():
        return recipe.batch_size, float(np.median(np.diff(batches.times[:-1]))), recorded.seconds(100)


@contextmanager
def usual_products() -> Iterator[None]:
    """Matrix products by PyTorch's usual library: who has chosen a precision keeps it."""
    torch.backends.mkldnn.matmul.fp32_precision = "ieee"  # type: ignore[attr-defined]
    try:
        yield
    finally:
        torch.backends.mkldnn.matmul.fp32_precision = "none"  # type: ignore[attr-defined]


def default_rows(steps: int) -> list[str]:
    """A row of the table for each task and optimiser."""
    rows = []
    for name, optimizer in product(TASKS, OPTIMIZERS):
        size, seconds, alone = default_step(name, optimizer, steps)
        with usual_products():
            _, usual, _ = default_step(name, optimizer, steps)
        cells = (
            name,
            optimizer,
            str(size),
            f"{1e3 * seconds:.1f}",
            f"{1e3 * alone:.1f}",
            f"{seconds / alone:.2f}",
            f"{1e3 * usual:.1f}",
        )
        rows.append(f"| {' | '.join(cells)} |")
    return rows


def two_sample_rows() -> list[str]:
    """CPU seconds of C2ST, for samples of the same normal distribution."""
    rows = []
    for dim in DIMENSIONS:
        samples = np.random.default_rng(SEED).normal(size=(2, SAMPLES, dim))
        seconds = []
        for products_by in (quick_products, usual_products):
            started = time.process_time()
            with products_by():
                ps.metrics.c2st(*samples)
            seconds.append(time.process_time() - started)
        rows.append(f"| {dim} | {seconds[0]:.0f} | {seconds[1]:.0f} |")
    return rows


def products(repeats: int) -> float:
    """Seconds of the products of all draws with a layer of 128 x 128: one forward, two backward."""
    draws, weight = torch.randn(DRAWS * SIZE, 128), torch.randn(128, 128)
    started = time.perf_counter()
    for _ in range(repeats):
        _ = draws @ weight, draws @ weight.T, draws.T @ draws
    return (time.perf_counter() - started) / repeats


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    task = ps.tasks.get("two_moons")
    sims = ps.simulate(task.prior, task.simulate, SIMULATIONS, seed=SEED, progress=False)
    theta, x = (torch.as_tensor(column)[:-HELD_OUT] for column in (sims.theta, sims.x))
    loader = DataLoader(Items(theta, x), batch_size=SIZE, shuffle=True)

    def at_random() -> tuple[torch.Tensor, torch.Tensor]:
        rows = torch.randint(len(theta), (SIZE,))
        return theta[rows], x[rows]

    def all_data() -> tuple[torch.Tensor, torch.Tensor]:
        first, *_ = list(loader)
        return first[0], first[1]

    with quick_products():
        library_loop(sims, 3, 1)  # warm-up
        seconds_per_step = {
            "our loop": library_loop(sims, 100, 1),
            "our loop on two threads": library_loop(sims, 100, 2),
            "the large matrix products alone": products(50),
            "the network run m times": one_by_one(at_random, 20),
            "and all data read at every step": one_by_one(all_data, 4),
        }
    usual = seconds_per_step["our loop"]
    lines = [
        "# The training step",
        "",
        "## The default recipe",
        "",
        f"{DEFAULT_SIMULATIONS:,} simulations. CPU time of a step on one thread, and of its network's matrix products,",
        "forward and backward, repeated alone. SOAP multiplies matrices of its own, not among these. Last, the",
        "step with products by MKL, PyTorch's usual library, instead of oneDNN, which is chosen where it is quicker.",
        "",
        "| task | optimiser | pairs per step | ms per step | products alone, ms | ratio | ms per step by MKL |",
        "|---|---|---|---|---|---|---|",
        *default_rows(300),
        "",
        "## The two-sample test",
        "",
        f"CPU seconds of C2ST for {SAMPLES:,} against {SAMPLES:,} samples: the classifier of sbibm, five-fold.",
        "",
        "| dimensions | by oneDNN | by MKL |",
        "|---|---|---|",
        *two_sample_rows(),
        "",
        "## The paper's configuration",
        "",
        f"Two Moons, {SIMULATIONS:,} simulations, batches of {SIZE:,}, m = {DRAWS}, energy score, the paper's network,",
        "one thread unless stated otherwise. The last row but one imitates the reference code; the published value is",
        "the paper's runtime over its 20 000 steps, including its evaluation, on the authors' machine.",
        "",
        "| | seconds per step | relative to ours |",
        "|---|---|---|",
        *(f"| {name} | {seconds:.4f} | {seconds / usual:.1f} |" for name, seconds in seconds_per_step.items()),
        f"| published | {PUBLISHED:.2f} | {PUBLISHED / usual:.1f} |",
        "",
        f"By `python -m benchmarks.speed`, seed {SEED}. Machine: {machine()}; date: {date.today().isoformat()}.",
    ]
    write_text(RESULTS / "speed.md", "\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
