r"""How latent noise is drawn: from the normal distribution, or from one weighted by what the generator makes of it.

A one-pass generator :math:`g(z, x)` with :math:`z \sim N(0, I)` is to learn :math:`p(\theta \mid x)`, but parameters
drawn from a proposal, :math:`\tilde p(\theta) = v(\theta)\, p(\theta)`, follow
:math:`\tilde p(\theta \mid x) \propto v(\theta)\, p(\theta \mid x)`. Draws follow it too if the noise is drawn from

.. math:: \tilde p(z \mid x) \propto p(z)\, v\big(g(z, x)\big),

and then both can be scored against each other. A factor that depends on :math:`x` alone cancels. Two ways, both for all
rows at once and both without the density of :math:`z`: :class:`Rejection` and :class:`Metropolis`.

References:
    Ramesh et al., GATSBI, 2022, https://arxiv.org/abs/2203.06481
    Che et al., Your GAN is secretly an energy-based model, 2020, https://arxiv.org/abs/2003.06060
    Cotter et al., MCMC methods for functions, 2013, https://arxiv.org/abs/1202.0709
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from propersbi.samplers.base import Sampler
from propersbi.samplers.bounds import Bounds
from propersbi.samplers.generator import Generator
from propersbi.storage.checks import check_numbers
from propersbi.types import InputError

__all__ = ["Latent", "LatentCorrected", "Latents", "Metropolis", "Rejection"]

LogWeight = Callable[[Tensor, Tensor], Tensor]
"""``(z (k, r, latent), rows (r,)) -> log v (k, r)``: for those of the rows that are asked for."""

Noise = Callable[[int], Tensor]
"""``k -> z (k, n, latent)``, standard normal."""


class Latents(NamedTuple):
    """Latent variables ``(m, n, latent)``, the rows ``(n,)`` in which they are good, and the share accepted."""

    z: Float[Tensor, "m n latent"]
    good: Bool[Tensor, " n"]
    accepted: float


@runtime_checkable
class Latent(Protocol):
    """Draws latent variables from the normal distribution times a weight."""

    def __call__(self, log_weight: LogWeight, noise: Noise, m: int) -> Latents: ...


@dataclass(frozen=True)
class Rejection:
    r"""Accept :math:`z \sim N(0, I)` with probability :math:`v / \max v`, row by row.

    The largest weight seen in a row is its bound. When a later candidate is larger, earlier ones are judged again, with
    the same uniform numbers, so that all draws of a row are compared with the same bound. Only rows that lack draws get
    further candidates; one that has too few accepted draws in the end is not good.

    Arguments:
        batch: Candidates per row in a try.
        tries: Tries at most.
        log_bound: The logarithm of a bound of the weight, where one is known; draws are then exact.

    Examples:
        >>> noise = lambda k: torch.randn(k, 3, 1)
        >>> z, good, _ = Rejection()(lambda z, rows: -z[..., 0] ** 2 / 2, noise, 10)
        >>> z.shape, good.all()
        (torch.Size([10, 3, 1]), tensor(True))
    """

    batch: int = 50
    tries: int = 20
    log_bound: float | None = None

    def __post_init__(self) -> None:
        _check_positive(batch=self.batch, tries=self.tries)

    def __call__(self, log_weight: LogWeight, noise: Noise, m: int) -> Latents:
        """``m`` draws for each row."""
        z = noise(0)
        heights = log_uniform = z[..., 0]
        judged = accepted = heights.bool()
        for _ in range(self.tries):
            lacking = accepted.sum(0) < m
            if not lacking.any():
                break
            new, rows = noise(max(self.batch, m)), lacking.nonzero().squeeze(1)
            height = torch.full_like(new[..., 0], -torch.inf)
            height[:, rows] = log_weight(new[:, rows], rows)
            z, heights = torch.cat([z, new]), torch.cat([heights, height])
            judged = torch.cat([judged, lacking.expand_as(height)])
            log_uniform = torch.cat([log_uniform, torch.rand_like(height).log()])
            accepted = judged & (log_uniform <= heights - self._bound(heights))
        first = (~accepted).byte().argsort(dim=0, stable=True)[:m]  # the accepted ones, in the order they came
        chosen = z.gather(0, first.unsqueeze(-1).expand(-1, -1, z.shape[-1]))
        return Latents(chosen, accepted.sum(0) >= m, (accepted.sum() / judged.sum()).item())

    def _bound(self, height: Tensor) -> Tensor | float:
        if self.log_bound is None:
            return height.amax(0)
        if (height > self.log_bound).any():
            raise InputError(f"A weight of exp({height.max():.3g}) exceeds the bound exp({self.log_bound:.3g}).")
        return self.log_bound


@dataclass(frozen=True)
class Metropolis:
    r"""A Markov chain for each draw, which moves to :math:`z' = \sqrt{1 - b^2}\, z + b\, \varepsilon`.

    With :math:`\varepsilon \sim N(0, I)` the move leaves the normal distribution invariant, so it is accepted with
    probability :math:`\min(1, v(z') / v(z))`. Reaches take turns: 1 starts afresh and crosses between modes, small ones
    explore. Chains start from the normal distribution and forget it; a row whose chains hardly moved is not good.

    Arguments:
        steps: Moves of each chain.
        reaches: The sizes b of the moves, in (0, 1].
        least: The share of moves of a row that must have been accepted.

    Examples:
        >>> noise = lambda k: torch.randn(k, 3, 1)
        >>> z, good, _ = Metropolis(steps=5)(lambda z, rows: -z[..., 0] ** 2 / 2, noise, 10)
        >>> z.shape, good.all()
        (torch.Size([10, 3, 1]), tensor(True))
    """

    steps: int = 20
    reaches: Sequence[float] = (1.0, 0.5, 0.2)
    least: float = 0.1

    def __post_init__(self) -> None:
        _check_positive(steps=self.steps)
        check_numbers("reaches", self.reaches, "lie in (0, 1]", 0, math.nextafter(1, 2))

    def __call__(self, log_weight: LogWeight, noise: Noise, m: int) -> Latents:
        """``m`` draws for each row."""
        z = noise(m)
        rows = torch.arange(z.shape[1], device=z.device)
        height, moved = log_weight(z, rows), torch.zeros_like(z[..., 0])
        for step in range(self.steps):
            reach = self.reaches[step % len(self.reaches)]
            other = (1 - reach**2) ** 0.5 * z + reach * noise(m)
            proposed = log_weight(other, rows)
            accepted = torch.rand_like(proposed).log() <= proposed - height
            z = torch.where(accepted.unsqueeze(-1), other, z)
            height = torch.where(accepted, proposed, height)
            moved += accepted
        share = moved / self.steps
        return Latents(z, share.mean(0) >= self.least, share.mean().item())


class LatentCorrected(Sampler):
    """A one-pass generator whose draws in training follow the posterior of the proposal, not of the prior.

    A row without good latent variables is scored against itself: it has no gradient. Whether that happens depends on
    its data and not on its parameter, so it does not bias the training. The buffer ``left_out`` counts such rows and
    all rows seen in training; like the weights, it is part of every checkpoint.

    Arguments:
        generator: The generator that is trained.
        latent: How latent variables are drawn.
        log_weight: The logarithm of proposal over prior at parameters ``(k, n, *theta)`` in the user's units.
        in_user_units: From the generator's units to the user's, and into the support.
    """

    left_out: Tensor

    def __init__(
        self,
        generator: Generator,
        latent: Latent,
        log_weight: Callable[[Tensor], Tensor],
        in_user_units: Callable[[Tensor], Tensor],
    ) -> None:
        super().__init__()
        if not isinstance(generator, Generator):
            raise InputError(
                "Latent variables are corrected for generators that draw in one pass: ask for refinement_steps=1."
            )
        self.generator, self.latent, self.log_weight, self.in_user_units = generator, latent, log_weight, in_user_units
        self.theta_shape, self.x_shape = generator.theta_shape, generator.x_shape
        self.register_buffer("left_out", torch.zeros(2, dtype=torch.int64))

    @property
    def left_out_share(self) -> float:
        """The share of training rows without good latent variables."""
        rows, total = self.left_out.tolist()
        return rows / max(1, total)

    def prepare(self, theta: Float[Tensor, "n *theta"], x: Float[Tensor, "n *x"], bounds: Bounds) -> None:
        """Prepare the generator."""
        self.generator.prepare(theta, x, bounds)

    def sample(self, m: int, x: Float[Tensor, "n *x"]) -> Float[Tensor, "m n *theta"]:
        """``m`` draws of the generator for each row of ``x``, without correction."""
        return self.generator.sample(m, x)

    def training_pair(
        self, m: int, theta: Float[Tensor, "n *theta"], x: Float[Tensor, "n *x"]
    ) -> tuple[Float[Tensor, "m n *theta"], Float[Tensor, "n *theta"]]:
        """Draws of the proposal's posterior, and the proposed parameter they are scored against."""
        context = self.generator.embed(x)
        with torch.no_grad():
            detached = context.detach()
            latents = self.latent(
                lambda z, rows: self.log_weight(self.in_user_units(self.generator(detached[rows], z))),
                lambda k: self.generator.noise(k, len(x)),
                m,
            )
        if self.training:
            self.left_out += torch.tensor([int((~latents.good).sum()), len(x)], device=self.left_out.device)
        good = latents.good.reshape(-1, *[1] * (theta.ndim - 1))
        return torch.where(good, self.generator(context, latents.z), theta), theta


def _check_positive(**counts: int) -> None:
    for name, count in counts.items():
        if not isinstance(count, int) or count < 1:
            raise InputError(f"'{name}' must be a positive whole number, got {count}.")
