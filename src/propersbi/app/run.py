"""A run directory: every command reads what stands to its left and writes what it is named after.

::

    run.json                       what was asked and what came of it
    simulations/                   simulate   (rerun: only what is missing); a group per round of a sequential run
    rounds.json, rounds/           sequential (rerun: continues)
    checkpoint.ckpt, history.json  train      (rerun: continues)
    posterior/                     train
    diagnostics.json, .npz         diagnose   (rerun: only if the posterior or the observation changed)
    report.html                    report
"""

from __future__ import annotations

import hashlib
import os
import platform
import sys
import time
import warnings
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from propersbi import __version__
from propersbi.storage.config import decode
from propersbi.diagnostics import Diagnostics, diagnose
from propersbi.storage.files import read_json, write_json
from propersbi.inference import fit
from propersbi.app.models import Model
from propersbi.posterior import Posterior
from propersbi.storage.randomness import seeded
from propersbi.reports.page import write_report
from propersbi.sequential.rounds import fit_sequential
from propersbi.simulation.simulations import Simulations, simulate
from propersbi.simulation.store import Store
from propersbi.types import InputError

__all__ = ["Run"]

FORMAT = 1
SIMULATIONS, TEST_PAIRS, DRAWS = 10_000, 1000, 250
REFERENCE_DRAWS = 5000  # the C2ST of twice as many takes minutes


