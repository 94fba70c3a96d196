"""One pass of sampling over the test pairs, from which every metric is computed."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from propersbi.metrics.calibration import sbc_p_values, sbc_ranks, tarp_ranks
from propersbi.diagnostics.inputs import (
    DRAWS,
    check_options,
    events,
    one_observation,
    shape_of,
    to_numpy,
    true_parameters,
)
from propersbi.diagnostics.result import Diagnostics
from propersbi.diagnostics.verdicts import MANY
from propersbi.metrics import c2st, crps, energy_score, nrmse, r2, rmse
from propersbi.posterior import checked_names
from propersbi.storage.progress import progress_bar
from propersbi.storage.randomness import stream
from propersbi.simulation.simulations import simulate
from propersbi.types import Array, InputError, Simulator

__all__ = ["diagnose", "scale_of"]

LIMIT = 20_000_000  # numbers of draws in memory at once
BLOCK = 4_000_000  # of them in one block of test pairs; a smaller block stays nearer to the processor
MEASURED, SHOWN = 4096, 64  # parameters that are measured one by one, and of which every test pair is kept
SCORED = 100  # draws in the energy score, whose cost grows with their square
OBSERVED = 10_000  # draws for the observation
PREDICTED = 200  # simulations for the posterior predictive check
EXAMPLES, EXAMPLE_DRAWS = 8, 50  # test pairs of a field that are kept whole, and draws for each
CLASSIFIED = 100  # parameters at most for the classifier: its network grows with their square
LEVELS = np.linspace(0, 1, 51)


def diagnose(
    posterior: Any,
    theta: Any,
    x: Any,
    *,
    draws: int = 250,
    observation: Array | None = None,
    simulator: Simulator | None = None,
    reference: Array | None = None,
    prior_samples: Array | None = None,
    parameter_names: Sequence[str] | None = None,
    view: Callable[[np.ndarray], np.ndarray] | None = None,
    seed: int = 0,
    progress: bool = True,
) -> Diagnostics:
    """Measure a posterior on test pairs that were not used to train it.

    Arguments:
        posterior: Anything with ``sample_batched((draws,), x=x, show_progress_bars=False)``, which gives draws
            ``(draws, N, *event)``: ours, sbi's or an own class.
        theta: True parameters, ``(n, *event)``: NumPy, torch, or rows on disk.
        x: The data they made, ``(n, *shape)``.
        draws: Posterior draws for each test pair.
        observation: The data of interest, ``(*shape,)``; adds its posterior to the result.
        simulator: ``(theta) -> x`` or ``(theta, rng) -> x``; adds data simulated from the posterior of the observation.
        reference: Draws of the true posterior of the observation, ``(k, *event)``; adds the C2ST.
        prior_samples: Prior draws, ``(k, *event)``; the true parameters, if not given.
        parameter_names: One for each parameter; the posterior's own, if not given.
        view: ``(n, *shape) -> (n, *other)``: what to show of data that people cannot read as they are, such as spectra.
        seed: The same seed gives the same result.
        progress: Whether to show a progress bar on stderr.
    """
    truth = true_parameters(theta, x)
    n, event = len(truth), truth.shape[1:]
    check_options(draws, observation, reference, simulator)
    m = min(draws, max(DRAWS, LIMIT // math.prod(event)))
    notes = [] if m == draws else [f"Only {m} of {draws} draws per test pair were taken: {event} is large."]
    names = list(checked_names(parameter_names or getattr(posterior, "parameter_names", None), event))
    columns = _measured(truth.reshape(n, -1))
    if len(columns) < len(names):
        notes.append(f"{len(columns)} of {len(names)} parameters were measured: those that vary, evenly spread.")
    known = truth.reshape(n, -1)[:, columns]
    prior = truth if prior_samples is None else events("prior_samples", prior_samples, event)
    with stream(seed, 0) as rng:
        prior = prior[rng.permutation(len(prior))[:OBSERVED]]
    base = prior.reshape(len(prior), -1)[:SCORED, columns]
    kept: dict[str, np.ndarray] = {}
    blocks = _exemplary(_blocks(posterior, truth, x, m, seed, progress), truth, x, kept)
    rows = _join(_measure(block[:, :, columns], pairs, known, base, rng) for block, pairs, rng in blocks)
    parameters, scores, arrays = _summarise(rows, known, m)
    arrays |= {"prior": _few(prior), **kept}
    result = Diagnostics(tuple(names[j] for j in columns), event, n, m, parameters, scores, arrays, tuple(notes))
    if observation is None:
        return result
    seen = one_observation(observation, shape_of(x)[1:])
    samples = _draw(posterior, seen[None], min(OBSERVED, max(m, LIMIT // math.prod(event))), event, seed, 2)[:, 0]
    result = _extend(result, {}, {"x_o": seen, "samples": _few(samples)})
    if reference is not None:
        result = _compare(result, samples, events("reference", reference, event))
    return result if simulator is None else _predict(result, samples, seen, simulator, seed, view)


def _blocks(
    posterior: Any, truth: np.ndarray, x: Any, m: int, seed: int, progress: bool
) -> Iterator[tuple[np.ndarray, slice, np.random.Generator]]:
    """Draws ``(m, c, d)`` for one block of test pairs after the other; no more than one is in memory."""
    n, d = len(truth), truth[0].size
    size = min(max(1, BLOCK // (m * d)), 250)
    with progress_bar(n, "diagnosing", "pair", show=progress) as bar:
        for start in range(0, n, size):
            pairs = slice(start, min(start + size, n))
            draws = _draw(posterior, events("x", x[pairs], shape_of(x)[1:]), m, truth.shape[1:], seed, 1, start)
            yield draws.reshape(m, -1, d), pairs, np.random.default_rng([seed, 3, start])
            bar.update(pairs.stop - start)


def _exemplary(blocks: Iterator[Any], truth: np.ndarray, x: Any, kept: dict[str, np.ndarray]) -> Iterator[Any]:
    """The same blocks; of the first, some pairs of a field are kept whole, with a few draws, to be looked at."""
    for draws, pairs, rng in blocks:
        if pairs.start == 0 and truth[0].size > MANY:
            count = min(EXAMPLES, pairs.stop)
            some = draws[:EXAMPLE_DRAWS, :count].reshape(-1, count, *truth.shape[1:])
            kept |= {"example_theta": truth[:count], "example_x": events("x", x[:count], shape_of(x)[1:])}
            kept["example_draws"] = some.astype(np.float32)
        yield draws, pairs, rng


def _draw(posterior: Any, x: np.ndarray, m: int, event: tuple[int, ...], *place: int) -> np.ndarray:
    """``(m, c, *event)``, checked; each block has its own random numbers."""
    with stream(*place), torch.no_grad():
        draws = posterior.sample_batched((m,), x=torch.as_tensor(x, dtype=torch.float32), show_progress_bars=False)
    draws = to_numpy(draws)
    if draws.ndim == 2 and event == (1,):
        draws = draws[..., None]
    if draws.shape != (m, len(x), *event):
        raise InputError(f"The posterior gave draws of shape {draws.shape}, expected {(m, len(x), *event)}.")
    if not np.isfinite(draws).all():
        raise InputError(f"The posterior gave {np.sum(~np.isfinite(draws))} of {draws.size} draws that are not finite.")
    return draws


def _measure(
    draws: np.ndarray, pairs: slice, known: np.ndarray, prior: np.ndarray, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """Everything that is needed of one block of draws ``(m, c, d)``; then they can be forgotten."""
    theta, sd = known[pairs], scale_of(known)
    lower, upper = np.quantile(draws, [0.05, 0.95], axis=0)
    points = known[(np.arange(pairs.start, pairs.stop) + rng.integers(1, len(known), len(theta))) % len(known)]
    return {
        "ranks": sbc_ranks(draws, theta, seed=int(rng.integers(2**31))),
        "mean": draws.mean(0, dtype=float),
        "lower": lower,
        "upper": upper,
        "crps": crps(draws, theta),
        "energy": energy_score(draws[:SCORED] / sd, theta / sd),
        "prior_energy": _prior_score(prior / sd, theta / sd),
        "tarp": tarp_ranks(draws, theta, points),
    }


def scale_of(theta: np.ndarray) -> np.ndarray:
    """What differences are measured in: the deviation of each parameter, or one for all points of a field."""
    sd = theta.std(0)
    return sd if len(sd) <= MANY else np.sqrt(np.mean(sd**2))


def _prior_score(prior: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """The energy score of the prior, row by row; all rows share the distances between its draws."""
    points, rows = torch.as_tensor(prior).double(), torch.as_tensor(theta).double()
    to_theta = torch.cdist(rows, points, compute_mode="donot_use_mm_for_euclid_dist").mean(1)
    return (2 * to_theta - torch.pdist(points).mean()).numpy()


def _summarise(
    rows: dict[str, np.ndarray], theta: np.ndarray, m: int
) -> tuple[dict[str, np.ndarray], dict[str, float], dict[str, np.ndarray]]:
    """Metrics per parameter, scores and arrays, from what was kept of the draws."""
    n, mean, ranks = len(theta), rows["mean"][None], rows["ranks"]
    relative = (ranks + 0.5) / (m + 1)
    coverage = _share_below(np.abs(2 * relative - 1))
    tarp = _share_below((rows["tarp"] + 0.5) / (m + 1))
    step = np.arange(n)[:, None] / n
    ordered = np.sort(relative, axis=0)
    parameters = {
        "calibration_error": np.median(np.abs(coverage - LEVELS[:, None])[1:-1], axis=0),
        "r2": r2(mean, theta),
        "nrmse": nrmse(mean, theta),
        "rmse": rmse(mean, theta),
        "crps": rows["crps"].mean(0),
        "sbc_p": sbc_p_values(ranks, m),
        "rank_distance": np.maximum(ordered - step, step + 1 / n - ordered).max(0),
        "rank_mean": relative.mean(0),
        "coverage_90": (np.abs(2 * relative - 1) <= 0.9).mean(0),
    }
    gain, base = rows["prior_energy"] - rows["energy"], rows["prior_energy"].mean()
    scores = {
        "energy_score": rows["energy"].mean(),
        "energy_skill": gain.mean() / base,
        "energy_skill_error": gain.std() / math.sqrt(n) / base,
        "tarp": np.abs(tarp - LEVELS).max(),
    }
    shown = _shown(theta)
    tables = {name: rows[name][:, shown].astype(np.float32) for name in ("mean", "lower", "upper")}
    tables |= {"ranks": ranks[:, shown].astype(np.int32), "theta": theta[:, shown].astype(np.float32)}
    curves = {"levels": LEVELS, "coverage": coverage[:, shown], "tarp_levels": LEVELS, "tarp": tarp}
    return parameters, {key: float(value) for key, value in scores.items()}, {"shown": shown, **tables, **curves}


def _compare(result: Diagnostics, samples: np.ndarray, reference: np.ndarray) -> Diagnostics:
    """Add the classifier two-sample test; as many draws as reference draws take part."""
    size = min(len(samples), len(reference))
    arrays = {"reference": _few(reference)}
    flat = reference.reshape(len(reference), -1)
    if flat.shape[1] > CLASSIFIED:
        return _extend(result, {}, arrays, f"The C2ST was left out: {flat.shape[1]} parameters are too many for it.")
    try:
        value = c2st(samples[:size].reshape(size, -1), flat[:size])
    except InputError as error:
        return _extend(result, {}, arrays, f"The C2ST was left out: {error}")
    return _extend(result, {"c2st": value, "c2st_rows": float(size)}, arrays)


def _predict(
    result: Diagnostics, samples: np.ndarray, seen: np.ndarray, simulator: Any, seed: int, view: Any
) -> Diagnostics:
    """Add data simulated from the posterior; whatever the simulator does, the rest of the result is kept."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            x, invalid = _simulated(samples, simulator, seed)
    except Exception as error:
        reason = f"{type(error.__cause__ or error).__name__}: {error.__cause__ or error}"
        return _extend(result, {}, {}, f"There is no posterior predictive check, the simulator failed ({reason}).")
    if x.shape[1:] != seen.shape:
        reason = f"the simulator gave data of shape {x.shape[1:]}, the observation has {seen.shape}"
        return _extend(result, {}, {}, f"There is no posterior predictive check: {reason}.")
    low, high = np.quantile(x, [0.01, 0.99], axis=0)
    inside = float(((low <= seen) & (seen <= high)).mean())
    notes = [f"{invalid} of {PREDICTED} data simulated from the posterior were not finite."] if invalid else []
    shown = {"predictive": x} if view is None else {"predictive": view(x), "viewed": view(seen[None])[0]}
    return _extend(result, {"predictive": inside}, shown, *notes)


