r"""Refinement: a posterior in several steps, each of them trained by the same scoring rule.

One pass has to turn noise into the whole posterior at once and blurs what is thin. A chain does it little by little.
Let :math:`\theta` be standardised and :math:`\theta_s = \theta + s\,\varepsilon` with :math:`\varepsilon \sim N(0, I)`.
One generator learns, at every noise level :math:`s`, to draw from :math:`p(\theta \mid \theta_s, x)`,

.. math:: \vartheta = c_{skip}(s)\, \theta_s + c_{out}(s)\, F(z; c_{in}(s)\, \theta_s, s, x),
          \quad c_{skip} = \tfrac{1}{1+s^2},\; c_{out} = \tfrac{s}{\sqrt{1+s^2}},\; c_{in} = \tfrac{1}{\sqrt{1+s^2}},

so that :math:`F` and its target :math:`(\theta - c_{skip}\theta_s)/c_{out}` are of order one at every level: any rule
scores :math:`F` against that target. The chain is initialised from pure noise, :math:`s \to \infty`, where the step is
a single pass, and descends a grid of levels: draw :math:`\vartheta`, then step to the next level :math:`s' < s` by the
exact Gaussian bridge between :math:`\vartheta` and :math:`\theta_s`,

.. math:: \theta_{s'} \sim N\big(\vartheta + \tfrac{s'^2}{s^2}(\theta_s - \vartheta),\;
          s'^2 (1 - \tfrac{s'^2}{s^2})\big).

Where the parameters have bounds (``truncated``), a regression with truncated normal errors, :math:`N(\mu(x), \sigma^2)`
between the bounds, says more than a standard normal distribution about them. Given :math:`\theta_s` it is again a
truncated normal, and a step starts there, with :math:`g` of :mod:`~propersbi.samplers.truncated`:

.. math:: \vartheta = M + \sqrt{V}\, g\Big(F; \tfrac{a - M}{\sqrt{V}}, \tfrac{b - M}{\sqrt{V}}\Big), \quad
          M = \frac{s^2 \mu(x) + \sigma^2 \theta_s}{s^2 + \sigma^2},\; V = \frac{s^2 \sigma^2}{s^2 + \sigma^2},

which is the equation above for :math:`\mu = 0`, :math:`\sigma = 1` and bounds :math:`a, b` at infinity. All draws then
lie inside the bounds.

Each step draws from a distribution and not a mean, so the chain is exact for any number of steps if the generator is:
the number of refinement steps can be changed after training.

References:
    De Bortoli et al., Distributional Diffusion Models with Scoring Rules, 2025, https://arxiv.org/abs/2502.02483
    Shen, Meinshausen & Zhang, Reverse Markov Learning, 2025, https://arxiv.org/abs/2502.13747
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from propersbi.samplers.base import RefinedSampler
from propersbi.samplers.bounds import UNBOUNDED, Bounds
from propersbi.samplers.generator import ChainGenerator
from propersbi.samplers.truncated import fit_truncated, truncate
from propersbi.types import InputError

__all__ = ["PURE_NOISE", "Refined"]

PURE_NOISE = 1000.0  # a noise level so high that the noisy parameter carries no information


class Refined(RefinedSampler):
    """A sampler that refines its draws step by step.

    Arguments:
        generator: A network conditioned on a noisy parameter and its noise level: built with ``chain=True``.
        refinement_steps: Steps at sampling time, unless others are asked for.
        lowest: The lowest noise level, in standard deviations of the parameters.
        highest: The highest one at which the noisy parameter carries information.
        center: Levels in training are log-normal, clipped to the range: the mean of their logarithm,
        spread: and its standard deviation.
        first: Share of the training spent on the first step, which starts from pure noise.
        truncated: Whether steps start as truncated normal distributions where the parameters have bounds; for
            parameters and data that are vectors.

    Examples:
        >>> from propersbi.networks import MLPGenerator
        >>> sampler = Refined(MLPGenerator((2,), (3,), chain=True, width=16))
        >>> sampler.sample(5, torch.zeros(4, 3), refinement_steps=3).shape
        torch.Size([5, 4, 2])
    """

    lower: Tensor
    upper: Tensor
    tilt: Tensor
    slope: Tensor
    shift: Tensor
    scale: Tensor

    def __init__(
        self,
        generator: ChainGenerator,
        *,
        refinement_steps: int = 8,
        lowest: float = 0.02,
        highest: float = 2.0,
        center: float = -1.2,
        spread: float = 1.6,
        first: float = 0.1,
        truncated: bool = False,
    ) -> None:
        super().__init__()
        if not 0 < lowest < highest < PURE_NOISE:
            raise InputError(
                f"Noise levels must have 0 < lowest < highest < {PURE_NOISE:g}, got {lowest!s:.40} and {highest!s:.40}."
            )
        if not (isinstance(generator, ChainGenerator) and generator.chain):
            raise InputError("Refinement needs a generator conditioned on a noisy parameter: build it with chain=True.")
        self.generator, self._refinement_steps = generator, _checked(refinement_steps)
        self.lowest, self.highest, self.center, self.spread, self.first = lowest, highest, center, spread, first
        self.theta_shape, self.x_shape = generator.theta_shape, generator.x_shape
        self.truncated = truncated
        if truncated:
            dim, features = math.prod(self.theta_shape), generator.regressors
            self.register_buffer("lower", torch.full((dim,), -UNBOUNDED))
            self.register_buffer("upper", torch.full((dim,), UNBOUNDED))
            self.register_buffer("tilt", torch.zeros(features, dim))
            self.register_buffer("slope", torch.zeros(features, dim))
            self.register_buffer("shift", torch.zeros(dim))
            self.register_buffer("scale", torch.ones(dim))

    @property
    def refinement_steps(self) -> int:
        """Steps at sampling time, unless others are asked for."""
        return self._refinement_steps

    @property
    def regressors(self) -> int:
        """Those of the generator."""
        return self.generator.regressors

    def prepare_regressors(self, x: Float[Tensor, "n *x"]) -> None:
        """Prepare those of the generator."""
        self.generator.prepare_regressors(x)

    def regress_on(self, x: Float[Tensor, "n *x"]) -> Float[Tensor, "n regressors"]:
        """What the generator regresses on."""
        return self.generator.regress_on(x)

    def prepare(self, theta: Float[Tensor, "n *theta"], x: Float[Tensor, "n *x"], bounds: Bounds) -> None:
        """Prepare the generator, and find where truncated steps start."""
        self.generator.prepare(theta, x, bounds)
        bounded = bounds.lower.isfinite().any() or bounds.upper.isfinite().any()
        if not self.truncated or bounds.point_masses or not bounded:
            return
        self.lower.copy_(bounds.lower.clamp(-UNBOUNDED, UNBOUNDED))
        self.upper.copy_(bounds.upper.clamp(-UNBOUNDED, UNBOUNDED))
        if bounds.tilt is not None:
            self.tilt.copy_(bounds.tilt)
        flat = self.regress_on(x).float()
        _, lower, upper = self._start(flat)
        slope, shift, scale, described = fit_truncated(theta.flatten(1), flat, lower, upper)
        for buffer, found in ((self.slope, slope), (self.shift, shift), (self.scale, scale)):
            buffer.copy_(found)
        others = ~described.to(self.lower.device)  # where steps start as normal distributions
        self.lower.masked_fill_(others, -UNBOUNDED)
        self.upper.masked_fill_(others, UNBOUNDED)

    def training_pair(
        self, m: int, theta: Float[Tensor, "n *theta"], x: Float[Tensor, "n *x"]
    ) -> tuple[Float[Tensor, "m n *theta"], Float[Tensor, "n *theta"]]:
        """Draws of one step from a random level, and their target, in the units of that level."""
        log_level = self.center + self.spread * torch.randn(len(theta), device=theta.device)
        level = log_level.exp().clamp(self.lowest, self.highest)
        level = torch.where(torch.rand_like(level) < self.first, PURE_NOISE, level)
        s = _beside(level, theta)
        noisy = theta + s * torch.randn_like(theta)
        skip, out = 1 / (1 + s**2), s / (1 + s**2).sqrt()
        raw = self.step(m, self.generator.embed(x), noisy, level)
        if self._bounded():
            raw = (self._truncated(raw, self._start(self.regress_on(x)), noisy, s) - skip * noisy) / out
        return raw, (theta - skip * noisy) / out

    def sample(
        self, m: int, x: Float[Tensor, "n *x"], *, refinement_steps: int | None = None
    ) -> Float[Tensor, "m n *theta"]:
        """``m`` draws for each row of ``x``, refined in so many steps."""
        levels = self.levels(self.refinement_steps if refinement_steps is None else _checked(refinement_steps))
        context = self.generator.embed(x)
        rows = context.repeat(m, *[1] * (context.ndim - 1))  # every draw has its own noisy parameter
        noisy = math.sqrt(1 + PURE_NOISE**2) * torch.randn(len(rows), *self.theta_shape, device=x.device)
        bounded = self._bounded()
        start = tuple(part.repeat(m, 1) for part in self._start(self.regress_on(x))) if bounded else ()
        for s, following in zip(levels, [*levels[1:], 0.0], strict=True):
            raw = self.step(1, rows, noisy, torch.full((len(rows),), s, device=x.device))
            if bounded:
                theta = self._truncated(raw, start, noisy, torch.full_like(noisy[:, :1], s))[0]
            else:
                theta = noisy / (1 + s**2) + raw[0] * s / math.sqrt(1 + s**2)
            share = (following / s) ** 2
            bridge = following * math.sqrt(1 - share)
            noisy = theta + share * (noisy - theta) + bridge * torch.randn_like(theta)
        return noisy.unflatten(0, (m, len(x)))

    def _bounded(self) -> bool:
        """Whether steps start as truncated normal distributions."""
        return self.truncated and bool((self.lower > -UNBOUNDED).any() or (self.upper < UNBOUNDED).any())

    def _start(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Mean and bounds of the regression for rows of data, ``(n, dim)`` each."""
        moved = x @ self.tilt
        return x @ self.slope + self.shift, self.lower + moved, self.upper + moved

    def _truncated(self, raw: Tensor, start: tuple[Tensor, ...], noisy: Tensor, s: Tensor) -> Tensor:
        """Parameters from the generator's output, inside the bounds."""
        mean, lower, upper = start
        total = s**2 + self.scale**2
        center = (s**2 * mean + self.scale**2 * noisy) / total
        return truncate(raw, center, s * self.scale / total.sqrt(), lower, upper)

    def levels(self, refinement_steps: int) -> list[float]:
        """The noise levels of a chain: pure noise, then in equal ratios through the middle of the range.

        Few steps keep away from its ends, where they would be of little use.
        """
        ratio, below = self.lowest / self.highest, refinement_steps - 1
        return [PURE_NOISE, *(self.highest * ratio ** ((k + 0.5) / below) for k in range(below))]

    def step(self, m: int, context: Tensor, noisy: Tensor, level: Tensor) -> Tensor:
        """The generator's output F at a noise level, ``(m, n, *theta)``."""
        scaled = noisy / _beside((1 + level**2).sqrt(), noisy)
        return self.generator(self.generator.condition(context, scaled, level), self.generator.noise(m, len(noisy)))


def _beside(level: Tensor, theta: Tensor) -> Tensor:
    """``(n,)`` in a shape that multiplies rows ``(n, *theta)``."""
    return level.reshape(-1, *[1] * (theta.ndim - 1))


def _checked(refinement_steps: int) -> int:
    if not isinstance(refinement_steps, int) or refinement_steps < 1:
        raise InputError(f"'refinement_steps' must be a positive whole number, got {refinement_steps}.")
    return refinement_steps
