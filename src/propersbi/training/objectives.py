r"""Objectives: what the training loop minimises.

:class:`ScoreMinimization` is the method of the library: draw :math:`m` parameters from the sampler for each pair
:math:`(\theta, x)`, score them against :math:`\theta`, and descend:

.. math:: \min_\phi \frac1n \sum_{i=1}^n w_i\, S\big(g_\phi(\cdot, x_i), \theta_i\big).

The baselines it is compared with train the same samplers in the same loop:
:class:`~propersbi.training.adversarial.Adversarial` against a critic, :class:`MaximumLikelihood` by the log score, for
samplers with a density. Objectives are stateless: what a training remembers is in its networks and its history.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from jaxtyping import Float
from torch import Tensor, nn

from propersbi.samplers.base import Sampler, has_density, log_density
from propersbi.storage.checks import is_number
from propersbi.storage.config import encode
from propersbi.training.stopping import Stopping
from propersbi.types import Batch, InputError, Phase, ScoringRule

__all__ = ["MaximumLikelihood", "Objective", "SamplerObjective", "ScoreMinimization", "weighted_mean"]


class Objective(ABC):
    """What is trained and by which losses; the training loop knows nothing else."""

    stopping: ClassVar[tuple[Stopping, ...]] = ()
    """Stopping rules of its own, besides those of the training configuration."""

    settings: ClassVar[Mapping[str, Any]] = {}
    """Fields of the training configuration that suit it better than the defaults, which are for scores."""

    @property
    @abstractmethod
    def networks(self) -> Mapping[str, nn.Module]:
        """The networks to train, by name."""

    @abstractmethod
    def phases(self) -> tuple[Phase, ...]:
        """What happens in a step: which network descends which loss, how often."""

    @abstractmethod
    def validate(self, batch: Batch) -> Float[Tensor, " n"]:
        """A proper score of each validation pair, whatever the losses are."""

    def measures(self, batch: Batch) -> Mapping[str, float]:  # noqa: ARG002
        """What else to measure at a validation, for stopping rules and the history; nothing by default."""
        return {}

    def describe(self) -> dict[str, Any]:
        """Its options as plain data, so that a checkpoint of another objective is not continued."""
        return {"objective": type(self).__name__}


class SamplerObjective(Objective):
    """An objective with one network, a sampler, that descends a score of each row."""

    sampler: Sampler

    @property
    def networks(self) -> Mapping[str, nn.Module]:
        """The sampler."""
        return {"sampler": self.sampler}

    def phases(self) -> tuple[Phase, ...]:
        """One phase: the sampler descends its mean score."""
        return (Phase("sampler", self.loss),)

    def loss(self, batch: Batch) -> Float[Tensor, ""]:
        """The weighted mean score of a batch."""
        return weighted_mean(self.validate(batch), batch)


@dataclass(frozen=True)
class ScoreMinimization(SamplerObjective):
    """Train a sampler by a scoring rule of its draws.

    Arguments:
        sampler: A sampler.
        rule: The scoring rule.
        draws: Draws per pair, at least 2. More draws give gradients with less noise.
    """

    sampler: Sampler
    rule: ScoringRule
    draws: int = 10

    def __post_init__(self) -> None:
        if not is_number(self.draws) or self.draws < 2:
            raise InputError(f"A scoring rule needs m > 1 draws, got draws = {self.draws!s:.80}.")

    def validate(self, batch: Batch) -> Float[Tensor, " n"]:
        """The score of each row."""
        return self.rule(*self.sampler.training_pair(self.draws, batch.theta, batch.x))

    def describe(self) -> dict[str, Any]:
        """The rule and the number of draws."""
        return {**super().describe(), "rule": encode(self.rule), "draws": self.draws}


@dataclass(frozen=True)
class MaximumLikelihood(SamplerObjective):
    r"""Train a sampler with a density by the log score, :math:`-\log q(\theta \mid x)`, which is strictly proper too.

    Arguments:
        sampler: With a density, for example a :class:`~propersbi.networks.Flow`.
    """

    sampler: Sampler
    settings: ClassVar[Mapping[str, Any]] = {"learning_rate": 1e-3}

    def __post_init__(self) -> None:
        if not has_density(self.sampler):
            raise InputError(
                f"Maximum likelihood needs a sampler with a density, such as networks.Flow; "
                f"{type(self.sampler).__name__} has none."
            )

    def validate(self, batch: Batch) -> Float[Tensor, " n"]:
        """The log score of each row."""
        return -log_density(self.sampler, batch.theta, batch.x)


def weighted_mean(rows: Float[Tensor, " n"], batch: Batch) -> Float[Tensor, ""]:
    """The mean over the rows of a batch, weighted where they have weights."""
    return rows.mean() if batch.weight is None else (batch.weight * rows).mean()
