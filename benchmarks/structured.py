"""Structured data against posteriors that are known, by the default recipe; one training of at most six minutes a row.

    python -m benchmarks.structured                 # all rows that are not in results/structured.json yet
    python -m benchmarks.structured series sets     # these rows, again
    python -m benchmarks.structured series_sbi      # sbi's NPE with its CNN, on the same simulations; needs sbi

``--narrow`` trains networks of width 128 at a learning rate of 0.006, which takes less than half the time. Each row
writes its numbers to ``results/structured.json``, from which ``results/structured.md`` is made, and its picture to
``docs/figures``.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

import propersbi as ps
from benchmarks import structured_pictures as pictures
from benchmarks import structured_problems as problems
from benchmarks.accuracy import machine
from propersbi.networks import MLPGenerator
from propersbi.storage.files import read_json, write_json, write_with

RESULTS = Path(__file__).parent / "results"
SIMULATIONS, PAIRS, DRAWS, SEED = 10_000, 500, 2000, 0
Row = dict[str, Any]
NARROW: dict[str, Any] = {"network": partial(MLPGenerator, width=128), "learning_rate": 6e-3}
CHANGES: dict[str, Any] = {}  # of the default recipe


def fit(theta: Any, x: Any, **options: Any) -> tuple[ps.Posterior, Row]:
    """The posterior by the default recipe, and what it cost."""
    started = time.process_time()
    posterior = ps.fit(theta, x, seed=SEED, progress=False, **options, **CHANGES)
    cost = {"cpu_seconds": round(time.process_time() - started), "steps": posterior.info["steps"]}
    return posterior, {**cost, "kept": posterior.info["kept_step"]}


def uniform(bounds: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    return np.asarray(bounds[0] + (bounds[1] - bounds[0]) * rng.random((n, bounds.shape[1])))


def inside_band(ranks: np.ndarray, num_samples: int) -> list[bool]:
    """For each parameter, whether the distribution function of its ranks stays inside the 99 % band."""
    points, low, high = ps.calibration.ecdf_band(len(ranks))
    shares = (np.sort((ranks + 0.5) / (num_samples + 1), 0)[:, None] <= points[None, :, None]).mean(0)
    return [bool(((low <= share) & (share <= high)).all()) for share in shares.T]


def calibration(posterior: Any, theta: np.ndarray, x: Any) -> Row:
    """Ranks of the true parameters on test pairs."""
    draws = posterior.sample_batched((199,), x, show_progress_bars=False, seed=SEED).numpy()
    ranks = ps.calibration.sbc_ranks(draws, theta)
    covered = (np.quantile(draws, 0.05, axis=0) <= theta) & (theta <= np.quantile(draws, 0.95, axis=0))
    return {
        "inside_band": inside_band(ranks, 199),
        "p_values": rounded(ps.calibration.sbc_p_values(ranks, 199)),
        "coverage_90": rounded(covered.mean(0)),
        "r2": rounded(ps.metrics.r2(draws, theta)),
    }


def rounded(values: Any) -> Any:
    return np.asarray(values, float).round(3).tolist()


def against(samples: np.ndarray, reference: np.ndarray) -> Row:
    """Means and standard deviations ``(k, n, d)`` against the reference, over the observations."""
    sd = reference.std(1)
    error = (samples.mean(1) - reference.mean(1)) / sd
    return {
        "sd_ratio": rounded(np.exp(np.log(samples.std(1) / sd).mean(0))),
        "mean_error": rounded(np.sqrt((error**2).mean(0))),
        "mean_error_rms": rounded(np.sqrt((error**2).mean())),
    }


def series_data() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Parameters and series to train on; twenty observed series and draws of their posteriors, by chains, kept."""
    rng = np.random.default_rng(SEED)
    theta = uniform(problems.OU_BOUNDS, SIMULATIONS, rng)
    x = problems.ou_series(theta, rng)
    fresh = np.random.default_rng(SEED + 1)
    observed = problems.ou_series(uniform(problems.OU_BOUNDS, 20, fresh), fresh)
    kept = Path(__file__).parent / "runs" / "structured_series.npy"
    if not kept.exists():
        reference = problems.ou_posterior(observed, DRAWS, fresh)
        write_with(kept, lambda file: np.save(file, reference))
    return theta, x, observed, np.load(kept)


