"""What is seen of a problem when a few of its rows are simulated, before a whole run is started."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from propersbi.app.observed import Observation, read_observation, takes_missing
from propersbi.app.problems import load_problem
from propersbi.observations import one_observation
from propersbi.problem import Problem
from propersbi.reports.text import count, duration, percent
from propersbi.samplers.bounds import Box
from propersbi.samplers.priors import UNKNOWN, Known, what_is_known
from propersbi.simulation.calls import is_tensor, named_arguments
from propersbi.simulation.chunks import Source
from propersbi.simulation.failures import SimulationError, find_options
from propersbi.simulation.output import capture
from propersbi.simulation.prior_kinds import components
from propersbi.simulation.priors import check_prior, draw, event_shape, parameter_names
from propersbi.simulation.simulations import Simulations, simulate
from propersbi.simulation.styles import Style
from propersbi.storage.checks import checked_names
from propersbi.storage.randomness import stream
from propersbi.types import Array, InputError

__all__ = ["ProblemCheck", "check_problem"]

DRAWS = 500  # of the prior
FIRST_ROWS, MORE_ROWS, MORE_SECONDS = 5, 100, 4.0  # simulations: a few, then more of them as time allows
GUARDED_ROWS = 20  # simulations at least if their time is limited
TINY = 1e-30  # bounds below it stand for 0
UNSAVED = " Nothing was saved"  # how an error of simulations ends that are not on disk
SHOWN = 8  # names that are shown


@dataclass(frozen=True)
class ProblemCheck:
    """What was seen.

    Arguments:
        name: The problem.
        parameter_names: One for each parameter.
        theta_shape: The shape of one set of parameters.
        known: Where the parameters lie, which of them are whole numbers, and how that is known.
        style: How the simulator is called, and the shape and the names of its data.
        in_torch: Whether the simulator is given torch tensors.
        rows: How many rows were simulated.
        failed: How many of them failed.
        invalid: How many others were not finite.
        message: The most frequent error.
        seconds: The time of one simulation.
        run: How many simulations the whole run makes, to train on and to test with.
        workers: How many processes simulate.
        source: Where the observation is from, if there is one.
        notes: What should be known, but stops nothing.
        problems: What stops a run.
    """

    name: str
    parameter_names: tuple[str, ...] = ()
    theta_shape: tuple[int, ...] = ()
    known: Known | None = None
    style: Style | None = None
    in_torch: bool = False
    rows: int = 0
    failed: int = 0
    invalid: int = 0
    message: str | None = None
    seconds: float | None = None
    run: tuple[int, int] = (0, 0)
    workers: int = 1
    source: str | None = None
    notes: tuple[str, ...] = ()
    problems: tuple[str, ...] = field(default=())

    @property
    def run_seconds(self) -> float | None:
        """How long the simulations of the whole run will take."""
        return None if self.seconds is None else self.seconds * sum(self.run) / self.workers

    def summary(self) -> str:
        """A few lines for the terminal."""
        lines = [f"  {name:12} {text}" for name, text in self._facts()]
        lines += [f"Note: {note}" for note in self.notes]
        lines += [f"Problem: {problem}" for problem in self.problems] or ["No problems found."]
        return "\n".join([self.name, *lines])

    def _facts(self) -> Iterator[tuple[str, str]]:
        if self.parameter_names:
            size = len(self.parameter_names)
            shape = "" if len(self.theta_shape) == 1 else f" of shape {self.theta_shape}"
            yield "parameters", f"{size}{shape}: {_listed(self.parameter_names)}"
        if self.known is not None:
            yield "support", _support_text(self.known, self.parameter_names)
        if self.style is not None and self.style.x_shape is not None:
            yield "simulator", _style_text(self.style, self.in_torch)
            names = "" if self.style.x_names is None else f": {_listed(self.style.x_names)}"
            yield "data", f"shape {self.style.x_shape}{names}"
        if self.rows:
            bad = [f"{self.failed} failed"] * bool(self.failed) + [f"{self.invalid} not finite"] * bool(self.invalid)
            yield "rows", f"{self.rows} simulated, " + (", ".join(bad) or "all of them finite")
        if self.source is not None:
            yield "observation", self.source
        if self.seconds is not None:
            each = f"{1000 * self.seconds:.2g} ms" if self.seconds < 1 else duration(self.seconds)
            yield "speed", f"{each} for each simulation"
            processes = "one process" if self.workers == 1 else f"{self.workers} processes"
            yield (
                "whole run",
                (
                    f"{count(self.run[0])} simulations to train on and {count(self.run[1])} to test with: about "
                    f"{duration(self.run_seconds)} in {processes}, then training"
                ),
            )


def check_problem(
    problem: Problem | str | Path,
    *,
    observation: Any = None,
    simulations: int | None = None,
    test: int | None = None,
    seed: int = 0,
    workers: int = 1,
    **options: Any,
) -> ProblemCheck:
    """Draw from the prior, simulate a few rows, and say what is seen. Whatever goes wrong is one of its ``problems``.

    Arguments:
        problem: A problem or task, the name of a task, or the path of a Python file.
        observation: As for :func:`propersbi.run`.
        simulations: Pairs that the whole run is to train on; by default as the settings of the problem say.
        test: Likewise, to test with.
        seed: Of everything random.
        workers: Processes that are to simulate.
        **options: ``batched``, ``timeout``, ``on_error``, ``max_failed``, as for :func:`propersbi.simulate`.
    """
    found = load_problem(problem)
    n = found.settings.simulations if simulations is None else simulations
    run = n, found.settings.test_pairs(n) if test is None else test
    seen = ProblemCheck(found.name, run=run, workers=workers)
    for look in (_look_at_prior, _look_at_simulator, _look_at_rows):
        try:
            seen = look(seen, found, seed, {**found.simulation_options(), **options})
        except (InputError, SimulationError) as error:
            return replace(seen, problems=(*seen.problems, str(error).split(UNSAVED)[0]))
        except Exception as error:  # of the user's own code
            return replace(seen, problems=(*seen.problems, f"{type(error).__name__}: {error}"))
    return _look_at_observation(seen, found, observation)


def _look_at_prior(seen: ProblemCheck, problem: Problem, seed: int, options: dict[str, Any]) -> ProblemCheck:  # noqa: ARG001
    """Draws, names and support."""
    check_prior(problem.prior)
    with stream(seed) as rng:
        theta = draw(problem.prior, DRAWS, rng)
    shape = tuple(theta.shape[1:])
    names = checked_names(problem.parameter_names or parameter_names(problem.prior), shape)
    known = what_is_known(shape, problem.support, problem.prior, UNKNOWN)
    seen = replace(seen, parameter_names=names, theta_shape=shape, known=known, in_torch=is_tensor(theta))
    flat = torch.as_tensor(_numpy(theta)).double().reshape(len(theta), -1)
    problems = []
    if not flat.isfinite().all():
        problems.append(f"{int((~flat.isfinite().all(1)).sum())} of {DRAWS} draws from the prior are not finite.")
    elif known.support.outside(flat).any():
        problems.append(
            f"{int(known.support.outside(flat).sum())} of {DRAWS} draws from the prior lie outside the support."
        )
    notes = []
    if known.reason == "none are known":
        notes.append(
            "The prior does not say where its parameters lie, so draws of the posterior may lie anywhere: give "
            "'support', for example (lower, upper), if there are bounds."
        )
    return replace(seen, problems=tuple(problems), notes=tuple(notes))


def _look_at_simulator(seen: ProblemCheck, problem: Problem, seed: int, options: dict[str, Any]) -> ProblemCheck:
    """How it is called."""
    simulator = problem.checked_simulator
    sized = _sized(problem, seen.parameter_names)
    arguments = None if sized is None else named_arguments(simulator, sized)
    failing = find_options({name: value for name, value in options.items() if name != "batched"})
    source = Source(problem.prior, simulator, seed, arguments, failing, progress=False)
    style = source.find_style(options["batched"])
    return replace(seen, style=style, in_torch=seen.in_torch if style.library is None else style.library == "torch")


def _look_at_rows(seen: ProblemCheck, problem: Problem, seed: int, options: dict[str, Any]) -> ProblemCheck:
    """A few simulations, then more of them if they are fast: how long they take and what fails."""
    assert seen.style is not None
    batched = seen.style.batched if options["batched"] is None else options["batched"]
    options = {**options, "batched": batched, "max_failed": 1.0, "seed": seed, "progress": False}
    options |= {"parameter_names": problem.parameter_names}
    simulated, first = _timed(problem, FIRST_ROWS, options)
    seen = _counted(seen, simulated, FIRST_ROWS, first / FIRST_ROWS)
    guarded = options.get("timeout") is not None  # in processes, which take some time to start
    chunk = max(FIRST_ROWS, min(MORE_ROWS, math.ceil(seen.run[0] / 100)))
    more = max(min(chunk, int(MORE_SECONDS / max(first / FIRST_ROWS, 1e-6))), GUARDED_ROWS if guarded else 0)
    if more < FIRST_ROWS:
        return seen
    simulated, second = _timed(problem, more, {**options, "group": "more"})
    each = max(second - first, 0.0) / (more - FIRST_ROWS) if guarded else second / more
    return _counted(seen, simulated, more, each)


def _timed(problem: Problem, rows: int, options: dict[str, Any]) -> tuple[Simulations, float]:
    start = time.perf_counter()
    with warnings.catch_warnings(), capture():
        warnings.simplefilter("ignore")  # what they say is in the summary
        done = simulate(problem.prior, problem.checked_simulator, rows, chunk_size=rows, **options)
    return done, time.perf_counter() - start


def _counted(seen: ProblemCheck, done: Simulations, rows: int, seconds: float) -> ProblemCheck:
    failed = seen.failed + done.failures.total
    seen = replace(
        seen,
        rows=seen.rows + rows,
        failed=failed,
        invalid=seen.invalid + done.invalid - done.failures.total,
        message=done.failures.most_frequent or seen.message,
        seconds=seconds,
    )
    if not done.failures.total:
        return seen
    note = f"{percent(failed / seen.rows)} of the rows failed, for example with {seen.message}."
    return replace(seen, notes=(*(old for old in seen.notes if " of the rows failed" not in old), note))


def _look_at_observation(seen: ProblemCheck, problem: Problem, given: Any) -> ProblemCheck:
    try:
        observed: Observation | None = read_observation(given, problem)
        if observed is None:
            note = "There is no observation: define 'observation' in the file, or give --observation FILE."
            return replace(seen, notes=(*seen.notes, note))
        any_number = bool(problem.training.get("exchangeable"))  # of trials
        if seen.style is not None and seen.style.x_shape is not None and not any_number:
            shape, missing = seen.style.x_shape, takes_missing(problem)
            one_observation(observed.values, shape, name="observation", missing=missing)
    except InputError as error:
        return replace(seen, problems=(*seen.problems, str(error)))
    return replace(seen, source=f"from {observed.source}")


def _sized(problem: Problem, names: tuple[str, ...]) -> list[tuple[str, int]] | None:
    """The parameters that have names, with the number of their values."""
    parts = components(problem.prior)
    if problem.parameter_names is None and parts is not None and all(name is not None for name, _ in parts):
        return [(str(name), math.prod(event_shape(part))) for name, part in parts]
    named = problem.parameter_names is not None or parameter_names(problem.prior) is not None
    return [(name, 1) for name in names] if named else None


def _numpy(theta: Array) -> np.ndarray:
    return np.asarray(theta.detach().cpu() if is_tensor(theta) else theta)


def _style_text(style: Style, in_torch: bool) -> str:
    rows = "many sets of parameters at once" if style.batched else "one set of parameters at a time"
    by_name = ", by name" if style.arguments is not None else ""
    return f"takes {rows}{by_name}, in {'torch' if in_torch else 'NumPy'}"


def _support_text(known: Known, names: tuple[str, ...]) -> str:
    discrete = [names[i] for i in known.discrete]
    whole = f"; whole numbers: {_listed(discrete)}" if discrete else ""
    if not isinstance(known.support, Box):
        return f"{known.support}{whole}"
    if not known.support.bounded:
        return f"{'unknown' if known.reason == 'none are known' else 'the whole space'}{whole}"
    low, high = (np.broadcast_to(end, len(names)) for end in known.support.ends())
    return _listed([f"{name} {_interval(a, b)}" for name, a, b in zip(names, low, high, strict=True)]) + whole


def _interval(low: float, high: float) -> str:
    """An interval in words; the smallest numbers stand for an open end at 0.

    >>> _interval(1e-38, math.inf), _interval(0.5, 2.0)
    ('from 0', 'from 0.5 to 2')
    """
    words = [f"{word} {0.0 if abs(end) < TINY else end:.4g}" for word, end in (("from", low), ("to", high))]
    found = [word for word, end in zip(words, (low, high), strict=True) if math.isfinite(end)]
    return " ".join(found) or "anywhere"


def _listed(names: Any) -> str:
    rest = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {rest} more" if rest > 0 else "")
