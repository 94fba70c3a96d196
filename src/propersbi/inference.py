"""From simulations to a posterior in one call."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from propersbi.building import TrainingSet
from propersbi.choices import Choices
from propersbi.emulation import emulate
from propersbi.fitting import train_posterior
from propersbi.observations import as_numbers
from propersbi.posterior import Posterior
from propersbi.recipes import Recipe
from propersbi.samplers.priors import describe_columns
from propersbi.simulation.priors import parameter_names as names_of
from propersbi.storage.checks import check_seed, list_of_names, to_path
from propersbi.storage.torch_defaults import torch_defaults
from propersbi.training.batches import checked_pairs
from propersbi.types import InputError

__all__ = ["checked_weight", "fit", "recipe"]


@torch_defaults()
def fit(
    theta: Any,
    x: Any,
    *,
    prior: Any = None,
    recipe: Recipe | None = None,
    start: Posterior | None = None,
    weight: Any = None,
    noise: Callable[[Tensor], Tensor] | None = None,
    parameter_names: Sequence[str] | None = None,
    folder: str | Path | None = None,
    seed: int = 0,
    device: str = "auto",
    progress: bool = True,
    **changes: Any,
) -> Posterior:
    """Train a generative posterior on pairs of parameters and data.

    Arguments:
        theta: Parameters ``(n, *theta_shape)``: NumPy, torch or rows on disk.
        x: The data they made, ``(n, *x_shape)``; or a dict of named parts ``{name: (n, *shape)}``, a list of arrays
            ``(N_i, ...)`` of varying length, a masked array or a table of pandas, with missing entries.
        prior: The prior that ``theta`` was drawn from: its support, and its draws if pairs are ``emulated``, as they
            are by default where simulations are few and data are short vectors.
        recipe: How to train; by default :func:`propersbi.recipe` of the same pairs.
        start: A posterior whose weights and units to continue from.
        weight: Importance weights of the pairs, ``(n,)``, where they do not count alike.
        noise: ``(x) -> x`` on torch tensors, if ``x`` lacks the last, random part of the simulator: it is drawn anew
            for every batch, so that the network cannot memorise the noise of single simulations.
        parameter_names: One for each parameter.
        folder: Where to keep checkpoint, history and posterior. Calling again continues or returns what is there.
        seed: The same seed gives the same posterior.
        device: ``"auto"``, ``"cpu"``, ``"cuda"``, ...
        progress: Whether to show a progress bar on stderr.
        **changes: Choices of the recipe to make otherwise, by name: fields of :class:`~propersbi.recipes.Recipe`
            (``rule``, ``draws``, ``refinement_steps``, ``network``, ``embedding``, ``support``, ``ensemble``,
            ``emulated``, ...) or
            of :class:`~propersbi.training.config.TrainConfig` (``max_steps``, ``time_limit``, ``learning_rate``, ...).
            And ``logger``: where to report loss, validation score and learning rate during training; any object with
            ``log_metrics(metrics, step)``, or a function of the same. See :mod:`propersbi.training.logging`.

    Examples:
        >>> rng = np.random.default_rng(0)
        >>> theta = rng.normal(size=(200, 1))
        >>> posterior = fit(theta, theta + rng.normal(size=(200, 1)), max_steps=5, progress=False)
        >>> posterior.sample((3,), x=[0.5]).shape
        torch.Size([3, 1])
    """
    logger = changes.pop("logger", None)
    columns = describe_columns(theta)
    pairs = checked_pairs(theta, x, changes.get("missing"))
    weights = None if weight is None else checked_weight(weight, len(pairs.theta))
    data = TrainingSet(pairs.theta, pairs.x, weights, noise)
    if parameter_names is not None:
        parameter_names = list_of_names("parameter_names", parameter_names)
    elif start is None:
        parameter_names = names_of(prior) or columns.names
    known: dict[str, Any] = {"names": parameter_names, "columns": columns, "plain": weight is None and noise is None}
    choices = Choices.of(pairs, prior, changes, **known)
    if start is not None and not isinstance(start, Posterior):
        raise InputError(f"'start' must be a posterior, got {type(start).__name__}.")
    if recipe is not None and not isinstance(recipe, Recipe):
        raise InputError(f"'recipe' must be a recipe, got {type(recipe).__name__}.")
    base = recipe if recipe is not None or start is None else start.recipe
    complete = choices.recipe() if base is None else base.change(**choices.changes)
    names = parameter_names if parameter_names is not None or start is None else start.parameter_names
    place = None if folder is None else to_path("folder", folder)
    where: dict[str, Any] = {"folder": place, "seed": check_seed(seed), "device": device, "progress": progress}
    if prior is None and start is not None:
        prior = start.prior
    if complete.emulated:
        data = emulate(data, complete, prior, **where)
        if not data.emulated:
            if base is None:
                alone = {**choices.changes, "emulated": 0}
                complete = dataclasses.replace(choices, changes=alone, reasons={}).recipe()
            complete = complete.without_emulated(data.emulator["refused"])
    where["logger"] = logger
    posterior = train_posterior(data, complete, choices.modules, start=start, parameter_names=names, **where)
    posterior.prior = prior
    return posterior


def recipe(theta: Any, x: Any, *, prior: Any = None, **changes: Any) -> Recipe:
    """The recipe by which :func:`propersbi.fit` trains on these pairs; ``print`` it for a reason per choice.

    Arguments:
        theta: Parameters ``(n, *theta_shape)``: NumPy, torch or rows on disk.
        x: The data they made, ``(n, *x_shape)``.
        prior: The prior; its support is used, and its draws if pairs are ``emulated``.
        **changes: Choices to make otherwise, by name: fields of :class:`~propersbi.recipes.Recipe` or of
            :class:`~propersbi.training.config.TrainConfig`. All else follows from them.

    Examples:
        >>> theta, x = np.random.rand(1000, 2), np.random.rand(1000, 100)
        >>> made = recipe(theta, x)
        >>> made.draws, made.refinement_steps, made.training.weight_decay
        (10, 8, 0.3)
        >>> [line.strip() for line in str(made).splitlines() if "weight decay" in line]
        ['weight decay 0.3: 100 numbers in x']
    """
    pairs = checked_pairs(theta, x, changes.get("missing"))
    return Choices.of(pairs, prior, changes, columns=describe_columns(theta), plain=True).recipe()


def checked_weight(weight: Any, n: int) -> np.ndarray:
    """Importance weights ``(n,)``, scaled to mean 1."""
    values: np.ndarray = as_numbers(weight, "weight").astype(np.float64)
    if values.shape != (n,) or not (np.isfinite(values).all() and (values >= 0).all() and values.any()):
        raise InputError(f"'weight' must hold {n} finite numbers, none negative and not all zero: one for each pair.")
    return np.asarray(values / values.mean())
