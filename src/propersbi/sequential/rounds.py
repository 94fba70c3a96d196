"""Sequential inference: when only one observation matters, simulate where its posterior is.

::

    folder/
      asked.json                    what was asked; a folder is continued with the same only
      simulations/round-1/...       one group of shards per round
      rounds/1/                     ratio-*.ckpt, checkpoint.ckpt, history.json, posterior/
      rounds.json                   what each round brought
      posterior/, history.json      of the last round

A round proposes parameters, simulates them, and trains anew on what all rounds have brought, by a
:class:`~propersbi.sequential.corrections.Correction`. Everything follows from the seed, so a run that was cut off anywhere finds
its finished chunks and its checkpoint and continues to the same end.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from propersbi.sequential.corrections import CorrectedLatent, Correction, Lesson, Past, Truncated
from propersbi.recipes import Defaults
from propersbi.storage.files import read_json, write_json
from propersbi.inference import fit
from propersbi.metrics import energy_distance
from propersbi.posterior import Posterior
from propersbi.simulation.simulations import Simulations, simulate
from propersbi.simulation.store import check_whole
from propersbi.types import Executor, InputError, Simulator

__all__ = ["fit_sequential"]

EARLY = 0.3  # share of the steps that rounds before the last are trained for: they only have to propose
SHOWN = 1000  # draws that a proposal and a posterior are described by
LOST = 0.2  # share of rows without good latent variables from which on the user is warned


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
    batched: bool = True,
    chunk_size: int | None = None,
    max_steps: int | None = None,
    progress: bool = True,
    **training: Any,
) -> Posterior:
    """Train a posterior for one observation, in rounds of simulations that come ever nearer to it.

    The posterior has the observation as its default, and as its prior the law that it was trained for: with
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
        batched: Whether the simulator takes many parameters at once.
        chunk_size: How many rows are simulated and written at once.
        max_steps: Gradient steps of the last round at most; earlier ones take three tenths of them.
        progress: Whether to show progress bars on stderr.
        **training: Any other option of :func:`~propersbi.inference.fit`; a ``time_limit`` is for each round.

    Examples:
        >>> rng = np.random.default_rng(0)
        >>> posterior = fit_sequential(
        ...     rng.normal(size=(1000, 1)), lambda theta, rng: theta + 0.1 * rng.normal(size=theta.shape), [0.5],
        ...     simulations=300, rounds=2, max_steps=10, progress=False)
        >>> posterior.sample((3,)).shape, [r["simulations"] for r in posterior.info["rounds"]]
        (torch.Size([3, 1]), [150, 150])
    """
    x_o = _observation(x_o)
    sizes = _sizes(check_whole("simulations", simulations, 1), check_whole("rounds", rounds, 1))
    if isinstance(correction, CorrectedLatent) and training.setdefault("steps", 1) != 1:
        raise InputError(f"CorrectedLatent draws z of a one-pass generator: steps = 1, not {training['steps']}.")
    place = None if folder is None else Path(folder)
    if place is not None:
        _claim(place, {"simulations": simulations, "rounds": rounds, "correction": repr(correction), "seed": seed}, x_o)
    running: dict[str, Any] = {"path": None if place is None else place / "simulations", "chunk_size": chunk_size}
    running |= {"seed": seed, "executor": executor, "workers": workers, "batched": batched, "progress": progress}
    proposals, pairs, records = [prior], [], []
    for number, size in enumerate(sizes, 1):
        new = simulate(proposals[-1], simulator, size, group=f"round-{number}", **running)
        pairs.append((np.asarray(new.theta), np.asarray(new.x)))
        x_o = _fitting(x_o, pairs[-1][1].shape[1:])
        thetas, xs = zip(*pairs, strict=True)
        past = Past(tuple(proposals), thetas, xs, seed, None if place is None else place / "rounds" / str(number))
        lesson = correction.prepare(past)
        options = _options(past, lesson, max_steps, training, last=number == rounds)
        posterior = _learn(past, lesson, {**options, "progress": progress}).set_default_x(x_o)
        records.append(_record(number, new, past, lesson, posterior))
        posterior.info |= {"correction": repr(correction), "rounds": records}
        if place is not None:
            write_json(place / "rounds.json", {"correction": repr(correction), "rounds": records})
        if number < rounds:
            proposals.append(correction.propose(past, posterior))
    posterior.prior = lesson.law or prior
    if place is not None:
        posterior.save(place / "posterior")
        write_json(place / "history.json", posterior.history)
    return posterior


def _options(
    past: Past, lesson: Lesson, max_steps: int | None, training: Mapping[str, Any], *, last: bool
) -> dict[str, Any]:
    """How a round is trained: on networks of its own, since those of earlier rounds still propose."""
    own = {key: deepcopy(value) if isinstance(value, nn.Module) else value for key, value in training.items()}
    rows = sum(past.sizes) if lesson.rows is None else int(lesson.rows.sum())
    default = Defaults(past.theta[0].shape[1:], past.x[0].shape[1:], embedded=training.get("embedding") is not None)
    passes = training.get("steps") or default.steps(training.get("network"), training.get("objective"))
    most = max_steps or default.max_steps(rows, passes)
    steps = most if last else max(1, round(EARLY * most))
    return {"prior": past.prior, **own, "seed": past.seed, "folder": past.folder, "max_steps": steps}


def _learn(past: Past, lesson: Lesson, options: Mapping[str, Any]) -> Posterior:
    """Train on the rows of a lesson; say so if many of them could not be corrected."""
    theta, x = np.concatenate(past.theta), np.concatenate(past.x)
    if lesson.rows is not None:
        theta, x = theta[lesson.rows], x[lesson.rows]
    if lesson.through is None:
        return fit(theta, x, weight=lesson.weight, **options)
    made: list[Any] = []

    def through(*given: Any) -> Any:
        made.append(lesson.through(*given))  # type: ignore[misc]
        return made[-1]

    posterior = fit(theta, x, weight=lesson.weight, through=through, **options)
    lost, seen = made[0].left_out
    lesson.facts["left_out"] = lost / max(1, seen)
    if lesson.facts["left_out"] > LOST:
        warnings.warn(
            f"{100 * lesson.facts['left_out']:.0f} % of the rows were left out, because too few latent variables were "
            "accepted: more 'tries' or 'steps', or a lower 'limit', may help.",
            stacklevel=3,
        )
    return posterior


def _record(number: int, new: Simulations, past: Past, lesson: Lesson, posterior: Posterior) -> dict[str, Any]:
    """What a round brought, as plain numbers."""
    proposed = past.theta[-1][:SHOWN].reshape(len(past.theta[-1][:SHOWN]), -1)
    draws = posterior.sample((SHOWN,), seed=past.seed, show_progress_bars=False).cpu().numpy().reshape(SHOWN, -1)
    scale = np.concatenate([proposed, draws]).std(0) + 1e-12
    return {
        "round": number,
        "simulations": len(new) + new.invalid,
        "invalid": new.invalid,
        "score": posterior.info["best_score"],
        "steps": posterior.info["steps"],
        "seconds": round(posterior.info["seconds"], 2),
        "distance": energy_distance(draws / scale, proposed / scale),
        **lesson.facts,
        "proposal": _quantiles(proposed),
        "posterior": _quantiles(draws),
    }


def _quantiles(theta: np.ndarray) -> list[list[float]]:
    """The 5 %, 50 % and 95 % quantiles of each parameter, of the first 64."""
    return np.quantile(theta[:, :64].astype(float), [0.05, 0.5, 0.95], axis=0).T.tolist()


def _observation(x_o: Any) -> np.ndarray:
    values = np.asarray(x_o.detach().cpu() if hasattr(x_o, "detach") else x_o, dtype=np.float32)
    if not np.isfinite(values).all():
        raise InputError(
            f"The observation must be finite, got {int((~np.isfinite(values)).sum())} values that are not."
        )
    return values


def _sizes(simulations: int, rounds: int) -> list[int]:
    """As equal as possible, the first one the largest.

    >>> _sizes(100, 3)
    [34, 33, 33]
    """
    share, more = divmod(simulations, rounds)
    if share < 20:
        raise InputError(f"{simulations} simulations are too few for {rounds} rounds: each needs at least 20.")
    return [share + (number < more) for number in range(rounds)]


def _fitting(x_o: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    if x_o.shape not in (shape, (1, *shape), shape[1:] if shape == (1,) else shape):
        raise InputError(f"'x_o' must have shape {shape}, as what the simulator gives, got {x_o.shape}.")
    return x_o.reshape(shape)


def _claim(folder: Path, asked: dict[str, Any], x_o: np.ndarray) -> None:
    """Hold what is asked against what the folder was begun with."""
    asked |= {"observation": hashlib.sha256(x_o.tobytes()).hexdigest()[:16]}
    path = folder / "asked.json"
    before = read_json(path) if path.exists() else None
    for key, value in asked.items():
        if before is not None and before.get(key) != value:
            raise InputError(
                f"'{folder}' was begun with {key} = {before.get(key)}, not {value}: choose another folder."
            )
    if before is None:
        write_json(path, asked)
