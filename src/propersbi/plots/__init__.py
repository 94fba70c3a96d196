"""Plots of a posterior and of its diagnostics: arrays in, a :class:`matplotlib.figure.Figure` out.

Every function takes plain arrays, so it plots the posterior of any method. Figures are built through matplotlib's
object interface only: no window is opened, no global style and no backend is changed, and plotting is thread-safe. Save
one with ``figure.savefig("corner.png")``; a notebook shows it if it is the last line of a cell.
"""

from propersbi.plots.checks import coverage, losses, rank_lines, ranks, recovery, rounds
from propersbi.plots.draws import corner, fields, predictive
from propersbi.plots.gallery import examples, images
from propersbi.plots.waves import waves

__all__ = [
    "corner", "coverage", "examples", "fields", "images", "losses", "predictive", "rank_lines", "ranks", "recovery",
    "rounds", "waves",
]  # fmt: skip
