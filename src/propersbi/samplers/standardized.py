r"""Units: what stands between a user's numbers and the network's.

Networks work on standardised numbers. :class:`~propersbi.samplers.units.Standardize` holds the centre and scale of each
coordinate, and :class:`Standardized` makes a sampler in the user's units, with draws inside the prior's support, of one
that works in standardised units:

.. math:: \vartheta = B\big(c_\theta + s_\theta \odot u\big), \qquad u \sim q\big(\cdot \mid (x - c_x) / s_x\big),

where :math:`B` is the reflection at the bounds of a box, or the map from the coordinates of another support.
"""

from __future__ import annotations

import math
import warnings

import torch
from jaxtyping import Float
from torch import Tensor

from propersbi.samplers.base import Sampler, Wrapper, has_density, log_density, sample_with
from propersbi.samplers.bounds import Bounds, Box, Support
from propersbi.samplers.subset import Subset, draw_inside
from propersbi.samplers.units import Standardize
from propersbi.storage.randomness import seeded
from propersbi.types import InputError

__all__ = ["Standardized", "acceptance_of"]

SINGLE_DIGITS = 2.0**-24  # the relative rounding error of single precision
PRECISION = 1e-4  # of the scale of a parameter that rounding may change: a posterior may be a hundred times narrower
LOW_ACCEPTANCE = 0.2  # share of draws inside a support that is known by a function below which the user is warned


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

    def prepare_regressors(self, x: Float[Tensor, "n *x"]) -> None:
        """Find the units of the data first."""
        self.x_units.fit(x)
        self.sampler.prepare_regressors(self.x_units(x))

    def regress_on(self, x: Float[Tensor, "n *x"]) -> Float[Tensor, "n regressors"]:
        """What the wrapped sampler regresses on."""
        return self.sampler.regress_on(self.x_units(x))

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
