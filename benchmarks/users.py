"""Two models as scientists write them, against posteriors that are known.

    python -m benchmarks.users

An epidemic by an ODE solver, one theta at a time with named parameters, and a count beside a probability, of which the
count is a whole number; both against posteriors that are exact on a fine grid. Writes ``results/users.md``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import scipy.stats as st
from scipy.integrate import solve_ivp
from scipy.special import gammaln

import propersbi as ps
from benchmarks.accuracy import machine

RESULTS = Path(__file__).parent / "results" / "users.md"
SIMULATIONS, DRAWS, SEED, OBSERVATIONS = 10_000, 5000, 0, 5
TIMES = np.linspace(5, 60, 12)
NOISE = 0.02  # of the share of infected

EPIDEMIC = {"beta": st.lognorm(0.5, scale=0.4), "gamma": st.lognorm(0.2, scale=0.125)}
COUNT = {"n": st.poisson(8.0), "p": (0.0, 1.0)}


def infected(beta: float, gamma: float) -> np.ndarray:
    """The share of infected people at the times of observation."""

    def slope(_: float, y: np.ndarray) -> list[float]:
        s, i = y
        return [-beta * s * i, beta * s * i - gamma * i]

    solution = solve_ivp(slope, (0.0, TIMES[-1]), [0.999, 0.001], t_eval=TIMES, rtol=1e-6, atol=1e-9)
    return np.asarray(solution.y[1])


def epidemic(beta: float, gamma: float, rng: np.random.Generator) -> np.ndarray:
    return infected(beta, gamma) + NOISE * rng.normal(size=len(TIMES))


def infected_grid(beta: np.ndarray, gamma: np.ndarray, steps: int = 50) -> np.ndarray:
    """The same for many parameters at once, by Runge-Kutta steps of fixed size: ``(n, times)``."""
    s, i = np.full_like(beta, 0.999), np.full_like(beta, 0.001)

    def slope(s: np.ndarray, i: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return -beta * s * i, beta * s * i - gamma * i

    found = []
    for span in np.diff([0.0, *TIMES]):
        h = span / steps
        for _ in range(steps):
            a = slope(s, i)
            b = slope(s + h / 2 * a[0], i + h / 2 * a[1])
            c = slope(s + h / 2 * b[0], i + h / 2 * b[1])
            d = slope(s + h * c[0], i + h * c[1])
            s, i = (v + h / 6 * (a[k] + 2 * b[k] + 2 * c[k] + d[k]) for k, v in enumerate((s, i)))
        found.append(i)
    return np.stack(found, 1)


def epidemic_posterior(x: np.ndarray, draws: int, rng: np.random.Generator) -> np.ndarray:
    """Exact: a grid of the logarithms, made finer three times where the posterior is."""
    centre, width, size = np.log([0.4, 0.125]), np.array([0.5, 0.2]), 150
    low, high = centre - 5 * width, centre + 5 * width
    for _ in range(4):
        edges = [np.linspace(a, b, size + 1) for a, b in zip(low, high, strict=True)]
        cells = np.stack(np.meshgrid(*((e[1:] + e[:-1]) / 2 for e in edges), indexing="ij"), -1).reshape(-1, 2)
        residual = (x - infected_grid(*np.exp(cells).T)) / NOISE
        height = -0.5 * (residual**2).sum(1) - 0.5 * (((cells - centre) / width) ** 2).sum(1)
        weight = np.exp(height - height.max())
        inside = cells[weight > 1e-7]
        step = (high - low) / size
        low, high = inside.min(0) - step, inside.max(0) + step
    chosen = cells[rng.choice(len(cells), draws, p=weight / weight.sum())]
    return np.exp(chosen + (rng.random((draws, 2)) - 0.5) * step)


def count(n: float, p: float, rng: np.random.Generator) -> np.ndarray:
    """Three counts of those that were seen among ``n``."""
    return rng.binomial(int(n), p, size=3).astype(float)


def count_posterior(x: np.ndarray, draws: int, rng: np.random.Generator) -> np.ndarray:
    """Exact: a sum over whole numbers and a fine grid of probabilities."""
    n, p = np.arange(0, 80)[:, None], (np.arange(4000)[None] + 0.5) / 4000
    log_weight = st.poisson(8.0).logpmf(n) + np.zeros_like(p)
    for seen in x:
        ways = gammaln(n + 1) - gammaln(seen + 1) - gammaln(np.maximum(n - seen, 0) + 1)
        log_weight = log_weight + np.where(n >= seen, ways + seen * np.log(p) + (n - seen) * np.log1p(-p), -np.inf)
    weight = np.exp(log_weight - log_weight.max()).ravel()
    cells = rng.choice(weight.size, draws, p=weight / weight.sum())
    return np.stack([n.ravel()[cells // p.size], p.ravel()[cells % p.size] + (rng.random(draws) - 0.5) / 4000], 1)


@dataclass(frozen=True)
class Model:
    """A model, and how its posterior is known."""

    title: str
    prior: dict[str, Any]
    simulator: Callable[..., np.ndarray]
    posterior: Callable[[np.ndarray, int, np.random.Generator], np.ndarray]


MODELS = (
    Model("SIR epidemic by an ODE solver", EPIDEMIC, epidemic, epidemic_posterior),
    Model("a Poisson count and a probability", COUNT, count, count_posterior),
)


def measure(model: Model) -> list[str]:
    """Rows of the table: errors of mean and standard deviation of each parameter, and C2ST."""
    sims = ps.simulate(model.prior, model.simulator, SIMULATIONS, seed=SEED)
    posterior = ps.fit(sims.theta, sims.x, prior=model.prior, seed=SEED)
    test = ps.simulate(model.prior, model.simulator, OBSERVATIONS, seed=SEED, group="test", progress=False)
    rows, c2st = [], []
    for k, x in enumerate(np.asarray(test.x)):
        truth = model.posterior(x, DRAWS, np.random.default_rng([SEED, k]))
        draws = posterior.sample((DRAWS,), x=x, seed=k).numpy()
        jitter = np.random.default_rng(k).random if "n" in model.prior else np.zeros  # ties betray a whole number
        c2st.append(ps.metrics.c2st(draws + jitter(draws.shape) * [1, 0], truth + jitter(truth.shape) * [1, 0]))
        shift = (draws.mean(0) - truth.mean(0)) / truth.std(0)
        rows.append(np.concatenate([np.abs(shift), draws.std(0) / truth.std(0)]))
        print(f"{model.title}: observation {k + 1}, C2ST {c2st[-1]:.3f}", file=sys.stderr)
    mean = np.mean(rows, 0)
    return [
        f"| {model.title} | {name} | {mean[j]:.2f} | {mean[2 + j]:.2f} | {np.mean(c2st):.3f} "
        f"| {posterior.info['seconds']:.0f} s |"
        for j, name in enumerate(posterior.parameter_names)
    ]


def main() -> None:
    lines = [
        "# Models as scientists write them",
        "",
        f"{SIMULATIONS:,} simulations, default recipe, seed {SEED}, {OBSERVATIONS} observations drawn from the prior",
        f"predictive, {DRAWS:,} draws on each side; references are exact on a grid. Given are the mean error of the",
        "posterior mean in standard deviations, the mean ratio of",
        "standard deviations, and C2ST (0.5: indistinguishable). Written by `python -m benchmarks.users`.",
        "",
        "| model | parameter | error of the mean | ratio of sds | C2ST | training |",
        "|---|---|---|---|---|---|",
        *(row for model in MODELS for row in measure(model)),
        "",
        f"Machine: {machine()}, one thread. Date: {date.today().isoformat()}.",
        "",
    ]
    RESULTS.write_text("\n".join(lines))
    print(RESULTS)


if __name__ == "__main__":
    main()