def series() -> Row:
    """An Ornstein-Uhlenbeck series of 500 times, four parameters."""
    theta, x, observed, reference = series_data()
    posterior, cost = fit(theta, x, prior=[tuple(ends) for ends in problems.OU_BOUNDS.T])
    samples = posterior.sample_batched((DRAWS,), observed, seed=SEED).numpy().transpose(1, 0, 2)
    rng = np.random.default_rng(SEED + 2)
    test = uniform(problems.OU_BOUNDS, PAIRS, rng)
    pictures.series(observed[0], samples[0], reference[0])
    return {**cost, **against(samples, reference), **calibration(posterior, test, problems.ou_series(test, rng))}


def series_sbi() -> Row:
    """The same by sbi's neural posterior estimation with its convolutional embedding."""
    from sbi.inference import NPE
    from sbi.neural_nets import posterior_nn
    from sbi.neural_nets.embedding_nets import CNNEmbedding
    from sbi.utils import BoxUniform

    theta, x, observed, reference = series_data()
    torch.manual_seed(SEED)
    low, high = (torch.tensor(end).float() for end in problems.OU_BOUNDS)
    embedding = CNNEmbedding((x.shape[1],), output_dim=20)
    method = NPE(BoxUniform(low, high), density_estimator=posterior_nn("nsf", embedding_net=embedding))
    started = time.process_time()
    method.append_simulations(torch.as_tensor(theta).float(), torch.as_tensor(x).float()).train()
    cost = {"cpu_seconds": round(time.process_time() - started), "steps": method.summary["epochs_trained"][-1]}
    posterior = method.build_posterior()
    rows = [posterior.sample((DRAWS,), x=torch.as_tensor(row).float(), show_progress_bars=False) for row in observed]
    return {**cost, **against(torch.stack(rows).numpy(), reference)}


def sets() -> Row:
    """Normal trials, from 1 to 50 of them: mean and standard deviation."""
    rng = np.random.default_rng(SEED)
    theta = problems.normal_prior(SIMULATIONS, rng)
    x = problems.normal_sets(theta, rng.integers(1, 51, SIMULATIONS), rng)
    posterior, result = fit(theta, x, support=([None, 0.0], [None, None]), exchangeable=True)
    curves = {}
    for count in (1, 5, 20, 50):
        test = problems.normal_prior(PAIRS, rng)
        data = problems.normal_sets(test, np.full(PAIRS, count), rng)
        found = calibration(posterior, test, np.stack(data))
        result |= {f"{name}_{count}": found[name] for name in ("inside_band", "p_values", "coverage_90")}
        few = np.stack(data[:50])
        samples = posterior.sample_batched((DRAWS,), few, seed=SEED).numpy().transpose(1, 0, 2)
        reference = np.stack([problems.normal_posterior(row, DRAWS, rng) for row in few])
        result |= {f"{name}_{count}": value for name, value in against(samples, reference).items()}
        curves[count] = samples[0], reference[0]
    pictures.sets(curves)
    return result


def missing() -> Row:
    """Ten mixtures of ten parameters, of which some are missing."""
    rng = np.random.default_rng(SEED)
    theta = rng.normal(size=(SIMULATIONS, 10))
    posterior, result = fit(theta, problems.linear_gaussian(theta, rng), missing=ps.Missing(0.3))
    scores: dict[str, list[float]] = {"at random": [], "a block": []}
    for i in range(10):
        x = problems.linear_gaussian(rng.normal(size=(1, 10)), rng)[0]
        hidden = {"at random": rng.random(10) < 0.3, "a block": (np.arange(10) - i) % 10 < 5}
        for kind, mask in hidden.items():
            given = np.where(mask, np.nan, x)
            samples = posterior.sample((DRAWS,), x=given, seed=SEED).numpy()
            reference = problems.gaussian_posterior(given, DRAWS, rng)
            scores[kind].append(float(ps.metrics.c2st(samples, reference)))
            if i == 0 and kind == "a block":
                pictures.missing(samples, reference)
    for kind, values in scores.items():
        result |= {f"c2st {kind}": rounded(np.mean(values)), f"c2st {kind}, each": rounded(values)}
    return result


