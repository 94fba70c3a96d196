r"""Units: what stands between a user's numbers and the network's.

Networks work on standardised numbers. :class:`Standardize` holds the centre and scale of each coordinate, and
:class:`Standardized` makes a sampler in the user's units, with draws inside the prior's support, of one that works in
standardised units:

.. math:: \vartheta = B\big(c_\theta + s_\theta \odot u\big), \qquad u \sim q\big(\cdot \mid (x - c_x) / s_x\big),

where :math:`B` is the reflection at the bounds of a box, or the map from the coordinates of another support.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from propersbi.samplers.base import Sampler, Wrapper, has_density, log_density, sample_with
from propersbi.samplers.bounds import Bounds, Box, Support
from propersbi.samplers.subset import Subset, draw_inside
from propersbi.storage.randomness import seeded
from propersbi.types import InputError

__all__ = ["Standardize", "Standardized", "acceptance_of"]

SINGLE_DIGITS = 2.0**-24  # the relative rounding error of single precision
PRECISION = 1e-4  # of the scale of a parameter that rounding may change: a posterior may be a hundred times narrower
SMALLEST = 1e-300  # stands for zero and less where logarithms are taken
NEXT_TO_ZERO = 1e-30  # bounds below it are zero
LARGEST_LOGARITHM = 88.0  # of what single precision can hold
LOW_ACCEPTANCE = 0.2  # share of draws inside a support that is known by a function below which the user is warned


class Standardize(nn.Module):
    r"""Centre and scale each coordinate: :math:`u = (v - \text{centre}) / \text{scale}`, single precision out.

    Vectors are scaled coordinate by coordinate, fields and images as a whole. Arithmetic is in double precision, so
    that data far from zero keep their digits.

    Arguments:
        shape: The event shape of what is standardised.
        tail: Beyond this many scales, values grow like a logarithm only; a single extreme number in the data then
            neither dominates the others nor overflows. ``None`` leaves tails alone, and the map can be inverted.
        logarithms: Which coordinates of a vector are replaced by their logarithm first; they must be positive.

    Examples:
        >>> units = Standardize((2,)).fit(torch.tensor([[1.0, 10.0], [3.0, 30.0]]))
        >>> units(torch.tensor([[2.0, 10.0]]))
        tensor([[ 0.0000, -0.7071]])
        >>> units.inverse(units(torch.tensor([[5.0, 7.0]]))).float()
        tensor([[5., 7.]])
    """

    center: Tensor
    scale: Tensor

    def __init__(self, shape: Sequence[int], tail: float | None = None, logarithms: Sequence[int] = ()) -> None:
        super().__init__()
        if tail is not None and not tail > 0:
            raise InputError(f"'tail' must be positive, got {tail}.")
        self.shape, self.tail, self.logarithms = tuple(shape), tail, tuple(logarithms)
        if logarithms and not (len(self.shape) == 1 and set(self.logarithms) <= set(range(self.shape[0]))):
            raise InputError(f"Logarithms need a vector with numbers {self.logarithms}, got the shape {self.shape}.")
        size = self.shape if len(self.shape) == 1 else (1,) * len(self.shape)
        self.register_buffer("center", torch.zeros(size, dtype=torch.float64))
        self.register_buffer("scale", torch.ones(size, dtype=torch.float64))

    def fit(self, values: Tensor) -> Standardize:
        """Find centre and scale on ``values`` ``(n, *shape)``: moments, or quantiles where tails are compressed."""
        columns = self._curved(values.detach().double()).reshape(-1, self.center.numel()).cpu().numpy()
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
        units = (self._curved(values.double()) - self.center) / self.scale
        if self.tail is not None:
            beyond = (units.abs() - self.tail).clamp_min(0)
            units = units.clamp(-self.tail, self.tail) + units.sign() * beyond.log1p()
        return units.float()

    def inverse(self, units: Tensor) -> Tensor:
        """Back to the user's numbers, in double precision while :class:`Box` still has to round them."""
        if self.tail is not None:
            raise InputError("Compressed tails cannot be inverted.")
        values = units.double() * self.scale + self.center
        if self.logarithms:
            where = list(self.logarithms)
            values[..., where] = values[..., where].clamp(max=LARGEST_LOGARITHM).exp()
        return values

    def log_volume(self, values: Float[Tensor, "*batch"]) -> Tensor | float:
        r"""The logarithm of :math:`|\det \partial u / \partial v|` at the user's numbers."""
        volume = -self.scale.expand(self.shape).log().sum().float()
        return volume - self._curved(values.double())[..., list(self.logarithms)].sum(-1).float()

    def of_bounds(self, bounds: Bounds) -> Bounds:
        """Bounds of the user's numbers in units; a logarithm has no bound at zero."""
        lower, upper = (self(end.reshape(self.shape)).flatten() for end in (bounds.lower, bounds.upper))
        curved = torch.zeros(len(lower), dtype=torch.bool)
        curved[list(self.logarithms)] = True
        lower = torch.where(curved & (bounds.lower.flatten() < NEXT_TO_ZERO), -torch.inf, lower)
        return Bounds(lower, upper, point_masses=bounds.point_masses)

    def _curved(self, values: Tensor) -> Tensor:
        """The numbers with logarithms where they are asked for."""
        if not self.logarithms:
            return values
        where, curved = list(self.logarithms), values.clone()
        curved[..., where] = values[..., where].clamp_min(SMALLEST).log()
        return curved


