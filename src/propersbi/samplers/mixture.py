r"""An ensemble: the equal mixture of several samplers.

.. math:: q(\theta \mid x) = \frac1K \sum_{k=1}^K q_k(\theta \mid x).

Networks trained from other seeds, on other splits of the simulations, err differently; their mixture is wider where
they disagree.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from propersbi.samplers.base import (
    DensitySampler,
    RefinedSampler,
    Sampler,
    has_density,
    log_density,
    refinement_steps_of,
    sample_with,
)
from propersbi.samplers.bounds import Bounds
from propersbi.types import InputError

__all__ = ["Mixture"]


class Mixture(RefinedSampler, DensitySampler):
    """Samplers in equal shares: of ``m`` draws each member gives ``m / K``, in random order.

    Arguments:
        samplers: The members, for parameters and data of the same shapes.

    Examples:
        >>> from propersbi.networks import MLPGenerator
        >>> mixture = Mixture([MLPGenerator((2,), (3,), width=16) for _ in range(3)])
        >>> mixture.sample(7, torch.zeros(4, 3)).shape
        torch.Size([7, 4, 2])
    """

    def __init__(self, samplers: Sequence[Sampler]) -> None:
        super().__init__()
        shapes = {(tuple(sampler.theta_shape), tuple(sampler.x_shape)) for sampler in samplers}
        if len(shapes) != 1:
            raise InputError(f"The members of a mixture must have the same shapes, got {sorted(shapes)}.")
        self.theta_shape, self.x_shape = shapes.pop()
        self.members = nn.ModuleList(samplers)

    @property
    def samplers(self) -> tuple[Sampler, ...]:
        """The members."""
        return tuple(self.members)  # type: ignore[arg-type]

    @property
    def has_density(self) -> bool:
        """Whether all members have a density."""
        return all(map(has_density, self.samplers))

    @property
    def refinement_steps(self) -> int:
        """The number of steps of the member that takes most."""
        return max(map(refinement_steps_of, self.samplers))

    @property
    def regressors(self) -> int:
        """Those of the first member."""
        return self.samplers[0].regressors

    def prepare_regressors(self, x: Float[Tensor, "n *x"]) -> None:
        """Prepare those of each member."""
        for sampler in self.samplers:
            sampler.prepare_regressors(x)

    def regress_on(self, x: Float[Tensor, "n *x"]) -> Float[Tensor, "n regressors"]:
        """What the first member regresses on: others of the same kind find the same on the same data."""
        return self.samplers[0].regress_on(x)

    def prepare(self, theta: Float[Tensor, "n *theta"], x: Float[Tensor, "n *x"], bounds: Bounds) -> None:
        """Prepare each member."""
        for sampler in self.samplers:
            sampler.prepare(theta, x, bounds)

    def sample(
        self, m: int, x: Float[Tensor, "n *x"], *, refinement_steps: int | None = None
    ) -> Float[Tensor, "m n *theta"]:
        """``m`` draws for each row of ``x``, of the members in equal shares."""
        members = self.samplers
        extra = torch.randperm(len(members))[: m % len(members)].tolist()  # draws that cannot be shared equally
        counts = [m // len(members) + (k in extra) for k in range(len(members))]
        draws = [sample_with(s, count, x, refinement_steps) for s, count in zip(members, counts, strict=True) if count]
        return torch.cat(draws)[torch.randperm(m, device="cpu").to(x.device)]

    def log_prob(self, theta: Float[Tensor, "*m n _"], x: Float[Tensor, "n *x"]) -> Float[Tensor, "*m n"]:
        """The logarithm of the mean density of the members."""
        densities = torch.stack([log_density(sampler, theta, x) for sampler in self.samplers])
        return torch.logsumexp(densities, 0) - math.log(len(self.samplers))
