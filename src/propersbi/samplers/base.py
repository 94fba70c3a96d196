r"""The sampler contract: draws of the parameters given data.

.. math:: \vartheta_1, \dots, \vartheta_m \sim q(\cdot \mid x).

A sampler is trained by scoring its draws against the parameter that made the data. How it draws in training may differ
from how it draws afterwards: :meth:`Sampler.training_pair` gives the draws and the target they are scored against.
Networks implement the contract; wrappers add units, a regression or further steps and are samplers themselves.

Shapes: the sample axis comes first, then one batch axis, then the event: draws are ``(m, n, *theta)``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from propersbi.samplers.bounds import Bounds
from propersbi.types import InputError

__all__ = [
    "Adapted",
    "DensitySampler",
    "RefinedSampler",
    "Sampler",
    "Wrapper",
    "has_density",
    "log_density",
    "refinement_steps_of",
    "sample_with",
]


class Sampler(nn.Module, ABC):
    """Draws parameters given data; to write one, give it two shapes and :meth:`sample`.

    Constructors store each argument under its own name, so that a sampler can be saved as JSON and weights.
    """

    theta_shape: tuple[int, ...]
    x_shape: tuple[int, ...]

    @abstractmethod
    def sample(self, m: int, x: Float[Tensor, "n *x"]) -> Float[Tensor, "m n *theta"]:
        """``m`` draws for each row of ``x``."""

    def training_pair(
        self, m: int, theta: Float[Tensor, "n *theta"], x: Float[Tensor, "n *x"]
    ) -> tuple[Float[Tensor, "m n *theta"], Float[Tensor, "n *theta"]]:
        """``m`` draws for each row of ``x``, and the target they are scored against: by default the parameter itself.

        A sampler of several steps draws a single one of them and returns draws and target in the units of that step,
        so that every scoring rule sees targets of order one.
        """
        return self.sample(m, x), theta

    def prepare(self, theta: Float[Tensor, "n *theta"], x: Float[Tensor, "n *x"], bounds: Bounds) -> None:
        """Find on data what is not trained (units, a regression, bounds); nothing by default.

        Arguments:
            theta: Parameters, in the sampler's units.
            x: The data they made, likewise.
            bounds: Bounds of the parameters, likewise.
        """

    @property
    def regressors(self) -> int:
        """How many numbers of the data a linear regression starts from."""
        return math.prod(self.x_shape)

    def prepare_regressors(self, x: Float[Tensor, "n *x"]) -> None:
        """Find on data what :meth:`regress_on` needs; nothing by default."""

    def regress_on(self, x: Float[Tensor, "n *x"]) -> Float[Tensor, "n regressors"]:
        """The numbers a linear regression starts from: the data, flattened, or fixed statistics of them."""
        return x.flatten(1)


class DensitySampler(Sampler):
    """A sampler that also knows its density."""

    @property
    def has_density(self) -> bool:
        """Whether :meth:`log_prob` can be called; a wrapper has a density if the wrapped sampler has one."""
        return True

    @abstractmethod
    def log_prob(self, theta: Float[Tensor, "*m n _"], x: Float[Tensor, "n *x"]) -> Float[Tensor, "*m n"]:
        """The logarithm of the density at ``theta``."""


class RefinedSampler(Sampler):
    """A sampler that refines its draws in several steps, whose number can be changed after training."""

    @property
    @abstractmethod
    def refinement_steps(self) -> int:
        """The number of steps, unless another one is asked for."""

    @abstractmethod
    def sample(
        self, m: int, x: Float[Tensor, "n *x"], *, refinement_steps: int | None = None
    ) -> Float[Tensor, "m n *theta"]:
        """``m`` draws for each row of ``x``, refined in so many steps."""


class Wrapper(RefinedSampler, DensitySampler):
    """A sampler around another one: it has a density, or takes steps, if the wrapped sampler does."""

    sampler: Sampler

    def __init__(self, sampler: Sampler) -> None:
        super().__init__()
        self.sampler = sampler
        self.theta_shape, self.x_shape = tuple(sampler.theta_shape), tuple(sampler.x_shape)

    @property
    def has_density(self) -> bool:
        """Whether the wrapped sampler has a density."""
        return has_density(self.sampler)

    @property
    def refinement_steps(self) -> int:
        """The number of steps of the wrapped sampler."""
        return refinement_steps_of(self.sampler)

    @property
    def regressors(self) -> int:
        """Those of the wrapped sampler."""
        return self.sampler.regressors

    def prepare_regressors(self, x: Float[Tensor, "n *x"]) -> None:
        """Prepare those of the wrapped sampler."""
        self.sampler.prepare_regressors(x)

    def regress_on(self, x: Float[Tensor, "n *x"]) -> Float[Tensor, "n regressors"]:
        """What the wrapped sampler regresses on."""
        return self.sampler.regress_on(x)


def has_density(sampler: Sampler) -> bool:
    """Whether a sampler knows its density."""
    return isinstance(sampler, DensitySampler) and sampler.has_density


def log_density(sampler: Sampler, theta: Tensor, x: Tensor) -> Tensor:
    """The log density of a sampler that has one."""
    if not (isinstance(sampler, DensitySampler) and sampler.has_density):
        raise InputError("This posterior can only be sampled: train a flow with MaximumLikelihood for a density.")
    return sampler.log_prob(theta, x)


def refinement_steps_of(sampler: Sampler) -> int:
    """The number of steps a sampler takes: 1 for those that draw in one pass."""
    return sampler.refinement_steps if isinstance(sampler, RefinedSampler) else 1


def sample_with(sampler: Sampler, m: int, x: Tensor, refinement_steps: int | None) -> Tensor:
    """Draws of a sampler in another number of steps than its own, if one is given."""
    if refinement_steps is None:
        return sampler.sample(m, x)
    if refinement_steps_of(sampler) == 1 or not isinstance(sampler, RefinedSampler):
        raise InputError(f"This posterior draws in one pass: it cannot take refinement_steps = {refinement_steps}.")
    return sampler.sample(m, x, refinement_steps=refinement_steps)


class Adapted(Sampler):
    """A module of the user's own that has the methods of a sampler without being a subclass.

    Arguments:
        module: With ``sample(m, x)`` and, if its draws are not scored against the parameter itself,
            ``training_pair(m, theta, x)``; perhaps ``prepare(theta, x, bounds)``.
        theta_shape: The event shape of the parameters.
        x_shape: The event shape of the data.
    """

    def __init__(self, module: nn.Module, theta_shape: Sequence[int], x_shape: Sequence[int]) -> None:
        super().__init__()
        if not callable(getattr(module, "sample", None)):
            raise InputError(f"A network must have a method sample(m, x), which {type(module).__name__} has not.")
        self.module, self.theta_shape, self.x_shape = module, tuple(theta_shape), tuple(x_shape)

    def sample(self, m: int, x: Float[Tensor, "n *x"]) -> Float[Tensor, "m n *theta"]:
        """The module's own draws."""
        return self._method("sample")(m, x)

    def training_pair(
        self, m: int, theta: Float[Tensor, "n *theta"], x: Float[Tensor, "n *x"]
    ) -> tuple[Float[Tensor, "m n *theta"], Float[Tensor, "n *theta"]]:
        """The module's own pair, or its draws and the parameter."""
        own = self._method("training_pair")
        return super().training_pair(m, theta, x) if own is None else own(m, theta, x)

    def prepare(self, theta: Float[Tensor, "n *theta"], x: Float[Tensor, "n *x"], bounds: Bounds) -> None:
        """The module's own preparation, if it has one."""
        own = self._method("prepare")
        if own is not None:
            own(theta, x, bounds)

    def _method(self, name: str) -> Any:
        return getattr(self.module, name, None)  # a class of the user's, which need not have all methods
