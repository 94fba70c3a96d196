"""Facts of a run for its ``run.json``: how it was trained, with which versions, on which machine."""

from __future__ import annotations

import hashlib
import os
import platform
import sys
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from propersbi import __version__
from propersbi.posterior import Posterior
from propersbi.storage.records import TrainingRecord

__all__ = ["checksum", "digest", "machine", "now", "training_record", "versions"]


def training_record(posterior: Posterior, seed: int) -> TrainingRecord:
    """How the posterior was trained."""
    recipe, history, info = posterior.recipe, posterior.history, posterior.info
    record = TrainingRecord(
        seed=seed,
        recipe=None if recipe is None else recipe.to_json(),
        objective=info.get("objective"),
        batch_size=info.get("batch_size"),
        weights=info.get("parameters"),
        seconds=info.get("seconds", history.seconds if history else None),
        members=len(info.get("members", [None])),
    )
    if history is None:
        return record
    return replace(
        record,
        steps=history.steps,
        stopped=None if history.stopped is None else history.stopped.value,
        kept_step=history.kept_step,
        kept_score=history.kept_score,
        lowest_step=history.lowest_step,
        lowest_score=history.lowest_score,
    )


def digest(observation: np.ndarray | None) -> str | None:
    """A short checksum of an observation."""
    if observation is None:
        return None
    return hashlib.sha256(np.ascontiguousarray(observation, dtype=float).tobytes()).hexdigest()[:16]


def checksum(path: Path) -> str:
    """The checksum of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def now() -> str:
    """The time, in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def versions() -> dict[str, str]:
    """The versions of this library and of those that its numbers depend on."""
    packages = {name: version(name) for name in ("torch", "numpy", "scipy")}
    return {"propersbi": __version__, **packages, "python": platform.python_version()}


def machine() -> dict[str, Any]:
    """Where it runs."""
    return {"system": f"{platform.system()} {platform.machine()}", "cores": os.cpu_count(), "platform": sys.platform}
