"""One page about a run: what can be trusted, the posterior, its checks, and how to get it again.

The page is a single file that needs nothing else: figures and style are inside, it opens offline, on a phone, in the
dark and on paper. Whatever a run lacks is left out with a sentence that says how to add it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2

from propersbi.diagnostics import Diagnostics
from propersbi.diagnostics.convergence import convergence_of
from propersbi.diagnostics.measure import MAX_SHOWN
from propersbi.diagnostics.verdicts import FIELD_SIZE
from propersbi.recipes import Recipe
from propersbi.reports.data import all_names, failure_sentence, is_field, report_data, summary_rows
from propersbi.reports.pictures import PANELS, draw_pictures
from propersbi.reports.text import count, duration, number, percent, plain, rounded, tied
from propersbi.storage.checks import to_path
from propersbi.storage.files import read_json, write_json, write_text
from propersbi.storage.records import (
    RoundRecord,
    RunRecord,
    SequentialRecord,
    SimulationsRecord,
    TrainingRecord,
    read_rounds,
)
from propersbi.training.history import History, StopReason
from propersbi.types import InputError

__all__ = ["report"]

ROWS = 16  # of a table that people read
WORDS = {"good": "Well calibrated", "fair": "Usable with care", "poor": "Not to be trusted yet"}
ROUND_COLUMNS = {
    "simulations": "Simulations",
    "rows": "Trained on",
    "prior_share": "Share of the prior",
    "effective": "Effective share",
    "log_loss": "Classifier's log loss",
    "left_out": "Rows left out",
    "distance": "Energy distance",
    "score": "Score",
}


def report(folder: str | Path) -> Path:
    """Write ``report.html`` from what a run directory holds, and return its path; ``report.json`` stands beside it.

    The second file says the same to programs, see :mod:`propersbi.reports.data`.

    Arguments:
        folder: The run directory. Of ``run.json``, ``history.json``, ``diagnostics.json`` and ``rounds.json`` any may
            be missing, but not the first three of them together.
    """
    folder = to_path("folder", folder)
    run = RunRecord.load(folder) if (folder / "run.json").exists() else None
    history = _history(folder / "history.json")
    checks = Diagnostics.load(folder) if (folder / "diagnostics.json").exists() else None
    if run is None and history is None and checks is None:
        raise InputError(f"'{folder}' holds no run: neither run.json nor history.json nor diagnostics.json is there.")
    page = _render(run, history, checks, read_rounds(folder))
    write_json(folder / "report.json", report_data(run, checks))
    return write_text(folder / "report.html", page)


def _render(
    run: RunRecord | None, history: History | None, checks: Diagnostics | None, rounds: SequentialRecord | None
) -> str:
    text = resources.files("propersbi.reports").joinpath("report.html.j2").read_text(encoding="utf-8")
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"number": number, "tied": tied}
    source = run.observation.source if run and run.observation else ""
    return environment.from_string(text).render(
        title=run.problem if run else "Posterior",
        created=run.created[:10] if run else "",
        words=WORDS,
        checks=checks,
        numbers=list(_numbers(run, checks)),
        facts=[] if run is None else list(_facts(run, history)),
        recipe=[] if run is None else _recipe_rows(run.training),
        observation=None if checks is None else _observation(checks, source),
        pictures=draw_pictures(history, checks, rounds),
        rounds=_round_table(rounds),
        correction=plain(rounds.correction) if rounds else "",
        unpredicted=_unpredicted(checks),
        table=None if checks is None else _parameter_table(checks),
        some=_some(checks),
        many=bool(_some(checks)),
        versions=run.versions if run else {},
        machine=run.machine if run else {},
        command=run.command if run else "",
    )


def _history(path: Path) -> History | None:
    if not path.exists():
        return None
    try:
        return History.from_json(read_json(path))
    except InputError as error:
        raise error if str(path) in str(error) else InputError(f"'{path}' cannot be used: {error}") from None


def _numbers(run: RunRecord | None, checks: Diagnostics | None) -> Iterator[tuple[str, str]]:
    """The figures at the top of the page: a value and what it is."""
    if run and run.simulations:
        yield count(run.simulations.n), "simulations"
    if run and run.training and run.training.seconds:
        yield duration(run.training.seconds), "of training"
    if checks is None:
        return
    found = {row.name: row.value for row in checks.verdicts}
    yield count(checks.n), "test pairs"
    which = (
        "the worst 90 % intervals" if len(checks.parameter_names) <= FIELD_SIZE else "90 % intervals (95th percentile)"
    )
    yield percent(found["90 % intervals"]), f"of truths in {which}"
    yield number(found["Energy skill"]), "skill over the prior"
    if "C2ST" in found:
        yield number(found["C2ST"]), "C2ST (0.5: indistinguishable)"


def _facts(run: RunRecord, history: History | None) -> Iterator[tuple[str, str]]:
    """What was run, in words."""
    if run.simulations:
        yield "Simulations", _simulations(run.simulations)
    if run.training:
        yield from _training(run.training)
    if history is not None:
        yield "Convergence", convergence_of(history).sentence
    if run.observation:
        yield "Observation", run.observation.source


def _simulations(done: SimulationsRecord) -> str:
    invalid = failure_sentence(done) or "all were finite"
    time = "" if done.seconds is None else f"{duration(done.seconds)}, "
    return f"{count(done.n)} to train on, {count(done.test)} to test; {invalid}. {time}seed {done.seed}."


def _training(done: TrainingRecord) -> Iterator[tuple[str, str]]:
    steps = f"{count(done.steps)} steps of {count(done.batch_size)} pairs in {duration(done.seconds)}"
    first = " of the first network" if done.members > 1 else ""
    yield f"Training{first}", f"{steps}; it ended because {_reason(done.stopped)}." if done.stopped else f"{steps}."
    if done.kept_step is not None and done.kept_score is not None:
        yield f"Kept weights{first}", _kept(done)
    several = f" in each of {count(done.members)} networks, sampled in equal shares" if done.members > 1 else ""
    yield "Size", f"{count(done.weights)} weights{several}"
    yield "Seed of training", str(done.seed)


def _reason(stopped: str) -> str:
    try:
        return StopReason(stopped).sentence
    except ValueError:
        raise InputError(f"'run.json' is damaged: '{stopped:.40}' is no reason to stop a training.") from None


def _kept(done: TrainingRecord) -> str:
    """Which weights were kept, and whether another step had a lower score."""
    kept = f"those of step {count(done.kept_step)}, validation score {number(done.kept_score)}"
    if done.lowest_score is None or done.kept_score is None or done.kept_score <= done.lowest_score:
        return f"{kept}, the lowest"
    return f"{kept}; the lowest was {number(done.lowest_score)} at step {count(done.lowest_step)}"


def _recipe_rows(done: TrainingRecord | None) -> list[tuple[str, str]]:
    """Each choice of the recipe in words, and its reason."""
    if done is None or done.recipe is None:
        return []
    recipe = Recipe.from_json(dict(done.recipe))
    endings = sorted((f": {reason}" for reason in recipe.reasons.values()), key=len, reverse=True)
    rows = []
    for line in str(recipe).splitlines()[1:]:
        ending = next((ending for ending in endings if line.endswith(ending)), "")
        rows.append((plain(line.removesuffix(ending).strip()), ending.removeprefix(": ")))
    return rows


def _observation(checks: Diagnostics, source: str) -> dict[str, Any] | None:
    """The posterior of the observation in numbers: mean, standard deviation, median and 90 % interval."""
    if "samples" not in checks.arrays:
        return None
    names = [] if is_field(checks) else all_names(checks)  # nobody reads pixels in a table
    columns = summary_rows(checks.arrays["samples"])[:ROWS] if names else ()
    rows = [(name, [rounded(v, row[1]) for v in row]) for name, row in zip(names, columns, strict=False)]
    return {
        "rows": rows,
        "hidden": len(names) - len(rows),
        "draws": count(len(checks.arrays["samples"])),
        "prior": "prior" in checks.arrays,
        "reference": "reference" in checks.arrays,
        "field": is_field(checks),
        "source": source,
    }


def _some(checks: Diagnostics | None) -> str:
    d = 0 if checks is None else math.prod(checks.event)
    which = "evenly spread" if d <= MAX_SHOWN else "among those that vary most"
    return f"Eight of {d} parameters, {which}. " if d > PANELS else ""


def _unpredicted(checks: Diagnostics | None) -> str:
    """Why there is no posterior predictive check."""
    notes = [note for note in (checks.notes if checks else ()) if "posterior predictive" in note]
    return " ".join(notes) or "The check needs an observation and its simulator."


def _parameter_table(checks: Diagnostics) -> dict[str, Any]:
    keys = {
        "r2": "R²", "rmse": "RMSE", "nrmse": "NRMSE", "crps": "CRPS", "calibration_error": "Calibration error",
        "coverage_90": "90 % coverage", "sbc_p": "SBC p",
    }  # fmt: skip
    return {"head": list(keys.values()), "rows": checks.table(tuple(keys), ROWS)}


def _round_table(sequential: SequentialRecord | None) -> dict[str, Any] | None:
    """What each round brought, with a column for each number that any of them has."""
    if sequential is None or not sequential.rounds:
        return None
    cells = [_round_cells(record) for record in sequential.rounds]
    keys = [key for key in ROUND_COLUMNS if any(row.get(key) is not None for row in cells)]
    rows = [
        (str(record.round), [row.get(key) for key in keys])
        for record, row in zip(sequential.rounds, cells, strict=True)
    ]
    return {"head": [ROUND_COLUMNS[key] for key in keys], "rows": rows}


def _round_cells(record: RoundRecord) -> dict[str, Any]:
    plain = {"simulations": record.simulations, "distance": record.distance, "score": record.score}
    return {**record.facts, **plain}
