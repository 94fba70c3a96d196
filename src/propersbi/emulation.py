r"""Emulated pairs: more training data than there are simulations.

A simulator is often easier to imitate than to invert: its data are a smooth function of the parameters and simple
noise. A sampler :math:`q(x \mid \theta)`, trained on the same simulations by the same scoring rule with the roles of
parameters and data exchanged, makes further pairs

.. math:: \theta \sim \pi, \qquad x \sim q(x \mid \theta),

and the posterior is trained on simulated and emulated pairs together. Pairs that are held out for validation are
simulated ones that neither network was trained on (in an ensemble, the pairs that its first network holds out).
"""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import ks_2samp

from propersbi import schedule
from propersbi.building import TrainingSet
from propersbi.choices import Choices
from propersbi.fitting import train_posterior
from propersbi.metrics.classifier import cross_validated_accuracy
from propersbi.posterior import Posterior
from propersbi.recipes import Recipe
from propersbi.samplers import Box
from propersbi.simulation.priors import draw
from propersbi.storage.progress import announce
from propersbi.storage.randomness import stream
from propersbi.training.batches import Pairs, split, validation_size
from propersbi.types import InputError

__all__ = ["emulate"]

PARAMETER_STREAM = 2  # the place of the random stream that further parameters are drawn from
MOST = 500_000_000  # numbers of emulated pairs, which are kept in memory
COMPARED = 1000  # held-out simulations, at most, that emulated ones are compared with
FEWEST = 10  # of them, below which a classifier says nothing
WIDEST = 100  # hidden units of the classifier, at most
TOO_DIFFERENT = 0.55  # C2ST of emulated and simulated pairs above which, by more than chance, the emulator is poor
UNLIKELY = 1e-3  # the probability, under the prior, below which parameters are said to be drawn from another one


def emulate(
    data: TrainingSet,
    recipe: Recipe,
    prior: Any,
    *,
    folder: Path | None,
    seed: int,
    device: str,
    progress: bool,
) -> TrainingSet:
    """Train an emulator on the pairs and add the pairs that it makes.

    Where emulated pairs were asked for, what speaks against them is an error or a warning. Where they are only the
    default, the pairs are returned as they are, with the reason.

    Arguments:
        data: Simulated pairs.
        recipe: The recipe of the posterior: how many pairs to emulate, and which to hold out.
        prior: What the parameters of the simulations were drawn from.
        folder: Where to keep the emulator; calling again continues.
        seed: Of the training and of the emulated pairs.
        device: Where to train.
        progress: Whether to show progress on stderr.
    """
    asked = recipe.reasons.get("emulated") == "chosen"
    obstacle = _obstacle(data, recipe, prior)
    if obstacle is not None and asked:
        raise InputError(obstacle)
    if obstacle is not None:  # the recipe of another training
        warnings.warn(f"{obstacle} This posterior is trained on the simulations alone.", stacklevel=3)
        return replace(data, emulator={"refused": obstacle})
    theta, x = np.asarray(data.theta), np.asarray(data.x)
    try:
        more = _parameters(prior, theta, recipe.emulated, seed)
    except InputError as error:
        if asked:
            raise
        return _refuse(data, str(error), {}, progress)
    doubt = _other_prior(theta, more)
    if doubt is not None and not asked:
        return _refuse(data, doubt, {}, progress)
    announce("First an emulator of the simulator is trained, then the posterior.", show=progress)
    used = np.delete(np.arange(x.shape[1]), recipe.ignored_x)
    emulator = _train(theta, x[:, used], recipe, folder, seed, device, progress)
    untested = Posterior(emulator.sampler)  # parameters of the prior are not unlike those of the simulations
    made = untested.sample_batched((1,), x=more, seed=seed, show_progress_bars=progress)[0].cpu().numpy()
    facts = {name: emulator.info[name] for name in ("steps", "kept_step", "kept_score", "seconds")}
    _, held_out = split(len(theta), recipe.validation_fraction, most=recipe.max_validation, seed=seed)
    facts["c2st"], unlike = _compare((theta[held_out], x[held_out][:, used]), (more, made))
    doubt = doubt or unlike
    if doubt is not None and not asked:
        return _refuse(data, doubt, facts, progress)
    if doubt is not None:
        advice = "Emulated pairs may bias this posterior; compare it with one trained without them."
        warnings.warn(f"{doubt} {advice}", stacklevel=3)
    further = x[np.arange(len(made)) % len(x)]  # numbers that are ignored are those of simulations
    further[:, used] = made
    rows = np.concatenate([theta, more]), np.concatenate([x, further])
    return replace(data, theta=rows[0], x=rows[1], emulated=recipe.emulated, emulator=facts)