class Run:
    """The directory of one run and the steps that fill it."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    @property
    def record(self) -> dict[str, Any]:
        """What ``run.json`` says."""
        record = read_json(self.folder / "run.json")
        if not isinstance(record, dict) or record.get("format") != FORMAT:
            raise InputError(f"'{self.folder}' is not a run directory of this version.")
        return record

    @classmethod
    def open(cls, folder: str | Path) -> Run:
        """An existing run."""
        run = cls(folder)
        if not (run.folder / "run.json").exists():
            raise InputError(f"'{folder}' is not a run directory: it has no run.json.")
        _ = run.record
        return run

    @classmethod
    def create(cls, folder: str | Path, model: Model, command: str) -> Run:
        """A new run, or the one that is there, if it is of the same model."""
        run = cls(folder)
        if (run.folder / "run.json").exists():
            before = run.record.get("model")
            if before != model.name:
                raise InputError(f"'{folder}' is a run of '{before}', not of '{model.name}': choose another --out.")
        else:
            run._note({"model": model.name, "digest": model.digest, "created": _now()})
        if run.record.get("digest") != model.digest:
            warnings.warn(
                f"'{model.name}' has changed since '{folder}' was made; what was simulated before is kept.",
                stacklevel=3,
            )
        run._note({"command": command, "versions": _versions(), "machine": _machine()})
        return run

    def simulate(
        self,
        model: Model,
        n: int | None = None,
        *,
        test: int | None = None,
        seed: int = 0,
        workers: int = 1,
        progress: bool = True,
    ) -> Simulations:
        """Fill ``simulations/``: ``n`` pairs to train on, and fresh ones to test with; as many as the model says."""
        started = time.monotonic()
        n = int(model.quick.get("simulations", SIMULATIONS)) if n is None else n
        test = int(model.quick.get("test", min(TEST_PAIRS, max(50, n // 10)))) if test is None else test
        silent = model.simulator if model.parts is None else model.parts[0]
        simulations, fresh = (
            simulate(
                prior,
                simulator,
                size,
                seed=seed,
                path=self.folder / "simulations",
                group=group,
                workers=workers,
                batched=model.batched,
                half=bool(model.quick.get("half", False)),
                progress=progress,
            )
            for group, size, prior, simulator in (
                ("train", n, model.prior, silent),
                ("test", test, model.test_prior or model.prior, model.simulator),
            )
        )
        seconds = self.record.get("simulations", {}).get("seconds", 0.0) + time.monotonic() - started
        counts = {"n": n, "test": test, "invalid": simulations.invalid + fresh.invalid}
        self._note({"simulations": {**counts, "seed": seed, "seconds": round(seconds, 2)}})
        return simulations

    def train(self, model: Model | None = None, **options: Any) -> Posterior:
        """Fill ``posterior/``; continues from the checkpoint."""
        theta, x = self._pairs("train")
        with seeded(options.get("seed", 0)):  # the weights of an embedding
            usual = {} if model is None else {k: decode(v) for k, v in model.quick.get("training", {}).items()}
        known = (
            {}
            if model is None
            else {
                "prior": model.prior,
                "support": model.support,
                "embedding": model.embedding,
                "parameter_names": model.parameter_names,
                "noise": None if model.parts is None else model.parts[1],
                **usual,
            }
        )
        posterior = fit(theta, x, folder=self.folder, **{**known, **options})
        config = read_json(self.folder / "posterior" / "config.json")
        self._note({"training": {**posterior.info, "network": config["sampler"]}})
        return posterior

    def sequential(
        self,
        model: Model,
        observation: np.ndarray,
        n: int | None = None,
        *,
        test: int | None = None,
        seed: int = 0,
        workers: int = 1,
        progress: bool = True,
        **options: Any,
    ) -> Posterior:
        """Fill ``simulations/``, ``rounds/`` and ``posterior/`` for one observation; fresh pairs are of its own law."""
        n = int(model.quick.get("simulations", SIMULATIONS)) if n is None else n
        known = {"support": model.support, "embedding": model.embedding, "parameter_names": model.parameter_names}
        running: dict[str, Any] = {"seed": seed, "workers": workers, "batched": model.batched, "progress": progress}
        posterior = fit_sequential(
            model.prior,
            model.simulator,
            observation,
            simulations=n,
            folder=self.folder,
            **running,
            **{**known, **options},
        )
        test = min(TEST_PAIRS, max(50, n // 10)) if test is None else test
        place: dict[str, Any] = {"path": self.folder / "simulations", "group": "test"}
        fresh = simulate(posterior.prior, model.simulator, test, **place, **running)
        invalid = sum(part["invalid"] for part in posterior.info["rounds"]) + fresh.invalid
        config = read_json(self.folder / "posterior" / "config.json")
        training = {key: value for key, value in posterior.info.items() if key != "rounds"}
        self._note(
            {
                "simulations": {"n": n, "test": test, "invalid": invalid, "seed": seed},
                "training": {**training, "network": config["sampler"]},
            }
        )
        return posterior

    def posterior(self, model: Model | None = None) -> Posterior:
        """The trained posterior."""
        if not (self.folder / "posterior").exists():
            raise InputError(f"'{self.folder}' has no posterior yet: run 'propersbi train {self.folder}'.")
        embedding = model.embedding if model else None
        return Posterior.load(self.folder / "posterior", embedding=embedding, prior=model.prior if model else None)

    def diagnose(
        self,
        model: Model | None = None,
        *,
        observation: np.ndarray | None = None,
        source: str = "",
        draws: int | None = None,
        seed: int = 0,
        progress: bool = True,
    ) -> Diagnostics:
        """Fill ``diagnostics.json`` and ``.npz`` from the test pairs and, if there is one, the observation."""
        posterior = self.posterior(model)
        draws = int(model.quick.get("draws", DRAWS) if model else DRAWS) if draws is None else draws
        asked = {"posterior": self._checksum(), "observation": _digest(observation), "draws": draws, "seed": seed}
        if self.record.get("diagnosed") == asked and (self.folder / "diagnostics.json").exists():
            return Diagnostics.load(self.folder)
        theta, x = self._pairs("test")
        reference, count = None, REFERENCE_DRAWS if model is None else model.quick.get("reference", REFERENCE_DRAWS)
        if observation is not None and model is not None and model.reference is not None and count:
            reference = model.reference(observation, count, np.random.default_rng([seed, 2]))
        checks = diagnose(
            posterior,
            theta,
            x,
            draws=draws,
            observation=observation,
            simulator=model.simulator if model is not None and observation is not None else None,
            reference=reference,
            view=model.view if model is not None else None,
            seed=seed,
            progress=progress,
        )
        checks.save(self.folder)
        self._note({"diagnosed": asked, "observation": {"source": source} if observation is not None else None})
        return checks

    def report(self) -> Path:
        """Write ``report.html``."""
        return write_report(self.folder)

    def _pairs(self, group: str) -> tuple[Any, Any]:
        folder = self.folder / "simulations"
        if not Store.exists(folder):
            raise InputError(f"'{self.folder}' has no simulations yet: run 'propersbi simulate'.")
        counts = self.record.get("simulations", {})
        return Store.open(folder).rows(group, counts.get("n" if group == "train" else "test"))

    def _checksum(self) -> str:
        return str(read_json(self.folder / "posterior" / "config.json")["checksum"])

    def _note(self, news: Mapping[str, Any]) -> None:
        record = self.record if (self.folder / "run.json").exists() else {"format": FORMAT}
        write_json(self.folder / "run.json", {**record, **news})


def _digest(observation: np.ndarray | None) -> str | None:
    if observation is None:
        return None
    return hashlib.sha256(np.ascontiguousarray(observation, dtype=float).tobytes()).hexdigest()[:16]


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _versions() -> dict[str, str]:
    packages = {name: version(name) for name in ("torch", "numpy", "scipy")}
    return {"propersbi": __version__, **packages, "python": platform.python_version()}


def _machine() -> dict[str, Any]:
    return {"system": f"{platform.system()} {platform.machine()}", "cores": os.cpu_count(), "platform": sys.platform}
