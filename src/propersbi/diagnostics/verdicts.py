r"""What the numbers mean: each with a sentence and a verdict that knows how noisy it is.

With :math:`n` test pairs even the exact posterior deviates a little. A deviation is *good* when an exact posterior
reaches it in 1 % of all cases at most, corrected for testing :math:`d` parameters; *fair* when it is larger but small
enough to live with; else *poor*. For fields and images we judge the 95th percentile of their many parameters instead of
the worst: there, a single odd pixel says little. Quantities without a right value, such as the error of the posterior
mean, which depends on how much the data tell, are there for *information*.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from propersbi.metrics.calibration import coverage_band

__all__ = ["FIELD_SIZE", "Verdict", "headline", "judge", "overall"]

ALPHA = 0.01  # how often an exact posterior may fail a check
MARGIN = 0.05  # a deviation in probability that one can live with
FIELD_SIZE = 40  # parameters above which they are taken for the points of a field
CALIBRATION = ("90 % intervals", "Joint coverage (TARP)", "SBC", "Calibration error")  # the plainest first


@dataclass(frozen=True)
class Verdict:
    """One metric: its value, ``good``, ``fair``, ``poor`` or ``info``, and how to read it."""

    name: str
    value: float | None
    verdict: str
    reading: str


@dataclass(frozen=True, eq=False)
class _Measured:
    """What is judged: metrics of ``n`` test pairs, by parameter and for all of them together."""

    n: int
    names: tuple[str, ...]
    parameters: Mapping[str, np.ndarray]
    scores: Mapping[str, float]

    @property
    def is_field(self) -> bool:
        return len(self.names) > FIELD_SIZE

    @property
    def tests(self) -> int:
        """For how many tests the parameter that is judged is corrected."""
        return 1 if self.is_field else len(self.names)

    @property
    def which(self) -> str:
        """Which parameter is judged, in words."""
        return f"worse than 95 % of {len(self.names)} parameters" if self.is_field else "the worst"


def judge(
    n: int, names: tuple[str, ...], parameters: Mapping[str, np.ndarray], scores: Mapping[str, float]
) -> tuple[Verdict, ...]:
    """A verdict for every metric that was measured."""
    measured = _Measured(n, names, parameters, scores)
    calibration = (_ranks(measured), _calibration(measured), _intervals(measured), _joint_coverage(measured))
    return (*calibration, *_skill(measured), *_observation(scores))


def overall(rows: tuple[Verdict, ...]) -> str:
    """The worst verdict."""
    found = {row.verdict for row in rows}
    return next((word for word in ("poor", "fair") if word in found), "good")


def headline(rows: tuple[Verdict, ...], n: int) -> str:
    """What can be trusted, in words."""
    by_name = {row.name: row for row in rows}
    sentences = [_on_calibration({name: by_name[name] for name in CALIBRATION}, n)]
    skill = by_name["Energy skill"]
    if skill.verdict == "poor":
        sentences.append("The posterior predicts the parameters worse than the prior does.")
    elif skill.verdict == "fair":
        sentences.append("The posterior is not clearly better than the prior.")
    else:
        sentences.append(
            f"The posterior predicts the parameters {100 * (skill.value or 0):.0f} % better than the prior does."
        )
    others = [by_name[name] for name in ("C2ST", "Posterior predictive") if name in by_name]
    return " ".join([*sentences, *(row.reading for row in others if row.verdict != "good")])


def noise(n: int, d: int) -> float:
    """The calibration error that an exact posterior stays below for all of ``d`` parameters in 99 % of cases.

    The deviation of a coverage curve is a Brownian bridge over the square root of n; the median of its absolute value
    has the tail of a normal variable of deviation 0.32 (by simulation).

    >>> round(noise(1000, 1), 3), round(noise(1000, 5), 3)
    (0.026, 0.031)
    """
    return 0.32 * _z(d) / math.sqrt(n)


def _ranks(measured: _Measured) -> Verdict:
    """Simulation-based calibration: the parameter with the least uniform ranks."""
    p, d = measured.parameters["sbc_p"], measured.tests
    at = _worst(-p)
    lowest = min(1.0, float(p[at]) * d)
    large = measured.parameters["rank_distance"][at] > MARGIN
    above = _percent(measured.parameters["rank_mean"][at])
    return Verdict(
        "SBC", lowest, "good" if lowest >= ALPHA else "poor" if lowest < ALPHA / 100 and large else "fair",
        f"For {measured.names[at]}, {measured.which}, the truth lies above {above} of the draws on "
        f"average (50 % if exact); an exact posterior has ranks this uneven with probability {lowest:.2g}"
        + (f", corrected for {d} parameters." if d > 1 else "."),
    )  # fmt: skip


def _calibration(measured: _Measured) -> Verdict:
    """The parameter whose credible levels are the furthest off."""
    errors, band = measured.parameters["calibration_error"], noise(measured.n, measured.tests)
    at = _worst(errors)
    worst = float(errors[at])
    return Verdict(
        "Calibration error", worst, _grade(worst, band),
        f"The credible levels of {measured.names[at]}, {measured.which}, are typically off by {worst:.2g}; "
        f"up to {band:.2g} is noise with {measured.n} test pairs.",
    )  # fmt: skip


def _intervals(measured: _Measured) -> Verdict:
    """The parameter whose 90 % intervals hold the truth too rarely or too often."""
    shares = measured.parameters["coverage_90"]
    at = _worst(np.abs(shares - 0.9))
    share = float(shares[at])
    low, high = coverage_band(measured.n, [0.9], level=1 - ALPHA / measured.tests)
    grade = _grade(abs(share - 0.9), 0.9 - low[0] if share < 0.9 else high[0] - 0.9)
    side = "too narrow" if share < 0.9 else "too wide"
    return Verdict(
        "90 % intervals", share, grade,
        f"The 90 % intervals of {measured.names[at]}, {measured.which}, hold the truth in {_percent(share)} of the "
        "tests" + ("." if grade == "good" else f": they are {side}."),
    )  # fmt: skip


def _joint_coverage(measured: _Measured) -> Verdict:
    """Credible regions of all parameters together."""
    error = measured.scores["tarp"]
    limit = math.sqrt(math.log(2 / ALPHA) / (2 * measured.n))  # Dvoretzky, Kiefer, Wolfowitz
    return Verdict(
        "Joint coverage (TARP)", error, _grade(error, limit),
        f"Credible regions of all parameters taken together are off by {error:.2g} at most; "
        f"up to {limit:.2g} is noise with {measured.n} test pairs.",
    )  # fmt: skip


def _skill(measured: _Measured) -> Iterator[Verdict]:
    """How much the posterior predicts beyond the prior."""
    parameters, scores, names = measured.parameters, measured.scores, measured.names
    skill, error = scores["energy_skill"], scores["energy_skill_error"]
    yield Verdict(
        "Energy skill", skill, "good" if skill > 2 * error else "poor" if skill < -3 * error else "fair",
        f"How much better than the prior the posterior predicts the parameters: 0 is no better, 1 is perfect "
        f"(± {error:.1g}).",
    )  # fmt: skip
    at, average = _worst(-parameters["r2"]), np.median if measured.is_field else np.mean
    lowest, slack = float(parameters["r2"][at]), 3 / math.sqrt(measured.n)
    share = "median over parameters, and" if measured.is_field else "on average, and"
    low = f"{lowest:.2f} or less for 5 % of them" if measured.is_field else f"lowest for {names[at]} ({lowest:.2f})"
    yield Verdict(
        "R²", float(average(parameters["r2"])),
        "poor" if lowest < -slack else "good" if lowest > 0.1 else "info",
        f"The share of the parameters' variance that the posterior mean explains, {share} {low}. A low value alone "
        "is no fault: the data may not tell more.",
    )  # fmt: skip
    yield Verdict(
        "NRMSE", float(average(parameters["nrmse"])), "info",
        "The error of the posterior mean as a share of the parameter's range; lower is better, zero is out of reach.",
    )  # fmt: skip
    yield Verdict(
        "Energy score", scores["energy_score"], "info",
        "What training minimises, in units of the prior's standard deviation; to compare posteriors on the same tests.",
    )  # fmt: skip


def _observation(scores: Mapping[str, float]) -> Iterator[Verdict]:
    if "c2st" in scores:
        value, slack = scores["c2st"], 1 / math.sqrt(scores["c2st_rows"])
        word = "good" if value <= 0.6 + slack else "fair" if value <= 0.75 else "poor"
        yield Verdict(
            "C2ST", value, word,
            f"A classifier tells draws and reference posterior apart in {_percent(value)} of cases; 50 %: "
            "indistinguishable, 100 %: always distinguished.",
        )  # fmt: skip
    if "predictive" in scores:
        share = scores["predictive"]
        yield Verdict(
            "Posterior predictive", share, "good" if share >= 0.95 else "fair" if share >= 0.5 else "poor",
            f"{_percent(share)} of the observed values lie inside the central 98 % of data simulated from the "
            "posterior; far less means that the posterior or the model does not explain the observation.",
        )  # fmt: skip


def _on_calibration(checks: Mapping[str, Verdict], n: int) -> str:
    word = overall(tuple(checks.values()))
    if word == "good":
        return f"The uncertainties can be taken at face value: {n} test pairs show no sign of miscalibration."
    culprit = next(check for check in checks.values() if check.verdict == word)
    if word == "fair":
        return f"The uncertainties are roughly right, with a small but real error. {culprit.reading}"
    return f"The uncertainties should not be trusted. {culprit.reading}"


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.0f} %"


def _grade(error: float, band: float) -> str:
    return "good" if error <= band + 1e-9 else "fair" if error <= band + MARGIN else "poor"


def _worst(badness: np.ndarray) -> int:
    """Which parameter is judged: the worst; for fields, the 95th percentile.

    >>> _worst(np.array([0.1, 0.3, 0.2])), _worst(np.arange(101))
    (1, 95)
    """
    order = np.argsort(badness, kind="stable")
    return int(order[-1 if len(order) <= FIELD_SIZE else round(0.95 * (len(order) - 1))])


def _z(d: int) -> float:
    return NormalDist().inv_cdf(1 - ALPHA / (2 * d))
