"""Many fits and many samplings in one process: memory, descriptors and threads do not grow."""

from __future__ import annotations

import gc
import os
import tempfile
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import propersbi as ps
from benchmarks.attacks.outcome import Outcome

__all__ = ["attack_by_soak"]

FAST: dict[str, Any] = {"max_steps": 10, "validate_every": 5, "batch_size": 32, "progress": False}
PER_FIT = 10  # samplings
MAX_GROWTH = 16 << 20  # bytes by which the memory may grow from the first third to the end


class _Use(NamedTuple):
    memory: int
    descriptors: int
    threads: int


def attack_by_soak(fits: int) -> Outcome:
    """So many fits, each saved, loaded and sampled from ten times."""
    outcome, uses = Outcome(), []
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for i in range(fits):
            theta = rng.normal(size=(200, 2))
            fitted = ps.fit(theta, theta + rng.normal(size=(200, 2)), seed=i, folder=Path(folder) / str(i % 2), **FAST)
            for path in (Path(folder) / str(i % 2)).glob("checkpoint.ckpt"):
                path.unlink()
            fitted.save(Path(folder) / "saved")
            posterior = ps.Posterior.load(Path(folder) / "saved")
            for k in range(PER_FIT):
                posterior.sample((100,), x=rng.normal(size=2), seed=k, show_progress_bars=False)
            gc.collect()
            uses.append(_use())
            outcome.count += 1
    early, late = uses[len(uses) // 3], uses[-1]
    outcome.note = (
        f"{fits * PER_FIT:,} samplings; memory {early.memory >> 20} to {late.memory >> 20} MB, descriptors "
        f"{early.descriptors} to {late.descriptors}, threads {early.threads} to {late.threads}"
    )
    grown = (
        late.memory - early.memory > MAX_GROWTH or late.descriptors > early.descriptors or late.threads > early.threads
    )
    outcome.broken += [f"soak: {outcome.note}"] if grown else []
    return outcome


def _use() -> _Use:
    status = Path("/proc/self/status").read_text()
    resident = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    memory = int(resident.split()[1]) * 1024
    return _Use(memory, len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task")))
