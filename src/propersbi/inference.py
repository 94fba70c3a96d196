"""From simulations to a posterior in one call, with defaults that follow from the shapes."""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from propersbi.storage.config import encode
from propersbi.training.batches import Batches, as_tensor, checked_pairs, split
from propersbi.recipes import STEPS, Defaults
from propersbi.storage.files import write_json
from propersbi.networks import Generator
from propersbi.training.objectives import ScoreMinimization
from propersbi.posterior import Posterior, checked_names
from propersbi.storage.randomness import seeded
from propersbi.samplers.refined import ReverseMarkov
from propersbi.samplers.linear import Residual
from propersbi.scoring import EnergyScore, resolved
from propersbi.samplers.bounds import Box, Standardize, support_of
from propersbi.training.loop import History, TrainConfig, train
from propersbi.types import InputError, Objective, ScoringRule

__all__ = ["fit"]


def fit(
    theta: Any,
    x: Any,
    *,
    prior: Any = None,
    rule: ScoringRule | None = None,
    m: int | None = None,
    steps: int | None = None,
    objective: Callable[[Any], Objective] | None = None,
    network: nn.Module | Callable[..., Generator] | None = None,
    embedding: nn.Module | None = None,
    support: Any = None,
    weight: Any = None,
    through: Callable[[Any, Callable[[Tensor], Tensor]], Any] | None = None,
    parameter_names: Sequence[str] | None = None,
    noise: Callable[[torch.Tensor], torch.Tensor] | None = None,
    seed: int = 0,
    device: str = "auto",
    max_steps: int | None = None,
    time_limit: float | None = None,
    batch_size: int | None = None,
    validation_fraction: float = 0.1,
    folder: str | Path | None = None,
    progress: bool = True,
    **training: Any,
) -> Posterior:
    """Train a generative posterior on pairs of parameters and data.

    Arguments:
        theta: Parameters ``(n, *theta_shape)``: NumPy, torch or rows on disk.
        x: The data they made, ``(n, *x_shape)``.
        prior: The prior; only its support is looked at.
        rule: The scoring rule; by default ``EnergyScore(beta=0.5)``, whose power below 1 sees the fine detail of thin
            posteriors.
        m: Draws per pair in training, at least 2; by default 20, or 10 in one pass, or 5 of images.
        steps: More than 1 train a generator that refines its draws step by step, and that many are its default at
            sampling; 1 trains one that draws in one pass. By default 8, or 1 with another ``objective``, for images and
            for data of more than a thousand numbers.
        objective: What makes another objective than the mean score from the sampler: ``Adversarial``,
            ``functools.partial(Adversarial, game=Wasserstein())``, ``MaximumLikelihood``, ...
        network: A generator (or sampler), or what makes one from ``(theta_shape, x_shape)``, for example
            ``functools.partial(MLPGenerator, width=256)``.
        embedding: An own network that turns ``x`` (standardised) into features, trained along; for data on a large grid
            a :class:`~propersbi.networks.GridEmbedding` unless given.
        support: Bounds of the parameters, if the prior does not say: a :class:`~propersbi.samplers.bounds.Box`, a torch
            constraint or a pair ``(lower, upper)``.
        weight: Importance weights of the pairs, ``(n,)``, where they do not count alike.
        through: What the sampler is trained through, if not directly: ``(sampler, natural) -> sampler``, where
            ``natural`` takes draws to the user's units and into the support; see :mod:`propersbi.samplers.latent`.
        parameter_names: One for each parameter.
        noise: ``(x) -> x`` on torch tensors, if ``x`` lacks the last, random part of the simulator: it is drawn anew
            for every batch, so that the network cannot learn the noise of single simulations by heart.
        seed: The same seed gives the same posterior.
        device: ``"auto"``, ``"cpu"``, ``"cuda"``, ...
        max_steps: Gradient steps at most; by default grows slowly with the number of simulations.
        time_limit: Seconds of training at most.
        batch_size: Pairs per step.
        validation_fraction: Share of the pairs held out to judge the training.
        folder: Where to keep checkpoint, history and posterior. Calling again continues or returns what is there.
        progress: Whether to show a progress bar on stderr.
        **training: Any other field of :class:`~propersbi.training.loop.TrainConfig`.

    Examples:
        >>> rng = np.random.default_rng(0)
        >>> theta = rng.normal(size=(200, 1))
        >>> posterior = fit(theta, theta + rng.normal(size=(200, 1)), max_steps=5, progress=False)
        >>> posterior.sample((3,), x=[0.5]).shape
        torch.Size([3, 1])
    """
    _check_options(training)
    if objective is not None and m is not None:
        raise InputError("Give 'm' to the objective itself.")
    theta, x = checked_pairs(theta, x)
    weight = None if weight is None else _weights(weight, len(theta))
    default = Defaults(theta.shape[1:], x.shape[1:], embedded=embedding is not None)
    if steps is None:
        steps = default.steps(network, objective)
    names = checked_names(parameter_names, theta.shape[1:])
    rows, held_out = split(len(theta), validation_fraction, most=default.held_out(), seed=seed)
    few = np.sort(np.random.default_rng([seed, 1]).choice(rows, default.looked_at(len(rows)), replace=False))
    theta_units = Standardize(theta.shape[1:]).fit(as_tensor(theta[few]))
    with seeded(seed):
        seen = as_tensor(x[few]) if noise is None else noise(as_tensor(x[few]).float())
    x_units = Standardize(x.shape[1:], tail=default.tail()).fit(seen)
    box = _box(support if support is not None else prior, theta_units, theta[few])
    with seeded(seed):
        if network is None and embedding is None:
            embedding = default.embedding()
        build: Any = network or default.network(objective)
        sampler = _network(build, theta.shape[1:], x.shape[1:], embedding, steps)
    known = theta_units(as_tensor(theta[few]))
    inner = getattr(sampler, "generator", sampler)
    if hasattr(inner, "prepare") and not isinstance(network, nn.Module):
        inner.prepare(known, x_units(seen))
    if steps != 1 and not isinstance(network, nn.Module) and default.regressable(len(few)):
        sampler = Residual(sampler).fit(known, x_units(seen))
    dim = math.prod(theta_units.shape)
    ends = [torch.as_tensor(end).expand(dim).reshape(theta_units.shape) for end in box.ends()]
    if hasattr(sampler, "bound"):  # a density must know where it ends, a step of a chain better does
        sampler.bound(*(theta_units(end).flatten() for end in ends))
    if hasattr(sampler, "clamp") and box.atoms is not None:  # draws are scored as they will be seen
        sampler.clamp(*(theta_units(end).flatten() for end in ends))
    with seeded(seed + 1):
        trained = sampler if through is None else through(sampler, lambda units: box(theta_units.inverse(units)))
        draws = default.draws(steps) if m is None else m
        aim = _objective(objective, trained, resolved(rule or EnergyScore(beta=0.5), known), draws)
    size = min(batch_size or default.batch_size(len(rows)), len(rows))
    batches = Batches(theta, x, rows, size, theta_units, x_units, seed, weight, noise)
    max_steps = max_steps or default.max_steps(len(rows), steps)
    config = TrainConfig(
        max_steps=max_steps,
        time_limit=time_limit,
        seed=seed,
        device=device,
        **{**default.training(len(rows), steps, max_steps), **getattr(aim, "training", {}), **training},
    )
    folder = None if folder is None else Path(folder)
    checkpoint = None if folder is None else folder / "checkpoint.ckpt"
    with seeded(seed):
        judged = batches.read(held_out)
    history = train(aim, batches, judged, config, checkpoint=checkpoint, progress=progress)
    _warn(history)
    posterior = Posterior(
        sampler.cpu(),
        theta_units,
        x_units,
        support=box,
        parameter_names=names,
        prior=prior,
        info=_info(sampler, aim, history, size, seed),
        history=dataclasses.asdict(history),
    )
    posterior.to("cpu" if device == "auto" else device)
    if folder is not None and _first_process():
        posterior.save(folder / "posterior")
        write_json(folder / "history.json", posterior.history)
    return posterior


