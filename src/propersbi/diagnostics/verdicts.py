r"""What the numbers mean: each with a sentence and a verdict that knows how noisy it is.

With :math:`n` test pairs even the exact posterior deviates a little. A deviation is *good* when an exact posterior
reaches it in 1 % of all cases at most, corrected for testing :math:`d` parameters; *fair* when it is larger but small
enough to live with; else *poor*. For fields and images we judge the 95th percentile of their many parameters instead of
the worst: there, a single odd pixel says little. Quantities without a right value, such as the error of the posterior
mean, which depends on how much the data tell, are there for *information*.

Test pairs show how a posterior does on average over the prior. That alone is not *good*: there must also be enough of
them, the training must have converged, and the observation must be like the simulations.

The worst verdict is that of the posterior, and :data:`EXIT_CODES` says how a program ends with it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

import numpy as np

from propersbi.diagnostics.convergence import Convergence
from propersbi.metrics.calibration import coverage_band, ecdf_band
from propersbi.problem import ENOUGH_PAIRS
from propersbi.typicality import UNLIKE, Typicality

__all__ = ["EXIT_CODES", "FIELD_SIZE", "Measured", "Verdict", "curve_band", "judge", "overall"]

EXIT_CODES = {"good": 0, "fair": 3, "poor": 4}
"""How a program ends that was asked for a verdict: taken at face value, usable with care, not to be trusted."""

ALPHA = 0.01  # how often an exact posterior may fail a check
MARGIN = 0.05  # a deviation in probability that one can live with
FIELD_SIZE = 40  # parameters above which they are taken for the points of a field
OUTSIDE = 0.01  # share of draws outside the prior that one can live with
FAR = 0.001  # p-values of the observation below it are poor
CURVE_POINTS = 50  # levels of the coverage curves, above 0


@dataclass(frozen=True)
class Verdict:
    """One metric: its value, ``good``, ``fair``, ``poor`` or ``info``, and how to read it."""

    name: str
    value: float | None
    verdict: str
    reading: str


@dataclass(frozen=True, eq=False)
class Measured:
    """What is judged.

    Arguments:
        n: How many test pairs.
        num_samples: Posterior draws for each of them.
        names: The parameters.
        parameters: Metrics by parameter.
        scores: Metrics of all parameters together.
        tarp: The joint coverage at levels 0, 0.02, ..., 1.
        convergence: Whether the training had converged, if it is known.
        typicality: How like the simulations the observation is, if it is known.
    """

    n: int
    num_samples: int
    names: tuple[str, ...]
    parameters: Mapping[str, np.ndarray]
    scores: Mapping[str, float]
    tarp: np.ndarray
    convergence: Convergence | None = None
    typicality: Typicality | None = None

    @property
    def is_field(self) -> bool:
        """Whether the parameters are the points of a field."""
        return len(self.names) > FIELD_SIZE

    @property
    def tests(self) -> int:
        """For how many tests the parameter that is judged is corrected."""
        return 1 if self.is_field else len(self.names)

    @property
    def which(self) -> str:
        """Which parameter is judged, in words."""
        return f"worse than 95 % of {len(self.names)} parameters" if self.is_field else "the worst"


def judge(measured: Measured) -> tuple[Verdict, ...]:
    """A verdict for every metric that was measured."""
    calibration = (_ranks(measured), _calibration(measured), _intervals(measured), _joint_coverage(measured))
    return (*calibration, *_skill(measured), *_evidence(measured), *_observation(measured.scores))


def overall(rows: tuple[Verdict, ...]) -> str:
    """The worst verdict."""
    found = {row.verdict for row in rows}
    return next((word for word in ("poor", "fair") if word in found), "good")


def noise(n: int, d: int) -> float:
    """The calibration error that an exact posterior stays below for all of ``d`` parameters in 99 % of cases.

    The deviation of a coverage curve is a Brownian bridge over the square root of n; the median of its absolute value
    has the tail of a normal variable of deviation 0.32 (by simulation).

    >>> round(noise(1000, 1), 3), round(noise(1000, 5), 3)
    (0.026, 0.031)
    """
    return 0.32 * _z(d) / math.sqrt(n)


@lru_cache(maxsize=8)
def curve_band(n: int, num_samples: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The band that holds the whole coverage curve of an exact posterior with probability 99 %.

    Returns:
        The levels 0.02, 0.04, ..., 1 and the lower and upper limits; ranks among so many draws are coarse, for which
        half a rank is allowed.
    """
    levels, low, high = ecdf_band(n, points=CURVE_POINTS, level=1 - ALPHA)
    slack = 0.5 / (num_samples + 1)
    return levels, (low - slack).clip(0, 1), (high + slack).clip(0, 1)


def _ranks(measured: Measured) -> Verdict:
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


