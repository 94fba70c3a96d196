"""One page about a run: what can be trusted, the posterior, its checks, and how to get it again.

The page is a single file that needs nothing else: figures and style are inside, it opens offline, on a phone, in the
dark and on paper. Whatever a run lacks is left out with a sentence that says how to add it.
"""

from __future__ import annotations

import base64
import io
import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
import numpy as np

from propersbi import plots
from propersbi.diagnostics import Diagnostics
from propersbi.diagnostics.measure import SHOWN
from propersbi.diagnostics.verdicts import MANY
from propersbi.storage.files import read_json, write_text
from propersbi.types import InputError

__all__ = ["write_report"]

ROWS = 16  # of a table that people read
STOPPED = {
    "patience": "the validation score no longer improved",
    "max_steps": "all steps were done",
    "time_limit": "the time limit was reached",
    "interrupted": "it was interrupted",
    "diverged": "the loss became infinite",
}
WORDS = {"good": "Well calibrated", "fair": "Usable with care", "poor": "Not to be trusted yet"}


@dataclass(frozen=True)
class Picture:
    """A figure as text that fits into the page."""

    source: str
    width: int
    title: str


def write_report(folder: str | Path) -> Path:
    """Write ``report.html`` from ``run.json``, ``history.json`` and ``diagnostics.json`` of a run; all are optional.

    Arguments:
        folder: The run directory.
    """
    folder = Path(folder)
    run, history = _optional(folder / "run.json"), _optional(folder / "history.json")
    checks = Diagnostics.load(folder) if (folder / "diagnostics.json").exists() else None
    if not run and not history and checks is None:
        raise InputError(f"'{folder}' holds no run: neither run.json nor history.json nor diagnostics.json is there.")
    rounds = _optional(folder / "rounds.json")
    return write_text(folder / "report.html", _render(run, history, checks, rounds))


def _render(
    run: dict[str, Any], history: dict[str, Any], checks: Diagnostics | None, sequential: dict[str, Any]
) -> str:
    rounds = sequential.get("rounds") or []
    text = resources.files("propersbi.reports").joinpath("report.html.j2").read_text(encoding="utf-8")
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"number": _number, "tied": _tied}
    return environment.from_string(text).render(
        title=str(run.get("model") or "Posterior"),
        created=str(run.get("created") or "")[:10],
        words=WORDS,
        checks=checks,
        numbers=list(_numbers(run, checks)),
        facts=list(_facts(run)),
        observation=None if checks is None else _observation(checks, run),
        pictures=_pictures(history, checks, rounds),
        rounds=_round_table(rounds),
        correction=str(sequential.get("correction") or ""),
        unpredicted=_unpredicted(checks),
        table=None if checks is None else _parameter_table(checks),
        some=_some(checks),
        many=bool(_some(checks)),
        versions=_section(run, "versions"),
        machine=_section(run, "machine"),
        command=str(run.get("command") or ""),
    )


def _pictures(history: dict[str, Any], checks: Diagnostics | None, rounds: list[Any]) -> dict[str, Picture]:
    """Every figure that can be drawn; one that cannot does not lose the others."""
    wanted: dict[str, tuple[str, Callable[[], Any]]] = {}
    if history:
        wanted["losses"] = "Training loss and validation score over training steps", lambda: plots.losses(history)
    if rounds:
        names = None if checks is None or len(_all_names(checks)) > 64 else _all_names(checks)
        wanted["rounds"] = "Proposal and posterior of each round", lambda: plots.rounds(rounds, names)
    if checks is not None:
        wanted |= _figures(checks)
    drawn = {name: _picture(title, draw) for name, (title, draw) in wanted.items()}
    return {name: picture for name, picture in drawn.items() if picture is not None}


def _figures(checks: Diagnostics) -> Iterator[tuple[str, tuple[str, Callable[[], Any]]]]:
    a, some = checks.arrays, _spread(checks)
    names = [checks.shown_names[j] for j in some]
    theta, mean, lower, upper, ranks = (a[key][:, some] for key in ("theta", "mean", "lower", "upper", "ranks"))
    joint: dict[str, Any] = {"n": checks.n, "names": checks.shown_names, "tarp": (a["tarp_levels"], a["tarp"])}
    if len(checks.shown_names) > len(some):
        yield "ranks", ("Distributions of ranks", lambda: plots.rank_lines(a["ranks"], checks.draws))
    else:
        yield "ranks", ("Histograms of ranks", lambda: plots.ranks(ranks, checks.draws, names))
    yield "coverage", ("Coverage curves", lambda: plots.coverage(a["levels"], a["coverage"], **joint))
    yield "recovery", ("True against inferred parameters", lambda: plots.recovery(theta, mean, lower, upper, names))
    if "example_theta" in a:
        shown = a["example_theta"], a.get("example_x"), a["example_draws"]
        yield "examples", ("Test pairs and their posteriors", lambda: plots.examples(*shown))
    if "samples" in a:
        yield "posterior", ("Posterior of the observation", lambda: _posterior_figure(checks))
    if "predictive" in a:
        yield "predictive", ("Simulated and observed data", lambda: _predictive_figure(a))


