"""A run directory: every step reads what the steps before it wrote.

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
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from propersbi import __version__
from propersbi.app.problems import Observation
from propersbi.diagnostics import Diagnostics, diagnose
from propersbi.inference import fit
from propersbi.posterior import Posterior
from propersbi.problem import Problem, Settings
from propersbi.sequential.rounds import fit_sequential
from propersbi.simulation.simulations import Simulations, simulate
from propersbi.simulation.store import Store
from propersbi.storage.config import decode
from propersbi.storage.randomness import seeded
from propersbi.storage.records import (
    DiagnosisRecord,
    ObservationRecord,
    RunRecord,
    SimulationsRecord,
    TrainingRecord,
    read_rounds,
)
from propersbi.types import InputError, Rows

__all__ = ["Run"]


class Run:
    """The directory of one run and the steps that fill it.

    Arguments:
        folder: The directory.
        problem: What the run is about, if it is at hand: without it nothing can be simulated.
    """

    def __init__(self, folder: str | Path, problem: Problem | None = None) -> None:
        self.folder, self.problem = Path(folder), problem

    def __repr__(self) -> str:
        return f"Run('{self.folder}')"

    @classmethod
    def open(cls, folder: str | Path, problem: Problem | None = None) -> Run:
        """An existing run."""
        opened = cls(folder, problem)
        if not (opened.folder / "run.json").exists():
            raise InputError(f"'{folder}' is not a run directory: it has no run.json.")
        _ = opened.record
        return opened

    @classmethod
    def create(cls, folder: str | Path, problem: Problem, command: str) -> Run:
        """A new run, or the one that is there, if it is of the same problem."""
        created = cls(folder, problem)
        exists = (created.folder / "run.json").exists()
        record = created.record if exists else RunRecord(problem.name, _now(), problem.digest)
        if record.problem != problem.name:
            raise InputError(
                f"'{folder}' is a run of '{record.problem}', not of '{problem.name}': choose another folder (--out)."
            )
        if record.digest != problem.digest:
            warnings.warn(
                f"'{problem.name}' has changed since '{folder}' was made; what was simulated before is kept.",
                stacklevel=3,
            )
        replace(record, command=command, versions=_versions(), machine=_machine()).save(created.folder)
        return created

    @property
    def record(self) -> RunRecord:
        """What ``run.json`` says."""
        return RunRecord.load(self.folder)

    @property
    def report(self) -> Path:
        """Where the report is, once it is written."""
        return self.folder / "report.html"

    @property
    def diagnostics(self) -> Diagnostics:
        """What was measured."""
        if not (self.folder / "diagnostics.json").exists():
            raise InputError(f"'{self.folder}' has no diagnostics yet: run 'propersbi diagnose {self.folder}'.")
        return Diagnostics.load(self.folder)

    def posterior(self) -> Posterior:
        """The trained posterior."""
        if not (self.folder / "posterior").exists():
            raise InputError(f"'{self.folder}' has no posterior yet: run 'propersbi train {self.folder}'.")
        own = self.problem
        if own is None:
            return Posterior.load(self.folder / "posterior")
        network, embedding = own.training.get("network"), own.training.get("embedding", own.embedding)
        return Posterior.load(
            self.folder / "posterior",
            network=network if isinstance(network, nn.Module) else None,
            embedding=embedding if isinstance(embedding, nn.Module) else None,
            prior=own.prior,
        )

    def simulate(
        self, n: int | None = None, *, test: int | None = None, seed: int = 0, workers: int = 1, progress: bool = True
    ) -> Simulations:
        """Fill ``simulations/``: ``n`` pairs to train on, and fresh ones to test with; as many as the problem says."""
        problem, started = self._problem(), time.monotonic()
        n = problem.settings.simulations if n is None else n
        test = problem.settings.test_pairs(n) if test is None else test
        work: dict[str, Any] = {"path": self.folder / "simulations", "seed": seed, "workers": workers}
        work |= {"batched": problem.batched, "half": problem.settings.half_precision, "progress": progress}
        pairs = simulate(problem.prior, problem.training_simulator, n, group="train", **work)
        test_prior = problem.prior if problem.test_prior is None else problem.test_prior
        fresh = simulate(test_prior, problem.checked_simulator, test, group="test", **work)
        before = self.record.simulations
        seconds = time.monotonic() - started + ((before and before.seconds) or 0.0)
        self._note(simulations=SimulationsRecord(n, test, pairs.invalid + fresh.invalid, seed, round(seconds, 2)))
        return pairs

    def train(self, *, seed: int = 0, **changes: Any) -> Posterior:
        """Fill ``posterior/`` from the simulations; continues from the checkpoint."""
        theta, x = self._pairs("train")
        noise = None if self.problem is None or self.problem.noise is None else self.problem.noise.add
        options = {"noise": noise, **self._own_choices(seed, complete="recipe" in changes), **changes}
        posterior = fit(theta, x, folder=self.folder, seed=seed, **options)
        self._note(training=_training_record(posterior, seed))
        return posterior

    def sequential(
        self,
        observation: Observation,
        n: int | None = None,
        *,
        test: int | None = None,
        seed: int = 0,
        workers: int = 1,
        progress: bool = True,
        **changes: Any,
    ) -> Posterior:
        """Fill ``simulations/``, ``rounds/`` and ``posterior/`` for one observation.

        Test pairs are drawn from the distribution that the posterior was trained for.
        """
        problem = self._problem()
        n = problem.settings.simulations if n is None else n
        test = problem.settings.test_pairs(n) if test is None else test
        work: dict[str, Any] = {"seed": seed, "workers": workers, "batched": problem.batched, "progress": progress}
        options = {**self._own_choices(seed), **changes}
        simulator = problem.checked_simulator
        posterior = fit_sequential(
            options.pop("prior"), simulator, observation.values, simulations=n, folder=self.folder, **work, **options
        )
        fresh = simulate(posterior.prior, simulator, test, path=self.folder / "simulations", group="test", **work)
        done = read_rounds(self.folder)
        invalid = fresh.invalid + sum(part.invalid for part in (done.rounds if done else ()))
        self._note(simulations=SimulationsRecord(n, test, invalid, seed), training=_training_record(posterior, seed))
        return posterior

    def diagnose(
        self,
        observation: Observation | None = None,
        *,
        num_samples: int | None = None,
        seed: int = 0,
        progress: bool = True,
    ) -> Diagnostics:
        """Fill ``diagnostics.json`` and ``.npz`` from the test pairs and, if there is one, the observation."""
        problem, posterior = self.problem, self.posterior()
        settings = problem.settings if problem else Settings()
        num_samples = settings.num_samples if num_samples is None else num_samples
        x_o = None if observation is None else observation.values
        asked = DiagnosisRecord(self._checksum(), _digest(x_o), num_samples, seed)
        if self.record.diagnosis == asked and (self.folder / "diagnostics.json").exists():
            return self.diagnostics
        theta, x = self._pairs("test")
        reference, count = problem.reference if problem else None, settings.reference_samples
        checks = diagnose(
            posterior,
            theta,
            x,
            num_samples=num_samples,
            observation=x_o,
            simulator=problem.checked_simulator if problem and x_o is not None else None,
            reference=reference(x_o, count, np.random.default_rng([seed, 2]))
            if reference and count and x_o is not None
            else None,
            view=problem.view if problem else None,
            seed=seed,
            progress=progress,
        )
        checks.save(self.folder)
        self._note(diagnosis=asked, observation=ObservationRecord(observation.source) if observation else None)
        return checks

    def _problem(self) -> Problem:
        if self.problem is None:
            raise InputError(f"Nothing can be simulated for '{self.folder}' without its problem: give that too.")
        return self.problem

    def _own_choices(self, seed: int, *, complete: bool = False) -> dict[str, Any]:
        """What the problem says about its posterior, by the names of the arguments of ``fit``.

        Its own changes of the recipe are left out where a complete recipe is given.
        """
        if self.problem is None:
            return {}
        given = {name: getattr(self.problem, name) for name in ("prior", "support", "embedding", "parameter_names")}
        choices = {name: value for name, value in given.items() if value is not None}
        if complete:
            return choices
        with seeded(seed):  # the weights of networks that stand in the training of a problem
            return {**choices, **{name: decode(value) for name, value in self.problem.training.items()}}

    def _pairs(self, group: str) -> tuple[Rows, Rows]:
        folder = self.folder / "simulations"
        if not Store.exists(folder):
            raise InputError(f"'{self.folder}' has no simulations yet: run 'propersbi simulate'.")
        done = self.record.simulations
        count = None if done is None else done.n if group == "train" else done.test
        return Store.open(folder).rows(group, count)

    def _checksum(self) -> str:
        return hashlib.sha256((self.folder / "posterior" / "config.json").read_bytes()).hexdigest()

    def _note(self, **news: Any) -> None:
        replace(self.record, **news).save(self.folder)


def _training_record(posterior: Posterior, seed: int) -> TrainingRecord:
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
