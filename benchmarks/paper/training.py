"""Training as the paper did it (Pacchiardi & Dutta 2022): by a recipe and the library's loop, in the user's units.

Three things differ from :func:`propersbi.fit`. Parameters and data are not standardised; the last pairs are held out,
in their order; and each batch is drawn afresh from all training pairs, without replacement within it. The bandwidth of
a kernel is the median distance within the first held-out parameters, as many as a batch has.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.paper.gatsbi import AdversarialMaker
from propersbi.posterior import Posterior
from propersbi.recipes import Factory, Own, Recipe
from propersbi.samplers import Sampler, Standardize, Standardized
from propersbi.scoring import resolved
from propersbi.storage.randomness import seeded
from propersbi.training import Objective, ScoreMinimization, train
from propersbi.training.batches import Batches, validation_size
from propersbi.training.checkpoint import digest
from propersbi.types import Batch

__all__ = ["FreshBatches", "fit"]


@dataclass(frozen=True)
class FreshBatches:
    """Independent batches: each is drawn afresh from all rows, without replacement."""

    source: Batches

    def __getitem__(self, number: int) -> Batch:
        rng = np.random.default_rng([self.source.seed, number])
        return self.source.read(rng.choice(self.source.rows, self.source.size, replace=False))


def fit(
    theta: Any,
    x: Any,
    recipe: Recipe,
    *,
    center: float = 0.0,
    seed: int = 0,
    folder: Path | None = None,
    progress: bool = True,
) -> Posterior:
    """Train by a recipe of :mod:`benchmarks.paper.recipes`; draws are not brought into the prior's support.

    Arguments:
        theta: Parameters ``(n, *theta_shape)``.
        x: The data they made, ``(n, *x_shape)``.
        recipe: How to train.
        center: Parameters are learnt as differences to it.
        seed: Of weights, batches and noise.
        folder: Where checkpoint and posterior are kept; calling again continues.
        progress: Whether to show a progress bar.
    """
    units = Standardize(theta.shape[1:]), Standardize(x.shape[1:])
    units[0].center.fill_(center)
    rows = np.arange(len(theta))
    first = len(theta) - validation_size(len(theta), recipe.validation_fraction, recipe.max_validation)
    batches = Batches(theta, x, rows[:first], recipe.batch_size, *units, seed)
    validation = batches.read(rows[first:])
    with seeded(seed):
        sampler, objective = _build(recipe, theta.shape[1:], x.shape[1:], validation.theta[: recipe.batch_size])
    history = train(
        objective,
        FreshBatches(batches),
        validation,
        recipe.training,
        seed=seed,
        identity={**recipe.identity(), "center": center, "data": digest([batches[0].theta, batches[0].x])},
        checkpoint=None if folder is None else folder / "checkpoint.ckpt",
        progress=progress,
    )
    info = {**objective.describe(), "steps": history.steps, "seconds": history.seconds, "torch": torch.__version__}
    info["stopped"] = str(history.stopped)
    posterior = Posterior(Standardized(sampler.cpu(), *units), recipe=recipe, history=history, info=info)
    if folder is not None:
        posterior.save(folder / "posterior")
    return posterior


def _build(recipe: Recipe, theta_shape: Any, x_shape: Any, theta: Tensor) -> tuple[Sampler, Objective]:
    """The sampler and its objective; a critic takes the random numbers after those of the sampler."""
    assert isinstance(recipe.network, Factory)
    sampler: Sampler = recipe.network(theta_shape, x_shape)
    if recipe.objective is not None:
        assert isinstance(recipe.objective, AdversarialMaker)
        return sampler, recipe.objective(sampler)
    assert recipe.draws is not None
    assert not isinstance(recipe.rule, Own | None)
    return sampler, ScoreMinimization(sampler, resolved(recipe.rule, theta), recipe.draws)