def _spread(checks: Diagnostics) -> np.ndarray:
    """The parameters with a panel of their own: of many, eight evenly spread."""
    d = len(checks.shown_names)
    return np.linspace(0, d - 1, min(d, 8)).round().astype(int)


def _posterior_figure(checks: Diagnostics) -> Any:
    a = checks.arrays
    if _is_field(checks):
        return plots.fields(a["samples"])
    return plots.corner(a["samples"], reference=a.get("reference"), prior=a["prior"], names=_all_names(checks))


def _predictive_figure(a: Mapping[str, np.ndarray]) -> Any:
    """Data over time along the axis of the parameters are a wave; anything else is drawn by its shape."""
    x, seen, samples = a["predictive"], a.get("viewed", a["x_o"]), a["samples"]
    if samples.ndim == 2 and x.ndim == 3 and x.shape[2] == samples.shape[1] > MANY:
        times = [round(share * (x.shape[1] - 1)) for share in (0.23, 0.7, 0.95)]
        return plots.waves((None, seen), {"posterior": (samples, x)}, times=times)
    return plots.predictive(x, seen)


def _picture(title: str, draw: Callable[[], Any]) -> Picture | None:
    buffer = io.BytesIO()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a letter that the font lacks becomes a box
            figure = draw()
            figure.savefig(buffer, format="png", dpi=200, transparent=True, metadata={"Software": None})
    except Exception:
        return None
    source = "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()
    return Picture(source, round(figure.get_figwidth() * 96), title)


def _numbers(run: dict[str, Any], checks: Diagnostics | None) -> Iterator[tuple[str, str]]:
    """The figures at the top of the page: a value and what it is."""
    simulations, training = _section(run, "simulations"), _section(run, "training")
    if simulations.get("n"):
        yield _count(simulations["n"]), "simulations"
    if training.get("seconds"):
        yield _duration(training["seconds"]), "of training"
    if checks is None:
        return
    found = {row.name: row.value for row in checks.verdicts}
    yield _count(checks.n), "test pairs"
    worst = "the worst" if len(checks.parameter_names) <= MANY else "nearly the worst"
    yield _percent(found["90 % intervals"]), f"of truths in {worst} 90 % intervals"
    yield _number(found["Energy skill"]), "skill over the prior"
    if "C2ST" in found:
        yield _number(found["C2ST"]), "C2ST, where 0.5 is perfect"


def _facts(run: dict[str, Any]) -> Iterator[tuple[str, str]]:
    simulations, training = _section(run, "simulations"), _section(run, "training")
    if simulations:
        counts = f"{_count(simulations.get('n'))} to train on, {_count(simulations.get('test'))} to test"
        invalid = simulations.get("invalid")
        counts += f"; {_count(invalid)} more were not finite and left out" if invalid else "; all were finite"
        yield "Simulations", f"{counts}. {_duration(simulations.get('seconds'))}, seed {simulations.get('seed', '–')}."
    if training:
        steps = f"{_count(training.get('steps'))} steps of {_count(training.get('batch_size'))} pairs"
        why = STOPPED.get(str(training.get("stopped")), str(training.get("stopped", "–")))
        yield "Training", f"{steps} in {_duration(training.get('seconds'))}; it ended because {why}."
        yield "Kept weights", f"those of step {_count(training.get('best_step'))}, with the best validation score"
        yield "Scoring rule", f"{_code(training.get('rule'))}, with {_count(training.get('m'))} draws per pair"
        yield "Network", f"{_code(training.get('network'))}, {_count(training.get('parameters'))} weights"
        yield "Seed of training", str(training.get("seed", "–"))
    source = _section(run, "observation").get("source")
    if source:
        yield "Observation", str(source)


def _observation(checks: Diagnostics, run: dict[str, Any]) -> dict[str, Any] | None:
    """The posterior of the observation in numbers: mean, standard deviation, median and 90 % interval."""
    if "samples" not in checks.arrays:
        return None
    samples = checks.arrays["samples"].reshape(len(checks.arrays["samples"]), -1).astype(float)
    low, median, high = np.quantile(samples, [0.05, 0.5, 0.95], axis=0)
    columns = np.stack([samples.mean(0), samples.std(0), median, low, high], axis=1)
    names = _all_names(checks)
    rows = [(name, [_rounded(v, row[1]) for v in row]) for name, row in zip(names, columns[:ROWS], strict=False)]
    rows = [] if _is_field(checks) else rows  # nobody reads pixels in a table
    return {
        "rows": rows,
        "hidden": len(names) - len(rows) if rows else 0,
        "draws": _count(len(samples)),
        "reference": "reference" in checks.arrays,
        "field": _is_field(checks),
        "source": _section(run, "observation").get("source"),
    }


