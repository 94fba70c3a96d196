"""One pass of sampling over the test pairs, from which every metric is computed."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from propersbi.diagnostics.convergence import convergence_of
from propersbi.diagnostics.inputs import MIN_SAMPLES, check_options, checked_test_pairs, parameter_rows, to_numpy, x_of
from propersbi.diagnostics.predictive import View, predict
from propersbi.diagnostics.result import Diagnostics
from propersbi.diagnostics.support import share_outside
from propersbi.diagnostics.verdicts import FIELD_SIZE
from propersbi.metrics import c2st, crps, energy_score, nrmse, r2, rmse
from propersbi.metrics.calibration import sbc_p_values, sbc_ranks, tarp_ranks
from propersbi.observations import observations
from propersbi.posterior import Posterior
from propersbi.simulation.priors import draw
from propersbi.simulation.results import stored
from propersbi.storage.checks import checked_names
from propersbi.storage.progress import progress_bar
from propersbi.storage.randomness import stream
from propersbi.types import Array, InputError, Rows, Simulator
from propersbi.typicality import UnlikeSimulations

__all__ = ["MAX_SHOWN", "diagnose", "prior_scores", "scale_of"]

MAX_NUMBERS = 20_000_000  # of draws in memory at once
BLOCK_NUMBERS = 4_000_000  # of draws in one block of test pairs; a smaller block stays nearer to the processor
MAX_MEASURED, MAX_SHOWN = 4096, 64  # parameters that are measured one by one, and of which every test pair is kept
SCORE_SAMPLES = 100  # draws in the energy score, whose cost grows with their square
OBSERVATION_SAMPLES = 10_000  # draws for the observation
MAX_KEPT = 2_000_000  # numbers of draws that are kept on disk
EXAMPLES, EXAMPLE_SAMPLES = 8, 50  # test pairs of a field that are kept whole, and draws for each
MAX_CLASSIFIED = 100  # parameters for the classifier: its network grows with their square
PRIOR_ROWS = 1000  # true parameters compared with the prior at once
LEVELS = np.linspace(0, 1, 51)
TABLES = ("mean", "lower", "upper", "theta")  # that are kept for each test pair

Block = tuple[np.ndarray, slice, np.random.Generator]


def diagnose(
    posterior: Any,
    theta: Any,
    x: Any,
    *,
    num_samples: int = 250,
    observation: Array | None = None,
    simulator: Simulator | None = None,
    reference: Array | None = None,
    prior_samples: Array | None = None,
    parameter_names: Sequence[str] | None = None,
    view: View | None = None,
    seed: int = 0,
    progress: bool = True,
    **simulation: Any,
) -> Diagnostics:
    """Measure a posterior on test pairs that were not used to train it.

    Arguments:
        posterior: Anything with ``sample_batched((num_samples,), x=x, show_progress_bars=False)``, which gives draws
            ``(num_samples, N, *event)``: ours, sbi's or a class of your own.
        theta: True parameters, ``(n, *event)``: NumPy, torch, or rows on disk.
        x: The data they made, ``(n, *shape)``.
        num_samples: Posterior draws for each test pair.
        observation: The data of interest, ``(*shape,)``; adds its posterior to the result.
        simulator: ``(theta) -> x`` or ``(theta, rng) -> x``; adds data simulated from the posterior of the observation.
        reference: Draws of the true posterior of the observation, ``(k, *event)``; adds the C2ST.
        prior_samples: Prior draws, ``(k, *event)``. If not given, the skill is relative to the true parameters, and the
            prior that is shown is drawn from that of the posterior.
        parameter_names: One for each parameter; the posterior's own, if not given.
        view: ``(n, *shape) -> (n, *other)``: what to show of data that people cannot read as they are, such as spectra.
        seed: The same seed gives the same result.
        progress: Whether to show a progress bar on stderr.
        **simulation: How the simulator is called, as for :func:`propersbi.simulate`: ``batched``, ``timeout``,
            ``workers``, ``executor``, ``on_error`` or ``max_failed``.
    """
    truth, data = checked_test_pairs(theta, x, posterior)
    event = truth.shape[1:]
    check_options(num_samples, observation, reference, simulator, simulation)
    names = checked_names(parameter_names or getattr(posterior, "parameter_names", None), event)
    given = None if prior_samples is None else parameter_rows("prior_samples", prior_samples, event)
    result = _on_pairs(posterior, truth, data, truth if given is None else given, names, num_samples, seed, progress)
    result = _about_training(result, posterior, given, seed)
    if observation is None:
        return result
    x_o = x_of(posterior, observation, tuple(data.shape[1:]))
    if isinstance(posterior, Posterior) and posterior.typicality_test is not None:
        result = replace(result, typicality=posterior.typicality(x_o))
        if result.typicality is not None and result.typicality.unlike:
            warnings.warn(result.typicality.sentence, UnlikeSimulations, stacklevel=2)
    most = min(OBSERVATION_SAMPLES, max(result.num_samples, MAX_NUMBERS // math.prod(event)))
    samples = _draw(posterior, torch.as_tensor(x_o)[None], most, event, seed, 2)[:, 0]
    outside = share_outside(posterior.prior, samples) if isinstance(posterior, Posterior) else None
    result = _extend(result, {} if outside is None else {"outside": outside}, {"x_o": x_o, "samples": _few(samples)})
    if reference is not None:
        result = _compare(result, samples, parameter_rows("reference", reference, event))
    if simulator is None:
        return result
    return _extend(result, *predict(samples, x_o, simulator, names, seed=seed, view=view, **simulation))


def _on_pairs(
    posterior: Any,
    truth: np.ndarray,
    x: Rows,
    prior: np.ndarray,
    names: Sequence[str],
    num_samples: int,
    seed: int,
    progress: bool,
) -> Diagnostics:
    """Everything that test pairs can tell: no more than one block of draws is in memory."""
    n, event = len(truth), truth.shape[1:]
    m = min(num_samples, max(MIN_SAMPLES, MAX_NUMBERS // math.prod(event)))
    notes = [] if m == num_samples else [f"Only {m} of {num_samples} draws per test pair were taken: {event} is large."]
    columns = _measured(truth.reshape(n, -1))
    if len(columns) < len(names):
        notes.append(f"{len(columns)} of {len(names)} parameters were measured: those that vary, evenly spread.")
    flat = truth.reshape(n, -1)[:, columns]
    with stream(seed, 0) as rng:
        prior = prior[rng.permutation(len(prior))[:OBSERVATION_SAMPLES]]
    base = prior.reshape(len(prior), -1)[:SCORE_SAMPLES, columns]
    examples: dict[str, np.ndarray] = {}
    blocks = _with_examples(_blocks(posterior, truth, x, m, seed, progress), truth, x, examples)
    rows = _join(_measure(block[:, :, columns], pairs, flat, base, rng) for block, pairs, rng in blocks)
    parameters, scores, arrays = _summarise(rows, flat, m)
    arrays |= examples
    return Diagnostics(tuple(names[j] for j in columns), event, n, m, parameters, scores, arrays, tuple(notes))


def _about_training(result: Diagnostics, posterior: Any, prior: np.ndarray | None, seed: int) -> Diagnostics:
    """Add whether the training had converged, and draws of the prior, as far as the posterior knows."""
    if not isinstance(posterior, Posterior):
        return result if prior is None else _extend(result, {}, {"prior": _few(prior)})
    if posterior.history is not None:
        result = replace(result, convergence=convergence_of(posterior.history))
    if prior is None and posterior.prior is not None:
        try:
            with stream(seed, 4) as rng:
                drawn = draw(posterior.prior, _affordable(math.prod(result.event)), rng)
            prior = parameter_rows("prior", drawn, result.event)
        except Exception as error:  # whatever the user's prior does, the rest of the result is kept
            reason = f"{type(error).__name__}: {error}"
            return _extend(result, {}, {}, [f"The prior is not shown: it could not be drawn from ({reason})."])
    return result if prior is None else _extend(result, {}, {"prior": _few(prior)})


def _blocks(posterior: Any, truth: np.ndarray, x: Rows, m: int, seed: int, progress: bool) -> Iterator[Block]:
    """Draws ``(m, c, d)`` for one block of test pairs after the other; no more than one is in memory."""
    n, d = len(truth), truth[0].size
    size = min(max(1, BLOCK_NUMBERS // (m * d)), 250)
    with progress_bar(n, "diagnosing", "pair", show=progress) as bar:
        for start in range(0, n, size):
            pairs = slice(start, min(start + size, n))
            draws = _draw(
                posterior, observations(x[pairs], tuple(x.shape[1:]), missing=True), m, truth.shape[1:], seed, 1, start
            )
            yield draws.reshape(m, -1, d), pairs, np.random.default_rng([seed, 3, start])
            bar.update(pairs.stop - start)


def _with_examples(
    blocks: Iterator[Block], truth: np.ndarray, x: Rows, examples: dict[str, np.ndarray]
) -> Iterator[Block]:
    """The same blocks; some whole pairs of a field, with a few draws, go into ``examples``, to be shown."""
    for draws, pairs, rng in blocks:
        if pairs.start == 0 and truth[0].size > FIELD_SIZE:
            count = min(EXAMPLES, pairs.stop)
            some = draws[:EXAMPLE_SAMPLES, :count].reshape(-1, count, *truth.shape[1:])
            data = observations(x[:count], tuple(x.shape[1:]), missing=True).numpy()
            examples |= {"example_theta": truth[:count], "example_x": data, "example_draws": some.astype(np.float32)}
        yield draws, pairs, rng


def _draw(posterior: Any, x: torch.Tensor, m: int, event: tuple[int, ...], *place: int) -> np.ndarray:
    """``(m, c, *event)``, checked; each block has its own random numbers."""
    with stream(*place), torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", UnlikeSimulations)  # diagnose itself warns of the observation
        rows = x if isinstance(posterior, Posterior) else x.to(torch.float32)
        draws = posterior.sample_batched((m,), x=rows, show_progress_bars=False)
    draws = to_numpy(draws)
    if draws.ndim == 2 and event == (1,):
        draws = draws[..., None]
    if draws.shape != (m, len(x), *event):
        raise InputError(f"The posterior gave draws of shape {draws.shape}, expected {(m, len(x), *event)}.")
    if not np.isfinite(draws).all():
        raise InputError(f"The posterior gave {np.sum(~np.isfinite(draws))} of {draws.size} draws that are not finite.")
    return draws


def _measure(
    draws: np.ndarray, pairs: slice, truth: np.ndarray, prior: np.ndarray, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """Everything that is needed of one block of draws ``(m, c, d)``, which are then forgotten."""
    theta, sd = truth[pairs], scale_of(truth)
    lower, upper = np.quantile(draws, [0.05, 0.95], axis=0)
    points = truth[(np.arange(pairs.start, pairs.stop) + rng.integers(1, len(truth), len(theta))) % len(truth)]
    return {
        "ranks": sbc_ranks(draws, theta, seed=int(rng.integers(2**31))),
        "mean": draws.mean(0, dtype=float),
        "lower": lower,
        "upper": upper,
        "crps": crps(draws, theta),
        "energy": energy_score(draws[:SCORE_SAMPLES] / sd, theta / sd),
        "prior_energy": prior_scores(prior / sd, theta / sd),
        "tarp": tarp_ranks(draws, theta, points, seed=int(rng.integers(2**31))),
    }


def scale_of(theta: np.ndarray) -> np.ndarray:
    """The unit of differences: the standard deviation of each parameter, or one for all points of a field."""
    sd = theta.std(0)
    return np.asarray(sd if len(sd) <= FIELD_SIZE else np.sqrt(np.mean(sd**2)))


def prior_scores(prior: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """The energy score of the prior ``(k, d)`` for each of ``theta (n, d)``; all share the distances between draws."""
    points, rows = torch.as_tensor(prior).double(), torch.as_tensor(theta).double()
    mode = "donot_use_mm_for_euclid_dist"
    parts = (rows[start : start + PRIOR_ROWS] for start in range(0, len(rows), PRIOR_ROWS))
    to_theta = torch.cat([torch.cdist(part, points, compute_mode=mode).mean(1) for part in parts])
    scores: np.ndarray = (2 * to_theta - torch.pdist(points).mean()).numpy()
    return scores


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
    tables = {name: stored(values[:, shown]) for name, values in {**rows, "theta": theta}.items() if name in TABLES}
    tables |= {"ranks": ranks[:, shown].astype(np.int32)}
    curves = {"levels": LEVELS, "coverage": coverage[:, shown], "tarp_levels": LEVELS, "tarp": tarp}
    return parameters, {key: float(value) for key, value in scores.items()}, {"shown": shown, **tables, **curves}


def _compare(result: Diagnostics, samples: np.ndarray, reference: np.ndarray) -> Diagnostics:
    """Add the classifier two-sample test; as many draws as reference draws take part."""
    size = min(len(samples), len(reference))
    arrays = {"reference": _few(reference)}
    flat = reference.reshape(len(reference), -1)
    if flat.shape[1] > MAX_CLASSIFIED:
        return _extend(result, {}, arrays, (f"The C2ST was left out: {flat.shape[1]} parameters are too many for it.",))
    try:
        value = c2st(samples[:size].reshape(size, -1), flat[:size])
    except InputError as error:
        return _extend(result, {}, arrays, (f"The C2ST was left out: {error}",))
    return _extend(result, {"c2st": value, "c2st_rows": float(size)}, arrays)


def _extend(
    result: Diagnostics, scores: Mapping[str, float], arrays: Mapping[str, np.ndarray], notes: Sequence[str] = ()
) -> Diagnostics:
    scores, arrays = {**result.scores, **scores}, {**result.arrays, **arrays}
    return replace(result, scores=scores, arrays=arrays, notes=(*result.notes, *notes))


def _measured(theta: np.ndarray) -> np.ndarray:
    """The columns that vary, at most ``MAX_MEASURED`` of them."""
    vary = np.nonzero(np.ptp(theta, axis=0) > 0)[0]
    if not len(vary):
        raise InputError(f"None of the {theta.shape[1]} parameters varies over the {len(theta)} test pairs.")
    return np.asarray(vary[_spread(len(vary), MAX_MEASURED)])


def _spread(count: int, most: int) -> np.ndarray:
    """At most ``most`` indices below ``count``, evenly spread.

    >>> _spread(3, 5), _spread(10, 4)
    (array([0, 1, 2]), array([0, 3, 6, 9]))
    """
    return np.linspace(0, count - 1, min(count, most)).round().astype(int)


def _shown(theta: np.ndarray) -> np.ndarray:
    """At most ``MAX_SHOWN`` columns, evenly spread; of more, over the half of them that varies most."""
    d = theta.shape[1]
    variable = np.sort(np.argsort(theta.std(0), kind="stable")[d // 2 if d > MAX_SHOWN else 0 :])
    return np.asarray(variable[_spread(len(variable), MAX_SHOWN)])


def _few(rows: np.ndarray) -> np.ndarray:
    return rows[: _affordable(rows[0].size)]


def _affordable(size: int) -> int:
    """As many rows of so many numbers as are worth keeping on disk."""
    return min(OBSERVATION_SAMPLES, max(100, MAX_KEPT // size))


def _share_below(values: np.ndarray) -> np.ndarray:
    """The share of values up to each level, ``(levels, ...)``."""
    return np.stack([(values <= level).mean(0) for level in LEVELS])


def _join(blocks: Iterator[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    found = list(blocks)
    return {name: np.concatenate([block[name] for block in found]) for name in found[0]}
