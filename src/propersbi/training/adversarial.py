r"""Adversarial training: a sampler against a critic, as GANs do (the baseline of the paper, GATSBI).

The critic learns to distinguish the parameters that made the data from draws, the sampler to make that impossible. How
the critic's outputs become losses is a :class:`~propersbi.training.divergences.Divergence`. Validation pairs are scored
by a scoring rule all the same, so that curves share an axis with those of score training.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call

from propersbi.networks.critic import MLPCritic
from propersbi.samplers.base import Sampler, refinement_steps_of
from propersbi.scoring import EnergyScore
from propersbi.storage.checks import check_number, is_number
from propersbi.storage.config import encode
from propersbi.training.divergences import Divergence, JensenShannon
from propersbi.training.objectives import Objective, weighted_mean
from propersbi.training.stopping import Collapse, Stopping
from propersbi.types import Batch, InputError, Phase, ScoringRule

__all__ = ["Adversarial"]


@dataclass(frozen=True)
class Adversarial(Objective):
    """Train a sampler against a critic.

    Arguments:
        sampler: A one-pass sampler.
        divergence: How the critic's outputs become losses; see :mod:`propersbi.training.divergences`.
        critic: A network ``(theta, x) -> number``; one from the shapes unless given.
        draws: Draws per pair.
        critic_steps: Steps of the critic in a round,
        sampler_steps: and of the sampler.
        unrolled: Further steps of the critic that the sampler anticipates: they are taken on its own batch, used and
            undone (first order: no gradient flows through them).
        unroll_rate: The step size of these.
        rule: Scores validation pairs.
        validation_draws: Draws per validation pair.
    """

    sampler: Sampler
    divergence: Divergence = JensenShannon()  # noqa: RUF009
    critic: nn.Module | None = None
    draws: int = 1
    critic_steps: int = 1
    sampler_steps: int = 1
    unrolled: int = 0
    unroll_rate: float = 1e-3
    rule: ScoringRule = EnergyScore(beta=0.5)  # noqa: RUF009
    validation_draws: int = 20

    stopping: ClassVar[tuple[Stopping, ...]] = (Collapse(),)
    settings: ClassVar[Mapping[str, Any]] = {"learning_rate": 2e-4, "betas": (0.5, 0.99)}

    def __post_init__(self) -> None:
        if not isinstance(self.sampler, Sampler):
            raise InputError(f"'sampler' must be a sampler, got {type(self.sampler).__name__}.")
        if refinement_steps_of(self.sampler) != 1:
            raise InputError("Adversarial training is for samplers that draw in one pass: ask for refinement_steps=1.")
        for name, least in (("draws", 1), ("critic_steps", 1), ("sampler_steps", 1), ("unrolled", 0)):
            _check_least(name, getattr(self, name), least)
        _check_least("validation_draws", self.validation_draws, 2)
        check_number("unroll_rate", self.unroll_rate, "be positive", 0)
        if self.critic is None:
            object.__setattr__(self, "critic", MLPCritic(self.sampler.theta_shape, self.sampler.x_shape))

    @property
    def networks(self) -> Mapping[str, nn.Module]:
        """Critic and sampler."""
        return {"critic": self._critic, "sampler": self.sampler}

    @property
    def _critic(self) -> nn.Module:
        assert self.critic is not None  # given, or made from the shapes
        return self.critic

    def phases(self) -> tuple[Phase, ...]:
        """First the critic, then the sampler."""
        critic = Phase("critic", self.critic_loss, self.critic_steps)
        return critic, Phase("sampler", self.sampler_loss, self.sampler_steps)

    def critic_loss(self, batch: Batch) -> Float[Tensor, ""]:
        """What the critic descends; draws are constants."""
        with torch.no_grad():
            samples, target = self.sampler.training_pair(self.draws, batch.theta, batch.x)
        return self._critic_loss(samples, target, batch, None)

    def sampler_loss(self, batch: Batch) -> Float[Tensor, ""]:
        """What the sampler descends, against the critic as it is or will be."""
        samples, target = self.sampler.training_pair(self.draws, batch.theta, batch.x)
        weights = {name: weight.detach() for name, weight in self._critic.named_parameters()}
        for _ in range(self.unrolled):
            moving = {name: weight.requires_grad_() for name, weight in weights.items()}
            loss = self._critic_loss(samples.detach(), target, batch, moving)
            slopes = torch.autograd.grad(loss, list(moving.values()))
            weights = {
                name: (weight - self.unroll_rate * slope).detach()
                for (name, weight), slope in zip(moving.items(), slopes, strict=True)
            }
        return weighted_mean(self.divergence.generator_loss(self._output(samples, batch.x, weights)), batch)

    def _critic_loss(
        self, samples: Tensor, target: Tensor, batch: Batch, weights: Mapping[str, Tensor] | None
    ) -> Tensor:
        # Both in one pass: spectral norms are then the same for both.
        output = self._output(torch.cat([target.unsqueeze(0), samples]), batch.x, weights)
        rows = self.divergence.critic_loss(output[0], output[1:])
        if self.divergence.penalty:
            share = torch.rand(len(target), *[1] * (target.ndim - 1), device=target.device)
            between = torch.lerp(target, samples[0], share).detach().requires_grad_()
            with torch.enable_grad():
                value = self._output(between.unsqueeze(0), batch.x, weights)
                (slope,) = torch.autograd.grad(value.sum(), between, create_graph=True)
            rows = rows + self.divergence.penalty * (slope.flatten(1).norm(dim=1) - 1).square()
        return weighted_mean(rows, batch)

    def _output(self, theta: Tensor, x: Tensor, weights: Mapping[str, Tensor] | None) -> Tensor:
        if weights is None:
            return self._critic(theta, x)
        return functional_call(self._critic, dict(weights), (theta, x))

    def validate(self, batch: Batch) -> Float[Tensor, " n"]:
        """The score of each row, by the rule and not by the critic."""
        return self.rule(*self.sampler.training_pair(self.validation_draws, batch.theta, batch.x))

    def measures(self, batch: Batch) -> Mapping[str, float]:
        """The spread of the draws for one observation, and how much higher the critic rates real parameters."""
        samples, target = self.sampler.training_pair(self.validation_draws, batch.theta, batch.x)
        spread = (samples.std(0).mean() / target.std(0).mean().clamp_min(1e-12)).item()
        real, drawn = self._critic(target, batch.x).sigmoid(), self._critic(samples, batch.x).sigmoid()
        return {"spread": spread, "evenness": (real.mean() - drawn.mean()).item()}

    def describe(self) -> dict[str, Any]:
        """Divergence, draws and turns."""
        names = ("divergence", "draws", "critic_steps", "sampler_steps", "unrolled", "unroll_rate", "rule")
        return {**super().describe(), **{name: encode(getattr(self, name)) for name in names}}


def _check_least(name: str, value: int, least: int) -> None:
    if not is_number(value) or value < least:
        raise InputError(f"'{name}' must be at least {least}, got {value!s:.80}.")
