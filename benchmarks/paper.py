"""Training as the paper did it, in its own units and with its own stopping rule (Pacchiardi & Dutta 2022).

Parameters and data are not standardised; the last share of the simulations is held out; every step takes the first
batch of a fresh shuffle; Adam has a constant rate; every ``validate_every`` steps the held-out score is looked at, with
new noise, and from step ``first_rise`` on the first rise ends the training; the last weights are the result. The
bandwidth of a kernel is the median distance within the first batch of held-out parameters.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

import propersbi as ps
from benchmarks import gatsbi
from propersbi import networks, scoring
from propersbi.training.batches import Batches, as_tensor
from propersbi.training.objectives import ScoreMinimization
from propersbi.storage.randomness import seeded
from propersbi.samplers.bounds import Standardize
from propersbi.training.loop import TrainConfig, train
from propersbi.types import Batch

__all__ = ["FreshBatches", "fit", "rule_of"]

OWN = ("network", "batch_size", "held_out", "center")  # not of TrainConfig


@dataclass(frozen=True)
class FreshBatches:
    """Batches that do not know of each other: every one is drawn anew from all rows, without replacement."""

    source: Batches

    def __getitem__(self, number: int) -> Batch:
        rng = np.random.default_rng([self.source.seed, number])
        return self.source.read(rng.choice(self.source.rows, self.source.size, replace=False))


def rule_of(description: dict[str, Any]) -> Any:
    """A scoring rule, and the rules within it, from class names and options."""
    inner = {key: rule_of(value) if isinstance(value, dict) else value for key, value in description.items()}
    return gatsbi.made(scoring, inner)


def fit(
    theta: Any,
    x: Any,
    *,
    method: dict[str, Any],
    m: int,
    seed: int,
    training: dict[str, Any],
    reduced: bool,
    folder: Path | None,
    progress: bool = True,
) -> ps.Posterior:
    """Train one method of the paper; draws are not brought into the prior's support, which is left to the evaluation.

    Arguments:
        theta: Parameters.
        x: Data.
        method: With a ``rule``, or with ``gan``, the name of a section of ``gatsbi.toml``.
        m: Draws per pair.
        seed: Of weights, batches and noise.
        training: The network, batch size and share held out, and options of ``TrainConfig``.
        reduced: Whether a game takes its smaller critic.
        folder: Where checkpoint and posterior are kept.
        progress: Whether to show a bar.
    """
    game = gatsbi.chosen(method["gan"], reduced) if "gan" in method else None
    options = {**training, **_game_options(game, training, len(theta))}
    size = max(2, min(options["batch_size"], len(theta) // 10))
    held = min(max(2, round(options["held_out"] * len(theta))), len(theta) // 2)
    theta_units, x_units = Standardize(theta.shape[1:]), Standardize(x.shape[1:])
    theta_units.center.fill_(options.get("center", 0.0))
    source = Batches(theta, x, np.arange(len(theta) - held), size, theta_units, x_units, seed)
    held_out = source.read(np.arange(len(theta) - held, len(theta)))
    with seeded(seed):
        sampler = gatsbi.made(networks, options["network"], theta.shape[1:], x.shape[1:])
        if game is None:
            rule = scoring.resolved(rule_of(method["rule"]), as_tensor(held_out.theta[:size]))
            aim: Any = ScoreMinimization(sampler, rule, m)
        else:
            aim = gatsbi.objective(game, sampler)
    chosen = {key: value for key, value in options.items() if key not in OWN}
    config = TrainConfig(**{**chosen, "betas": tuple(chosen["betas"])}, seed=seed)
    checkpoint = None if folder is None else folder / "checkpoint.ckpt"
    history = train(aim, FreshBatches(source), held_out, config, checkpoint=checkpoint, progress=progress)
    info = {"steps": history.steps, "seconds": history.seconds, "stopped": history.stopped, "torch": torch.__version__}
    posterior = ps.Posterior(sampler.cpu(), theta_units, x_units, info=info)
    if folder is not None:
        posterior.save(folder / "posterior")
    return posterior


def _game_options(game: dict[str, Any] | None, training: dict[str, Any], n: int) -> dict[str, Any]:
    """What a game trains otherwise than scores do; it never stops by the held-out score."""
    shared: dict[str, Any] = {"average": 0.0, "warmup": 0, "decay": False, "clip": None, "patience": None}
    if game is None:
        return {key: value for key, value in shared.items() if key not in training}
    own = {**game["training"], "max_steps": min(game["training"]["max_steps"], training["max_steps"])}
    place = {"network": game["generator"], "batch_size": game["batch_size"], "held_out": game["held_out"] / n}
    return {**shared, **own, **place, "first_rise": own["max_steps"]}
