r"""Objectives: what the trainer minimises.

:class:`ScoreMinimization` is the method of the library: draw :math:`m` parameters from the sampler for each pair
:math:`(\theta, x)`, score them against :math:`\theta`, and go downhill:

.. math:: \min_\phi \frac1n \sum_{i=1}^n w_i\, S\big(g_\phi(\cdot, x_i), \theta_i\big).

The baselines it is compared with train the same samplers in the same loop: :class:`Adversarial` against a critic,
:class:`MaximumLikelihood` by the log score, for samplers with a density.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call

from propersbi.training.divergences import JensenShannon
from propersbi.networks.critic import MLPCritic
from propersbi.scoring import EnergyScore
from propersbi.types import Batch, Game, InputError, Phase, Sampler, ScoringRule

__all__ = ["Adversarial", "MaximumLikelihood", "ScoreMinimization"]


class _OneSampler:
    """An objective with one network, a sampler, that goes down a score of each row."""

    sampler: Any

    @property
    def networks(self) -> Mapping[str, nn.Module]:
        """The one network to train."""
        return {"sampler": self.sampler}

    def phases(self) -> tuple[Phase, ...]:
        """One phase: the sampler goes down its score."""
        return (Phase("sampler", self.loss),)

    def loss(self, batch: Batch) -> Float[Tensor, ""]:
        """The weighted mean score of a batch."""
        return _mean(self.validate(batch), batch)

    def validate(self, batch: Batch) -> Float[Tensor, " n"]:
        """The score of each row."""
        raise NotImplementedError


@dataclass(frozen=True)
class ScoreMinimization(_OneSampler):
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

    def validate(self, batch: Batch) -> Float[Tensor, " n"]:
        """The score of each row."""
        return self.rule(*self.sampler.aim(self.m, batch.theta, batch.x))


@dataclass(frozen=True)
class Adversarial:
    """Train a sampler against a critic, as GANs do; held-out pairs are judged by a scoring rule all the same.

    Arguments:
        sampler: A one-pass generator.
        game: How both are scored; see :mod:`propersbi.training.divergences`.
        critic: A network ``(theta, x) -> number``; one from the shapes unless given.
        m: Draws per pair.
        critic_steps: Steps of the critic in a round,
        sampler_steps: and of the sampler.
        unrolled: Further steps of the critic that the sampler foresees: they are taken on its own batch, looked at and
            taken back (first order: no gradient flows through them).
        unroll_rate: The step size of these.
        rule: Judges held-out pairs, so that curves share an axis with those of score training.
        judged: Draws per held-out pair.
        stop_when_even: Whether to stop when the critic has told real from drawn parameters no better than by this
            probability for ten looks in a row, as GATSBI does with 0.001; ``None`` goes on.
    """

    sampler: Sampler
    game: Game = JensenShannon()  # noqa: RUF009
    critic: nn.Module = None  # type: ignore[assignment]
    m: int = 1
    critic_steps: int = 1
    sampler_steps: int = 1
    unrolled: int = 0
    unroll_rate: float = 1e-3
    rule: ScoringRule = EnergyScore(beta=0.5)  # noqa: RUF009
    judged: int = 20
    stop_when_even: float | None = None
    evenness: list[float] = field(default_factory=list, init=False, repr=False)
    spreads: list[float] = field(default_factory=list, init=False, repr=False)

    training: ClassVar[dict[str, Any]] = {"learning_rate": 2e-4, "betas": (0.5, 0.99)}
    """Better settings of the training loop than those for scores."""

    def __post_init__(self) -> None:
        if hasattr(self.sampler, "steps"):
            raise InputError("A game trains samplers that draw in one pass: ask for steps=1.")
        for name, least in (("m", 1), ("critic_steps", 1), ("sampler_steps", 1), ("unrolled", 0), ("judged", 2)):
            if getattr(self, name) < least:
                raise InputError(f"'{name}' must be at least {least}, got {getattr(self, name)}.")
        if self.critic is None:
            shapes: Any = self.sampler
            object.__setattr__(self, "critic", MLPCritic(shapes.theta_shape, shapes.x_shape))

    @property
    def networks(self) -> Mapping[str, nn.Module]:
        """Both players."""
        assert isinstance(self.sampler, nn.Module)
        return {"critic": self.critic, "sampler": self.sampler}

    def phases(self) -> tuple[Phase, ...]:
        """The critic moves first."""
        critic = Phase("critic", self.critic_loss, self.critic_steps)
        return critic, Phase("sampler", self.sampler_loss, self.sampler_steps)

    def critic_loss(self, batch: Batch) -> Float[Tensor, ""]:
        """What the critic goes down; draws are taken as they are."""
        with torch.no_grad():
            samples, target = self.sampler.aim(self.m, batch.theta, batch.x)
        return self._critic_loss(samples, target, batch, None)

    def sampler_loss(self, batch: Batch) -> Float[Tensor, ""]:
        """What the sampler goes down, against the critic as it is or will be."""
        samples, target = self.sampler.aim(self.m, batch.theta, batch.x)
        weights = {name: weight.detach() for name, weight in self.critic.named_parameters()}
        for _ in range(self.unrolled):
            moving = {name: weight.requires_grad_() for name, weight in weights.items()}
            loss = self._critic_loss(samples.detach(), target, batch, moving)
            slopes = torch.autograd.grad(loss, list(moving.values()))
            weights = {
                name: (weight - self.unroll_rate * slope).detach()
                for (name, weight), slope in zip(moving.items(), slopes, strict=True)
            }
        return _mean(self.game.generator_loss(self._judge(samples, batch.x, weights)), batch)

    def _critic_loss(self, samples: Tensor, target: Tensor, batch: Batch, weights: Any) -> Tensor:
        # One look at both: spectral norms are then the same for both.
        said = self._judge(torch.cat([target.unsqueeze(0), samples]), batch.x, weights)
        rows = self.game.critic_loss(said[0], said[1:])
        penalty = getattr(self.game, "penalty", 0.0)
        if penalty:
            share = torch.rand(len(target), *[1] * (target.ndim - 1), device=target.device)
            between = torch.lerp(target, samples[0], share).detach().requires_grad_()
            with torch.enable_grad():
                value = self._judge(between.unsqueeze(0), batch.x, weights)
                (slope,) = torch.autograd.grad(value.sum(), between, create_graph=True)
            rows = rows + penalty * (slope.flatten(1).norm(dim=1) - 1).square()
        return _mean(rows, batch)

    def _judge(self, theta: Tensor, x: Tensor, weights: Any) -> Tensor:
        return self.critic(theta, x) if weights is None else functional_call(self.critic, weights, (theta, x))

    def validate(self, batch: Batch) -> Float[Tensor, " n"]:
        """The score of each row, by the rule and not by the game."""
        return self.rule(*self.sampler.aim(self.judged, batch.theta, batch.x))

    def trouble(self, batch: Batch) -> str:
        """In words, why it is no use to go on; empty if all is well."""
        samples, target = self.sampler.aim(self.judged, batch.theta, batch.x)
        self.spreads.append((samples.std(0).mean() / target.std(0).mean().clamp_min(1e-12)).item())
        # Some networks begin with draws that hardly differ: three looks in a row are no beginning.
        if len(self.spreads) >= 3 and max(self.spreads[-3:]) < 1e-3:
            return "the generator has collapsed: its draws for one observation hardly differ"
        if self.stop_when_even is None:
            return ""
        real, drawn = self.critic(target, batch.x).sigmoid(), self.critic(samples, batch.x).sigmoid()
        self.evenness.append((real.mean() - drawn.mean()).item())
        lately = self.evenness[-10:]
        even = len(lately) == 10 and abs(sum(lately) / 10) < self.stop_when_even
        return "the critic no longer tells real from drawn parameters" if even else ""


@dataclass(frozen=True)
class MaximumLikelihood(_OneSampler):
    r"""Train a sampler with a density by the log score, :math:`-\log q(\theta \mid x)`; strictly proper, too.

    Arguments:
        sampler: With ``log_prob(theta, x)``, for example a :class:`~propersbi.networks.Flow`.
    """

    sampler: Any
    training: ClassVar[dict[str, Any]] = {"learning_rate": 1e-3}

    def __post_init__(self) -> None:
        if not hasattr(self.sampler, "log_prob"):
            raise InputError(
                f"Maximum likelihood needs a sampler with a density, such as networks.Flow; "
                f"{type(self.sampler).__name__} has none."
            )

    def validate(self, batch: Batch) -> Float[Tensor, " n"]:
        """The log score of each row."""
        return -self.sampler.log_prob(batch.theta, batch.x)


def _mean(rows: Tensor, batch: Batch) -> Tensor:
    return rows.mean() if batch.weight is None else (batch.weight * rows).mean()
