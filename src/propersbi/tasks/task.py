"""What a task is: a problem with ten fixed observations and perhaps a sampler of the true posterior.

The observations and the parameters that made them are those of sbibm 1.1.0 (Lueckmann et al. 2021,
https://arxiv.org/abs/2101.04653), where it has the task, so that results can be compared with published ones.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any

import numpy as np

from propersbi.problem import Problem, ReferenceSampler
from propersbi.types import Array, InputError, Simulator

__all__ = ["Task"]

COUNT = 10  # observations of each task


@dataclass(frozen=True, kw_only=True, eq=False)
class Task(Problem):
    """A benchmark with a known answer. Takes the arguments of :class:`~propersbi.problem.Problem` and its own.

    Arguments:
        description: One line for people.
        theta_shape: The shape of one set of parameters.
        x_shape: The shape of one observation.
        posterior: ``(x (*x_shape), n, rng) -> (n, *theta_shape)``, independent draws of the true posterior.
        pair: ``(i) -> (theta, x)``, the true parameters and the data of observation ``i``, where they are not sbibm's.

    The simulator takes ``(theta (n, *theta_shape), rng)``; a prior with bounds describes its support by ``lower`` and
    ``upper``; and ``training`` is plain data, so that a task loads no torch.

    >>> from propersbi import tasks
    >>> task, rng = tasks.get("two_moons"), np.random.default_rng(0)
    >>> theta = task.prior.sample(5, rng)
    >>> theta.shape, task.simulate(theta, rng).shape
    ((5, 2), (5, 2))
    >>> task.reference_posterior(task.observation(1), 100, rng).shape
    (100, 2)
    """

    description: str
    theta_shape: tuple[int, ...]
    x_shape: tuple[int, ...]
    posterior: ReferenceSampler | None = field(default=None, repr=False)
    pair: Callable[[int], tuple[np.ndarray, np.ndarray]] | None = field(default=None, repr=False)

    def simulate(self, theta: Array, rng: np.random.Generator) -> np.ndarray:
        """Data ``(n, *x_shape)`` for parameters ``(n, *theta_shape)``."""
        theta = np.asarray(theta, dtype=float)
        if theta.ndim == 0 or theta.shape[1:] != self.theta_shape:
            expected = ", ".join(map(str, self.theta_shape))
            raise InputError(f"'theta' of {self.name} must have shape (n, {expected}), got {theta.shape}.")
        return np.asarray(self.simulator(theta, rng))

    @property
    def checked_simulator(self) -> Simulator:
        """The simulator, with the shape of the parameters checked."""
        return self.simulate

    @property
    def reference(self) -> ReferenceSampler | None:
        """What draws from the true posterior, if anything."""
        return None if self.posterior is None else self.reference_posterior

    def observation(self, i: int | None = None) -> np.ndarray:
        """Observation ``i``, from 1 to 10; the first, unless given."""
        return self._stored("observations", 1 if i is None else i)

    def true_parameters(self, i: int) -> np.ndarray:
        """The parameters that made observation ``i``, from 1 to 10."""
        return self._stored("true_parameters", i)

    def reference_posterior(self, x: Array, n: int, rng: np.random.Generator) -> np.ndarray:
        """``n`` independent draws ``(n, *theta_shape)`` of the true posterior of one observation."""
        if self.posterior is None:
            raise InputError(f"The true posterior of {self.name} cannot be sampled.")
        if n < 1:
            raise InputError(f"'n' must be at least 1, got {n}.")
        x = np.asarray(x, dtype=float)
        if x.shape not in (self.x_shape, (1, *self.x_shape)) or not np.isfinite(x).all():
            raise InputError(f"'x' of {self.name} must be one finite observation of shape {self.x_shape}, got {x}.")
        return self.posterior(x.reshape(self.x_shape), n, rng)

    def _stored(self, kind: str, i: int) -> np.ndarray:
        if i not in range(1, COUNT + 1):
            raise InputError(f"The observations of {self.name} are numbered from 1 to {COUNT}, got {i}.")
        if self.pair is not None:
            return self.pair(i)[kind == "observations"]
        return np.array(_observations()[self.name][kind][i - 1])


@cache
def _observations() -> dict[str, Any]:
    text = resources.files("propersbi.tasks").joinpath("observations.json").read_text(encoding="utf-8")
    stored: dict[str, Any] = json.loads(text)["tasks"]
    return stored