def _some(checks: Diagnostics | None) -> str:
    d = 0 if checks is None else math.prod(checks.event)
    which = "evenly spread" if d <= SHOWN else "among those that vary most"
    return f"Eight of {d} parameters, {which}. " if d > 8 else ""


def _unpredicted(checks: Diagnostics | None) -> str:
    """Why there is no posterior predictive check."""
    notes = [note for note in (checks.notes if checks else ()) if "posterior predictive" in note]
    return " ".join(notes) or "The check needs an observation and its simulator."


def _is_field(checks: Diagnostics) -> bool:
    return len(checks.event) > 1 or math.prod(checks.event) > MANY


def _parameter_table(checks: Diagnostics) -> dict[str, Any]:
    keys = {
        "r2": "R²", "rmse": "RMSE", "nrmse": "NRMSE", "crps": "CRPS", "calibration_error": "Calibration error",
        "coverage_90": "90 % coverage", "sbc_p": "SBC p",
    }  # fmt: skip
    return {"head": list(keys.values()), "rows": checks.table(tuple(keys), ROWS)}


def _round_table(rounds: list[dict[str, Any]]) -> dict[str, Any] | None:
    """What each round brought; a column for whatever any of them knows."""
    keys = {
        "simulations": "Simulations", "rows": "Trained on", "prior_share": "Share of the prior",
        "effective": "Effective share", "log_loss": "Classifier's log loss", "left_out": "Rows left out",
        "distance": "Energy distance", "score": "Score",
    }  # fmt: skip
    keys = {key: head for key, head in keys.items() if any(key in record for record in rounds)}
    rows = [(str(record.get("round", "–")), [record.get(key) for key in keys]) for record in rounds]
    return {"head": list(keys.values()), "rows": rows} if rounds else None


def _all_names(checks: Diagnostics) -> list[str]:
    """A name for every coordinate, also where only some were measured."""
    d = math.prod(checks.event)
    return list(checks.parameter_names) if len(checks.parameter_names) == d else [f"theta_{j + 1}" for j in range(d)]


def _optional(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    content = read_json(path)
    if not isinstance(content, dict):
        raise InputError(f"'{path}' must hold a JSON object, got {type(content).__name__}.")
    return content


def _section(run: Mapping[str, Any], name: str) -> dict[str, Any]:
    """A part of the record; whatever is not a table is treated as missing."""
    part = run.get(name)
    return part if isinstance(part, dict) else {}


def _number(value: Any) -> str:
    if not isinstance(value, int | float) or not math.isfinite(value):
        return "–"
    return f"{value:.2e}" if value and abs(value) < 1e-3 else f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def _tied(text: str) -> str:
    """The text with its per cent signs tied to their numbers."""
    return text.replace(" %", "\u00a0%")


def _rounded(value: float, scale: float) -> str:
    """As many digits as the standard deviation makes sense of: three of its own.

    >>> _rounded(3.14159, 0.021), _rounded(-31415.9, 150.0), _rounded(-0.0001, 1.0), _rounded(0.5, 0.0)
    ('3.1416', '−31416', '0.00', '0.5')
    """
    if not 1e-6 < scale < 1e6:
        return f"{value:.4g}".replace("-", "−")
    text = f"{value:.{max(0, 2 - math.floor(math.log10(scale)))}f}"
    return text.replace("-", "−") if float(text) else text.removeprefix("-")


def _percent(value: Any) -> str:
    return "–" if value is None else f"{100 * value:.0f} %"


def _count(value: Any) -> str:
    """A whole number in groups of three.

    >>> _count(1234), _count(None)
    ('1,234', '–')
    """
    return f"{int(value):,}" if isinstance(value, int | float) else "–"


def _duration(seconds: Any) -> str:
    """A time as people say it.

    >>> _duration(4.24), _duration(75), _duration(7325)
    ('4.2 s', '1 min 15 s', '2 h 2 min')
    """
    if not isinstance(seconds, int | float) or not math.isfinite(seconds):
        return "–"
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.2g} s"
    return f"{whole // 60} min {whole % 60} s" if whole < 3600 else f"{whole // 3600} h {whole % 3600 // 60} min"


def _code(value: Any) -> str:
    """What was saved, as it is written in code.

    >>> _code({"class": "KernelScore", "kernel": {"class": "Gaussian", "bandwidth": 0.5}})
    'KernelScore(kernel=Gaussian(bandwidth=0.5))'
    """
    if isinstance(value, dict) and "class" in value:
        inside = ", ".join(
            f"{key}={None if part is None else _code(part)}" for key, part in value.items() if key != "class"
        )
        return f"{value['class']}({inside})"
    return "–" if value is None else str(value)
