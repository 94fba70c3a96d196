"""From a recipe to the objects that are trained: the sampler, prepared on the data, and its objective."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from propersbi import schedule
from propersbi.recipes import Own, Recipe
from propersbi.samplers import (
    Adapted,
    Bijection,
    Box,
    ChainGenerator,
    LinearResidual,
    Missing,
    Refined,
    Sampler,
    Standardize,
    Standardized,
    Subset,
    Support,
)
from propersbi.samplers.base import refinement_steps_of
from propersbi.samplers.blocks import with_integers
from propersbi.scoring import resolved
from propersbi.simulation.stored_rows import StoredRows
from propersbi.storage.config import qualified_name
from propersbi.storage.randomness import seeded
from propersbi.structure import periods_of
from propersbi.training.batches import LOOKED_AT, Batches, FreshSource, as_tensor, prepared_rows, split
from propersbi.training.checkpoint import digest
from propersbi.training.objectives import Objective, ScoreMinimization
from propersbi.types import Batch, InputError, Rows

__all__ = [
    "Prepared",
    "TrainingSet",
    "WrapSampler",
    "build_objective",
    "build_sampler",
    "noise_name",
    "prepare_sampler",
]


WrapSampler = Callable[[Sampler, Callable[[Tensor], Tensor]], Sampler]
"""``(sampler, in_user_units) -> sampler``: what a sampler is trained through, if not directly."""


@dataclass(frozen=True, eq=False)
class TrainingSet:
    """What a posterior is trained on.

    Arguments:
        theta: Parameters ``(n, *theta_shape)``.
        x: The data they made, ``(n, *x_shape)``.
        weight: Importance weights ``(n,)`` with mean 1, where pairs do not count alike.
        noise: What is added to the data whenever they are read.
        wrap_sampler: What the sampler is trained through, if not directly.
        fresh: Batches that are simulated afresh; the pairs are then for units and validation only.
        emulated: How many of the last pairs were made by an emulator; they are not for validation.
        emulator: Facts about it: its training, and ``c2st``, the accuracy of a classifier of emulated pairs and
            simulations held out (0.5: it cannot distinguish them); ``refused``, why no pairs were emulated.
    """

    theta: Rows
    x: Rows
    weight: np.ndarray | None = None
    noise: Callable[[Tensor], Tensor] | None = None
    wrap_sampler: WrapSampler | None = None
    fresh: FreshSource | None = None
    emulated: int = 0
    emulator: Mapping[str, Any] = field(default_factory=dict)

    @property
    def simulated(self) -> int:
        """How many of the pairs are simulated."""
        return len(self.theta) - self.emulated

    @property
    def shapes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The event shapes of parameters and data."""
        return tuple(self.theta.shape[1:]), tuple(self.x.shape[1:])

    @cached_property
    def digest(self) -> str:
        """A short name for the pairs: of all numbers in memory, of the checksums of what is on disk."""
        return digest([_content(self.theta), _content(self.x), self.weight])


def _content(rows: Rows) -> np.ndarray | str:
    """What tells rows from others; of files without checksums, as many rows as can be read in no time."""
    if isinstance(rows, np.ndarray) and not isinstance(rows, np.memmap):
        return rows
    recorded = rows.checksum() if isinstance(rows, StoredRows) else None
    return recorded or np.asarray(rows[np.unique(np.linspace(0, len(rows) - 1, LOOKED_AT).astype(int))])


@dataclass(frozen=True, eq=False)
class Prepared:
    """A training set cut into batches, in the units of a sampler that was prepared on it.

    Arguments:
        sampler: In the user's units; the one inside it is trained.
        theta: Some parameters in its units, to find bandwidths on.
        batches: Training batches.
        validation: The pairs that are held out.
    """

    sampler: Standardized
    theta: Tensor
    batches: Batches
    validation: Batch


