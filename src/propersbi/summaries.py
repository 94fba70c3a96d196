"""What is made of the draws of a posterior: a table of numbers, the densest draw, groups for other libraries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from propersbi.interchange import Groups
from propersbi.observations import as_numbers
from propersbi.simulation.priors import draw
from propersbi.simulation.simulations import simulate
from propersbi.storage.randomness import stream
from propersbi.storage.tables import Summary
from propersbi.types import InputError

__all__ = ["add_posterior", "densest", "summarise"]

NEIGHBOURS = 50  # the densest draw is the one with the nearest 1/50 of all draws nearby


def densest(draws: Tensor) -> Tensor:
    """The draw of ``(m, *theta_shape)`` whose nearest fiftieth of all draws lies within the smallest distance.

    >>> densest(torch.tensor([[5.0], [0.0], [0.1]]))
    tensor([0.])
    """
    flat, count = draws.flatten(1).double(), len(draws)
    units = flat / flat.std(0).clamp_min(1e-12) if count > 1 else flat
    nearest = min(count, 1 + max(1, count // NEIGHBOURS))  # itself is one of them
    mode = "donot_use_mm_for_euclid_dist"
    radii = [torch.cdist(part, units, compute_mode=mode).kthvalue(nearest, 1).values for part in units.split(500)]
    return draws[torch.cat(radii).argmin()]


def summarise(draws: np.ndarray, names: Sequence[str]) -> Summary:
    """Mean, standard deviation, median and central 90 % interval of each number of draws ``(m, *theta_shape)``.

    >>> summarise(np.arange(5.0)[:, None], ["mu"])["mu"]["median"]
    2.0
    """
    samples = draws.reshape(len(draws), -1).astype(np.float64)
    low, median, high = np.quantile(samples, [0.05, 0.5, 0.95], axis=0)
    deviation = samples.std(0, ddof=1) if len(samples) > 1 else np.zeros(samples.shape[1])
    columns = {"mean": samples.mean(0), "sd": deviation, "median": median, "5%": low, "95%": high}
    return Summary({name: {key: float(column[i]) for key, column in columns.items()} for i, name in enumerate(names)})


def add_posterior(
    groups: Groups, draws: np.ndarray, *, prior: Any = None, predictive: Any = None, reference: Any = None, seed: int
) -> None:
    """Add draws ``(m, *theta_shape)``, and what is given of the prior, of simulated data and of a reference."""
    groups.add_draws("posterior", draws)
    if prior is not None:
        with stream(seed, 5) as rng:
            groups.add_draws("prior", as_numbers(draw(prior, len(draws), rng), "prior"))
    if predictive is not None:
        groups.add_data("posterior_predictive", _predictive(draws, predictive, groups, seed), draws=True)
    if reference is not None:
        values = as_numbers(reference, "reference")
        if values.shape[1:] != draws.shape[1:]:
            raise InputError(f"'reference' must have shape (k, {str(draws.shape[1:])[1:]}, got {values.shape}.")
        groups.add_draws("reference", values)


def _predictive(draws: np.ndarray, predictive: Any, groups: Groups, seed: int) -> np.ndarray:
    """Data for each draw, from a simulator or as they are given."""
    if not callable(predictive):
        return as_numbers(predictive, "predictive")
    options: dict[str, Any] = {"parameter_names": list(groups.parameter_names), "chunk_size": len(draws)}
    done = simulate(_InOrder(draws), predictive, len(draws), seed=seed, progress=False, **options)
    return np.asarray(done.x)


class _InOrder:
    """A prior whose draws are the given ones, in their order: all of them are simulated in one chunk."""

    def __init__(self, draws: np.ndarray) -> None:
        self.draws = draws

    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:  # noqa: ARG002
        return self.draws[:n]
