"""Kills with -9 at random times in simulate, fit and rounds: nothing is lost, and the end is the same to the bit."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

import propersbi as ps
from benchmarks.attacks.outcome import Outcome

__all__ = ["attack_by_kills", "digests", "run_in_process", "work"]

FAST: dict[str, Any] = {
    "refinement_steps": 1,
    "batch_size": 32,
    "validate_every": 10,
    "checkpoint_every": 0.0,
    "progress": False,
}


def _noisy(theta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    time.sleep(0.001)
    return theta + 0.1 * rng.normal(size=2)


def work(what: str, folder: Path) -> None:
    """Something that takes a while and leaves files."""
    theta = np.random.default_rng(0).normal(size=(200, 2)).astype("float32")
    prior = [torch.distributions.Normal(0.0, 1.0)] * 2
    if what == "simulate":
        ps.simulate(prior, _noisy, 600, path=folder, chunk_size=6, progress=False, batched=False)
    elif what == "fit":
        ps.fit(theta, theta**2, folder=folder, max_steps=200, **FAST)
    elif what == "rounds":
        ps.fit_sequential(prior, _noisy, [0.1, 0.2], simulations=150, rounds=3, folder=folder, max_steps=60, **FAST)
    else:
        posterior = ps.fit(theta, theta**2, max_steps=2, **FAST)
        for _ in range(40):
            posterior.save(folder)


FILES = {
    "simulate": ["train/chunk-*.safetensors"],
    "fit": ["posterior/weights.safetensors"],
    "rounds": ["posterior/weights.safetensors", "simulations/round-*/chunk-*.safetensors"],
    "save": ["weights.safetensors"],
}


def attack_by_kills(what: str, count: int, scratch: Path, seed: int = 0) -> Outcome:
    """Kill ``what`` so many times, starting anew whenever it gets to its end, and compare with a run without kills."""
    outcome, rng = Outcome(), random.Random(f"{seed} {what}")
    whole, seconds = _undisturbed(what, scratch / f"{what}-whole")
    number = 0
    while outcome.count < count:
        folder = scratch / f"{what}-{number}"
        number += 1
        for _ in range(40):  # after some kills a run is left to finish
            if outcome.count >= count:
                break
            finished, errors = run_in_process(what, folder, rng.uniform(0.02, 0.7) * seconds)
            if finished:
                break
            outcome.count += 1
            if errors:
                outcome.broken.append(f"{what} {number}: {errors[-200:]}")
        finished, errors = run_in_process(what, folder, None)
        if not finished or errors:
            outcome.broken.append(f"{what} {number} did not continue: {errors[-200:]}")
        elif digests(what, folder) != whole:
            outcome.broken.append(f"{what} {number}: the end differs from that of an undisturbed run")
        left = [path.name for path in folder.rglob(".*") if path.suffix == ".tmp"]
        if left:
            outcome.broken.append(f"{what} {number}: {len(left)} temporary files are left")
    return outcome


def _undisturbed(what: str, folder: Path) -> tuple[dict[str, str], float]:
    started = time.monotonic()
    finished, errors = run_in_process(what, folder, None)
    if not finished:
        raise RuntimeError(f"{what} does not run: {errors[-500:]}")
    return digests(what, folder), time.monotonic() - started


def run_in_process(what: str, folder: Path, kill_after: float | None) -> tuple[bool, str]:
    """Whether a process of its own came to its end, and what it said if it ended otherwise than by the kill."""
    folder.mkdir(parents=True, exist_ok=True)
    notes = folder.with_suffix(".errors")
    child = os.fork()  # with all libraries loaded, so that the kill meets the work
    if child == 0:
        try:
            warnings.simplefilter("ignore")
            work(what, folder)
            os._exit(0)
        except BaseException:
            notes.write_text(traceback.format_exc())
            os._exit(1)
    if kill_after is not None:
        time.sleep(kill_after)
        os.kill(child, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code == -signal.SIGKILL:
        return False, ""
    return code == 0, "" if code == 0 else notes.read_text()


def digests(what: str, folder: Path) -> dict[str, str]:
    """The checksums of what is left."""
    paths = [path for pattern in FILES[what] for path in folder.glob(pattern)]
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(paths)}