def build_sampler(
    recipe: Recipe, shapes: tuple[tuple[int, ...], tuple[int, ...]], modules: Mapping[str, nn.Module], seed: int
) -> Standardized:
    """The sampler of a recipe, in the user's units, not yet prepared.

    Arguments:
        recipe: The recipe.
        shapes: Event shapes of parameters and data.
        modules: A network or embedding that is already built.
        seed: Of the initial weights.
    """
    support = _support(recipe, shapes[0])
    shapes = support.real_shape(shapes[0]), shapes[1]
    with seeded(seed):
        embedding = modules.get("embedding")
        if embedding is None and recipe.embedding is not None:
            embedding = _make("embedding", recipe.embedding, shapes[1:], {})
        network = modules.get("network")
        if network is None:
            options: dict[str, Any] = {} if embedding is None else {"embedding": embedding}
            options |= {"chain": True} if recipe.refinement_steps != 1 else {}
            network = _make("network", recipe.network, shapes, options)
        elif embedding is not None:
            raise InputError("Give the embedding to the network itself when 'network' is already built.")
        sampler = _refined(_as_sampler(network, shapes), recipe, truncated=recipe.regression and support.smooth)
    sampler = LinearResidual(sampler) if recipe.regression else sampler
    given = None if recipe.standardize is True else (0.0, 1.0) if recipe.standardize is False else recipe.standardize
    x_units = Standardize(shapes[1], recipe.tail, recipe.log_x, periods_of(recipe.layout), given, recipe.ignored_x)
    units = Standardize(shapes[0], logarithms=recipe.log_theta), x_units
    return Standardized(sampler, *units, support.box, None if isinstance(support, Box) else support)


def _support(recipe: Recipe, theta_shape: tuple[int, ...]) -> Support:
    """The support of a recipe, with its whole numbers."""
    given = recipe.support
    if isinstance(given, Subset | Bijection) and isinstance(given.support, Own):
        raise InputError(f"The recipe names a support of your own, '{given.support}': pass it again as 'support'.")
    if not given.fits(theta_shape):
        raise InputError(f"The support {given} does not fit parameters of shape {theta_shape}.")
    return with_integers(given, recipe.discrete, int(np.prod(theta_shape)))


def _make(role: str, make: Any, shapes: tuple[Any, ...], options: dict[str, Any]) -> Any:
    if isinstance(make, Own):
        raise InputError(f"The recipe names an object of your own, '{make}': pass it again as '{role}'.")
    try:
        return make(*shapes, **options)
    except TypeError as error:
        hint = " A network that cannot be one step of several is trained with refinement_steps=1."
        raise InputError(
            f"The {role} cannot be built with {options}: {error}.{hint if 'chain' in options else ''}"
        ) from error


