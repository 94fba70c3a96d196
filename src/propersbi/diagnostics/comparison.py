"""Which sampler is better? Proper scores of all of them on the same pairs, with confidence intervals.

Lower scores are better and only the true posterior has the lowest, so pairs of parameters and data are enough: no
reference posterior is needed. All samplers are scored on the same pairs, and differences are judged pair by pair.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from propersbi.diagnostics.inputs import checked_test_pairs, parameter_rows, to_numpy
from propersbi.diagnostics.measure import prior_scores, scale_of
from propersbi.metrics import calibration_error, crps, energy_score
from propersbi.observations import observations
from propersbi.posterior import Posterior
from propersbi.storage.checks import check_number, check_whole, checked_names, is_number
from propersbi.storage.progress import progress_bar
from propersbi.storage.randomness import stream
from propersbi.types import InputError

__all__ = ["Comparison", "compare"]

RESAMPLES = 2000
PRIOR_SAMPLES = 1000  # draws of the prior in its score, at least


@dataclass(frozen=True, eq=False)
class Comparison:
    """Scores of several samplers on the same pairs.

    Arguments:
        names: The samplers.
        parameter_names: The parameters.
        energy: The energy score of each pair, in standard deviations of the parameters, ``(samplers, n)``.
        crps: The CRPS of each pair and parameter, ``(samplers, n, parameters)``.
        calibration_error: Per parameter, ``(samplers, parameters)``.
        prior_energy: The energy score of the prior for each pair, ``(n,)``.
        level: Of the confidence intervals.
        seed: Of the resampling behind them.
    """

    names: tuple[str, ...]
    parameter_names: tuple[str, ...]
    energy: np.ndarray
    crps: np.ndarray
    calibration_error: np.ndarray
    prior_energy: np.ndarray
    level: float = 0.95
    seed: int = 0

    @property
    def best(self) -> str:
        """The sampler with the lowest energy score."""
        return self.names[int(self.energy.mean(1).argmin())]

    def rows(self) -> list[dict[str, Any]]:
        """For each sampler, best first: energy score, skill against the prior and how far it lies behind the best.

        Intervals come from resampling pairs with replacement, the same ones for all samplers. ``tied`` says that the
        difference from the best may be chance.
        """
        order = np.argsort(self.energy.mean(1))
        weights = self._resampled()
        prior = self.prior_energy
        table = []
        for i in order:
            score, gap = self.energy[i], self.energy[i] - self.energy[order[0]]
            row = {
                "name": self.names[i],
                "energy_score": score.mean(),
                "energy_interval": self._interval(weights @ score),
            }
            row |= {"skill": 1 - score.mean() / prior.mean()}
            row |= {"skill_interval": self._interval(1 - (weights @ score) / (weights @ prior))}
            row |= {"behind": gap.mean(), "behind_interval": self._interval(weights @ gap)}
            row |= {"tied": bool(row["behind_interval"][0] <= 0), "crps": self.crps[i].mean(0)}
            table.append(row | {"calibration_error": self.calibration_error[i]})
        return table

    def summary(self) -> str:
        """A table for the terminal; also valid Markdown."""
        percent = f"{100 * self.level:.0f} %"
        head = ["sampler", "energy score", "skill", "behind the best", "calibration error"]
        head += [f"CRPS {name}" for name in self.parameter_names[:6]]
        lines = [head, ["---"] * len(head)]
        for row in self.rows():
            cells = [row["name"], _with(row["energy_score"], row["energy_interval"])]
            cells += [_with(row["skill"], row["skill_interval"])]
            cells += ["" if row["name"] == self.best else _with(row["behind"], row["behind_interval"])]
            cells += [f"{np.mean(row['calibration_error']):.3f}", *(f"{value:.4g}" for value in row["crps"][:6])]
            lines.append(cells)
        widths = [max(len(line[j]) for line in lines) for j in range(len(head))]
        text = [" | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines]
        note = (
            f"{self.energy.shape[1]} pairs; brackets: {percent} intervals by resampling pairs. Lower scores are better."
        )
        return "\n".join([*(f"| {line} |" for line in text), "", note])

    def _resampled(self) -> np.ndarray:
        n = self.energy.shape[1]
        return np.asarray(np.random.default_rng(self.seed).multinomial(n, np.full(n, 1 / n), RESAMPLES) / n)

    def _interval(self, values: np.ndarray) -> tuple[float, float]:
        low, high = np.quantile(values, [(1 - self.level) / 2, (1 + self.level) / 2])
        return float(low), float(high)


def compare(
    samplers: Mapping[str, Any],
    theta: Any,
    x: Any,
    *,
    num_samples: int = 250,
    prior_samples: Any = None,
    parameter_names: Sequence[str] | None = None,
    level: float = 0.95,
    seed: int = 0,
    progress: bool = True,
) -> Comparison:
    """Score samplers on pairs that none of them was trained on.

    Arguments:
        samplers: By name: posteriors with ``sample_batched`` or ``sample`` (ours, sbi's, a class of your own),
            functions ``(num_samples, x) -> (num_samples, n, *event)``, or draws that are already there.
        theta: True parameters ``(n, *event)``.
        x: The data they made ``(n, *shape)``.
        num_samples: Draws for each pair.
        prior_samples: Prior draws ``(k, *event)``; the true parameters, if not given.
        parameter_names: One for each parameter.
        level: Of the confidence intervals.
        seed: The same seed gives the same result.
        progress: Whether to show a progress bar on stderr.

    Examples:
        >>> rng = np.random.default_rng(0)
        >>> theta = rng.normal(size=(400, 1))
        >>> x = theta + rng.normal(size=(400, 1))
        >>> exact = lambda m, x: x / 2 + rng.normal(0, 0.5**0.5, (m, *x.shape))
        >>> wide = lambda m, x: x / 2 + rng.normal(0, 2.0, (m, *x.shape))
        >>> compare({"wide": wide, "exact": exact}, theta, x, progress=False).best
        'exact'
    """
    _check(samplers, num_samples, level)
    truth, x = checked_test_pairs(theta, x, *samplers.values())
    n, event = len(truth), truth.shape[1:]
    data = observations(x[:n], tuple(x.shape[1:]), missing=True)
    flat = truth.reshape(n, -1)
    sd = scale_of(flat)
    if not np.all(sd):
        raise InputError(f"{np.sum(sd == 0)} of the {flat.shape[1]} parameters do not vary.")
    prior = truth if prior_samples is None else parameter_rows("prior_samples", prior_samples, event)
    prior = prior.reshape(len(prior), -1)
    with stream(seed, 0) as rng:
        prior = prior[rng.permutation(len(prior))[: max(num_samples, PRIOR_SAMPLES)]]
    columns: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    with progress_bar(len(samplers), "comparing", "sampler", show=progress) as bar:
        for name, sampler in samplers.items():
            draws = _samples(name, sampler, data, num_samples, event, seed).reshape(-1, n, flat.shape[1])
            columns.append((energy_score(draws / sd, flat / sd), crps(draws, flat), calibration_error(draws, flat)))
            bar.update()
    energy, marginal, calibration = (np.stack(column) for column in zip(*columns, strict=True))
    names = checked_names(parameter_names or _names(samplers, flat.shape[1]), event)
    base = prior_scores(prior / sd, flat / sd)
    return Comparison(tuple(samplers), tuple(names), energy, marginal, calibration, base, level, seed)


def _check(samplers: Mapping[str, Any], num_samples: int, level: float) -> None:
    if not isinstance(samplers, Mapping):
        raise InputError(f"'samplers' must be a dict of samplers by their names, got {type(samplers).__name__}.")
    if not samplers:
        raise InputError("There is nothing to compare: 'samplers' is empty.")
    if not is_number(num_samples) or num_samples < 2:
        raise InputError(f"'num_samples' must be at least 2, got {num_samples!s:.80}.")
    check_whole("num_samples", num_samples, 2)
    check_number("level", level, "lie between 0 and 1", 0, 1)


def _samples(name: str, sampler: Any, x: torch.Tensor, m: int, event: tuple[int, ...], seed: int) -> np.ndarray:
    """Draws ``(m, n, *event)`` of anything that can be sampled, checked."""
    with stream(seed, 1), torch.no_grad():
        rows = x if isinstance(sampler, Posterior) else x.to(torch.float32)
        if hasattr(sampler, "sample_batched"):
            given = sampler.sample_batched((m,), x=rows, show_progress_bars=False)
        elif hasattr(sampler, "sample"):
            given = np.stack([to_numpy(sampler.sample((m,), x=row)) for row in rows], 1)
        elif callable(sampler):
            given = sampler(m, x.numpy())
        else:
            given = sampler
    samples = to_numpy(given)
    if samples.ndim == 2 and event == (1,):
        samples = samples[..., None]
    if samples.ndim < 2 or len(samples) < 2 or samples.shape[1:] != (len(x), *event):
        raise InputError(f"'{name}' gave draws of shape {samples.shape}, expected (draws > 1, {len(x)}, {event}).")
    if not np.isfinite(samples).all():
        raise InputError(f"'{name}' gave {np.sum(~np.isfinite(samples))} of {samples.size} draws that are not finite.")
    return samples


def _names(samplers: Mapping[str, Any], size: int) -> Sequence[str] | None:
    """The parameter names of the first posterior that has some."""
    found = (getattr(sampler, "parameter_names", None) for sampler in samplers.values())
    return next((names for names in found if names is not None and len(names) == size), None)


def _with(value: float, interval: tuple[float, float]) -> str:
    return f"{value:.4g} [{interval[0]:.4g}, {interval[1]:.4g}]"