class Standardized(Wrapper):
    """A sampler in the user's units around one in standardised units; its draws lie inside the support of the prior.

    Arguments:
        sampler: A sampler in standardised units, of the coordinates of the support.
        theta_units: Between the coordinates and the wrapped sampler's numbers; found by :meth:`prepare`.
        x_units: Likewise for data.
        box: The support of the prior; unless given, the bounds that :meth:`prepare` is given.
        support: The support of the prior where it is not a box; ``box`` is then the smallest one that holds it.

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
        support: Support | None = None,
    ) -> None:
        super().__init__(sampler)
        self.theta_units = theta_units or Standardize(self.theta_shape)
        self.x_units = x_units or Standardize(self.x_shape)
        self.support, self.box = support, box if support is None else support.box
        self.tried = self.accepted = 0  # draws of a support that is known by a function
        self.theta_shape = self.domain.theta_shape(self.theta_shape)
        fits = self.domain.fits(self.theta_shape)
        if not fits or self.domain.real_shape(self.theta_shape) != tuple(sampler.theta_shape):
            raise InputError(f"The bounds of {self.domain} do not fit parameters of shape {self.theta_shape}.")

    @property
    def domain(self) -> Support:
        """The support of the prior: the box, or what is not one."""
        return self.box if self.support is None else self.support

    @property
    def has_density(self) -> bool:
        """Whether the wrapped sampler has a density, and the map to its units a volume."""
        return has_density(self.sampler) and self.domain.smooth

    @property
    def dtype(self) -> torch.dtype:
        """The type of draws: single precision, or double where single precision would lose digits of the parameters."""
        center, scale = self.theta_units.center.abs(), self.theta_units.scale
        lost = SINGLE_DIGITS * center > PRECISION * scale
        if not self.domain.smooth:  # whole numbers are exact up to 1 / SINGLE_DIGITS
            lost |= SINGLE_DIGITS * (center + 10 * scale) > 1
        return torch.float64 if lost.any() else torch.float32

    @property
    def acceptance(self) -> float | None:
        """The share of all draws so far that lay inside a support that is known by a function; the rest was redrawn."""
        return self.accepted / self.tried if self.tried else None

    def prepare(self, theta: Float[Tensor, "n *theta"], x: Float[Tensor, "n *x"], bounds: Bounds) -> None:
        """Find the units on data in the user's units; parameters outside the support are refused."""
        if self.support is not None:
            self._check_support(theta)
        with seeded(0 if self.support is not None else None):  # the noise of whole numbers
            real = self._to_real(theta)
        self.theta_units.fit(real)
        self.x_units.fit(x)
        if self.support is None:
            self.box = self.box if self.box.bounded else Box.of(bounds)
            self._check_inside(theta.double())
            self.box = self.box.with_point_masses(theta.double())
        own = self.domain.bounds(math.prod(self.sampler.theta_shape))
        self.sampler.prepare(self.theta_units(real), self.x_units(x), self.theta_units.of_bounds(own))

    def training_pair(
        self, m: int, theta: Float[Tensor, "n *theta"], x: Float[Tensor, "n *x"]
    ) -> tuple[Float[Tensor, "m n *units"], Float[Tensor, "n *units"]]:
        """The wrapped sampler's draws and target, in its units."""
        return self.sampler.training_pair(m, self.to_units(theta), self.x_units(x))

    def sample(
        self, m: int, x: Float[Tensor, "n *x"], *, refinement_steps: int | None = None
    ) -> Float[Tensor, "m n *theta"]:
        """``m`` draws for each row of ``x``, in the precision that :attr:`dtype` says."""
        units = self.x_units(x)

        def draw(k: int, rows: Tensor | slice) -> Tensor:
            return self.in_user_units(sample_with(self.sampler, k, units[rows], refinement_steps))

        theta = draw(m, slice(None))
        if not isinstance(self.support, Subset):
            return theta
        drawn = draw_inside(theta, draw, self.support.accepts)
        self._count(drawn.tried, drawn.accepted)
        return drawn.theta

    def _count(self, tried: int, accepted: int) -> None:
        """Keep the share accepted, and say so once if it is low."""
        often = self.acceptance is not None and self.acceptance < LOW_ACCEPTANCE
        self.tried, self.accepted = self.tried + tried, self.accepted + accepted
        share = self.accepted / self.tried
        if share < LOW_ACCEPTANCE and not often:
            warnings.warn(
                f"Only {100 * share:.2g} % of the draws lie in the support that was given; the others are drawn again.",
                stacklevel=2,
            )

    def to_units(self, theta: Float[Tensor, "n *theta"]) -> Float[Tensor, "n *units"]:
        """The user's parameters in the units of the wrapped sampler; noise is added to whole numbers."""
        return self.theta_units(self._to_real(theta))

    def in_user_units(self, units: Float[Tensor, "*batch"]) -> Float[Tensor, "*other"]:
        """Draws of the wrapped sampler in the user's units and inside the support."""
        real = self.theta_units.inverse(units)
        if self.support is None:
            return self.box(real, self.dtype)
        flat = self.support.from_real(real.flatten(real.ndim - len(self.sampler.theta_shape)), self.dtype)
        return flat.unflatten(-1, self.theta_shape)

    def log_prob(self, theta: Float[Tensor, "*m n _"], x: Float[Tensor, "n *x"]) -> Float[Tensor, "*m n"]:
        """The logarithm of the density in the user's units."""
        if not self.has_density:
            raise InputError("This posterior can only be sampled: its parameters have no density.")
        real = self._to_real(theta)
        density = log_density(self.sampler, self.theta_units(real), self.x_units(x)) + self.theta_units.log_volume(real)
        if self.support is None:
            return density
        start = theta.ndim - len(self.theta_shape)
        outside = self.support.outside(theta.double().flatten(start).flatten(0, start - 1)).reshape(density.shape)
        volume = self.support.log_volume(real.flatten(start)).float()
        return torch.where(outside, -torch.inf, density - volume)

    def _to_real(self, theta: Tensor) -> Tensor:
        """The coordinates of parameters ``(..., *theta)``; of a box, the parameters themselves."""
        if self.support is None:
            return theta
        flat = theta.double().flatten(theta.ndim - len(self.theta_shape))
        return self.support.to_real(flat).unflatten(-1, tuple(self.sampler.theta_shape))

    def _check_inside(self, theta: Tensor) -> None:
        # Parameters on a bound may have been rounded beyond it: only what lies clearly outside is a mistake.
        outside = ((self.box(theta, torch.float64) - theta).abs() / self.theta_units.scale > 1e-5).flatten(1).any(1)
        self._refuse(theta, outside)

    def _check_support(self, theta: Tensor) -> None:
        outside = self.domain.outside(theta.double().flatten(1))
        if isinstance(self.support, Subset):
            outside |= ~self.support.accepts(theta)
        self._refuse(theta, outside)

    def _refuse(self, theta: Tensor, outside: Tensor) -> None:
        if outside.any():
            example = theta[outside][0].flatten().tolist()
            raise InputError(f"Training parameters lie outside the support {self.domain}, for example {example[:10]}.")


def acceptance_of(sampler: Sampler) -> float | None:
    """The share of the draws so far, of all members of an ensemble, that lay in a support known by a function.

    >>> from propersbi.networks import MLPGenerator
    >>> acceptance_of(Standardized(MLPGenerator((1,), (3,), width=16))) is None
    True
    """
    members = [module for module in sampler.modules() if isinstance(module, Standardized)]
    tried = sum(member.tried for member in members)
    return sum(member.accepted for member in members) / tried if tried else None