def _as_sampler(network: Any, shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> Sampler:
    """The network as a sampler of these shapes; one in the user's units is taken out of its units."""
    network = network.sampler if isinstance(network, Standardized) else network
    if not isinstance(network, nn.Module):
        raise InputError(f"'network' must make a torch module, got {type(network).__name__}.")
    sampler = network if isinstance(network, Sampler) else Adapted(network, *shapes)
    own = tuple(sampler.theta_shape), tuple(sampler.x_shape)
    if own != shapes:
        raise InputError(
            f"The network is for theta {own[0]} and x {own[1]}, the simulations have {shapes[0]} and {shapes[1]}."
        )
    return sampler


def _refined(sampler: Sampler, recipe: Recipe, *, truncated: bool) -> Sampler:
    """One pass or a chain: a network that was built for the one is not silently used for the other."""
    steps, chain = recipe.refinement_steps, isinstance(sampler, ChainGenerator) and sampler.chain
    if refinement_steps_of(sampler) == steps and not chain:
        return sampler
    if steps == 1 and chain:
        raise InputError(
            "The network was built with chain=True, as one step of several: ask for more 'refinement_steps' than 1."
        )
    if not (isinstance(sampler, ChainGenerator) and chain):
        raise InputError(
            "The network draws in one pass: train it with refinement_steps=1, or build it with chain=True."
            if refinement_steps_of(sampler) == 1
            else f"The sampler has refinement_steps = {refinement_steps_of(sampler)}, but {steps} were asked for."
        )
    return Refined(sampler, refinement_steps=steps, truncated=truncated)


def prepare_sampler(
    data: TrainingSet, recipe: Recipe, modules: Mapping[str, nn.Module], seed: int, start: Standardized | None
) -> Prepared:
    """Build the sampler, find on data what is not trained, and cut the data into batches in its units.

    Arguments:
        data: The pairs.
        recipe: The recipe.
        modules: A network or embedding that is already built.
        seed: Of the split, the initial weights and the batches.
        start: A sampler to continue from, with its units, in place of a new one.
    """
    noise = _hiding(data.noise, recipe)
    rows, validation = split(data.simulated, recipe.validation_fraction, most=recipe.max_validation, seed=seed)
    numbers = sum(map(math.prod, data.shapes)) - len(recipe.ignored_x)
    final = round((1 - schedule.simulated_alone(len(rows), numbers)) * recipe.training.max_steps), rows
    rows = np.concatenate([rows, np.arange(data.simulated, len(data.theta))])
    few = np.sort(
        np.random.default_rng([seed, 1]).choice(rows, prepared_rows(len(rows), data.shapes[1]), replace=False)
    )
    theta, x = as_tensor(data.theta[few]), as_tensor(data.x[few])
    if start is None:
        sampler = build_sampler(recipe, data.shapes, modules, seed)
        with seeded(seed):
            noisy = x if noise is None else noise(x.float())
        with torch.no_grad():
            sampler.prepare(theta, noisy, sampler.box.bounds(int(np.prod(data.shapes[0]))))
    else:
        sampler = start
    units = sampler.to_units, sampler.x_units
    size = min(recipe.batch_size, len(rows))
    last = final if data.emulated and recipe.objective is None else None  # others may take several batches per step
    batches = Batches(data.theta, data.x, rows, size, *units, seed, data.weight, noise, data.fresh, last)
    with seeded(seed):
        held_out = batches.read(validation)
        in_units = sampler.to_units(theta)
    fixed = sampler.support is None  # other supports may add noise to whole numbers, anew in each batch
    return Prepared(sampler, in_units, batches.converted() if fixed else batches, held_out)


def _hiding(noise: Callable[[Tensor], Tensor] | None, recipe: Recipe) -> Callable[[Tensor], Tensor] | None:
    """What is done to data when they are read: noise first, then entries are hidden."""
    hide = recipe.missing if isinstance(recipe.missing, Missing) else None
    if noise is None or hide is None:
        return noise if hide is None else hide
    return lambda x: hide(noise(x))


def build_objective(recipe: Recipe, prepared: Prepared, wrap_sampler: WrapSampler | None, seed: int) -> Objective:
    """The objective that trains the sampler inside ``prepared.sampler``."""
    with seeded(seed + 1):
        sampler = prepared.sampler.sampler
        if wrap_sampler is not None:
            sampler = wrap_sampler(sampler, prepared.sampler.in_user_units)
        make = recipe.objective or partial(_score_minimization, recipe, prepared.theta)
        if isinstance(make, Own):
            raise InputError(f"The recipe names an objective of your own, '{make}': pass it again as 'objective'.")
        objective = make(sampler)
    if not isinstance(objective, Objective):
        raise InputError(f"'objective' must make an objective from a sampler, got {type(objective).__name__}.")
    return objective


def _score_minimization(recipe: Recipe, theta: Tensor, sampler: Sampler) -> ScoreMinimization:
    if isinstance(recipe.rule, Own):
        raise InputError(f"The recipe names a scoring rule of your own, '{recipe.rule}': pass it again as 'rule'.")
    assert recipe.rule is not None
    assert recipe.draws is not None
    return ScoreMinimization(sampler, resolved(recipe.rule, theta), recipe.draws)


def noise_name(noise: Callable[[Tensor], Tensor] | None) -> str | None:
    """A function by its name, for the identity of a checkpoint."""
    return None if noise is None else qualified_name(noise)
