"""A run directory: every step reads what the steps before it wrote.

::

    run.json                       what was asked and what came of it
    simulations/                   simulate   (rerun: only what is missing); a group per round of a sequential run
    rounds.json, rounds/           sequential (rerun: continues)
    checkpoint.ckpt, history.json  train      (rerun: continues)
    posterior/                     train
    diagnostics.json, .npz         diagnose   (rerun: only if posterior, test pairs, observation, model, options or the
                                              version of the library changed)
    report.html                    report
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from propersbi import __version__
from propersbi.app.alone import LockedFolder, alone
from propersbi.app.facts import checksum, digest, machine, now, training_record, versions
from propersbi.app.observed import Observation
from propersbi.app.status import plan
from propersbi.app.testing import simulate_test_pairs
from propersbi.diagnostics import Diagnostics, diagnose
from propersbi.inference import fit
from propersbi.posterior import Posterior
from propersbi.problem import Problem, Settings
from propersbi.sequential.rounds import fit_sequential
from propersbi.simulation.priors import parameter_names
from propersbi.simulation.simulations import Failures, Simulations, simulate
from propersbi.simulation.store import Store
from propersbi.storage.config import decode
from propersbi.storage.randomness import seeded
from propersbi.storage.records import (
    DiagnosisRecord,
    ObservationRecord,
    RunRecord,
    SimulationsRecord,
    read_rounds,
)
from propersbi.training.devices import is_first_process
from propersbi.types import InputError, Rows

__all__ = ["SIMULATION_OPTIONS", "Run"]

OWN_CHOICES = ("prior", "support", "discrete", "embedding", "parameter_names")  # of a problem, for fit
CONTENT_OPTIONS = ("batched", "timeout", "on_error", "max_failed")  # of simulate, which change what is simulated
SIMULATION_OPTIONS = (*CONTENT_OPTIONS, "force", "executor")  # arguments of simulate that a caller may change


class Run(LockedFolder):
    """The directory of one run and the steps that fill it.

    Arguments:
        folder: The directory.
        problem: What the run is about, if it is at hand: without it nothing can be simulated.
    """

    def __init__(self, folder: str | Path, problem: Problem | None = None) -> None:
        super().__init__(folder)
        self.problem = problem

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
        record = created.record if exists else RunRecord(problem.name, now(), problem.digest)
        if record.problem != problem.name:
            raise InputError(
                f"'{folder}' is a run of '{record.problem}', not of '{problem.name}': choose another folder (--out)."
            )
        if record.digest != problem.digest:
            warnings.warn(
                f"'{problem.name}' has changed since '{folder}' was made; what was simulated before is kept.",
                stacklevel=3,
            )
        replace(record, command=command, versions=versions(), machine=machine()).save(created.folder)
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
            support=own.support if callable(own.support) else None,
            prior=own.prior,
        )

    @alone
    def simulate(
        self,
        n: int | None = None,
        *,
        test: int | None = None,
        seed: int = 0,
        workers: int = 1,
        progress: bool = True,
        **options: Any,
    ) -> Simulations:
        """Fill ``simulations/``: ``n`` pairs to train on, and fresh ones to test with; as many as the problem says.

        How the simulator is called and what becomes of simulations that fail is as the problem says, unless
        ``batched``, ``timeout``, ``on_error`` or ``max_failed`` are given, as for :func:`propersbi.simulate`.
        """
        problem, started = self._problem(), time.monotonic()
        n = problem.settings.simulations if n is None else n
        plan(self.folder, train=n)
        work = self.simulation_work(seed=seed, workers=workers, progress=progress, **options)
        pairs = simulate(problem.prior, problem.training_simulator, n, group="train", **work)
        test_prior = problem.prior if problem.test_prior is None else problem.test_prior
        simulate_test = partial(simulate, test_prior, problem.checked_simulator, group="test", **work)
        fresh, test = self._test_pairs(simulate_test, n, test, progress)
        plan(self.folder, test=test)
        before = self.record.simulations
        seconds = time.monotonic() - started + ((before and before.seconds) or 0.0)
        invalid, failures = pairs.invalid + fresh.invalid, Failures.join([pairs.failures, fresh.failures])
        counts = n, test, invalid, seed, round(seconds, 2), failures.total, failures.most_frequent
        self.note(simulations=SimulationsRecord(*counts))
        return pairs

    def simulation_work(self, **options: Any) -> dict[str, Any]:
        """The arguments of ``simulate`` by which the problem is simulated into this run."""
        problem = self._problem()
        work = {"path": self.folder / "simulations", "half": problem.settings.half_precision}
        return {**work, "parameter_names": problem.parameter_names, **problem.simulation_options(), **options}

    @alone
    def train(self, *, seed: int = 0, **changes: Any) -> Posterior:
        """Fill ``posterior/`` from the simulations; continues from the checkpoint."""
        theta, x = self._pairs("train")
        noise = None if self.problem is None or self.problem.noise is None else self.problem.noise.add
        options = {"noise": noise, **self.own_choices(seed, complete="recipe" in changes), **changes}
        posterior = self.with_data_names(fit(theta, x, folder=self.folder, seed=seed, **options))
        self.note(training=training_record(posterior, seed))
        return posterior

    @alone
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
        work: dict[str, Any] = {"seed": seed, "workers": workers, "progress": progress, **problem.simulation_options()}
        work |= {name: changes.pop(name) for name in SIMULATION_OPTIONS if name in changes}
        options = {"parameter_names": parameter_names(problem.prior), **self.own_choices(seed), **changes}
        simulator = problem.checked_simulator
        if observation.names is not None:  # in the order of the data, which two simulations tell
            few = simulate(problem.prior, simulator, 2, **{**work, "progress": False})
            observation = observation.arranged(few.x_names)
        posterior = fit_sequential(
            options.pop("prior"), simulator, observation.values, simulations=n, folder=self.folder, **work, **options
        )
        posterior = self.with_data_names(posterior)
        work |= {"path": self.folder / "simulations", "parameter_names": posterior.parameter_names}
        simulate_test = partial(simulate, posterior.prior, simulator, group="test", **work)
        fresh, test = self._test_pairs(simulate_test, n, test, progress)
        done, store = read_rounds(self.folder), Store.open(self.folder / "simulations")
        rounds = done.rounds if done else ()
        invalid = fresh.invalid + sum(part.invalid for part in rounds)
        failures = Failures.join([fresh.failures, *(store.failures(f"round-{part.round}") for part in rounds)])
        counts = n, test, invalid, seed, None, failures.total, failures.most_frequent
        self.note(simulations=SimulationsRecord(*counts), training=training_record(posterior, seed))
        return posterior

    @alone
    def diagnose(
        self,
        observation: Observation | None = None,
        *,
        num_samples: int | None = None,
        seed: int = 0,
        progress: bool = True,
        **options: Any,
    ) -> Diagnostics:
        """Fill ``diagnostics.json`` and ``.npz`` from the test pairs and, if there is one, the observation.

        ``options`` are those of :meth:`simulate`, for data simulated from the posterior of the observation.
        """
        problem, posterior = self.problem, self.posterior()
        settings = problem.settings if problem else Settings()
        num_samples = settings.num_samples if num_samples is None else num_samples
        x_o = None if observation is None else observation.arranged(posterior.x_names).values
        simulation = {**problem.simulation_options(), **options} if problem and x_o is not None else {}
        asked = DiagnosisRecord(self._diagnosed(simulation), digest(x_o), num_samples, seed)
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
            **simulation,
        )
        checks.save(self.folder)
        self.note(diagnosis=asked, observation=ObservationRecord(observation.source) if observation else None)
        return checks

    def _test_pairs(
        self, simulate_test: Callable[[int], Simulations], n: int, asked: int | None, progress: bool
    ) -> tuple[Simulations, int]:
        settings, before = self._problem().settings, self.record.simulations
        return simulate_test_pairs(simulate_test, settings, n, asked, before=before, progress=progress)

    def _problem(self) -> Problem:
        if self.problem is None:
            raise InputError(f"Nothing can be simulated for '{self.folder}' without its problem: give that too.")
        return self.problem

    def own_choices(self, seed: int, *, complete: bool = False) -> dict[str, Any]:
        """What the problem says about its posterior, by the names of the arguments of ``fit``.

        Its own changes of the recipe are left out where a complete recipe is given.
        """
        if self.problem is None:
            return {}
        given = {name: getattr(self.problem, name) for name in OWN_CHOICES}
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

    def with_data_names(self, posterior: Posterior) -> Posterior:
        """The posterior with the names of the data, saved again, if the simulator gave any."""
        names = Store.open(self.folder / "simulations").x_names
        if names is not None and names != posterior.x_names:
            posterior.x_names = names
            if is_first_process():
                posterior.save(self.folder / "posterior")
        return posterior

    def _diagnosed(self, simulation: dict[str, Any]) -> str:
        """What is diagnosed: the posterior, on which test pairs, by which version of the library, of which model.

        Without the problem the model is taken to be the one of the last diagnosis: it cannot be known to have changed.
        """
        record, problem = self.record, self.problem
        done, last = record.simulations, record.diagnosis
        model = None
        if problem is not None:
            given = {name: simulation.get(name) for name in sorted(CONTENT_OPTIONS)}
            options = [f"{name}={value}" for name, value in given.items() if value is not None]
            model = " ".join([problem.digest or problem.name, str(problem.settings.reference_samples), *options])
        if model is None and last is not None:
            model = last.posterior.partition(" model ")[2]
        pairs = f"{done.test} {done.seed}" if done else None
        posterior = checksum(self.folder / "posterior" / "config.json")
        return f"{posterior} test {pairs} version {__version__} model {model}"

    def note(self, **news: Any) -> None:
        """Add to ``run.json``."""
        if is_first_process():
            replace(self.record, **news).save(self.folder)
