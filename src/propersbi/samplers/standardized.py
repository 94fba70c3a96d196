r"""Units: what stands between a user's numbers and the network's.

Networks work on standardised numbers. :class:`Standardize` holds the centre and scale of each coordinate, and
:class:`Standardized` makes a sampler in the user's units, with draws inside the prior's support, of one that works in
standardised units:

.. math:: \vartheta = B\big(c_\theta + s_\theta \odot u\big), \qquad u \sim q\big(\cdot \mid (x - c_x) / s_x\big).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from propersbi.samplers.base import Sampler, Wrapper, log_density, sample_with
from propersbi.samplers.bounds import Bounds, Box
from propersbi.types import InputError

__all__ = ["Standardize", "Standardized"]


class Standardize(nn.Module):
    r"""Centre and scale each coordinate: :math:`u = (v - \text{centre}) / \text{scale}`, single precision out.

    Vectors are scaled coordinate by coordinate, fields and images as a whole. Arithmetic is in double precision, so
    that data far from zero keep their digits.

    Arguments:
        shape: The event shape of what is standardised.
        tail: Beyond this many scales, values grow like a logarithm only; a single extreme number in the data then
            neither dominates the others nor overflows. ``None`` leaves tails alone, and the map can be inverted.

    Examples:
        >>> units = Standardize((2,)).fit(torch.tensor([[1.0, 10.0], [3.0, 30.0]]))
        >>> units(torch.tensor([[2.0, 10.0]]))
        tensor([[ 0.0000, -0.7071]])
        >>> units.inverse(units(torch.tensor([[5.0, 7.0]]))).float()
        tensor([[5., 7.]])
    """

    center: Tensor
    scale: Tensor

    def __init__(self, shape: Sequence[int], tail: float | None = None) -> None:
        super().__init__()
        if tail is not None and not tail > 0:
            raise InputError(f"'tail' must be positive, got {tail}.")
        self.shape = tuple(shape)
        self.tail = tail
        size = self.shape if len(self.shape) == 1 else (1,) * len(self.shape)
        self.register_buffer("center", torch.zeros(size, dtype=torch.float64))
        self.register_buffer("scale", torch.ones(size, dtype=torch.float64))

    def fit(self, values: Tensor) -> Standardize:
        """Find centre and scale on ``values`` ``(n, *shape)``: moments, or quantiles where tails are compressed."""
        columns = values.detach().double().reshape(-1, self.center.numel()).cpu().numpy()
        spread = columns.std(0, ddof=1) if len(columns) > 1 else np.ones(columns.shape[1])
        center = columns.mean(0)
        if self.tail is not None:
            low, center, high = np.quantile(columns, [0.1587, 0.5, 0.8413], axis=0)
            # Data with most values equal have no quantile width; their standard deviation is the next best.
            spread = np.where(high > low, (high - low) / 2, spread)
        spread = np.where(np.isfinite(spread) & (spread > 0), spread, 1.0)
        self.center.copy_(torch.from_numpy(center).reshape(self.center.shape))
        self.scale.copy_(torch.from_numpy(spread).reshape(self.scale.shape))
        return self

    def forward(self, values: Tensor) -> Tensor:
        units = (values.double() - self.center) / self.scale
        if self.tail is not None:
            beyond = (units.abs() - self.tail).clamp_min(0)
            units = units.clamp(-self.tail, self.tail) + units.sign() * beyond.log1p()
        return units.float()

    def inverse(self, units: Tensor) -> Tensor:
        """Back to the user's numbers, in double precision while :class:`Box` still has to round them."""
        if self.tail is not None:
            raise InputError("Compressed tails cannot be inverted.")
        return units.double() * self.scale + self.center


class Standardized(Wrapper):
    """A sampler in the user's units around one in standardised units; its draws lie inside the support of the prior.

    Arguments:
        sampler: A sampler in standardised units.
        theta_units: Between the user's parameters and the wrapped sampler's; found by :meth:`prepare`.
        x_units: Likewise for data.
        box: The support of the prior; unless given, the bounds that :meth:`prepare` is given.

    Examples:
        >>> from propersbi.networks import MLPGenerator
        >>> theta, x = 100 + torch.rand(50, 1), torch.rand(50, 3)
        >>> sampler = Standardized(MLPGenerator((1,), (3,), width=16))
        >>> sampler.prepare(theta, x, Box(100.0, 101.0).bounds(1))
        >>> draws = sampler.sample(20, x)
        >>> bool(((draws >= 100) & (draws <= 101)).all())
        True
    """

    theta_units: Standardize
    x_units: Standardize

    def __init__(
        self,
        sampler: Sampler,
        theta_units: Standardize | None = None,
        x_units: Standardize | None = None,
        box: Box = Box(),  # noqa: B008
    ) -> None:
        super().__init__(sampler)
        self.theta_units = theta_units or Standardize(self.theta_shape)
        self.x_units = x_units or Standardize(self.x_shape)
        self.box = box
        if not box.fits(self.theta_shape):
            raise InputError(f"The bounds of {box} do not fit parameters of shape {self.theta_shape}.")

    def prepare(self, theta: Float[Tensor, "n *theta"], x: Float[Tensor, "n *x"], bounds: Bounds) -> None:
        """Find the units on data in the user's units; parameters outside the support are refused."""
        self.theta_units.fit(theta)
        self.x_units.fit(x)
        self.box = self.box if self.box.bounded else Box.of(bounds)
        self._check_inside(theta.double())
        self.box = self.box.with_point_masses(theta.double())
        own = self.box.bounds(math.prod(self.theta_shape))
        lower, upper = (self.theta_units(e.reshape(self.theta_shape)).flatten() for e in (own.lower, own.upper))
        inner = Bounds(lower, upper, point_masses=own.point_masses)
        self.sampler.prepare(self.theta_units(theta), self.x_units(x), inner)

    def training_pair(
        self, m: int, theta: Float[Tensor, "n *theta"], x: Float[Tensor, "n *x"]
    ) -> tuple[Float[Tensor, "m n *theta"], Float[Tensor, "n *theta"]]:
        """The wrapped sampler's draws and target, in its units."""
        return self.sampler.training_pair(m, self.theta_units(theta), self.x_units(x))

    def sample(
        self, m: int, x: Float[Tensor, "n *x"], *, refinement_steps: int | None = None
    ) -> Float[Tensor, "m n *theta"]:
        """``m`` draws for each row of ``x``, single precision."""
        return self.in_user_units(sample_with(self.sampler, m, self.x_units(x), refinement_steps))

    def in_user_units(self, units: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
        """Draws of the wrapped sampler in the user's units and inside the support."""
        return self.box(self.theta_units.inverse(units))

    def log_prob(self, theta: Float[Tensor, "*m n _"], x: Float[Tensor, "n *x"]) -> Float[Tensor, "*m n"]:
        """The logarithm of the density in the user's units."""
        stretch = self.theta_units.scale.expand(self.theta_shape).log().sum()
        return log_density(self.sampler, self.theta_units(theta), self.x_units(x)) - stretch.float()

    def _check_inside(self, theta: Tensor) -> None:
        # Parameters on a bound may have been rounded beyond it: only what lies clearly outside is a mistake.
        outside = ((self.box(theta) - theta).abs() / self.theta_units.scale > 1e-5).flatten(1).any(1)
        if outside.any():
            example = theta[outside][0].flatten().tolist()
            raise InputError(f"Training parameters lie outside the support {self.box}, for example {example[:10]}.")