def _network(network: Any, theta_shape: Sequence[int], x_shape: Sequence[int], embedding: Any, steps: int) -> Any:
    if isinstance(network, nn.Module):
        if embedding is not None:
            raise InputError("Give the embedding to the network itself when 'network' is already built.")
        shapes = tuple(getattr(network, "theta_shape", ())), tuple(getattr(network, "x_shape", ()))
        if shapes != (tuple(theta_shape), tuple(x_shape)):
            raise InputError(
                f"The network is for theta {shapes[0]} and x {shapes[1]}, the simulations have "
                f"{tuple(theta_shape)} and {tuple(x_shape)}."
            )
        return _sampler(network, steps)
    options: dict[str, Any] = {} if embedding is None else {"embedding": embedding}
    if steps != 1:
        options["chain"] = True
    try:
        return _sampler(network(theta_shape, x_shape, **options), steps)
    except TypeError as error:
        hint = "" if steps == 1 else " A network that cannot be one step of several is trained with steps=1."
        raise InputError(f"The network cannot be built with {options}: {error}.{hint}") from error


def _objective(make: Any, sampler: Any, rule: ScoringRule, m: int) -> Objective:
    if make is None:
        return ScoreMinimization(sampler, rule, m)
    made = make(sampler)
    if not isinstance(made, Objective):
        raise InputError(f"'objective' must make an objective from a sampler, got {type(made).__name__}.")
    return made


