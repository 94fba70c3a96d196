"""What a score and its gradient cost, compared with a plain formulation with ``torch.cdist`` and ``unfold``.

    python -m benchmarks.scores

For every number of draws m and of parameters d: the fastest of several forward and backward passes of each, in turn and
on one thread, and the peak memory of a process beyond the draws. Writes ``results/scores.md``.
"""

from __future__ import annotations

import argparse
import gc
import os
import resource
import time
from collections.abc import Callable
from datetime import date

import torch
from torch import Tensor

import propersbi as ps
from benchmarks.accuracy import RESULTS, machine

Score = Callable[[Tensor, Tensor], Tensor]
DRAWS, PARAMETERS, SECONDS = (3, 10, 20, 100, 1000), (2, 10, 100, 784), 3.0


def plain_energy(samples: Tensor, theta: Tensor) -> Tensor:
    """The energy score, written in the obvious way."""
    rows, m = samples.flatten(2).transpose(0, 1), len(samples)
    to_theta = (rows - theta.flatten(1).unsqueeze(1)).norm(dim=-1)
    return 2 * to_theta.mean(-1) - torch.cdist(rows, rows).sum((-2, -1)) / (m * (m - 1))


def plain_patches(samples: Tensor, theta: Tensor) -> Tensor:
    """The same on windows of 8 x 8 points with stride 5, plus the full image."""
    draws = samples.unfold(2, 8, 5).unfold(3, 8, 5).flatten(2, 3).flatten(3)  # (m, n, patches, 64)
    truth = theta.unfold(1, 8, 5).unfold(2, 8, 5).flatten(1, 2).flatten(2)
    patches = plain_energy(draws.flatten(1, 2), truth.flatten(0, 1)).reshape(truth.shape[:2])
    return patches.mean(1) + plain_energy(samples, theta)


def seconds(score: Score, samples: Tensor, theta: Tensor) -> float:
    samples.grad = None
    started = time.perf_counter()
    score(samples, theta).sum().backward()
    return time.perf_counter() - started


def fastest(scores: list[Score], samples: Tensor, theta: Tensor) -> list[float]:
    """Seconds of the fastest pass of each, in turn until the time is up."""
    rounds: list[list[float]] = []
    until = time.perf_counter() + SECONDS
    while len(rounds) < 3 or (time.perf_counter() < until and len(rounds) < 300):
        rounds.append([seconds(score, samples, theta) for score in scores])
        if sum(rounds[-1]) > 10 * SECONDS:
            break
    return [min(column) for column in zip(*rounds, strict=True)]


def memory(score: Score, samples: Tensor, theta: Tensor) -> float:
    """Peak memory in MB of a process of its own, beyond what it starts with."""
    gc.collect()
    reader, writer = os.pipe()
    if os.fork() == 0:
        before = resident()
        seconds(score, samples, theta)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        os.write(writer, f"{peak - before}".encode())
        os._exit(0)
    os.wait()
    value = float(os.read(reader, 100))
    os.close(reader)
    os.close(writer)
    return value


def resident() -> float:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() / 2**20


def row(name: str, ours: Score, plain: Score, m: int, n: int, event: tuple[int, ...]) -> str:
    generator = torch.Generator().manual_seed(0)
    samples = torch.randn(m, n, *event, generator=generator).requires_grad_()
    theta = torch.randn(n, *event, generator=generator)
    megabytes = [memory(score, samples, theta) for score in (ours, plain)]
    times = fastest([ours, plain], samples, theta)
    shape = " x ".join(map(str, event))
    line = f"| {name} | {m} | {shape} | {n} | {1000 * times[0]:.2f} | {1000 * times[1]:.2f} | "
    line += f"**{times[1] / times[0]:.1f}x** | {megabytes[0]:.0f} | {megabytes[1]:.0f} |"
    print(line, flush=True)
    return line


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", nargs="+", type=int, default=DRAWS)
    parser.add_argument("--parameters", nargs="+", type=int, default=PARAMETERS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    lines = [
        "# Scores",
        "",
        "A forward and a backward pass of `EnergyScore()` and of `Patched(EnergyScore(), size=8, step=5)`, compared",
        "with a plain formulation with `torch.cdist` and `unfold`: the fastest of many passes, in turn in one run, on",
        "one thread, in single precision. Memory is the peak of a process beyond the draws. Written by",
        "`python -m benchmarks.scores`.",
        "",
        "| rule | m | parameters | batch | ms | plain, ms | times as fast | MB | plain, MB |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for m in options.draws:
        for d in options.parameters:
            n = 1000 if m <= 20 and d <= 100 else 100
            lines.append(row("energy", ps.EnergyScore(), plain_energy, m, n, (d,)))
    patched = ps.Patched(ps.EnergyScore(), size=8, step=5)
    lines.append(row("patched", patched, plain_patches, 10, 100, (28, 28)))
    lines += ["", f"Machine: {machine()}. Date: {date.today().isoformat()}. Seed 0.", ""]
    if (tuple(options.draws), tuple(options.parameters)) == (DRAWS, PARAMETERS):
        (RESULTS / "scores.md").write_text("\n".join(lines))


if __name__ == "__main__":
    main()
