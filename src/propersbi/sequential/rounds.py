"""Sequential inference: when only one observation matters, simulate where its posterior is.

::

    folder/
      asked.json                    what was asked; a folder is continued with the same only
      simulations/round-1/...       one group of shards per round
      rounds/1/                     ratio-*.ckpt, checkpoint.ckpt, history.json, posterior/
      rounds.json                   what each round brought
      posterior/, history.json      of the last round

A round proposes parameters, simulates them, and trains anew on what all rounds have brought, by a
:class:`~propersbi.sequential.corrections.Correction`. Everything follows from the seed, so a run that was cut off
anywhere finds its finished chunks and its checkpoint and continues to the same end.
"""

from __future__ import annotations

import hashlib
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from propersbi.choices import Choices
from propersbi.fitting import train_posterior
from propersbi.metrics import energy_distance
from propersbi.observations import numbers, one_observation
from propersbi.posterior import Posterior
from propersbi.recipes import Recipe
from propersbi.sequential.corrections import Corrected, CorrectedLatent, Correction, Rounds, Truncated
from propersbi.simulation import Simulations, simulate
from propersbi.simulation.priors import parameter_names as names_of
from propersbi.simulation.results import stored
from propersbi.simulation.store import check_whole
from propersbi.storage.checks import to_path
from propersbi.storage.files import read_json, write_json
from propersbi.storage.records import RoundRecord
from propersbi.storage.torch_defaults import torch_defaults
from propersbi.training.logging import prefixed
from propersbi.types import Executor, InputError, Simulator

__all__ = ["fit_sequential"]

EARLY_SHARE = 0.3  # of the gradient steps that rounds before the last are trained for: they only have to propose
SIMULATE_OPTIONS = ("chunk_size", "on_error", "max_failed", "timeout", "force")
DESCRIBED_DRAWS = 1000  # that a proposal and a posterior are described by
MAX_LEFT_OUT = 0.2  # share of rows without good latent variables above which the user is warned


def fit_sequential(
    prior: Any,
    simulator: Simulator,
    x_o: Any,
    *,
    simulations: int = 10_000,
    rounds: int = 5,
    correction: Correction = Truncated(),  # noqa: B008
    seed: int = 0,
    folder: str | Path | None = None,
    executor: Executor | None = None,
    workers: int | None = 1,
    batched: bool | None = None,
    progress: bool = True,
    **options: Any,
) -> Posterior:
    """Train a posterior for one observation, in rounds of simulations ever nearer to it.

    The posterior has the observation as its default, and as its prior the distribution that it was trained for: with
    ``Truncated``, the prior within the last region. For other data it is good only as far as their posterior lies where
    parameters were simulated.

    Arguments:
        prior: As for :func:`~propersbi.simulation.simulations.simulate`; a density is not needed.
        simulator: Likewise.
        x_o: The observation.
        simulations: In all rounds together.
        rounds: How many; the first one draws from the prior.
        correction: ``Truncated``, ``ImportanceWeights``, ``CorrectedLatent`` or ``Uncorrected``; see
            :mod:`propersbi.sequential.corrections`.
        seed: The same seed gives the same posterior.
        folder: Where to keep everything. Calling again continues or returns what is there.
        executor: Where chunks run, in place of ``workers``.
        workers: The number of processes that simulate.
        batched: Whether the simulator takes many parameters at once; found out unless given.
        progress: Whether to show progress bars on stderr.
        **options: ``parameter_names``, ``device`` and ``logger`` as for :func:`~propersbi.inference.fit`;
            ``chunk_size``, ``on_error``, ``max_failed``, ``timeout`` and ``force`` as for ``simulate``; choices of the
            recipe by name.
            Rounds before the last take three tenths of ``max_steps``; a ``time_limit`` is for each round.

    Examples:
        >>> rng = np.random.default_rng(0)
        >>> posterior = fit_sequential(
        ...     rng.normal(size=(1000, 1)), lambda theta, rng: theta + 0.1 * rng.normal(size=theta.shape), [0.5],
        ...     simulations=300, rounds=2, max_steps=10, progress=False)
        >>> posterior.sample((3,)).shape, [r["simulations"] for r in posterior.info["rounds"]]
        (torch.Size([3, 1]), [150, 150])
    """
    observation = numbers(x_o, name="x_o")
    sizes = _sizes(check_whole("simulations", simulations, 1), check_whole("rounds", rounds, 1))
    place = None if folder is None else to_path("folder", folder)
    if not isinstance(correction, Correction):
        raise InputError(f"'correction' must be a correction such as Truncated(), got {correction!r:.80}.")
    if place is not None:
        asked = {"simulations": simulations, "rounds": rounds, "correction": repr(correction), "seed": seed}
        _check_folder(place, asked, observation)
    simulating: dict[str, Any] = {"path": None if place is None else place / "simulations", "progress": progress}
    simulating |= {"seed": seed, "executor": executor, "workers": workers, "batched": batched}
    simulating |= {name: options.pop(name) for name in SIMULATE_OPTIONS if name in options}
    options["parameter_names"] = options.get("parameter_names") or names_of(prior)
    simulating["parameter_names"] = options["parameter_names"]
    training = _Training(correction, observation, rounds, seed, place, progress, options)
    done = Rounds((prior,), (), (), seed)
    for number, size in enumerate(sizes, 1):
        # Draws of a trained proposal are rounded differently elsewhere: the model is compared in the first round.
        own = {"force": True} if number > 1 else {}
        new = simulate(done.proposals[-1], simulator, size, group=f"round-{number}", **{**simulating, **own})
        done = done.add(new, None if place is None else place / "rounds" / str(number))
        posterior = training.round(number, new, done)
        if number < rounds:
            done = done.propose(correction.propose(done, posterior))
    if place is not None:
        posterior.save(place / "posterior")
        assert posterior.history is not None
        write_json(place / "history.json", posterior.history.to_json())
    return posterior


