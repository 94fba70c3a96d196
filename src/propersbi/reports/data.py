"""The report as data: ``report.json``, for programs that decide by it.

::

    {"format": 1, "problem": ..., "verdict": "good" | "fair" | "poor" | null, "exit_code": 0 | 3 | 4 | null,
     "headline": ..., "warnings": [...], "metrics": [{"name", "value", "verdict", "reading"}, ...],
     "parameters": {name: {metric: value}}, "observation": {"source", "typicality", "posterior"} | null,
     "simulations": {...}, "training": {...}, "versions": {...}, "machine": {...}, "command": ...}

``verdict`` is null where nothing was diagnosed, ``parameters`` is empty for fields and images.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import numpy as np

from propersbi.diagnostics import Diagnostics
from propersbi.diagnostics.verdicts import FIELD_SIZE
from propersbi.storage.records import RunRecord, SimulationsRecord

__all__ = ["MAX_NAMES", "all_names", "failure_sentence", "is_field", "report_data", "summary_rows"]

FORMAT = 1
MAX_NAMES = 64  # of parameters that a figure can show


def report_data(run: RunRecord | None, checks: Diagnostics | None) -> dict[str, Any]:
    """What ``report.json`` holds."""
    training = asdict(run.training) if run and run.training else None
    return {
        "format": FORMAT,
        "problem": run.problem if run else None,
        "created": run.created if run else None,
        "verdict": checks.overall if checks else None,
        "exit_code": checks.exit_code if checks else None,
        "headline": checks.headline if checks else None,
        "warnings": list(_warnings(run, checks)),
        "metrics": [_strict(asdict(row)) for row in checks.verdicts] if checks else [],
        "parameters": _parameters(checks) if checks else {},
        "observation": _observation(run, checks) if checks else None,
        "simulations": asdict(run.simulations) if run and run.simulations else None,
        "training": {name: value for name, value in training.items() if name != "recipe"} if training else None,
        "versions": dict(run.versions) if run else {},
        "machine": dict(run.machine) if run else {},
        "command": run.command if run else None,
    }


def all_names(checks: Diagnostics) -> list[str]:
    """A name for every coordinate that can be shown, also where only some were measured."""
    d = math.prod(checks.event)
    if len(checks.parameter_names) == d:
        return list(checks.parameter_names)
    return [f"theta_{j + 1}" for j in range(min(d, MAX_NAMES + 1))]


def is_field(checks: Diagnostics) -> bool:
    """Whether parameters are the points of a field or an image, which nobody reads one by one."""
    return len(checks.event) > 1 or math.prod(checks.event) > FIELD_SIZE


def summary_rows(samples: np.ndarray) -> np.ndarray:
    """Mean, standard deviation, median, 5 % and 95 % quantile of each number of draws ``(n, *event)``, ``(d, 5)``."""
    flat = samples.reshape(len(samples), -1).astype(float)
    low, median, high = np.quantile(flat, [0.05, 0.5, 0.95], axis=0)
    return np.stack([flat.mean(0), flat.std(0), median, low, high], axis=1)


def failure_sentence(done: SimulationsRecord) -> str:
    """What became of simulations that cannot be used."""
    parts = []
    if done.failed:
        most = f", most often with {done.failure}" if done.failure else ""
        parts.append(f"{done.failed:,} more failed{most}, and were left out")
    if done.invalid > done.failed:
        parts.append(f"{done.invalid - done.failed:,} more were not finite and left out")
    return "; ".join(parts)


def _warnings(run: RunRecord | None, checks: Diagnostics | None) -> Iterator[str]:
    """Everything a reader should know before trusting the numbers."""
    if run and run.simulations and run.simulations.invalid:
        yield f"Of the simulations, {failure_sentence(run.simulations)}."
    if checks:
        yield from (row.reading for row in checks.verdicts if row.verdict in ("fair", "poor"))
        yield from checks.notes


def _parameters(checks: Diagnostics) -> dict[str, dict[str, float | None]]:
    if is_field(checks):
        return {}
    tables = {name: [float(value) for value in values] for name, values in checks.parameters.items()}
    return {
        parameter: _strict({name: values[i] for name, values in tables.items()})
        for i, parameter in enumerate(checks.parameter_names)
    }


def _observation(run: RunRecord | None, checks: Diagnostics) -> dict[str, Any] | None:
    if "samples" not in checks.arrays:
        return None
    keys = ("mean", "sd", "median", "5%", "95%")
    names = [] if is_field(checks) else all_names(checks)
    rows = summary_rows(checks.arrays["samples"]) if names else np.empty((0, len(keys)))
    table = {name: dict(zip(keys, map(float, row), strict=True)) for name, row in zip(names, rows, strict=False)}
    return {
        "source": run.observation.source if run and run.observation else None,
        "typicality": None if checks.typicality is None else checks.typicality.to_json(),
        "posterior": {name: _strict(row) for name, row in table.items()},
    }


def _strict(values: dict[str, Any]) -> dict[str, Any]:
    """JSON has no word for not-a-number."""
    return {name: None if _is_strange(value) else value for name, value in values.items()}


def _is_strange(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)