def slcp() -> Row:
    """SLCP as four exchangeable points."""
    task = ps.tasks.get("slcp", exchangeable=True)
    sims = ps.simulate(task.prior, task.simulate, SIMULATIONS, seed=SEED, progress=False)
    posterior, result = fit(sims.theta, sims.x, prior=task.prior, exchangeable=True)
    rng, scores = np.random.default_rng(SEED), []
    for i in range(1, 11):
        samples = posterior.sample((5000,), x=task.observation(i), seed=SEED).numpy()
        scores.append(float(ps.metrics.c2st(samples, task.reference_posterior(task.observation(i), 5000, rng))))
    return {**result, "c2st": rounded(np.mean(scores)), "c2st_each": rounded(scores)}


def parts() -> Row:
    """A series of 200 times and three numbers, together and each alone."""
    rng = np.random.default_rng(SEED)
    theta = uniform(problems.OU_BOUNDS, SIMULATIONS + 1000, rng)
    x = problems.two_parts(theta, rng)
    train, test = slice(SIMULATIONS), slice(SIMULATIONS, None)
    given = {"both": x, "series": {"series": x["series"]}, "numbers": {"numbers": x["numbers"]}}
    prior = [tuple(ends) for ends in problems.OU_BOUNDS.T]
    draws: dict[str, np.ndarray] = {}
    result: Row = {}
    for name, data in given.items():
        posterior, cost = fit(theta[train], {key: rows[train] for key, rows in data.items()}, prior=prior)
        held_out = {key: rows[test] for key, rows in data.items()}
        draws[name] = posterior.sample_batched((250,), held_out, show_progress_bars=False, seed=SEED).numpy()
        result |= {f"{key} {name}": value for key, value in cost.items()}
    scale = theta.std(0)
    score = {name: ps.metrics.energy_score(d / scale, theta[test] / scale) for name, d in draws.items()}
    for name in ("series", "numbers"):
        gain = score[name] - score["both"]
        error = 1.96 * gain.std() / np.sqrt(len(gain))
        result[f"gain over {name}"] = rounded([gain.mean(), gain.mean() - error, gain.mean() + error])
    pictures.parts({name: d[:, 0] for name, d in draws.items()}, theta[SIMULATIONS])
    return {**result, "energy_scores": {name: rounded(values.mean()) for name, values in score.items()}}


IMAGE_BOUNDS = np.array([[0.2, 0.2, 0.08], [0.8, 0.8, 0.25]])  # row, column and width of a spot


def images(shape: tuple[int, ...]) -> Row:
    """A bright spot in noise: where it is, and how wide."""
    rng, simulate = np.random.default_rng(SEED), problems.blob_images(shape)
    theta = uniform(IMAGE_BOUNDS, SIMULATIONS, rng)
    posterior, cost = fit(theta, simulate(theta, rng), prior=[tuple(ends) for ends in IMAGE_BOUNDS.T])
    test = uniform(IMAGE_BOUNDS, PAIRS, rng)
    x = simulate(test, rng)
    if shape == (32, 32, 3):
        pictures.images(x[:4], test[:4], posterior.sample_batched((500,), x[:4], seed=SEED).numpy())
    return {**cost, **calibration(posterior, test, x)}


ROWS: dict[str, Callable[[], Row]] = {
    "slcp": slcp,
    "series": series,
    "sets": sets,
    "missing": missing,
    **{f"image {'x'.join(map(str, s))}": partial(images, s) for s in ((16, 16), (28, 28), (28, 28, 1), (32, 32, 3))},
    "parts": parts,
    "series_sbi": series_sbi,
}


