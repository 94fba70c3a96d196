"""What executors cost: overhead per chunk, rows per second, and the efficiency of two workers.

    python -m benchmarks.scale [--ray]

A trivial simulator shows the overhead; one that sleeps shows the efficiency, as a simulator in another program would.
Also the protocol of claims, played through for many workers that die at random. Writes ``results/scale.md``.
"""

from __future__ import annotations

import argparse
import heapq
import importlib
import random
import time
from collections.abc import Callable
from contextlib import ExitStack
from datetime import date
from typing import Any

import numpy as np

import propersbi as ps
from benchmarks.accuracy import RESULTS, machine
from propersbi.simulation.claims import Part

WORKERS, CHUNKS, ROWS = 2, 100, 10
SLEEPS = {0.001: 1000, 0.01: 400, 0.1: 100}  # seconds a row: rows


def sleeping(seconds: float) -> Callable[..., np.ndarray]:
    def simulator(theta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        time.sleep(seconds)
        return np.asarray(theta + rng.normal(size=theta.shape))

    return simulator


def seconds(simulator: Callable[..., Any], n: int, chunk: int, executor: Any) -> float:
    started = time.perf_counter()
    options: dict[str, Any] = {"batched": False, "progress": False, "executor": executor}
    ps.simulate([(0.0, 1.0)], simulator, n, chunk_size=chunk, **options)
    return time.perf_counter() - started


def play_claims(parts: int, chunks: int, deaths: int, seed: int = 0) -> tuple[int, int, float]:
    """Workers of the claim protocol as events in time; chunks done, chunks computed twice, and the time it took.

    Every worker takes chunks in the order of its part. A worker that dies leaves a claim, which others respect until a
    minute has passed without a heartbeat. Workers that find nothing to do look again after a while, as those of a
    restarted array would.
    """
    chance = random.Random(seed)
    claimed: dict[int, float] = {}  # when the claim can be taken over; infinite while its worker lives
    done, left = set[int](), set(range(chunks))
    orders = {k: iter(range(k, chunks, parts)) for k in range(parts)}  # its own share first
    events = [(0.0, k, -1) for k in range(parts)]
    dying = set(chance.sample(range(parts), deaths))
    twice, now = 0, 0.0
    while events and len(done) < chunks:
        now, worker, finished = heapq.heappop(events)
        if finished >= 0:
            twice += finished in done
            done.add(finished)
            left.discard(finished)
            claimed.pop(finished, None)
        chunk = next((c for c in orders[worker] if c not in done and claimed.get(c, 0.0) <= now), None)
        if chunk is None:
            orders[worker] = iter(Part(worker + 1, parts).order(left))
            heapq.heappush(events, (now + 30.0, worker, -1))
            continue
        duration = chance.expovariate(1 / 60)
        if worker in dying and chance.random() < 0.1:
            claimed[chunk] = now + duration * chance.random() + 60.0
            continue
        claimed[chunk] = float("inf")
        heapq.heappush(events, (now + duration, worker, chunk))
    return len(done), twice, now


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--ray", action="store_true", help="also measure Ray, which must be installed")
    arguments = parser.parse_args()
    lines = ["# What executors cost", ""]
    lines += [f"`python -m benchmarks.scale`, {WORKERS} workers on one machine, {machine()}, {date.today()}.", ""]
    header = [f"efficiency at {1000 * s:g} ms a row" for s in SLEEPS]
    lines += ["| executor | ms per chunk | rows per second, trivial simulator | " + " | ".join(header) + " |"]
    lines += ["|---" * (3 + len(SLEEPS)) + "|"]
    with ExitStack() as stack:
        executors: dict[str, Any] = {"serial": ps.Serial(), "joblib": ps.Joblib(WORKERS)}
        from distributed import Client, LocalCluster

        cluster = stack.enter_context(
            LocalCluster(n_workers=WORKERS, threads_per_worker=1, dashboard_address=None)  # type: ignore[no-untyped-call]
        )
        executors["dask"] = ps.Dask(stack.enter_context(Client(cluster)))  # type: ignore[no-untyped-call]
        if arguments.ray:
            ray = importlib.import_module("ray")
            ray.init(num_cpus=WORKERS, log_to_driver=False, include_dashboard=False, logging_level="error")
            stack.callback(ray.shutdown)
            executors["ray"] = ps.Ray()
        for name, executor in executors.items():
            workers = 1 if name == "serial" else WORKERS
            seconds(sleeping(0), ROWS, 1, executor)  # processes start
            trivial = seconds(sleeping(0), CHUNKS * ROWS, ROWS, executor)
            shares = [
                s * n / workers / seconds(sleeping(s), n, 10 if s < 0.1 else 5, executor) for s, n in SLEEPS.items()
            ]
            numbers = [
                f"{1000 * trivial / CHUNKS:.1f}",
                f"{CHUNKS * ROWS / trivial:.0f}",
                *(f"{e:.2f}" for e in shares),
            ]
            lines.append(f"| {name} | {' | '.join(numbers)} |")
            print(lines[-1], flush=True)
    started = time.perf_counter()
    done, twice, took = play_claims(1000, 100_000, 300)
    played = f"{done} chunks done, {twice} computed twice, in {took / 3600:.2f} h of the workers' time"
    lines += ["", "Claims, played through as events, 1 000 workers of which 300 die, 100 000 chunks of a minute each: "]
    lines[-1] += f"{played} (the ideal is {100_000 / 1000 / 60:.2f} h; {time.perf_counter() - started:.0f} s to play)."
    (RESULTS / "scale.md").write_text("\n".join(lines) + "\n")
    print(lines[-1])


if __name__ == "__main__":
    main()