def _refuse(data: TrainingSet, doubt: str, facts: dict[str, Any], progress: bool) -> TrainingSet:
    """The pairs as they are, with the reason why none are emulated."""
    announce(f"{doubt} No pairs are emulated.", show=progress)
    return replace(data, emulator={**facts, "refused": doubt})


def _obstacle(data: TrainingSet, recipe: Recipe, prior: Any) -> str | None:
    """Why no pairs can be emulated, if so."""
    if prior is None:
        return "Emulated pairs need the 'prior' that the simulations were drawn from."
    if data.weight is not None or data.noise is not None:
        return "Emulated pairs cannot be combined with 'weight' or 'noise'."
    if recipe.training.devices > 1:
        return "Emulated pairs are for training on one device."
    numbers = recipe.emulated * sum(math.prod(shape) for shape in data.shapes)
    if numbers > MOST:
        return f"{recipe.emulated:,} emulated pairs would be {numbers:,} numbers: ask for fewer pairs."
    structured = recipe.layout is not None or recipe.embedding is not None or recipe.takes_missing
    if structured or any(len(shape) != 1 for shape in data.shapes):
        return "Pairs are emulated where theta and x are vectors without missing entries."
    return None


def _parameters(prior: Any, theta: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Further parameters, drawn from the prior."""
    with stream(seed, PARAMETER_STREAM) as rng:
        more = np.asarray(draw(prior, count, rng), theta.dtype)
    if more.shape[1:] != theta.shape[1:]:
        raise InputError(f"The prior draws parameters of shape {more.shape[1:]}, theta has {theta.shape[1:]}.")
    return more


def _other_prior(theta: np.ndarray, drawn: np.ndarray) -> str | None:
    """A sentence if some parameter of the simulations is distributed otherwise than in draws of the prior."""
    if len(drawn) < FEWEST:
        return None
    for i, (own, others) in enumerate(zip(theta.T, drawn.T, strict=True)):
        test = ks_2samp(own, others, method="asymp")
        if test.pvalue < UNLIKELY / theta.shape[1]:
            return (
                f"Parameter {i + 1} of the simulations does not follow the prior: their distribution functions differ "
                f"by {test.statistic:.2f}."
            )
    return None


def _train(
    theta: np.ndarray, x: np.ndarray, recipe: Recipe, folder: Path | None, seed: int, device: str, progress: bool
) -> Posterior:
    """A sampler of data given parameters; the same pairs are held out as for the posterior."""
    whole = np.flatnonzero((x == np.round(x)).all(0))
    lower = tuple(0.0 if column.min() >= 0 else None for column in x.T)
    changes: dict[str, Any] = {"validation_fraction": recipe.validation_fraction}
    changes |= {"max_validation": recipe.max_validation, "discrete": whole.tolist(), "support": Box(lower=lower)}
    rows = len(x) - validation_size(len(x), recipe.validation_fraction, recipe.max_validation)
    changes |= _length(recipe, rows, theta.shape[1] + x.shape[1])
    return train_posterior(
        TrainingSet(x, theta),
        Choices.of(Pairs(x, theta), None, changes).recipe(),
        folder=None if folder is None else folder / "emulator",
        seed=seed,
        device=device,
        progress=progress,
    )


def _length(recipe: Recipe, rows: int, numbers: int) -> dict[str, Any]:
    """Optimiser and length of the emulator's training on so many pairs: what was asked for holds for it, too."""
    asked = {name for name, reason in recipe.reasons.items() if reason == "chosen"}
    training = recipe.training
    optimizer = training.optimizer if "optimizer" in asked else schedule.optimizer(rows, emulator=True)[0]
    steps = training.max_steps if "max_steps" in asked else None
    chosen = schedule.emulator_settings(rows, numbers, optimizer, steps)
    return {"optimizer": optimizer, "time_limit": training.time_limit, **chosen}


def _compare(
    simulated: tuple[np.ndarray, np.ndarray], emulated: tuple[np.ndarray, np.ndarray]
) -> tuple[float | None, str | None]:
    """The accuracy of a classifier of simulated and emulated pairs, if there are enough; a sentence if it is high."""
    size = min(COMPARED, len(simulated[0]), len(emulated[0]))
    if size < FEWEST:
        return None, None
    real, made = (np.concatenate([part[:size] for part in both], 1) for both in (simulated, emulated))
    varies = real.std(0) > 0
    rows = (np.concatenate([real, made])[:, varies] - real.mean(0)[varies]) / real.std(0)[varies]
    width = min(10 * rows.shape[1], WIDEST)
    accuracy = cross_validated_accuracy(rows, np.repeat([0, 1], size), hidden=(width, width))
    by_chance = 3 * 0.5 / math.sqrt(2 * size)  # three standard errors
    if accuracy <= TOO_DIFFERENT + by_chance:
        return accuracy, None
    return accuracy, f"A classifier distinguishes emulated from simulated pairs ({100 * accuracy:.0f} % correct)."
