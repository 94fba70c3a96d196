r"""Density ratios by probabilistic classification: no density is needed, only draws of both distributions.

A classifier that distinguishes draws of :math:`p_1` from draws of :math:`p_0`, both classes weighted alike, has at its
optimum the log odds

.. math:: \ell(v) = \log \frac{p_1(v)}{p_0(v)}.

It is trained by its log loss, then calibrated on draws it has not seen,
:math:`\ell \mapsto a\,\ell + b`, and measured on a third part that neither has seen.

References:
    Cranmer, Pavez & Louppe, Approximating likelihood ratios with calibrated discriminative classifiers, 2015,
    https://arxiv.org/abs/1506.02169
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, logsigmoid

from propersbi.samplers.units import Standardize
from propersbi.storage.randomness import seeded
from propersbi.training.batches import Batches, as_tensor
from propersbi.training.config import TrainConfig
from propersbi.training.loop import train
from propersbi.training.objectives import Objective, weighted_mean
from propersbi.training.stopping import Patience
from propersbi.types import Batch, InputError, Phase

__all__ = ["Classification", "Classifier", "Ratio", "effective_share", "estimate_ratio", "tamed"]

TRAIN, CALIBRATE = 0.7, 0.2  # shares of the draws; the rest tests


class Classifier(nn.Module):
    """A perceptron from values ``(n, *event)`` to log odds ``(n,)``.

    Arguments:
        shape: The event shape of the values.
        width: Hidden units.
        depth: Hidden layers.

    Examples:
        >>> Classifier((2, 3))(torch.zeros(5, 2, 3)).shape
        torch.Size([5])
    """

    def __init__(self, shape: Sequence[int], *, width: int = 64, depth: int = 3) -> None:
        super().__init__()
        self.shape, self.width, self.depth = tuple(shape), width, depth
        layers: list[nn.Module] = [nn.Flatten(), nn.Linear(math.prod(self.shape), width), nn.SiLU()]
        for _ in range(depth - 1):
            layers += [nn.Linear(width, width), nn.SiLU()]
        self.layers = nn.Sequential(*layers, nn.Linear(width, 1))

    def forward(self, values: Tensor) -> Tensor:
        """Log odds of the second class."""
        return self.layers(values).squeeze(-1)


@dataclass(frozen=True)
class Classification(Objective):
    """Train a classifier by its log loss. In a batch, ``x`` holds the values and ``theta (n, 1)`` their class, 0 or 1.

    Arguments:
        classifier: From values to log odds.
    """

    classifier: nn.Module

    @property
    def networks(self) -> Mapping[str, nn.Module]:
        """The classifier."""
        return {"classifier": self.classifier}

    def phases(self) -> tuple[Phase, ...]:
        """One phase: the classifier descends the log loss, weighted where the classes are not equally many."""
        return (Phase("classifier", self.loss),)

    def loss(self, batch: Batch) -> Tensor:
        """The weighted mean log loss of a batch."""
        return weighted_mean(self.validate(batch), batch)

    def validate(self, batch: Batch) -> Tensor:
        """The log loss of each row; log(2) for an uninformed classifier."""
        return binary_cross_entropy_with_logits(self.classifier(batch.x), batch.theta[:, 0], reduction="none")


@dataclass(frozen=True, eq=False)
class Ratio:
    """An estimated ratio of two densities.

    Arguments:
        classifier: Its log odds, uncalibrated.
        units: Standardise its inputs.
        slope: Of the calibration; 1 if the classifier was neither over- nor underconfident.
        shift: Of the calibration.
        log_loss: On held-out draws; log(2) = 0.693 if the distributions are indistinguishable.
        effective: The effective share of draws of the denominator, weighted to follow the numerator.
    """

    classifier: Classifier
    units: Standardize
    slope: float
    shift: float
    log_loss: float
    effective: float

    def log(self, values: Tensor) -> Tensor:
        """The logarithm of the ratio at values ``(..., *event)``."""
        batch = values.shape[: values.ndim - len(self.units.shape)]
        units = self.units(values.reshape(-1, *self.units.shape))
        with torch.no_grad():
            return (self.slope * self.classifier(units) + self.shift).reshape(batch)


def estimate_ratio(
    upper: Any,
    lower: Any,
    *,
    seed: int = 0,
    max_steps: int = 1000,
    checkpoint: str | Path | None = None,
    progress: bool = False,
    **network: Any,
) -> Ratio:
    """The ratio of the densities of two sets of draws, which need not be equally many.

    Arguments:
        upper: Draws ``(k, *event)`` of the distribution in the numerator.
        lower: Draws ``(l, *event)`` of the distribution in the denominator.
        seed: The same seed gives the same ratio.
        max_steps: Gradient steps at most.
        checkpoint: A file to continue from, if it is there, and to write to.
        progress: Whether to show a progress bar.
        **network: Options of :class:`Classifier`.

    Examples:
        >>> rng = np.random.default_rng(0)
        >>> ratio = estimate_ratio(rng.normal(1, 1, (2000, 1)), rng.normal(0, 1, (2000, 1)), max_steps=200, width=16)
        >>> [round(value) for value in ratio.log(torch.tensor([[-0.5], [0.5], [1.5]])).tolist()]
        [-1, 0, 1]
    """
    sets = as_tensor(upper), as_tensor(lower)
    if sets[0].shape[1:] != sets[1].shape[1:] or min(map(len, sets)) < 20:
        shapes = " and ".join(str(tuple(values.shape)) for values in sets)
        raise InputError(f"A ratio needs two sets of at least 20 draws of the same shape, got {shapes}.")
    values, label = torch.cat(sets), torch.cat([torch.ones(len(sets[0]), 1), torch.zeros(len(sets[1]), 1)])
    shape = tuple(values.shape[1:])
    rows, calibration, test = _parts(len(sets[0]), len(sets[1]), seed)
    counts = len(values) / 2 / torch.tensor([len(sets[1]), len(sets[0])])
    weight = counts[label[:, 0].long()]  # both classes count alike
    units = Standardize(shape, tail=5.0).fit(values[rows])
    batches = Batches(
        label.numpy(), values.numpy(), rows, min(256, len(rows)), Standardize((1,)), units, seed, weight.numpy()
    )
    with seeded(seed):
        classifier = Classifier(shape, **network)
    patience = (Patience(8),)
    config = TrainConfig(max_steps=max_steps, warmup=50, weight_decay=1e-2, stopping=patience, validate_every=50)
    options: dict[str, Any] = {"seed": seed, "checkpoint": checkpoint, "progress": progress}
    train(Classification(classifier), batches, batches.read(calibration), config, **options)
    with torch.no_grad():
        held_out, fresh = batches.read(calibration), batches.read(test)
        slope, shift = _calibrate(classifier(held_out.x), held_out)
        odds = slope * classifier(fresh.x) + shift
        loss = _log_loss(odds, fresh)
        effective = effective_share(odds[fresh.theta[:, 0] == 0].exp())
    return Ratio(classifier, units, slope, shift, loss, effective)


def _parts(upper: int, lower: int, seed: int) -> list[np.ndarray]:
    """Rows to train, to calibrate and to test, each with the same share of both classes."""
    orders = [
        start + np.random.default_rng([seed, start, size]).permutation(size)
        for start, size in ((0, upper), (upper, lower))
    ]
    pieces = [np.split(order, [round(cut * len(order)) for cut in (TRAIN, TRAIN + CALIBRATE)]) for order in orders]
    return [np.concatenate(part) for part in zip(*pieces, strict=True)]


def effective_share(weight: Any) -> float:
    r"""The effective share :math:`(\sum w)^2 / (n \sum w^2)` of weighted draws: 1 where all weigh the same.

    >>> effective_share(np.array([1.0, 1.0, 0.0, 0.0]))
    0.5
    """
    weight = as_tensor(weight).double()
    return (weight.sum().square() / (len(weight) * weight.square().sum())).item() if len(weight) else 0.0


def tamed(log_ratio: Tensor, *, limit: float | None = None, smoothing: float = 0.0) -> Tensor:
    r"""A log ratio without extremes.

    Smoothing adds :math:`\varepsilon` to the probabilities of both classes, :math:`(p + \varepsilon) / (1 - p +
    \varepsilon)`; a limit :math:`c` cuts the ratio at :math:`1/c` and :math:`c`.

    >>> tamed(torch.tensor([-20.0, 0.0, 20.0]), limit=10.0).exp()
    tensor([ 0.1000,  1.0000, 10.0000])
    """
    if smoothing < 0 or (limit is not None and not limit >= 1):
        raise InputError(f"'smoothing' must not be negative and 'limit' at least 1, got {smoothing} and {limit}.")
    if smoothing:
        spread = torch.tensor(smoothing).log().to(log_ratio)
        above, below = logsigmoid(log_ratio), logsigmoid(-log_ratio)
        log_ratio = torch.logaddexp(above, spread) - torch.logaddexp(below, spread)
    return log_ratio if limit is None else log_ratio.clamp(-math.log(limit), math.log(limit))


def _calibrate(odds: Tensor, batch: Batch) -> tuple[float, float]:
    """Slope and shift with the lowest log loss, by Newton's method; a loss this convex takes few steps."""
    design = torch.stack([odds.double(), torch.ones_like(odds, dtype=torch.float64)], 1)
    weight = torch.ones(len(odds)) if batch.weight is None else batch.weight
    line = torch.tensor([1.0, 0.0], dtype=torch.float64)
    for _ in range(20):
        p = (design @ line).sigmoid()
        # The ridge around the identity keeps the solution finite where the classes are separable.
        slope = design.T @ (weight * (p - batch.theta[:, 0])) + (line - torch.tensor([1.0, 0.0]))
        curve = design.T @ (design * (weight * p * (1 - p))[:, None]) + torch.eye(2)
        line = line - torch.linalg.solve(curve, slope).clamp(-1, 1)
    return max(line[0].item(), 0.0), line[1].item()


def _log_loss(odds: Tensor, batch: Batch) -> float:
    rows = binary_cross_entropy_with_logits(odds, batch.theta[:, 0], reduction="none")
    weight = torch.ones(len(rows)) if batch.weight is None else batch.weight
    return ((weight * rows).sum() / weight.sum()).item()
