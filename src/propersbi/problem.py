"""A problem: what is inferred and from which simulations. One object for a user's own file and for a task alike.

Nothing here needs torch: simulation workers load a problem and need no more than NumPy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from numbers import Number
from typing import Any

import numpy as np

from propersbi.types import Array, InputError, Simulator

__all__ = ["ENOUGH_PAIRS", "Noise", "Problem", "ReferenceSampler", "Settings"]

ReferenceSampler = Callable[[np.ndarray, int, np.random.Generator], np.ndarray]
SHARE, FEWEST, MOST = 10, 50, 1000  # test pairs: a tenth of the simulations, within these limits
ENOUGH_PAIRS = 300  # test pairs: fewer let errors pass that matter


@dataclass(frozen=True)
class Noise:
    """A simulator in two parts, where the last one is independent noise.

    Training then draws the noise anew for every batch, so that a network cannot memorise that of single simulations.

    Arguments:
        noiseless: ``theta -> x`` or ``(theta, rng) -> x``, the simulator without its noise.
        add: ``x -> x`` on torch tensors, which adds it.
    """

    noiseless: Simulator
    add: Callable[[Any], Any]


@dataclass(frozen=True)
class Settings:
    """How large a run is unless its caller says otherwise.

    Arguments:
        simulations: Pairs to train on.
        test: Pairs to test with; by default a tenth of the simulations, from 300 to 1000.
        num_samples: Posterior draws for each test pair.
        reference_samples: Draws of the reference posterior, where there is one; 0 leaves the comparison out.
        half_precision: Whether to store data in half precision.
        timeout: Seconds that one simulation may take; one that takes longer counts as failed. By default any time.
        on_error: What becomes of a simulation that raises, as for :func:`propersbi.simulate`; by default it is left out
            and counted.
        max_failed: The share of failed simulations that ends a run, as for :func:`propersbi.simulate`.

    >>> Settings(simulations=300).test_pairs(300), Settings(test=20).test_pairs(300)
    (300, 20)
    """

    simulations: int = 10_000
    test: int | None = None
    num_samples: int = 250
    reference_samples: int = 5000  # the C2ST of twice as many takes minutes
    half_precision: bool = False
    timeout: float | None = None
    on_error: str | None = None
    max_failed: float | None = None

    def test_pairs(self, simulations: int) -> int:
        """How many test pairs go with so many simulations."""
        return max(ENOUGH_PAIRS, self.few_test_pairs(simulations)) if self.test is None else self.test

    def few_test_pairs(self, simulations: int) -> int:
        """A tenth of the simulations, within limits: what a slow simulator has to do with."""
        return min(MOST, max(FEWEST, simulations // SHARE))


@dataclass(frozen=True, kw_only=True, eq=False)
class Problem:
    """A prior, a simulator and what is known about them.

    Arguments:
        prior: As for :func:`propersbi.simulate`; a density is not needed.
        simulator: ``(theta) -> x`` or ``(theta, rng) -> x``, of one set of parameters or of many, or of the parameters
            by name, as for :func:`propersbi.simulate`.
        name: What it is called in its runs.
        parameter_names: One for each parameter, no two alike.
        support: Where the parameters lie, if the prior does not say: bounds ``(lower, upper)``, a
            :class:`~propersbi.samplers.bounds.Box`, a torch constraint, a list or dict of these, or a function of
            ``theta (n, *event)`` that is true inside.
        discrete: Which parameters are whole numbers, by number or name, if the prior does not say.
        embedding: A network of the user's own that turns ``x`` into features.
        batched: Whether the simulator takes many parameters at once; ``None`` finds out.
        x_o: The observation, if there is one: in the form that the simulator returns.
        test_prior: The prior of test pairs, where the prior is a finite set of examples.
        noise: The simulator in two parts, where the last one is independent noise.
        view: ``(x (n, *x_shape)) -> (n, *shape)``, what to show of data that people cannot read as they are.
        settings: How large a run is unless its caller says otherwise.
        training: A recipe of its own: changes of the recipe that follows from the data, by name, as for
            :func:`propersbi.fit`. Objects of the library may stand there as plain data:
            ``{"class": "EnergyScore", "beta": 1.0}``.
        digest: The checksum of the file it was read from.

    >>> problem = Problem(prior=np.zeros((5, 2)), simulator=lambda theta: theta, x_o=[0.5, 1.0])
    >>> problem.observation()
    array([0.5, 1. ])
    """

    prior: Any
    simulator: Simulator = field(repr=False)
    name: str = "problem"
    parameter_names: Sequence[str] | None = None
    support: Any = field(default=None, repr=False)
    discrete: Sequence[str | int] | None = field(default=None, repr=False)
    embedding: Any = field(default=None, repr=False)
    batched: bool | None = None
    x_o: Array | None = field(default=None, repr=False)
    test_prior: Any = field(default=None, repr=False)
    noise: Noise | None = field(default=None, repr=False)
    view: Callable[[np.ndarray], np.ndarray] | None = field(default=None, repr=False)
    settings: Settings = field(default=Settings(), repr=False)
    training: Mapping[str, Any] = field(default_factory=dict, repr=False)
    digest: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not callable(self.simulator):
            raise InputError(f"'simulator' must be a function, got {type(self.simulator).__name__}.")
        for name, kind in (("noise", Noise), ("settings", Settings), ("training", Mapping)):
            value = getattr(self, name)
            if not isinstance(value, kind) and not (name == "noise" and value is None):
                raise InputError(f"'{name}' must be a {kind.__name__}, got {type(value).__name__}.")
        _check_names(self.parameter_names)
        _check_support(self.support)

    @property
    def checked_simulator(self) -> Simulator:
        """The simulator as a run calls it; a task checks the parameters first."""
        return self.simulator

    @property
    def training_simulator(self) -> Simulator:
        """What makes the data to train on: without the noise that training adds."""
        return self.checked_simulator if self.noise is None else self.noise.noiseless

    def simulation_options(self) -> dict[str, Any]:
        """How the simulator is called and what becomes of simulations that fail, as arguments of ``simulate``."""
        settings = self.settings
        failing: dict[str, Any] = {"timeout": settings.timeout, "on_error": settings.on_error}
        failing |= {"max_failed": settings.max_failed}
        if self.training.get("missing", "exclude") != "exclude":
            failing["missing"] = "allow"
        return {"batched": self.batched, **{name: value for name, value in failing.items() if value is not None}}

    def observation(self, i: int | None = None) -> np.ndarray | None:
        """The observation, if there is one. Only a task has several, by number."""
        if i is not None:
            raise InputError(f"Only a task has numbered observations: '{self.name}' has no observation {i}.")
        if isinstance(self.x_o, Mapping):
            return np.concatenate([np.ravel(part) for part in self.x_o.values()])
        return None if self.x_o is None else np.asarray(self.x_o)

    @property
    def reference(self) -> ReferenceSampler | None:
        """What draws from the true posterior of an observation, ``(x, n, rng) -> (n, *theta_shape)``, if anything."""
        return None


def _check_names(names: Any) -> None:
    if names is None:
        return
    if isinstance(names, str) or not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        raise InputError(f"'parameter_names' must be a list of names, got {names!r:.80}.")
    twice = [name for i, name in enumerate(names) if name in names[:i]]
    if twice:
        raise InputError(f"'parameter_names' must differ, but '{twice[0]}' is there twice.")


def _check_support(support: Any) -> None:
    """Refuse what says nothing about where parameters lie; the rest is seen when parameters are drawn."""
    if isinstance(support, Number | str | bytes | Set | np.ndarray):
        raise InputError(
            "'support' must be bounds (lower, upper), a Box, a torch constraint, a function of theta, or a list or "
            f"dict of these, got {support!r:.80}."
        )