def _simulated(samples: np.ndarray, simulator: Any, seed: int) -> tuple[np.ndarray, int]:
    """Data from posterior draws; a simulator that does not take NumPy may take torch."""
    options: dict[str, Any] = {"seed": seed, "chunk_size": PREDICTED, "progress": False}
    try:
        done = simulate(samples, simulator, PREDICTED, **options)
    except Exception:
        done = simulate(torch.as_tensor(samples), simulator, PREDICTED, **options)
    return np.asarray(done.x), done.invalid


def _extend(result: Diagnostics, scores: dict[str, float], arrays: dict[str, np.ndarray], *notes: str) -> Diagnostics:
    scores, arrays = {**result.scores, **scores}, {**result.arrays, **arrays}
    return replace(result, scores=scores, arrays=arrays, notes=(*result.notes, *notes))


def _measured(theta: np.ndarray) -> np.ndarray:
    """The columns that vary, at most ``MEASURED`` of them."""
    vary = np.nonzero(np.ptp(theta, axis=0) > 0)[0]
    if not len(vary):
        raise InputError(f"None of the {theta.shape[1]} parameters varies over the {len(theta)} test pairs.")
    return vary[_spread(len(vary), MEASURED)]


def _spread(count: int, most: int) -> np.ndarray:
    """At most ``most`` indices below ``count``, evenly spread.

    >>> _spread(3, 5), _spread(10, 4)
    (array([0, 1, 2]), array([0, 3, 6, 9]))
    """
    return np.linspace(0, count - 1, min(count, most)).round().astype(int)


def _shown(theta: np.ndarray) -> np.ndarray:
    """At most ``SHOWN`` columns, evenly spread; of more, over the half of them that varies most."""
    d = theta.shape[1]
    lively = np.sort(np.argsort(theta.std(0), kind="stable")[d // 2 if d > SHOWN else 0 :])
    return lively[_spread(len(lively), SHOWN)]


def _few(rows: np.ndarray) -> np.ndarray:
    """As many rows as are worth keeping on disk."""
    return rows[: min(OBSERVED, max(100, 2_000_000 // rows[0].size))]


def _share_below(values: np.ndarray) -> np.ndarray:
    """The share of values up to each level, ``(levels, ...)``."""
    return np.stack([(values <= level).mean(0) for level in LEVELS])


def _join(blocks: Iterator[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    found = list(blocks)
    return {name: np.concatenate([block[name] for block in found]) for name in found[0]}