def _calibration(measured: Measured) -> Verdict:
    """The parameter whose credible levels are the furthest off."""
    errors, band = measured.parameters["calibration_error"], noise(measured.n, measured.tests)
    at = _worst(errors)
    worst = float(errors[at])
    return Verdict(
        "Calibration error", worst, _grade(worst - band),
        f"The credible levels of {measured.names[at]}, {measured.which}, are typically off by {worst:.2g}; "
        f"up to {band:.2g} is noise with {measured.n} test pairs.",
    )  # fmt: skip


def _intervals(measured: Measured) -> Verdict:
    """The parameter whose 90 % intervals hold the truth too rarely or too often."""
    shares = measured.parameters["coverage_90"]
    at = _worst(np.abs(shares - 0.9))
    share = float(shares[at])
    low, high = coverage_band(measured.n, [0.9], level=1 - ALPHA / measured.tests)
    grade = _grade(max(low[0] - share, share - high[0]))
    side = "too narrow" if share < 0.9 else "too wide"
    return Verdict(
        "90 % intervals", share, grade,
        f"The 90 % intervals of {measured.names[at]}, {measured.which}, hold the truth in {_percent(share)} of the "
        "tests" + ("." if grade == "good" else f": they are {side}."),
    )  # fmt: skip


def _joint_coverage(measured: Measured) -> Verdict:
    """Credible regions of all parameters together: the whole curve must lie in its band."""
    _, low, high = curve_band(measured.n, measured.num_samples)
    curve, error = measured.tarp[1:], measured.scores["tarp"]
    beyond = float(np.maximum(low - curve, curve - high).max())
    where = "lies inside" if beyond <= 0 else "leaves"
    return Verdict(
        "Joint coverage (TARP)", error, _grade(beyond),
        f"Credible regions of all parameters taken together are off by {error:.2g} at most; the curve {where} the band "
        f"that holds 99 % of those of exact posteriors with {measured.n} test pairs.",
    )  # fmt: skip


def _skill(measured: Measured) -> Iterator[Verdict]:
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
    plain = f"The share of the parameters' variance that the posterior mean explains, {share} {low}. A low value alone "
    plain += "is no fault: the data may not tell more."
    worse = f"The posterior mean of {names[at]}, {measured.which}, is further from the truth than the prior's mean "
    worse += f"(R² = {lowest:.2f})."
    poor = lowest < -slack
    yield Verdict(
        "R²", float(average(parameters["r2"])), "poor" if poor else "good" if lowest > 0.1 else "info",
        worse if poor else plain,
    )  # fmt: skip
    yield Verdict(
        "NRMSE", float(average(parameters["nrmse"])), "info",
        "The error of the posterior mean as a share of the parameter's range; lower is better, zero is out of reach.",
    )  # fmt: skip
    yield Verdict(
        "Energy score", scores["energy_score"], "info",
        "What training minimises, in units of the prior's standard deviation; to compare posteriors on the same tests.",
    )  # fmt: skip


def _evidence(measured: Measured) -> Iterator[Verdict]:
    """Whether the checks above are reason enough to trust the posterior of the observation."""
    n = measured.n
    few = f"{n} test pairs are too few to take uncertainties at face value: {ENOUGH_PAIRS} are enough."
    enough = f"{ENOUGH_PAIRS} or more show errors that matter."
    yield Verdict("Test pairs", float(n), "good" if n >= ENOUGH_PAIRS else "fair", few if n < ENOUGH_PAIRS else enough)
    if measured.convergence is not None:
        word = "good" if measured.convergence.converged else "fair"
        yield Verdict("Training", None, word, measured.convergence.sentence)
    if measured.typicality is not None:
        p = measured.typicality.p_value
        warning = " Its posterior may be wrong, however good the others are." if measured.typicality.unlike else ""
        word = "poor" if p < FAR else "fair" if p < UNLIKE else "good"
        yield Verdict("Typicality", p, word, measured.typicality.sentence + warning)


def _observation(scores: Mapping[str, float]) -> Iterator[Verdict]:
    if "outside" in scores:
        share = scores["outside"]
        yield Verdict(
            "Outside the prior", share, "good" if share == 0 else "fair" if share <= OUTSIDE else "poor",
            f"{100 * share:.2g} % of the draws for the observation lie where the prior has no density; none should.",
        )  # fmt: skip
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


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.0f} %"


def _grade(beyond: float) -> str:
    """By how far a number lies beyond what an exact posterior reaches."""
    return "good" if beyond <= 1e-9 else "fair" if beyond <= MARGIN else "poor"


def _worst(badness: np.ndarray) -> int:
    """Which parameter is judged: the worst; for fields, the 95th percentile.

    >>> _worst(np.array([0.1, 0.3, 0.2])), _worst(np.arange(101))
    (1, 95)
    """
    order = np.argsort(badness, kind="stable")
    return int(order[-1 if len(order) <= FIELD_SIZE else round(0.95 * (len(order) - 1))])


def _z(d: int) -> float:
    return NormalDist().inv_cdf(1 - ALPHA / (2 * d))