@dataclass
class _Training:
    """What all rounds are trained with, and the records of those that are done."""

    correction: Correction
    observation: np.ndarray
    rounds: int
    seed: int
    folder: Path | None
    progress: bool
    options: dict[str, Any]
    records: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.device = self.options.pop("device", "auto")
        self.parameter_names = self.options.pop("parameter_names", None)
        self.logger = self.options.pop("logger", None)
        if isinstance(self.correction, CorrectedLatent) and self.options.setdefault("refinement_steps", 1) != 1:
            steps = self.options["refinement_steps"]
            raise InputError(f"CorrectedLatent draws z of a one-pass generator: refinement_steps = 1, not {steps}.")

    @torch_defaults()
    def round(self, number: int, new: Simulations, done: Rounds) -> Posterior:
        """Train on all rounds so far."""
        observation = one_observation(self.observation, done.x[-1].shape[1:], name="x_o")
        corrected = self.correction.prepare(done)
        choices, recipe = self.recipe(corrected, done.prior, last=number == self.rounds)
        posterior = train_posterior(
            corrected.data,
            recipe,
            choices.modules,
            parameter_names=self.parameter_names,
            folder=done.folder,
            seed=self.seed,
            device=self.device,
            progress=self.progress,
            logger=prefixed(self.logger, f"round {number}/"),
        ).set_default_x(observation)
        posterior.prior = corrected.prior or done.prior
        _warn_left_out(posterior, corrected)
        self.records.append(_record(number, new, done, corrected, posterior).to_json())
        content = {"correction": repr(self.correction), "rounds": self.records}
        posterior.info |= content
        if self.folder is not None:
            write_json(self.folder / "rounds.json", content)
        return posterior

    def recipe(self, corrected: Corrected, prior: Any, *, last: bool) -> tuple[Choices, Recipe]:
        """Rounds before the last are trained for fewer steps."""
        theta_shape, x_shape = corrected.data.shapes
        n = len(corrected.data.theta)
        steps = Choices(theta_shape, x_shape, n, prior, self.options).recipe().training.max_steps
        steps = steps if last else max(1, round(EARLY_SHARE * steps))
        choices = Choices(theta_shape, x_shape, n, prior, {**self.options, "max_steps": steps})
        return choices, choices.recipe()


def _warn_left_out(posterior: Posterior, corrected: Corrected) -> None:
    """Say so if many rows could not be corrected."""
    share = posterior.info.get("left_out")
    if share is None:
        return
    corrected.facts["left_out"] = share
    if share > MAX_LEFT_OUT:
        warnings.warn(
            f"{100 * share:.0f} % of the rows were left out, because too few latent variables were accepted: more "
            "'tries' or 'steps', or a lower 'limit', may help.",
            stacklevel=4,
        )


def _record(number: int, new: Simulations, done: Rounds, corrected: Corrected, posterior: Posterior) -> RoundRecord:
    """What a round brought, as plain numbers."""
    proposed = done.theta[-1][:DESCRIBED_DRAWS].reshape(len(done.theta[-1][:DESCRIBED_DRAWS]), -1)
    samples = posterior.sample((DESCRIBED_DRAWS,), seed=done.seed, show_progress_bars=False)
    draws = samples.cpu().numpy().reshape(DESCRIBED_DRAWS, -1)
    scale = np.concatenate([proposed, draws]).std(0) + 1e-12
    return RoundRecord(
        round=number,
        simulations=len(new) + new.invalid,
        invalid=new.invalid,
        score=posterior.info["kept_score"],
        steps=posterior.info["steps"],
        seconds=round(posterior.info["seconds"], 2),
        distance=energy_distance(draws / scale, proposed / scale),
        facts=corrected.facts,
        proposal=_quantiles(proposed),
        posterior=_quantiles(draws),
    )


def _quantiles(theta: np.ndarray) -> list[list[float]]:
    """The 5 %, 50 % and 95 % quantiles of each parameter, of the first 64."""
    return np.quantile(theta[:, :64].astype(float), [0.05, 0.5, 0.95], axis=0).T.tolist()


def _sizes(simulations: int, rounds: int) -> list[int]:
    """As equal as possible, the first one the largest.

    >>> _sizes(100, 3)
    [34, 33, 33]
    """
    share, more = divmod(simulations, rounds)
    if share < 20:
        raise InputError(f"{simulations} simulations are too few for {rounds} rounds: each needs at least 20.")
    return [share + (number < more) for number in range(rounds)]


def _check_folder(folder: Path, asked: dict[str, Any], x_o: np.ndarray) -> None:
    """Refuse a folder that was begun with something else."""
    asked |= {"observation": hashlib.sha256(stored(x_o[None]).tobytes()).hexdigest()[:16]}
    path = folder / "asked.json"
    before = read_json(path) if path.exists() else None
    for key, value in asked.items():
        if before is not None and before.get(key) != value:
            raise InputError(
                f"'{folder}' was begun with {key} = {before.get(key)}, not {value}: choose another folder."
            )
    if before is None:
        write_json(path, asked)
