"""Training by a complete recipe: build, prepare, train, wrap; the members of an ensemble one after the other."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from torch import nn

from propersbi.building import Prepared, TrainingSet, build_objective, noise_name, prepare_sampler
from propersbi.posterior import Posterior
from propersbi.recipes import Recipe
from propersbi.samplers import LatentCorrected, Mixture, Sampler, Standardized
from propersbi.storage.checks import check_seed, checked_names
from propersbi.storage.files import write_json
from propersbi.training.checkpoint import digest
from propersbi.training.devices import is_first_process, wait_for_all
from propersbi.training.history import History, StopReason
from propersbi.training.logging import Logger, prefixed
from propersbi.training.loop import train
from propersbi.training.objectives import Objective
from propersbi.types import InputError
from propersbi.typicality import find_typicality

__all__ = ["train_posterior"]


def train_posterior(
    data: TrainingSet,
    recipe: Recipe,
    modules: Mapping[str, nn.Module] | None = None,
    *,
    start: Posterior | None = None,
    parameter_names: Sequence[str] | None = None,
    folder: str | Path | None = None,
    seed: int = 0,
    device: str = "auto",
    progress: bool = True,
    logger: Logger | None = None,
) -> Posterior:
    """Train by a complete recipe, the members of an ensemble one after the other; see :func:`fit`."""
    modules, seed = modules or {}, check_seed(seed)
    if recipe.emulated and not data.emulated:
        raise InputError("'emulated' is for ps.fit on stored simulations; rounds and online training make their own.")
    starts = _starts(start, recipe.ensemble, data, modules)
    names = checked_names(parameter_names, data.shapes[0])
    place = None if folder is None else Path(folder)
    members = [
        _train_member(
            data,
            recipe,
            modules,
            start=member,
            folder=place if place is None or len(starts) == 1 else place / "members" / str(k + 1),
            seed=seed + k,
            device=device,
            progress=progress,
            logger=logger if len(starts) == 1 else prefixed(logger, f"member {k + 1}/"),
        )
        for k, member in enumerate(starts)
    ]
    first, history, info = members[0]
    samplers, rows = [member[0].sampler for member in members], len(first.batches.rows)
    sampler: Sampler = samplers[0] if len(members) == 1 else Mixture(samplers)
    if len(members) > 1:
        infos = [member[2] for member in members]
        info = {**info, "seconds": sum(part["seconds"] for part in infos), "members": infos}
    if data.emulator:
        seconds = info["seconds"] + data.emulator.get("seconds", 0.0)
        info = {**info, "seconds": seconds, "emulator": dict(data.emulator)}
    posterior = Posterior(
        sampler.cpu(),
        parameter_names=names,
        recipe=recipe,
        history=history,
        info=info,
        typicality_test=find_typicality(
            first.sampler, data.x, first.batches.rows[: rows - data.emulated], noise=first.batches.noise, seed=seed
        ),
    )
    if place is not None and is_first_process():
        posterior.save(place / "posterior")
        write_json(place / "history.json", history.to_json())
    wait_for_all(recipe.training.devices)
    return posterior.to("cpu" if device == "auto" else device)


def _train_member(
    data: TrainingSet,
    recipe: Recipe,
    modules: Mapping[str, nn.Module],
    *,
    start: Standardized | None,
    folder: Path | None,
    seed: int,
    device: str,
    progress: bool,
    logger: Logger | None,
) -> tuple[Prepared, History, dict[str, Any]]:
    """One network: its sampler in the user's units and its batches, the history and facts about it."""
    identity = {"start": _digest_given(modules, start), "noise": noise_name(data.noise), **recipe.identity()}
    identity |= {} if data.fresh is None else {"fresh": True}
    prepared = prepare_sampler(data, recipe, deepcopy(dict(modules)), seed, start)
    objective = build_objective(recipe, prepared, data.wrap_sampler, seed)
    history = train(
        objective,
        prepared.batches,
        prepared.validation,
        recipe.training,
        seed=seed,
        device=device,
        identity={**identity, "data": None if folder is None else data.digest},
        checkpoint=None if folder is None else folder / "checkpoint.ckpt",
        progress=progress,
        logger=logger,
    )
    _warn(history)
    return prepared, history, _info(prepared, objective, history, seed)


def _starts(
    start: Posterior | None, count: int, data: TrainingSet, modules: Mapping[str, nn.Module]
) -> list[Standardized | None]:
    """For each member the sampler to continue from, if any."""
    if start is None:
        return [None] * count
    if modules:
        raise InputError("'start' has a network already: give either 'start' or 'network'.")
    shapes = start.theta_shape, start.x_shape
    if shapes != data.shapes:
        raise InputError(f"'start' is for theta and x of shapes {shapes}, the simulations have {data.shapes}.")
    sampler = deepcopy(start.sampler).cpu()
    found = sampler.samplers if isinstance(sampler, Mixture) else (sampler,)
    members = [member for member in found if isinstance(member, Standardized)]
    if len(members) != count:
        raise InputError(f"'start' has {len(members)} networks, but ensemble = {count} were asked for.")
    return list(members)


def _digest_given(modules: Mapping[str, nn.Module], start: Standardized | None) -> str | None:
    """A short name for the weights a training starts from, where they are given."""
    given = [*modules.values(), *([] if start is None else [start])]
    return digest(tensor for module in given for tensor in module.state_dict().values()) if given else None


def _warn(history: History) -> None:
    """Say so if a training did not end as it should."""
    if history.kept_score is None:
        raise RuntimeError(
            f"Training broke down within its first {history.steps} steps: the loss became infinite or NaN. "
            "A smaller 'learning_rate' may help."
        )
    if history.stopped in (StopReason.DIVERGED, StopReason.COLLAPSED, StopReason.EVEN, StopReason.INTERRUPTED):
        hint = " A smaller 'learning_rate' may help." if history.stopped is StopReason.DIVERGED else ""
        warnings.warn(
            f"Training stopped at step {history.steps}: {history.stopped.sentence}. The weights of step "
            f"{history.kept_step} are kept.{hint}",
            stacklevel=5,
        )


def _info(prepared: Prepared, objective: Objective, history: History, seed: int) -> dict[str, Any]:
    trained = objective.networks.get("sampler")
    return {
        **objective.describe(),
        **({"left_out": trained.left_out_share} if isinstance(trained, LatentCorrected) else {}),
        "batch_size": prepared.batches.size,
        "seed": seed,
        "steps": history.steps,
        "kept_step": history.kept_step,
        "kept_score": history.kept_score,
        "seconds": history.seconds,
        "stopped": None if history.stopped is None else history.stopped.value,
        "parameters": sum(weight.numel() for weight in prepared.sampler.parameters()),
        "torch": torch.__version__,
    }
