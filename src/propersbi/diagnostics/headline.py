"""What can be trusted, in a few sentences that follow from the verdicts and never contradict one another.

*Face value* is said only where every verdict is good. The reason for anything less comes first.
"""

from __future__ import annotations

from propersbi.diagnostics.verdicts import Verdict, overall

__all__ = ["headline"]

CALIBRATION = ("90 % intervals", "Joint coverage (TARP)", "SBC", "Calibration error")  # the plainest first
REASONS = ("Typicality", "Training", "C2ST", "Posterior predictive", "Outside the prior", "R²", "Test pairs")


def headline(rows: tuple[Verdict, ...], n: int) -> str:
    """The verdicts of ``n`` test pairs in words."""
    by_name, word = {row.name: row for row in rows}, overall(rows)
    calibration = [by_name[name] for name in CALIBRATION]
    sentences = [_opening(word, calibration, n)]
    reasons = [by_name[name] for name in REASONS if name in by_name]
    for level in ("poor", "fair"):
        sentences += [row.reading for row in reasons if row.verdict == level and not _is_beside_the_point(row, word)]
    return " ".join([*sentences, _on_skill(by_name["Energy skill"])])


def _opening(word: str, calibration: list[Verdict], n: int) -> str:
    of_intervals = overall(tuple(calibration))
    culprit = next((row.reading for row in calibration if row.verdict == of_intervals), "")
    if word == "good":
        return f"The uncertainties can be taken at face value: {n} test pairs show no sign of miscalibration."
    if of_intervals == "poor":
        return f"The uncertainties should not be trusted. {culprit}"
    if word == "poor" and of_intervals == "good":
        return f"This posterior should not be trusted, although {n} test pairs show no sign of miscalibration."
    if word == "poor":
        return "This posterior should not be trusted."
    if of_intervals == "fair":
        return f"The uncertainties are roughly right, with a small but real error. {culprit}"
    return f"{n} test pairs show no sign of miscalibration, but the uncertainties cannot be taken at face value."


def _is_beside_the_point(row: Verdict, word: str) -> bool:
    """More test pairs would not help a posterior that fails."""
    return row.name == "Test pairs" and word == "poor"


def _on_skill(skill: Verdict) -> str:
    if skill.verdict == "poor":
        return "The posterior predicts the parameters worse than the prior does."
    if skill.verdict == "fair":
        return "The posterior is not clearly better than the prior."
    return (
        f"On average the posterior predicts the parameters {100 * (skill.value or 0):.0f} % better than the prior does."
    )
