"""Simulations: parameters drawn from a prior and the data simulated from them.

Simulations are computed in chunks, and each chunk has its own random stream, determined by the seed, the group and the
number of the chunk, not by the worker or the order of execution. The result is therefore identical in memory and on
disk, with one worker and with many, and after a crash, when only missing chunks are computed. (Provided that the
simulator is deterministic: some linear algebra rounds differently with another number of threads.)
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from propersbi.simulation.calls import Argument, named_arguments, required_arguments
from propersbi.simulation.chunking import BLOCK, LARGEST, Chunking
from propersbi.simulation.chunks import Job, Source
from propersbi.simulation.executors import Joblib
from propersbi.simulation.failures import Failure, Failures, SimulationError, find_options
from propersbi.simulation.priors import check_prior, event_shape, parameter_names
from propersbi.simulation.processes import RowProcesses
from propersbi.simulation.runs import Run, Simulations
from propersbi.simulation.store import Store, check_group, check_whole
from propersbi.simulation.styles import Style
from propersbi.types import Executor, InputError, Prior, Simulator

__all__ = ["Failure", "Failures", "SimulationError", "Simulations", "find_source", "simulate"]


def simulate(
    prior: Prior | Any,
    simulator: Simulator,
    n: int,
    *,
    seed: int = 0,
    path: str | Path | None = None,
    group: str = "train",
    chunk_size: int | None = None,
    executor: Executor | None = None,
    workers: int | None = 1,
    batched: bool | None = None,
    half: bool = False,
    progress: bool = True,
    **options: Any,
) -> Simulations:
    """Draw ``n`` parameters and simulate data for each.

    Values are stored as float32, or as float64 where float32 would lose digits; scalars become vectors of length one.
    Rows with NaN or infinite values, and rows that fail, are excluded and counted, with a warning.

    The simulator is a function of one parameter or of a batch of them: ``(theta) -> x`` or ``(theta, rng) -> x``. Where
    the prior names its parameters, as a dict does, it may take them by name: ``(beta, gamma, rng) -> x``. Whether it
    takes batches, and NumPy arrays or torch tensors, is found out by a few calls. It returns an array, a tensor, a
    number or a list of them, a Series or DataFrame of pandas, or a dict of numbers and arrays, whose names are kept.

    Arguments:
        prior: A torch or SciPy distribution; an object with ``sample(n, rng)``; a pair ``(low, high)``; a function of
            ``rng``; an array of draws, which is resampled with replacement; or a list or dict of them.
        simulator: The simulator. In batches, ``theta`` is ``(n, *event)``, with at least one event axis.
        n: The number of simulations.
        seed: The random seed; the same seed gives the same simulations.
        path: A folder to store them in. Running again continues, and a larger ``n`` extends them. Some draws from the
            prior and the data of a few are kept, so that another prior or simulator is refused. Damaged files are set
            aside, and their rows simulated again.
        group: A name such as ``"train"``, ``"test"`` or ``"round-1"``; each group has its own random streams.
        chunk_size: The number of rows computed and written at once; by default a hundredth of ``n``, at most 1000, and
            more as a store is extended.
        executor: Where chunks are computed, instead of ``workers``.
        workers: The number of processes; ``None`` uses all cores. They are started if the simulations take longer than
            their start.
        batched: Whether the simulator takes batches; ``None`` finds out.
        half: Whether to store ``x`` in half precision: three digits, values up to 65504, half the space.
        progress: Whether to show a progress bar.
        **options: ``on_error``: ``"record"`` (the default) excludes rows for which the simulator raises or exits, and
            records them in ``failures``; ``"raise"`` stops at the first one. ``max_failed``: the share of rows that may
            fail, 0.2 by default; with more the run stops. ``timeout``: seconds after which a row is ended and counts as
            failed; the simulator then runs in processes of its own. ``parameter_names``: one for each parameter.
            ``missing``: ``"allow"`` takes NaN in data as a missing entry, not as a broken row.
            ``force``: whether to keep the rows of another prior or simulator and continue with this one.

    >>> class Normal:
    ...     def sample(self, n, rng):
    ...         return rng.normal(size=(n, 2))
    >>> simulate(Normal(), lambda theta, rng: theta + rng.normal(size=theta.shape), 100, progress=False)
    Simulations(theta (100, 2), x (100, 2), 0 invalid)
    """
    source = find_source(prior, simulator, seed, options, progress=progress)
    given, names = source.options, _check_names(prior, source.options.parameter_names)
    n, seed, group = check_whole("n", n, 1), check_whole("seed", seed, 0), check_group(group)
    if executor is not None and workers != 1:
        raise InputError(f"Give either 'executor' or 'workers', not both, got an executor and {workers} workers.")
    pool = Joblib(workers)
    size = check_whole("chunk_size", _default_chunk_size(n, path) if chunk_size is None else chunk_size, 1)
    chunking, store = Chunking(size), None
    if path is not None:
        store = Store.create_or_open(path, seed=seed, chunk_size=size, growing=chunk_size is None)
        chunking = store.chunking
    job = Job(source, Style(batched is not False, None, source.arguments), n, group, chunking, half, store, names)
    with _processes(source, pool) as source:
        run = Run(replace(job, source=source), pool, executor)
        simulations = run.in_memory(batched) if store is None else run.on_disk(store, batched, force=given.force)
    _warn_of_invalid_rows(simulations.invalid, simulations.failures, n)
    return replace(simulations, parameter_names=names)


def find_source(
    prior: Prior | Any, simulator: Simulator, seed: int, options: Mapping[str, Any], *, progress: bool
) -> Source:
    """A prior and a simulator with their options, checked; nothing is drawn or simulated."""
    given = find_options(dict(options))
    arguments = _check_simulator(simulator, prior, _check_names(prior, given.parameter_names))
    check_prior(prior)
    return Source(prior, simulator, check_whole("seed", seed, 0), arguments, given, progress)


@contextmanager
def _processes(source: Source, pool: Joblib) -> Iterator[Source]:
    """The source with processes for its rows, if their time is limited."""
    if source.options.timeout is None:
        yield source
        return
    processes = RowProcesses(source.simulator, source.options.timeout, pool.workers, collect=source.progress)
    try:
        yield replace(source, processes=processes)
    finally:
        processes.close()


def _check_names(prior: Any, given: Sequence[str] | None) -> tuple[str, ...] | None:
    """The names of the parameters, if the prior or the caller names them."""
    if given is None:
        return parameter_names(prior)
    count = math.prod(event_shape(prior))
    if len(given) != count or len(set(given)) != count:
        raise InputError(f"'parameter_names' must be {count} different names, got {list(given)}.")
    return tuple(given)


def _check_simulator(simulator: Any, prior: Any, names: tuple[str, ...] | None) -> tuple[Argument, ...] | None:
    """The parameters that the simulator takes by name; ``None`` if it takes a vector."""
    arguments = None
    if callable(simulator) and names is not None:
        parts = _parts(prior, names) if isinstance(prior, Mapping) else [(name, 1) for name in names]
        arguments = named_arguments(simulator, parts)
    if not callable(simulator) or (arguments is None and len(required_arguments(simulator)) > 2):
        raise InputError(f"The simulator must be a function of (theta) or (theta, rng), got {simulator!r:.80}.")
    return arguments


def _parts(prior: Mapping[str, Any], names: tuple[str, ...]) -> list[Argument]:
    """The entries of a dict with their sizes; those of several numbers have the names ``key_1``, ``key_2``, ...

    >>> _parts({"beta": None, "gamma": None}, ("beta", "gamma_1", "gamma_2"))
    [('beta', 1), ('gamma', 2)]
    """
    parts, left = [], list(names)
    for key in prior:
        size = int(left[:1] == [key])
        while left[:1] != [key] and left[size : size + 1] == [f"{key}_{size + 1}"]:
            size += 1
        parts.append((key, size))
        left = left[size:]
    return parts if not left else [(name, 1) for name in names]


def _default_chunk_size(n: int, path: str | Path | None) -> int:
    """The chunk size of an existing store, or that of about a hundred chunks."""
    if path is not None and Store.exists(path):
        return Store.open(path).chunk_size
    return max(1, min(LARGEST, math.ceil(n / BLOCK)))


def _warn_of_invalid_rows(invalid: int, failures: Failures, n: int) -> None:
    if invalid == n:
        if failures.total == n:
            raise SimulationError(f"All {n} simulations failed: {failures.most_frequent}.")
        raise InputError(f"All {n} simulations have NaN or infinite values in float32, so none can be used.")
    for count, what in (
        (failures.total, f"failed and are excluded; the most frequent error was {failures.most_frequent}"),
        (invalid - failures.total, "have NaN or infinite values and are excluded"),
    ):
        if count:
            share = f"{count} of {n} simulations ({100 * count / n:.2g} %)"
            warnings.warn(f"{share} {what}.", UserWarning, stacklevel=3)
