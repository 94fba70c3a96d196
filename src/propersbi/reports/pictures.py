"""The figures of a report, as text that fits into the page."""

from __future__ import annotations

import base64
import io
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from propersbi import plots
from propersbi.diagnostics import Diagnostics
from propersbi.diagnostics.verdicts import FIELD_SIZE, curve_band
from propersbi.plots.style import BAND
from propersbi.reports.data import MAX_NAMES, all_names, is_field
from propersbi.storage.records import SequentialRecord
from propersbi.training.history import History

__all__ = ["PANELS", "Picture", "draw_pictures"]

PANELS = 8  # parameters with a panel of their own
COPIES = 10  # of every prior draw in its smooth curve

Drawing = Callable[[], Any]


@dataclass(frozen=True)
class Picture:
    """A figure as text that fits into the page."""

    source: str
    width: int
    title: str


def draw_pictures(
    history: History | None, checks: Diagnostics | None, rounds: SequentialRecord | None
) -> dict[str, Picture]:
    """Every figure that can be drawn; one that cannot does not lose the others."""
    wanted: dict[str, tuple[str, Drawing]] = {}
    if history is not None:
        curves = history.to_json()
        wanted["losses"] = "Training loss and validation score over training steps", lambda: plots.losses(curves)
    if rounds is not None and rounds.rounds:
        names = None if checks is None or len(all_names(checks)) > MAX_NAMES else all_names(checks)
        tables = [{"proposal": part.proposal, "posterior": part.posterior} for part in rounds.rounds]
        wanted["rounds"] = "Proposal and posterior of each round", lambda: plots.rounds(tables, names)
    if checks is not None:
        wanted |= _figures(checks)
    drawn = {name: _picture(title, draw) for name, (title, draw) in wanted.items()}
    return {name: picture for name, picture in drawn.items() if picture is not None}


def _figures(checks: Diagnostics) -> Iterator[tuple[str, tuple[str, Drawing]]]:
    a, some = checks.arrays, _spread(checks)
    names = [checks.shown_names[j] for j in some]
    theta, mean, lower, upper, ranks = (a[key][:, some] for key in ("theta", "mean", "lower", "upper", "ranks"))
    if len(checks.shown_names) > len(some):
        yield "ranks", ("Distributions of ranks", lambda: plots.rank_lines(a["ranks"], checks.num_samples))
    else:
        yield "ranks", ("Histograms of ranks", lambda: plots.ranks(ranks, checks.num_samples, names))
    yield "coverage", ("Coverage curves", lambda: _coverage_figure(checks))
    yield "recovery", ("True against inferred parameters", lambda: plots.recovery(theta, mean, lower, upper, names))
    if "example_theta" in a:
        shown = a["example_theta"], a.get("example_x"), a["example_draws"]
        yield "examples", ("Test pairs and their posteriors", lambda: plots.examples(*shown))
    if "samples" in a:
        yield "posterior", ("Posterior of the observation", lambda: _posterior_figure(checks))
    if "predictive" in a:
        yield "predictive", ("Simulated and observed data", lambda: _predictive_figure(a))


def _coverage_figure(checks: Diagnostics) -> Any:
    """Coverage curves, in the band that the verdicts use: it holds whole curves, not single points of them."""
    a = checks.arrays
    tarp = a["tarp_levels"], a["tarp"]
    figure = plots.coverage(a["levels"], a["coverage"], n=checks.n, names=checks.shown_names, tarp=tarp)
    levels, low, high = curve_band(checks.n, checks.num_samples)
    for axes in figure.axes:
        axes.collections[0].remove()
        axes.fill_between(levels, low, high, color=BAND, lw=0, zorder=0)
    return figure


def _spread(checks: Diagnostics) -> np.ndarray:
    """The parameters with a panel of their own: of many, eight evenly spread."""
    d = len(checks.shown_names)
    return np.linspace(0, d - 1, min(d, PANELS)).round().astype(int)


def _posterior_figure(checks: Diagnostics) -> Any:
    a = checks.arrays
    if is_field(checks):
        return plots.fields(a["samples"])
    prior = None if "prior" not in a else _smooth(a["prior"])
    return plots.corner(a["samples"], reference=a.get("reference"), prior=prior, names=all_names(checks))


def _smooth(draws: np.ndarray) -> np.ndarray:
    """Many draws of a kernel density estimate, reflected at the ends, so that the curve of a prior has no ripples."""
    rng, n = np.random.default_rng(0), len(draws)
    flat = draws.reshape(n, -1).astype(float)
    low, high = flat.min(0), flat.max(0)
    width = np.subtract(*np.quantile(flat, [0.75, 0.25], axis=0)) / 1.34
    bandwidth = 0.9 * np.minimum(flat.std(0), np.where(width > 0, width, np.inf)) * n**-0.2
    moved = np.tile(flat, (COPIES, 1))
    moved += bandwidth * rng.normal(size=moved.shape)
    moved = np.where(moved < low, 2 * low - moved, moved)
    return np.asarray(np.where(moved > high, 2 * high - moved, moved))


def _predictive_figure(a: Mapping[str, np.ndarray]) -> Any:
    """Data over time along the axis of the parameters are a wave; anything else is drawn by its shape."""
    x, x_o, samples = a["predictive"], a.get("viewed", a["x_o"]), a["samples"]
    if samples.ndim == 2 and x.ndim == 3 and x.shape[2] == samples.shape[1] > FIELD_SIZE:
        times = [round(share * (x.shape[1] - 1)) for share in (0.23, 0.7, 0.95)]
        return plots.waves((None, x_o), {"posterior": (samples, x)}, times=times)
    return plots.predictive(x, x_o)


def _picture(title: str, draw: Drawing) -> Picture | None:
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
