"""Rows in processes that can be ended: a row that takes too long, or takes its process with it, is one failure.

The processes are those of :mod:`pebble`. Random states go to the process with each row and come back with its result,
so that the results are those of calls in one process.
"""

from __future__ import annotations

import copy
import os
import pickle
import random
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, TimeoutError, as_completed
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from propersbi.simulation.callers import Caller, RowError
from propersbi.simulation.executors import follow
from propersbi.simulation.output import capture
from propersbi.simulation.priors import draw
from propersbi.simulation.results import ResultError, Values
from propersbi.simulation.styles import Style, convert, invoke
from propersbi.storage.randomness import stream
from propersbi.types import Array, Simulator

__all__ = ["Guarded", "RowProcesses", "Threads"]

_LOCK = threading.Lock()  # drawing from a prior sets the random states of the process


class _RandomState(NamedTuple):
    """All that a simulator may draw random numbers from; torch's as bytes, so that torch need not be loaded."""

    rng: np.random.Generator
    python: Any
    numpy: Any
    torch: bytes | None

    @classmethod
    def current(cls, rng: np.random.Generator) -> _RandomState:
        torch = sys.modules["torch"].get_rng_state().numpy().tobytes() if "torch" in sys.modules else None
        return cls(rng, random.getstate(), np.random.get_state(), torch)

    def restore(self) -> np.random.Generator:
        """Set the random states of this process; the generator is a copy."""
        random.setstate(self.python)
        np.random.set_state(self.numpy)
        torch = sys.modules.get("torch")
        if self.torch is not None and torch is not None:
            torch.set_rng_state(torch.frombuffer(bytearray(self.torch), dtype=torch.uint8))
        return copy.deepcopy(self.rng)


class _Outcome(NamedTuple):
    """What came of a call in a process."""

    values: Values | None
    error: BaseException | None
    state: _RandomState
    printed: str


class RowProcesses:
    """Processes that run the rows of a simulator, each for a limited time.

    Arguments:
        simulator: The simulator; it is pickled by value, as by joblib.
        timeout: Seconds per row.
        workers: The number of processes; ``None`` uses all cores.
        collect: Whether what the simulator prints is collected and printed in this process.
    """

    def __init__(self, simulator: Simulator, timeout: float, workers: int | None = 1, *, collect: bool = False) -> None:
        import cloudpickle
        from joblib import cpu_count
        from joblib.externals.loky.backend.context import get_context
        from pebble import ProcessPool

        # The processes of loky, joblib's own: scripts need no 'if __name__ == "__main__"'.
        self.workers = workers or cpu_count()
        self._timeout, self._collect = timeout, collect
        self._running: set[Any] = set()
        self._pool: Any = ProcessPool(
            max_workers=self.workers,
            context=get_context("loky"),
            initializer=_install,
            initargs=(cloudpickle.dumps(simulator), os.getpid()),
        )

    def run(self, style: Style, theta: Array, state: _RandomState) -> _Outcome:
        """Call the simulator; a batch may take as long as its rows."""
        from pebble import ProcessExpired

        seconds = self._timeout * (len(theta) if style.batched else 1)
        task = self._pool.schedule(_run, args=(style, theta, state, self._collect), timeout=seconds)
        self._running.add(task)
        try:
            return task.result()
        except TimeoutError:
            raise RowError(TimeoutError(f"no result within {seconds:g} s"), lost=True) from None
        except ProcessExpired as error:
            message = f"the process of the simulator ended with exit code {error.exitcode}"
            raise RowError(RuntimeError(message), lost=True) from None
        finally:
            self._running.discard(task)

    def close(self) -> None:
        """End the processes, whatever they do."""
        for task in tuple(self._running):
            task.cancel()  # threads may wait for it
        self._pool.stop()
        self._pool.join()


@dataclass
class Guarded(Caller):
    """Calls the simulator in one of the processes.

    Arguments:
        processes: The processes.
        place: Where the random stream belongs.
    """

    processes: RowProcesses
    place: tuple[int, ...]
    _state: _RandomState = field(init=False, repr=False)

    def __enter__(self) -> Guarded:
        self.restart(*self.place)
        return self

    def __exit__(self, *error: object) -> None:
        """Nothing is open: the processes are closed by their owner."""

    def restart(self, *place: int) -> None:
        """Continue with another random stream."""
        with _LOCK, stream(*place) as rng:
            self._state = _RandomState.current(rng)

    def draw(self, prior: Any, n: int) -> Array:
        """``n`` draws from the prior."""
        with _LOCK, stream(0):  # only to leave the states of the caller as they are
            rng = self._state.restore()
            theta = draw(prior, n, rng)
            self._state = _RandomState.current(rng)
        return theta

    def __call__(self, style: Style, theta: Array) -> Values:
        """What the simulator returns."""
        outcome = self.processes.run(style, convert(theta, style.library), self._state)
        self._state = outcome.state
        if outcome.printed:
            sys.stdout.write(outcome.printed)
        if outcome.state.torch is not None:
            import torch  # noqa: F401, the simulator did: the chunk is then repeated with its random state set
        if isinstance(outcome.error, ResultError):
            raise outcome.error
        if outcome.error is not None or outcome.values is None:
            error = outcome.error or RuntimeError("no result")
            raise RowError(error) from error
        return outcome.values


@dataclass(frozen=True)
class Threads:
    """Computes chunks in threads, which wait for the processes of their rows."""

    processes: RowProcesses

    def __call__(self, job: Callable[[int], Any], indices: Iterable[int]) -> Iterator[Any]:
        """The results, each as soon as it is finished."""
        with ThreadPoolExecutor(self.processes.workers) as pool:
            futures = [pool.submit(job, index) for index in indices]
            try:
                for future in as_completed(futures):
                    yield future.result()
            finally:
                for future in futures:
                    future.cancel()
                if not all(future.done() for future in futures):  # stopped early
                    self.processes.close()


_simulator: Any = None


def _install(content: bytes, parent: int) -> None:
    """Load the simulator into a new process; an error on the way is that of its rows."""
    global _simulator
    import cloudpickle

    threading.Thread(target=follow, args=(parent,), daemon=True).start()
    try:
        _simulator = cloudpickle.loads(content)
    except Exception as error:
        _simulator = _Broken(error)


@dataclass(frozen=True)
class _Broken:
    """In place of a simulator that cannot be loaded."""

    error: Exception

    def __call__(self, theta: Array) -> Any:  # noqa: ARG002
        raise self.error


def _run(style: Style, theta: Array, state: _RandomState, collect: bool) -> _Outcome:
    """A call in a process of its own."""
    torch_was_loaded = "torch" in sys.modules
    rng = state.restore()
    values, failure = None, None
    with capture(active=collect) as printed:
        try:
            values = invoke(_simulator, style, theta, rng)
        except (Exception, SystemExit) as error:
            failure = _picklable(error)
    if "torch" in sys.modules and not torch_was_loaded and state.torch is not None:
        return _run(style, theta, state, collect)  # the simulator imported torch, before its random state was set
    after = _RandomState.current(rng)
    return _Outcome(values, failure, after if after.torch else after._replace(torch=state.torch), printed.getvalue())


def _picklable(error: BaseException) -> BaseException:
    """The error, or one with the same text if it cannot be sent."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
