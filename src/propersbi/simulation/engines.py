"""Executors on the engines of clusters: Dask, Ray and MPI; see :mod:`propersbi.simulation.dispatch`.

Each engine is an optional dependency and loaded when it is used.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

from propersbi.simulation.dispatch import TRIES, Engine, Tasks, compute
from propersbi.simulation.failures import describe
from propersbi.types import InputError

__all__ = ["MPI", "Dask", "Ray"]

CONNECT = 10.0  # seconds after which a scheduler of Dask counts as absent


@dataclass(frozen=True)
class Dask(Engine):
    """Computes chunks on a cluster of :mod:`dask.distributed`: any that Dask can reach, by dask-jobqueue for example.

    Workers with one thread each are best, since a process computes one chunk at a time.

    Arguments:
        client: A ``distributed.Client``, or the address of a scheduler.
    """

    client: Any

    def connect(self, job: bytes) -> Tasks:
        """A connection by the client, or by one of our own."""
        Client = _module("distributed", "dask").Client
        if not isinstance(self.client, str | Client):
            raise InputError(f"Dask needs a distributed.Client or an address, got {type(self.client).__name__}.")
        if not isinstance(self.client, str):
            return _DaskTasks(self.client, job, own=False)
        try:
            return _DaskTasks(Client(self.client, set_as_default=False, timeout=CONNECT), job, own=True)
        except (OSError, ValueError) as error:
            raise InputError(f"There is no scheduler of Dask at '{self.client}': {describe(error)}.") from None


@dataclass
class _DaskTasks(Tasks):
    """Futures of Dask."""

    client: Any
    job: bytes
    own: bool

    def submit(self, index: int) -> Any:
        return self.client.submit(compute, self.job, index, pure=False)

    def wait(self, running: list[Any], seconds: float) -> list[Any]:
        try:
            return list(
                _module("distributed", "dask").wait(running, timeout=seconds, return_when="FIRST_COMPLETED").done
            )
        except TimeoutError:
            return []

    def result(self, task: Any) -> Any:
        try:
            return task.result()
        finally:
            task.release()

    def workers(self) -> int:
        return len(self.client.nthreads())

    def cancel(self, tasks: list[Any]) -> None:
        if tasks:
            self.client.cancel(tasks, force=True)

    def close(self, tasks: list[Any]) -> None:
        self.cancel(tasks)
        if self.own:
            self.client.close()


@dataclass(frozen=True)
class Ray(Engine):
    """Computes chunks on a cluster of Ray.

    Arguments:
        address: Of the cluster; ``None`` uses the one that is connected, or starts one on this machine.
    """

    address: str | None = None

    def connect(self, job: bytes) -> Tasks:
        """A connection to the cluster."""
        ray = _module("ray", "ray")
        own = not ray.is_initialized()
        if own:
            ray.init(address=self.address, log_to_driver=False, logging_level="error")
        return _RayTasks(ray, ray.put(job), ray.remote(max_retries=TRIES)(compute), own)


@dataclass
class _RayTasks(Tasks):
    """References of Ray."""

    ray: Any
    job: Any
    compute: Any
    own: bool

    def submit(self, index: int) -> Any:
        return self.compute.remote(self.job, index)

    def wait(self, running: list[Any], seconds: float) -> list[Any]:
        return list(self.ray.wait(running, num_returns=1, timeout=seconds)[0])

    def result(self, task: Any) -> Any:
        try:
            return self.ray.get(task)
        except self.ray.exceptions.RayTaskError as error:
            raise error.cause from None

    def workers(self) -> int:
        return int(self.ray.cluster_resources().get("CPU", 1))

    def cancel(self, tasks: list[Any]) -> None:
        for task in tasks:
            self.ray.cancel(task, force=True)

    def close(self, tasks: list[Any]) -> None:
        self.cancel(tasks)
        if self.own:
            self.ray.shutdown()


@dataclass(frozen=True)
class MPI(Engine):
    """Computes chunks on the ranks of MPI: start the script by ``mpiexec -n 8 python -m mpi4py.futures script.py``.

    A rank that is lost ends the whole MPI program, as MPI does; with ``path=``, starting it again continues.
    """

    def connect(self, job: bytes) -> Tasks:
        """A pool of the ranks but the first."""
        pool = _module("mpi4py.futures", "mpi").MPIPoolExecutor()
        return _MPITasks(pool, job)


@dataclass
class _MPITasks(Tasks):
    """Futures of a pool of ranks."""

    pool: Any
    job: bytes

    def submit(self, index: int) -> Any:
        return self.pool.submit(compute, self.job, index)

    def wait(self, running: list[Any], seconds: float) -> list[Any]:
        from concurrent.futures import FIRST_COMPLETED, wait

        return list(wait(running, seconds, FIRST_COMPLETED).done)

    def result(self, task: Any) -> Any:
        return task.result()

    def workers(self) -> int:
        return int(self.pool.num_workers)

    def cancel(self, tasks: list[Any]) -> None:
        for task in tasks:
            task.cancel()

    def close(self, tasks: list[Any]) -> None:
        self.cancel(tasks)
        self.pool.shutdown(wait=False, cancel_futures=True)


def _module(name: str, extra: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise InputError(f"{error}: install it with pip install 'propersbi[{extra}]'.") from None
