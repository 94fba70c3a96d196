r"""Objectives: what the trainer minimises.

:class:`ScoreMinimization` is the method of the library: draw :math:`m` parameters from the sampler for each pair
:math:`(\theta, x)`, score them against :math:`\theta`, and go downhill:

.. math:: \min_\phi \frac1n \sum_{i=1}^n w_i\, S\big(g_\phi(\cdot, x_i), \theta_i\big).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor, nn

from propersbi.types import Batch, InputError, Phase, Sampler, ScoringRule

__all__ = ["ScoreMinimization"]


@dataclass(frozen=True)
class ScoreMinimization:
    """Train a sampler by a scoring rule of its draws.

    Arguments:
        sampler: A generator, or anything with ``sample`` and ``aim``.
        rule: The scoring rule.
        m: Draws per pair, at least 2. More draws give gradients with less noise.
    """

    sampler: Sampler
    rule: ScoringRule
    m: int = 10

    def __post_init__(self) -> None:
        if self.m < 2:
            raise InputError(f"A scoring rule needs m > 1 draws, got m = {self.m}.")

    @property
    def networks(self) -> Mapping[str, nn.Module]:
        """The one network to train."""
        assert isinstance(self.sampler, nn.Module)
        return {"sampler": self.sampler}

    def phases(self) -> tuple[Phase, ...]:
        """One phase: the sampler goes down its score."""
        return (Phase("sampler", self.loss),)

    def loss(self, batch: Batch) -> Float[Tensor, ""]:
        """The weighted mean score of a batch."""
        rows = self.validate(batch)
        return rows.mean() if batch.weight is None else (batch.weight * rows).mean()

    def validate(self, batch: Batch) -> Float[Tensor, " n"]:
        """The score of each row."""
        return self.rule(*self.sampler.aim(self.m, batch.theta, batch.x))
