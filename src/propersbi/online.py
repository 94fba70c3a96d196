"""From a prior and a simulator to a posterior, trained while it simulates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from propersbi.building import TrainingSet
from propersbi.choices import Choices
from propersbi.fitting import train_posterior
from propersbi.posterior import Posterior
from propersbi.recipes import Recipe
from propersbi.samplers.priors import describe_columns
from propersbi.simulation.online import fresh_batches
from propersbi.simulation.simulations import simulate
from propersbi.storage.checks import check_whole, to_path
from propersbi.storage.torch_defaults import torch_defaults
from propersbi.training.batches import checked_pairs
from propersbi.types import InputError, Simulator

__all__ = ["fit_online"]

ONLINE_SECONDS = 600.0
# Fresh pairs cannot be memorised: nothing but the time limit ends the training.
UNTIL_TIME_IS_UP: dict[str, Any] = {"max_steps": 1_000_000, "stopping": ()}
MANY_PAIRS = 1_000_000  # what a recipe is chosen for where every batch is new


@torch_defaults()
def fit_online(
    prior: Any,
    simulator: Simulator,
    *,
    time_limit: float | None = None,
    simulations: int = 10_000,
    workers: int = 1,
    batched: bool | None = None,
    parameter_names: Sequence[str] | None = None,
    folder: str | Path | None = None,
    seed: int = 0,
    device: str = "auto",
    progress: bool = True,
    **changes: Any,
) -> Posterior:
    """Train on batches that are simulated while training, each used once: for simulators that are cheap.

    Batch i is a function of the seed and i alone, so the number of workers changes nothing, and a training that was
    interrupted continues exactly, unless it has a time limit.

    Arguments:
        prior: The prior, as for :func:`propersbi.simulate`.
        simulator: The simulator, likewise; with ``missing="allow"`` NaN in its data is a missing entry.
        time_limit: Seconds of training; 600 unless ``max_steps`` are given.
        simulations: Pairs that are simulated first: for the units, for validation and for the typicality test.
        workers: Processes that simulate while another one trains; 0 simulates in the one that trains.
        batched: Whether the simulator takes batches; ``None`` finds out.
        parameter_names: One for each parameter.
        folder: Where to keep checkpoint, history and posterior. Calling again continues or returns what is there.
        seed: The same seed gives the same batches.
        device: ``"auto"``, ``"cpu"``, ``"cuda"``, ...
        progress: Whether to show a progress bar on stderr.
        **changes: Choices of the recipe, as for :func:`propersbi.fit`, and what becomes of rows that fail, as for
            :func:`propersbi.simulate`: ``on_error`` and ``max_failed``, which holds for the first simulations; a batch
            may lose half of its rows, or as many as ``max_failed`` allows.

    Examples:
        >>> posterior = fit_online(
        ...     [(0.0, 1.0)], lambda theta, rng: theta + 0.1 * rng.normal(size=theta.shape),
        ...     simulations=100, max_steps=5, workers=0, progress=False)
        >>> posterior.sample((3,), x=[0.5]).shape
        torch.Size([3, 1])
    """
    logger = changes.pop("logger", None)
    workers = check_whole("workers", workers, 0)
    folder = None if folder is None else to_path("folder", folder)
    if "ensemble" in changes:
        raise InputError("'ensemble' is for stored simulations: fresh ones do not leave a network room to memorise.")
    if changes.pop("timeout", None) is not None:
        raise InputError("'timeout' is for stored simulations: online, a row takes milliseconds.")
    if time_limit is None and "max_steps" not in changes:
        time_limit = ONLINE_SECONDS
    if time_limit is not None:
        changes = {**UNTIL_TIME_IS_UP, **changes, "time_limit": time_limit}
    options: dict[str, Any] = {"parameter_names": parameter_names}
    options |= {name: changes.pop(name) for name in ("on_error", "max_failed") if name in changes}
    if changes.get("missing", "exclude") != "exclude":
        options["missing"] = "allow"
    first = simulate(
        prior, simulator, simulations, seed=seed, group="start", batched=batched, progress=progress, **options
    )
    pairs = checked_pairs(first.theta, first.x, changes.get("missing"))
    names = parameter_names or first.parameter_names
    choices = Choices.of(pairs, prior, changes, names=names, columns=describe_columns(pairs.theta))
    recipe = online_recipe(choices)
    fresh = fresh_batches(
        prior, simulator, recipe.batch_size, seed=seed, workers=workers, batched=batched, options=options
    )
    where: dict[str, Any] = {"folder": folder, "seed": seed, "device": device, "progress": progress}
    try:
        data = TrainingSet(pairs.theta, pairs.x, fresh=fresh)
        posterior = train_posterior(data, recipe, choices.modules, parameter_names=names, logger=logger, **where)
    finally:
        fresh.close()
    posterior.prior = prior
    return posterior


def online_recipe(choices: Choices) -> Recipe:
    """The recipe for as many pairs as will be simulated; but the regression is found on the first ones alone."""
    enough = choices.recipe().regression
    choices.n = MANY_PAIRS
    recipe = choices.recipe()
    if enough or not recipe.regression:
        return recipe
    reasons = {**recipe.reasons, "regression": "too few first simulations"}
    reasons.pop("settle", None)
    return replace(recipe, regression=False, training=replace(recipe.training, settle=None), reasons=reasons)
