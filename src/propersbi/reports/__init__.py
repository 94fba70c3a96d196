"""The report: one self-contained page about a run."""

from propersbi.reports.page import report

__all__ = ["report"]
