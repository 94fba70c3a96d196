"""The test: distances of an observation to the simulations, and their rank among those of other simulations."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from torch import Tensor

from propersbi.networks import Embedding, Flow, MLPGenerator
from propersbi.samplers import Generator, Mixture, Sampler, Standardized
from propersbi.storage.randomness import seeded
from propersbi.training.batches import as_tensor
from propersbi.types import InputError, Rows
from propersbi.typicality.result import Deviation
from propersbi.typicality.spread import Spread

__all__ = [
    "TypicalityTest",
    "deviations",
    "features_of",
    "find_typicality",
    "p_values_of",
    "statistic_names",
    "statistics_of",
]

MAX_NUMBERS = 4096  # of the data, evenly spread over more of them; beyond them features are not computed: too slow
FITTED, CALIBRATED, FEWEST = 2000, 2000, 1000  # rows for the covariance; for the p-value, at most and if possible
FEWEST_ROWS = 40  # in all, below which nothing can be said
ROWS_NUMBERS = 16_000_000  # of the data in all rows that are read
FEATURE_FLOOR = 0.1  # of the variance of features: in smaller ones even the centre of the data may be odd
NAMED = 3  # deviant numbers that are named
BLOCK = 1000  # rows whose features are computed at once
OWN = ("kept", "median", "width", "limits", "calibration")


@dataclass(frozen=True, eq=False)
class TypicalityTest:
    """Compares observations with simulations; see :mod:`propersbi.typicality`.

    Arguments:
        data: The spread of the data, as far as they are kept.
        features: The spread of the network's features of them, if it has some.
        kept: The places of the numbers that are kept, ``(d,)``.
        median: Of the logarithm of each distance, ``(3 or 4,)``.
        width: Between it and the 95 % quantile.
        limits: What one number by itself, and one given the others, exceed in one simulation of a hundred, ``(2,)``.
        calibration: The combined distance of simulations, ascending.
    """

    data: Spread
    features: Spread | None
    kept: Tensor
    median: Tensor
    width: Tensor
    limits: Tensor
    calibration: Tensor

    @classmethod
    def of(cls, fitted: tuple[Tensor, Tensor | None], calibrated: tuple[Tensor, Tensor | None]) -> TypicalityTest:
        """The test from rows of data and features: those that the covariance is found on, and those for the p-value."""
        size = fitted[0].shape[1]
        kept = torch.linspace(0, size - 1, min(size, MAX_NUMBERS), dtype=torch.float64).round().long()
        spread = Spread.of(fitted[0][:, kept])
        inside = None if fitted[1] is None else Spread.of(fitted[1], FEATURE_FLOOR)
        raw = cls(spread, inside, kept, *(torch.zeros(1).double() for _ in range(4)))
        distances = raw.distances(*calibrated)
        median, high = torch.quantile(distances, torch.tensor([0.5, 0.95]).double(), dim=0)
        width = (high - median).clamp_min(1e-6)
        limits = torch.quantile(distances[:, 1:3].expm1(), 0.99, dim=0)
        return cls(spread, inside, kept, median, width, limits, ((distances - median) / width).amax(1).sort().values)

    def distances(self, x: Tensor, features: Tensor | None) -> Tensor:
        """The logarithm of each distance of rows of data ``(n, d)``, and of their features."""
        units = self.data(x[:, self.kept])
        whitened = self.data.whitened(units)
        given = whitened / self.data.precisions.sqrt()
        found = [(units * whitened).sum(1), units.abs().amax(1), given.abs().amax(1)]
        if self.features is not None and features is not None:
            inside = self.features(features)
            found.append((inside * self.features.whitened(inside)).sum(1))
        return torch.stack(found, 1).clamp_min(0).log1p()

    def p_values(self, x: Tensor, features: Tensor | None) -> Tensor:
        """For each row of data ``(n, d)`` and of their features, the probability of a simulation as extreme."""
        scores = ((self.distances(x, features) - self.median) / self.width).amax(1)
        n = len(self.calibration)
        count = (n - torch.searchsorted(self.calibration, scores)).double()
        top = self.calibration[-max(5, n // 10) :]
        rate = 1 / (top.mean() - top[0]).clamp_min(1e-6)
        beyond = torch.exp(-(scores - top[-1]).clamp_min(0) * rate)
        p = (1 + count + 2 * (count * (1 - count / n)).sqrt()) / (n + 1) * beyond
        return torch.where(torch.isfinite(scores), p.clamp_max(1), 0.0)

    def deviant(self, x: Tensor, shape: tuple[int, ...], names: Sequence[str] | None = None) -> tuple[Deviation, ...]:
        """The numbers of one row ``(1, d)`` of data of this shape, and perhaps with names, that deviate most."""
        values = x[:, self.kept]
        units = self.data(values)
        alone, given = units[0], (self.data.whitened(units) / self.data.precisions.sqrt())[0]
        by_itself = alone.abs() > self.limits[0]
        shares = torch.where(by_itself, alone.abs() / self.limits[0], given.abs() / self.limits[1])
        plain = torch.where(by_itself, (values.double() - self.data.center)[0] / self.data.scale, given)
        found = []
        for j in shares.argsort(descending=True, stable=True)[:NAMED].tolist():
            if shares[j] > 1:
                place = tuple(int(i) for i in np.unravel_index(int(self.kept[j]), shape))
                name = f"x[{', '.join(map(str, place))}]" if names is None else names[int(self.kept[j])]
                found.append(Deviation(name, place, plain[j].item(), not by_itself[j]))
        return tuple(found)

    def to_tensors(self) -> dict[str, Tensor]:
        """As plain tensors, by name."""
        parts = {"data": self.data} if self.features is None else {"data": self.data, "features": self.features}
        spreads = {f"{part}.{name}": tensor for part, spread in parts.items() for name, tensor in vars(spread).items()}
        spreads = {name: t.float() if name.endswith(".axes") else t for name, t in spreads.items()}
        return {**spreads, **{name: getattr(self, name) for name in OWN}}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor], numbers: int) -> TypicalityTest:
        """From what :meth:`to_tensors` gave, for data of so many numbers; anything else is an :class:`InputError`."""
        try:
            inside = _spread_from("features", tensors) if "features.center" in tensors else None
            own = {name: tensors[name] if name == "kept" else tensors[name].double() for name in OWN}
            test = cls(_spread_from("data", tensors), inside, **own)
            whole = set(tensors) == set(test.to_tensors()) and all(bool(t.isfinite().all()) for t in tensors.values())
            row, features = torch.zeros(1, numbers), None if inside is None else torch.zeros(1, len(inside.center))
            right = whole and test.p_values(row, features).shape == (1,) and test.limits.shape == (2,)
            right = right and len(test.data.center) == len(test.kept)
        except (KeyError, TypeError, ValueError, IndexError, RuntimeError):
            right = False
        if not right:
            raise InputError("The statistics of the simulations that a posterior was saved with are damaged.")
        return test


def _spread_from(part: str, tensors: Mapping[str, Tensor]) -> Spread:
    return Spread(**{entry.name: tensors[f"{part}.{entry.name}"].double() for entry in fields(Spread)})


def statistics_of(sampler: Sampler, x: Tensor) -> Tensor:
    """What is compared of rows of data, ``(n, d)``: fixed statistics of structured data, else the data themselves."""
    first = sampler.samplers[0] if isinstance(sampler, Mixture) else sampler
    if statistic_names(sampler) is None:
        return x.flatten(1).cpu()
    return torch.cat([first.regress_on(rows) for rows in x.split(BLOCK)]).cpu()


def statistic_names(sampler: Sampler) -> tuple[str, ...] | None:
    """The names of the statistics that data are compared by, if they are not compared as they are."""
    first = sampler.samplers[0] if isinstance(sampler, Mixture) else sampler
    found = [module for module in first.modules() if isinstance(module, Generator | Flow)]
    embedding = found[0].embedding if found and isinstance(found[0], MLPGenerator | Flow) else None
    return embedding.names if isinstance(embedding, Embedding) and embedding.fixed else None


def p_values_of(test: TypicalityTest, sampler: Sampler, x: Tensor) -> Tensor:
    """For each row of data, the probability of a simulation as extreme.

    Computed under a seed of its own, so that an embedding with random numbers leaves those of draws alone.
    """
    with torch.inference_mode(), seeded(0):
        features = None if test.features is None else features_of(sampler, x)
        return test.p_values(statistics_of(sampler, x), features)


def deviations(
    test: TypicalityTest, sampler: Sampler, x: Tensor, x_names: Sequence[str] | None
) -> tuple[Deviation, ...]:
    """What deviates most of one observation ``(1, *x_shape)``: numbers of the data, or statistics of them."""
    names: Sequence[str] | None = statistic_names(sampler)
    shape = tuple(sampler.x_shape) if names is None else (len(names),)
    with torch.inference_mode():
        return test.deviant(statistics_of(sampler, x), shape, x_names if names is None else names)


def features_of(sampler: Sampler, x: Tensor) -> Tensor | None:
    """The network's own features of rows of data, ``(n, d)``: what the draws depend on, if it is a short vector.

    Of an ensemble, those of the first network.
    """
    first = sampler.samplers[0] if isinstance(sampler, Mixture) else sampler
    if x[0].numel() > MAX_NUMBERS:
        return None
    units = first.x_units(x) if isinstance(first, Standardized) else x.float()
    for module in first.modules():
        if isinstance(module, Generator):
            context = torch.cat([module.embed(rows).flatten(1) for rows in units.split(BLOCK)])
            return context.cpu() if context.shape[1] <= MAX_NUMBERS else None
        if isinstance(module, Flow):
            return None if module.embedding is None else module.embedding(units).flatten(1).cpu()
    return None


def find_typicality(
    sampler: Sampler,
    x: Rows,
    training: np.ndarray,
    *,
    noise: Callable[[Tensor], Tensor] | None = None,
    seed: int = 0,
) -> TypicalityTest | None:
    """The test for a trained sampler, from rows that it was and was not trained on; ``None`` if they are too few.

    Arguments:
        sampler: In the user's units.
        x: The data of all simulations.
        training: The rows that it was trained on.
        noise: What is added to the data whenever they are read.
        seed: Of the choice of rows.
    """
    groups = _chosen_rows(len(x), training, math.prod(x.shape[1:]), seed)
    if sum(map(len, groups)) < FEWEST_ROWS:
        return None
    found: list[Any] = []
    with torch.no_grad(), seeded(seed):
        for rows in groups:
            values = as_tensor(x[rows]).cpu()
            values = values if noise is None else noise(values.float())
            some = features_of(sampler, values[:1]) is not None
            found.append((statistics_of(sampler, values), features_of(sampler, values) if some else None))
    return TypicalityTest.of(*found)


def _chosen_rows(n: int, training: np.ndarray, numbers: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows for the covariance, and rows for the p-value: those for validation first, then others."""
    rng = np.random.default_rng([seed, 2])
    inside = rng.permutation(training)
    outside = rng.permutation(np.setdiff1d(np.arange(n), training))
    most = max(FEWEST_ROWS, ROWS_NUMBERS // numbers)
    more = min(max(0, FEWEST - len(outside)), len(inside) // 2)
    calibrated = np.concatenate([outside, inside[:more]])[: min(CALIBRATED, most // 2)]
    return np.sort(inside[more:][: min(FITTED, most // 2)]), np.sort(calibrated)