ROWS_TITLES = {
    "slcp": "SLCP as four exchangeable points",
    "series": "Ornstein-Uhlenbeck series of 500 times, 4 parameters, 20 observations",
    "series_sbi": "the same by sbi's NPE with its convolutional embedding",
    "sets": "normal trials, 1 to 50 of them: mean and standard deviation",
    "missing": "ten mixtures of ten parameters, some of them missing",
    "parts": "a series of 200 times and 3 numbers",
}


def _all(values: list[bool]) -> str:
    return f"{sum(values)} of {len(values)} parameters inside the 99 % band of ranks"


def summary(name: str, row: Row) -> str:
    """What matters of a row, in words."""
    if name == "slcp":
        return f"C2ST {row['c2st']:.3f} over observations 1 to 10"
    if name in ("series", "series_sbi"):
        ratios = ", ".join(f"{ratio:.2f}" for ratio in row["sd_ratio"])
        found = f"sd ratios to the exact posterior {ratios}; mean error {row['mean_error_rms']:.2f} sd (rms)"
        return found + (f"; {_all(row['inside_band'])}" if "inside_band" in row else "")
    if name == "sets":
        counts = (1, 5, 20, 50)
        inside = "; ".join(f"{sum(row[f'inside_band_{count}'])} of 2 for {count}" for count in counts)
        errors = ", ".join(f"{row[f'mean_error_rms_{count}']:.2f}" for count in counts)
        return f"inside the 99 % band of ranks, by number of trials: {inside}; mean error {errors} sd (rms)"
    if name == "missing":
        return (
            f"C2ST {row['c2st at random']:.3f} with 30 % missing at random, {row['c2st a block']:.3f} without a block"
        )
    if name == "parts":
        gains = [row[f"gain over {part}"] for part in ("series", "numbers")]
        words = [f"{gain:.3f} ({low:.3f} to {high:.3f})" for gain, low, high in gains]
        return f"energy score lower by {words[0]} than the series alone, by {words[1]} than the numbers alone"
    r2, covered = (", ".join(f"{value:.3f}" for value in row[key]) for key in ("r2", "coverage_90"))
    return f"R2 {r2}; 90 % intervals cover {covered}"


def write_table(results: dict[str, Row]) -> None:
    """What matters of each row, then all numbers as they were measured."""
    lines = ["# Structured data", "", "Written by `python -m benchmarks.structured`: the default recipe, 10 000"]
    lines += ["simulations, one training a row, against exact posteriors, long chains or fresh pairs.", ""]
    lines += ["| problem | result | CPU seconds |", "|---|---|---|"]
    for name, row in results.items():
        title = " ".join((ROWS_TITLES.get(name) or name).split())
        lines.append(f"| {title} | {summary(name, row)} | {row.get('cpu_seconds', row.get('cpu_seconds both'))} |")
    for name, row in results.items():
        lines += ["", f"## {name}", "", "| measure | value |", "|---|---|"]
        lines += [f"| {key} | {value} |" for key, value in row.items()]
    write_with(RESULTS / "structured.md", lambda file: file.write("\n".join([*lines, ""]).encode()))


def main(asked: list[str]) -> None:
    """Run what was asked for, or what is not there yet; sbi only if asked for."""
    torch.set_num_threads(1)
    narrow = "--narrow" in asked
    CHANGES.update(NARROW if narrow else {})
    asked = [name for name in asked if name != "--narrow"]
    path = RESULTS / "structured.json"
    results: dict[str, Row] = read_json(path) if path.exists() else {}
    for name in asked or [name for name in ROWS if name not in results and name != "series_sbi"]:
        row = ROWS[name]()
        row |= {"recipe": "width 128, learning rate 0.006" if narrow else "default", "seed": SEED}
        row |= {"version": ps.__version__, "machine": machine(), "date": str(date.today())}
        results = (read_json(path) if path.exists() else {}) | {name: row}
        write_json(path, {key: results[key] for key in ROWS if key in results})
        write_table({key: results[key] for key in ROWS if key in results})
        sys.stdout.write(f"{name}: {row}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
