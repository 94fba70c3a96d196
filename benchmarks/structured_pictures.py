"""Pictures of the pages on structured data, by :mod:`benchmarks.structured`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

FIGURES = Path(__file__).parent.parent / "docs" / "figures"
OURS, TRUE = "#1f77b4", "#444444"
SERIES_NAMES = ("rate", "mean", "sd", "noise")


def _figure(rows: int, columns: int, size: tuple[float, float]) -> tuple[Any, np.ndarray]:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(rows, columns, figsize=size, squeeze=False, layout="constrained")
    return figure, axes


def _save(figure: Any, name: str) -> None:
    FIGURES.mkdir(parents=True, exist_ok=True)
    figure.savefig(FIGURES / f"structured_{name}.png", dpi=110)


def _compare(axis: Any, ours: np.ndarray, true: np.ndarray, label: str) -> None:
    low, high = np.quantile(np.concatenate([ours, true]), [0.001, 0.999])
    bins = np.linspace(low, high, 40)
    axis.hist(true, bins, density=True, histtype="step", color=TRUE, label="true posterior")
    axis.hist(ours, bins, density=True, alpha=0.5, color=OURS, label="propersbi")
    axis.set(xlabel=label, yticks=[])


def series(x: np.ndarray, ours: np.ndarray, true: np.ndarray) -> None:
    """One series, and its posterior against the chain's."""
    figure, axes = _figure(1, 5, (13, 2.6))
    axes[0, 0].plot(x, lw=0.7, color="black")
    axes[0, 0].set(xlabel="time", title="observation")
    for i, name in enumerate(SERIES_NAMES):
        _compare(axes[0, i + 1], ours[:, i], true[:, i], name)
    axes[0, 1].legend(fontsize=7)
    _save(figure, "series")


def sets(curves: Mapping[int, tuple[np.ndarray, np.ndarray]]) -> None:
    """Posteriors of sets of several sizes against the exact ones."""
    figure, axes = _figure(2, len(curves), (3 * len(curves), 4.6))
    for k, (count, (ours, true)) in enumerate(curves.items()):
        for i, name in enumerate(("mean", "standard deviation")):
            _compare(axes[i, k], ours[:, i], true[:, i], name)
        axes[0, k].set_title(f"{count} trial{'s' * (count > 1)}")
    axes[0, 0].legend(fontsize=7)
    _save(figure, "sets")


def missing(ours: np.ndarray, true: np.ndarray) -> None:
    """The ten parameters when a block of five data is missing."""
    figure, axes = _figure(2, 5, (13, 4.6))
    for i, axis in enumerate(axes.flat):
        _compare(axis, ours[:, i], true[:, i], f"theta_{i + 1}")
    axes[0, 0].legend(fontsize=7)
    _save(figure, "missing")


def parts(draws: Mapping[str, np.ndarray], theta: np.ndarray) -> None:
    """The posterior of one test pair from each part alone and from both."""
    figure, axes = _figure(1, 4, (12, 2.8))
    for i, axis in enumerate(axes.flat):
        values = np.concatenate([d[:, i] for d in draws.values()])
        low, high = np.quantile(values, [0.001, 0.999])
        bins = np.linspace(low, high, 30)
        for name, d in draws.items():
            axis.hist(d[:, i], bins, density=True, histtype="step", label=name)
        axis.axvline(theta[i], color="black", lw=1)
        axis.set(xlabel=SERIES_NAMES[i], yticks=[])
    axes[0, 0].legend(fontsize=7)
    _save(figure, "parts")


def images(x: np.ndarray, theta: np.ndarray, draws: np.ndarray) -> None:
    """Images, with the true place and draws of it."""
    figure, axes = _figure(1, len(x), (3 * len(x), 3.2))
    last = x.shape[1] - 1
    for i, axis in enumerate(axes.flat):
        axis.imshow(np.clip(x[i], 0, 1))
        axis.scatter(last * draws[:, i, 1], last * draws[:, i, 0], s=1, alpha=0.3, color=OURS)
        axis.scatter(last * theta[i, 1], last * theta[i, 0], s=40, marker="+", color="red")
        axis.set(xticks=[], yticks=[], title=f"width {theta[i, 2]:.2f}, inferred {draws[:, i, 2].mean():.2f}")
    _save(figure, "images")