def _sampler(network: nn.Module, steps: int) -> nn.Module:
    """One pass or a chain: a network that was built for the one is not silently used for the other."""
    if isinstance(network, ReverseMarkov):
        if steps not in (STEPS, network.steps):
            raise InputError(f"The sampler has steps = {network.steps}, but steps = {steps} were asked for.")
        return network
    chain = getattr(network, "chain", False)
    if steps != 1 and not chain:
        raise InputError("The network draws in one pass: train it with steps=1, or build it with chain=True.")
    if steps == 1 and chain:
        raise InputError("The network was built with chain=True, as one step of several: ask for more 'steps' than 1.")
    return network if steps == 1 else ReverseMarkov(network, steps=steps)  # type: ignore[arg-type]


def _box(support: Any, theta_units: Standardize, theta: Any) -> Box:
    box = support_of(support)
    if not box.fits(theta_units.shape):
        raise InputError(f"The bounds {box} do not fit parameters of shape {theta_units.shape}.")
    given = as_tensor(theta).double()
    # Parameters on a bound may have been rounded beyond it: only what lies clearly outside is a mistake.
    outside = ((box(given) - given).abs() / theta_units.scale > 1e-5).flatten(1).any(1)
    if outside.any():
        example = given[outside][0].flatten().tolist()
        raise InputError(f"Training parameters lie outside the support {box}, for example {example}.")
    return box.with_atoms(given)


def _check_options(training: dict[str, Any]) -> None:
    known = {field.name for field in dataclasses.fields(TrainConfig)}
    for name in training:
        if name not in known:
            raise InputError(f"'fit' has no option '{name}'.")


def _weights(weight: Any, n: int) -> np.ndarray:
    values = as_tensor(weight).double().cpu().numpy()
    if values.shape != (n,) or not (np.isfinite(values).all() and (values >= 0).all() and values.any()):
        raise InputError(f"'weight' must hold {n} finite numbers, none negative and not all zero: one for each pair.")
    return values / values.mean()


def _first_process() -> bool:
    """Of several that train together, one writes."""
    return not (torch.distributed.is_available() and torch.distributed.is_initialized()) or (
        torch.distributed.get_rank() == 0
    )


def _warn(history: History) -> None:
    if history.best_score is None:
        raise RuntimeError(
            f"Training broke down within its first {history.steps} steps: the loss became infinite or NaN. "
            "A smaller 'learning_rate' may help."
        )
    if history.stopped == "diverged":
        warnings.warn(
            f"The loss became infinite or NaN at step {history.steps}; the weights of step {history.best_step} are "
            "kept. A smaller 'learning_rate' may help.",
            stacklevel=3,
        )
    if history.stopped == "trouble":
        warnings.warn(
            f"Training stopped at step {history.steps}: {history.trouble}. The weights of step {history.best_step} are "
            "kept.",
            stacklevel=3,
        )
    if history.stopped == "interrupted":
        warnings.warn(
            f"Training was interrupted at step {history.steps}; the weights of step {history.best_step} are kept.",
            stacklevel=3,
        )


def _info(sampler: nn.Module, objective: Objective, history: History, size: int, seed: int) -> dict[str, Any]:
    return {
        "objective": type(objective).__name__,
        **{name: encode(getattr(objective, name)) for name in ("rule", "m", "game") if hasattr(objective, name)},
        "batch_size": size,
        "seed": seed,
        "steps": history.steps,
        "best_step": history.best_step,
        "best_score": history.best_score,
        "seconds": history.seconds,
        "stopped": history.stopped,
        "parameters": sum(weight.numel() for weight in sampler.parameters()),
        "torch": torch.__version__,
    }
