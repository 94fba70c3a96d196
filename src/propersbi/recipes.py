"""What follows from the shapes of parameters and data where nothing else is asked for."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from torch import nn

from propersbi.networks import Flow, GridEmbedding, MLPGenerator, UNetGenerator, is_grid, is_image_problem
from propersbi.networks.mlp import FEATURES
from propersbi.training.objectives import MaximumLikelihood
from propersbi.samplers.refined import ReverseMarkov

__all__ = ["Defaults"]

STEPS = 8
MANY = 9000  # simulations from which on the number of training steps grows faster
LONG = 50  # numbers of a data vector from which on a network learns single simulations by heart
LOOK = 10_000_000  # numbers of x that units and bandwidths are found on, at most


@dataclass(frozen=True)
class Defaults:
    """The choices of :func:`~propersbi.inference.fit` for events of these shapes.

    Arguments:
        theta_shape: The event shape of the parameters.
        x_shape: The event shape of the data.
        embedded: Whether the user has an own embedding of the data.

    Examples:
        >>> vectors, images = Defaults((2,), (2,)), Defaults((28, 28), (28, 28))
        >>> vectors.steps(), images.steps(), vectors.max_steps(10_000, steps=8)
        (8, 1, 5215)
    """

    theta_shape: tuple[int, ...]
    x_shape: tuple[int, ...]
    embedded: bool = False

    @property
    def numbers(self) -> int:
        """In the data of one simulation."""
        return math.prod(self.x_shape)

    @property
    def images(self) -> bool:
        """Whether parameters and data are images on one grid."""
        return not self.embedded and is_image_problem(self.theta_shape, self.x_shape)

    @property
    def large(self) -> bool:
        """Whether a step of training is costly."""
        return self.images or self.numbers > FEATURES

    def steps(self, network: Any = None, objective: Any = None) -> int:
        """Of a draw: several, unless an objective wants one pass or a chain would be slow for so much data."""
        if isinstance(network, ReverseMarkov):
            return network.steps
        return 1 if objective is not None or self.large else STEPS

    def network(self, objective: Any = None) -> type[nn.Module]:
        """What makes the sampler."""
        if objective is MaximumLikelihood:
            return Flow
        return UNetGenerator if self.images else MLPGenerator

    def embedding(self) -> nn.Module | None:
        """Of data on a large grid."""
        grid = self.large and not self.images and is_grid(self.x_shape)
        return GridEmbedding(self.x_shape) if grid else None

    def draws(self, steps: int) -> int:
        """Per pair in training."""
        return 5 if self.images else 10 if steps == 1 else 20

    def batch_size(self, n: int) -> int:
        """Pairs per step of training."""
        return 64 if self.large else 128 if n < MANY // 3 else 256

    def max_steps(self, n: int, steps: int) -> int:
        """More for more simulations, which carry more detail; the faster the more numbers there are in theta and x."""
        numbers = math.prod(self.theta_shape) + self.numbers
        growth = 0.25 if n < MANY else min(max(numbers / 18, 0.4), 0.75)
        return round((2500 if steps == 1 else 5000) * (n / MANY) ** growth)

    def training(self, n: int, steps: int, max_steps: int) -> dict[str, Any]:
        """Fields of :class:`~propersbi.training.loop.TrainConfig` that differ from their own defaults."""
        looks = {"validate_every": 50} if self.large else {}
        if steps == 1:
            return looks
        # A chain starts as a Gaussian one and, hurried, can get stuck there.
        return looks | {"warmup": min(300, max_steps // 4), "weight_decay": self.weight_decay(n)}

    def weight_decay(self, n: int) -> float:
        """Where data have many numbers, most of which may say nothing; less per step if more steps make a pass."""
        long = self.numbers >= LONG and not (self.large or self.embedded)
        return min(1.0, MANY / n) if long else 0.0

    def held_out(self) -> int:
        """Pairs to judge the training by, at most."""
        return 500 if self.large else 5000

    def looked_at(self, n: int) -> int:
        """Pairs that units and bandwidths are found on."""
        return min(n, max(100, LOOK // self.numbers))

    def regressable(self, n: int) -> bool:
        """Whether vectors are so small, and ``n`` so large, that a linear regression is quick and says something."""
        return len(self.theta_shape) == 1 and max(self.theta_shape[0], self.numbers) <= min(FEATURES, n // 2)

    def tail(self) -> float:
        """Scales from which on data are compressed: on grids, whose sums and transforms mean something, wild ones only.

        A single number of a vector has no such neighbours to be added to.
        """
        return 5.0 if len(self.x_shape) == 1 else 100.0
