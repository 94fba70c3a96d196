"""Figures of the paper: a metric against the number of simulations, and the trained posteriors themselves.

A specification with ``figure`` names tables as its ``panels`` and what to ``draw`` of them:

- ``lines``: a ``metric`` against the number of simulations, measured and published, a panel for each table;
- ``pairs``: the posterior of an ``observation`` and the reference posterior, parameter against parameter;
- ``ranks``: simulation-based calibration, as histograms (of few parameters) and as lines;
- ``waves``: depths, and the waves over them, for each method;
- ``images``: truth, observation and posterior of some images, for each method.

All but the first take the posteriors of measured cells, ``only`` of those with that text in their names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import propersbi as ps
from benchmarks.bench import HERE, RUNS, Cell, Spec, read_rows
from benchmarks.cells import sample, sample_test_pairs
from benchmarks.rendering import NAMES, Entry, entry, published_values
from propersbi.metrics.calibration import sbc_ranks
from propersbi.plots.style import PRIOR, SERIES, label, panels
from propersbi.posterior import Posterior
from propersbi.tasks import shallow_water
from propersbi.types import InputError

__all__ = ["lines", "plot", "trained_posteriors"]

STYLES = {3: ":", 5: "--", 10: "-.", 20: "-"}  # of m, as in the paper
DRAWS, IMAGES, HISTOGRAMS = 100, 10, 8
HOURS = (23, 70, 95)  # at which the paper shows sections of its waves


def plot(spec: Spec, results: Path = HERE / "results", runs: Path = RUNS) -> list[Path]:
    """Plot the figures of a specification with ``figure``; the paths of the images."""
    if "figure" not in spec.content:
        raise InputError(f"'{spec.name}' is a table, not a figure: `python -m benchmarks table {spec.name}`.")
    kind = spec.content["figure"].get("draw", "lines")
    if kind not in KINDS:
        raise InputError(f"'draw' of '{spec.name}' must be one of {', '.join(KINDS)}, got '{kind}'.")
    paths = []
    for name, figure in KINDS[kind](spec, results, runs):
        paths.append(results / "figures" / f"{name}.png")
        paths[-1].parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(paths[-1], dpi=130)
    return paths


def trained_posteriors(spec: Spec, runs: Path) -> Iterator[tuple[str, Cell, Posterior]]:
    """Methods, cells and posteriors that were trained here, complete ones before reduced ones (†)."""
    any_trained = False
    for cell in spec.cells():
        folders = [cell.folder(runs), *sorted((runs / cell.spec).glob(f"{cell.name}-*"))]
        ready = [folder for folder in folders if (folder / "result.json").exists() and (folder / "posterior").exists()]
        if ready:
            any_trained = True
            mark = "" if ready[0] == cell.folder(runs) else " †"
            yield cell.method["name"] + mark, cell, Posterior.load(ready[0] / "posterior")
    if not any_trained:
        raise InputError(f"No cell of '{spec.name}' was trained here yet: `python -m benchmarks run {spec.name}`.")


def lines(spec: Spec, metric: str, results: Path) -> dict[tuple[str, int], list[tuple[int, Entry]]]:
    """For every method and m, the entries at all numbers of simulations."""
    rows, published = read_rows(results / "bench.csv"), published_values(spec)
    curves: dict[tuple[str, int], list[tuple[int, Entry]]] = {}
    for cell in spec.cells():
        if cell.seed == spec.content["seeds"][0]:
            curves.setdefault((cell.method["name"], cell.m), []).append((cell.n, entry(cell, metric, rows, published)))
    return curves


def _lines(spec: Spec, results: Path, _runs: Path) -> Iterator[tuple[str, Any]]:
    metric = spec.content["figure"]["metric"]
    figure, axes = panels(len(spec.parts), shape=0.8, widest=4.4)
    for one, part in zip(axes, spec.parts, strict=True):
        curves = lines(part, metric, results)
        colours = {name: SERIES[i] for i, name in enumerate(dict.fromkeys(name for name, _ in curves))}
        for (name, m), points in curves.items():
            shape = STYLES.get(m, "-")
            _line(one, [(n, e.published) for n, e in points], colours[name], shape, alpha=0.3)
            measured = [(n, sum(e.values) / len(e.values) if e.values else None) for n, e in points]
            text = name if m == 1 else f"{name}, m = {m}"
            fill = "none" if any(e.reduced for _, e in points) else "full"
            _line(one, measured, colours[name], shape, marker="o", markersize=3.5, fillstyle=fill, label=text)
        one.set_xscale("log")
        label(one, x="simulations", y=NAMES[metric], title=part.content["task"])
    _legend(figure, axes)
    caption = "points: measured (hollow: reduced, such as a smaller critic); faint lines: published"
    figure.supxlabel(caption, fontsize=7.5, color=PRIOR)
    yield spec.name, figure


def _legend(figure: Any, axes: list[Any]) -> None:
    """One legend above all panels, with every method once."""
    handles: dict[str, Any] = {}
    for one in axes:
        handles |= {text: handle for handle, text in zip(*one.get_legend_handles_labels(), strict=True)}
    if handles:
        options = {"frameon": False, "fontsize": 7.5, "handlelength": 3.5, "ncols": min(5, len(handles))}
        figure.legend(list(handles.values()), list(handles), loc="outside upper center", **options)


def _line(axes: Any, points: list[tuple[int, float | None]], colour: str, shape: str, **options: Any) -> None:
    present = [(n, value) for n, value in points if value is not None]
    if present:
        axes.plot(*zip(*present, strict=True), color=colour, linestyle=shape, linewidth=1.4, **options)


def _pairs(spec: Spec, _results: Path, runs: Path) -> Iterator[tuple[str, Any]]:
    number = spec.content["figure"].get("observation", 1)
    for _, cell, posterior in trained_posteriors(spec, runs):
        task = ps.tasks.get(cell.task)
        x = task.observation(number)
        samples, inside = sample(cell, task, posterior, x[None], cell.evaluation["draws"], number)
        reference = task.reference_posterior(x, cell.evaluation["draws"], np.random.default_rng([cell.seed, number]))
        names = posterior.parameter_names
        yield f"{spec.name}-{cell.name}", ps.plots.corner(samples[:, 0][inside[:, 0]], reference=reference, names=names)


def _ranks(spec: Spec, _results: Path, runs: Path) -> Iterator[tuple[str, Any]]:
    for _, cell, posterior in trained_posteriors(spec, runs):
        samples, theta = sample_test_pairs(cell, ps.tasks.get(cell.task), posterior)
        ranks, name = sbc_ranks(samples, theta, seed=cell.seed), f"{spec.name}-{cell.name}"
        if theta.shape[1] <= HISTOGRAMS:
            yield name, ps.plots.ranks(ranks, len(samples), posterior.parameter_names)
        yield f"{name}-lines", ps.plots.rank_lines(ranks, len(samples))


def _waves(spec: Spec, _results: Path, runs: Path) -> Iterator[tuple[str, Any]]:
    task = shallow_water.TASK
    depths = {"prior": task.prior.sample(DRAWS, np.random.default_rng(0))}
    for name, cell, posterior in trained_posteriors(spec, runs):
        depths[name] = sample(cell, task, posterior, task.observation(1)[None], DRAWS, 1)[0][:, 0]
    truth = task.true_parameters(1)
    rows = {name: (depth, shallow_water.surface(depth)) for name, depth in depths.items()}
    yield spec.name, ps.plots.waves((truth, shallow_water.surface(truth[None])[0]), rows, times=HOURS)


def _images(spec: Spec, _results: Path, runs: Path) -> Iterator[tuple[str, Any]]:
    task, samples = ps.tasks.get(spec.cells()[0].task), {}
    prior = task.test_prior or task.prior
    test = ps.simulate(prior, task.simulate, IMAGES, seed=0, group="figure", progress=False)
    for name, cell, posterior in trained_posteriors(spec, runs):
        samples[name] = sample(cell, task, posterior, np.asarray(test.x), DRAWS, 1)[0]
    yield spec.name, ps.plots.images(np.asarray(test.theta), np.asarray(test.x), samples, num_samples=0)


KINDS: dict[str, Callable[[Spec, Path, Path], Iterator[tuple[str, Any]]]] = {
    "lines": _lines,
    "pairs": _pairs,
    "ranks": _ranks,
    "waves": _waves,
    "images": _images,
}
