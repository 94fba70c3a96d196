"""The report: one self-contained page about a run."""

from propersbi.reports.page import write_report

__all__ = ["write_report"]
