"""Shallow water: how well a depth profile is inferred from the spectrum of a wave, compared with the true posterior.

    python -m benchmarks.shallow_water --minutes 30           results/shallow_water.md, docs/figures/shallow_water*.png
    python -m benchmarks.shallow_water --reference 20         sample the true posterior of so many test pairs
    python -m benchmarks.shallow_water --methods --steps 500  compare scores and adversarial training, few steps each

Every part is kept in ``benchmarks/runs/shallow_water``: a run that was interrupted continues, and the report is written
from what is there.
"""

from __future__ import annotations

import argparse
import time
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import propersbi as ps
from benchmarks.accuracy import RESULTS, RUNS, machine
from propersbi.metrics.calibration import sbc_ranks
from propersbi.networks import FieldGenerator, GridEmbedding, MLPCritic
from propersbi.posterior import Posterior
from propersbi.samplers import Sampler
from propersbi.simulation import Simulations
from propersbi.storage.files import read_json, write_json
from propersbi.tasks import shallow_water

SIMULATIONS, TEST, DRAWS, SEED = 20_000, 1000, 1000, 0
FOLDER = RUNS / "shallow_water"
FIGURES = Path(__file__).parent.parent / "docs" / "figures"
TASK = ps.tasks.get("shallow_water")
PUBLISHED = (
    "| paper's best (energy 20/10, 100 000 simulations, 16.7 h on a V100) | 60017 | 12400 | .885 | .0501 | .028 |"
)

ENERGY, KERNEL = ps.EnergyScore(), ps.KernelScore()


def adversarial(sampler: Sampler) -> ps.Adversarial:
    """The adversarial objective, with a critic that embeds the spectrum as the generator does."""
    embedding = GridEmbedding((2, 100, 100), spectrum=True, lost=1)
    return ps.Adversarial(sampler, critic=MLPCritic((100,), (2, 100, 100), embedding=embedding))


METHODS: dict[str, dict[str, Any]] = {
    "energy": {"rule": ENERGY},
    "energy 20/10": {"rule": ps.Patched(ENERGY, size=20, step=10)},
    "energy 10/5": {"rule": ps.Patched(ENERGY, size=10, step=5)},
    "kernel": {"rule": KERNEL},
    "kernel 20/10": {"rule": ps.Patched(KERNEL, size=20, step=10)},
    "kernel 10/5": {"rule": ps.Patched(KERNEL, size=10, step=5)},
    "energy, m = 3": {"rule": ENERGY, "draws": 3},
    "GAN": {"objective": adversarial},
}


def pairs(group: str, n: int) -> Simulations:
    """Simulations on disk, in half precision; training pairs have no noise, which is drawn anew for every batch."""
    simulator = shallow_water.simulate_without_noise if group == "train" else TASK.simulate
    return ps.simulate(
        TASK.prior, simulator, n, seed=SEED, path=FOLDER / "simulations", group=group, chunk_size=250, half=True
    )


def load_or_train(folder: Path, seconds: float | None, max_steps: int, **options: Any) -> Posterior:
    """The posterior of a folder, trained unless it is there."""
    if (folder / "posterior").exists():
        return Posterior.load(folder / "posterior")
    train = pairs("train", SIMULATIONS)
    return ps.fit(
        train.theta,
        train.x,
        network=partial(FieldGenerator, spectrum=True, lost=1),
        noise=shallow_water.add_noise,
        seed=SEED,
        time_limit=seconds,
        max_steps=max_steps,
        folder=folder,
        **options,
    )


def measure(posterior: Posterior, draws: int = DRAWS) -> tuple[dict[str, float], np.ndarray]:
    """R2, NRMSE and calibration error over all points, and the ranks of the truth."""
    test = pairs("test", TEST)
    theta, samples = np.asarray(test.theta), np.empty((draws, TEST, 100), np.float32)
    for start in range(0, TEST, 100):
        part = posterior.sample_batched((draws,), x=test.x[start : start + 100], seed=start, show_progress_bars=False)
        samples[:, start : start + 100] = part.numpy()
    dry = is_blocked(theta)
    metrics = {
        "r2": float(ps.metrics.r2(samples, theta).mean()),
        "nrmse": float(ps.metrics.nrmse(samples, theta).mean()),
        "calibration": float(ps.metrics.calibration_error(samples, theta).mean()),
        "open": float(ps.metrics.r2(samples[:, ~dry], theta[~dry]).mean()),
        "blocked": float(dry.mean()),
    }
    return metrics, sbc_ranks(samples, theta, seed=SEED)


def reference_pairs(count: int) -> np.ndarray:
    """The first test pairs, and as many in which land stops the wave, whose posteriors differ most."""
    theta = np.asarray(pairs("test", TEST).theta)
    return np.concatenate([np.arange(count), np.flatnonzero(is_blocked(theta))[:count]])


def is_blocked(theta: np.ndarray) -> np.ndarray:
    """Whether land stops the wave."""
    return np.asarray(np.any(theta[:, 1:-1] <= shallow_water.WET, axis=1))


def reference(i: int) -> np.ndarray:
    """100 draws of the true posterior of a test pair, ``(100, 100)``; kept on disk."""
    path = FOLDER / "reference" / f"{i}.npy"
    if not path.exists():
        started = time.process_time()
        x = pairs("test", TEST).x[int(i)]
        draws = TASK.reference_posterior(x, 100, np.random.default_rng([SEED, int(i)]))
        path.parent.mkdir(exist_ok=True)
        np.save(path, draws.astype(np.float32))
        print(f"reference of test pair {i}: {time.process_time() - started:.0f} s", flush=True)
    return np.asarray(np.load(path))


def compare_with_references(posterior: Posterior) -> list[str]:
    """The network and the true posterior, on the pairs whose reference posterior was sampled."""
    rows = np.array(sorted(int(path.stem) for path in (FOLDER / "reference").glob("*.npy")), dtype=int)
    test = pairs("test", TEST)
    theta, share = np.asarray(test.theta[rows]), float(is_blocked(np.asarray(test.theta)).mean())
    dry = is_blocked(theta)
    if not dry.any() or dry.all():
        return ["Not enough reference posteriors yet: `--reference 10`."]
    draws = posterior.sample_batched((1000,), x=test.x[rows], seed=SEED, show_progress_bars=False).numpy()
    truth = np.stack([reference(i) for i in rows], 1)
    near = np.abs(theta - truth.mean(0)) < 2 * truth.std(0)
    lines = [
        f"{(~dry).sum()} test pairs in which the wave passes and {dry.sum()} in which land stops it; their true",
        "posteriors were sampled by Markov chains (`tasks/reference/tomography.py`). Given is the explained variance:",
        "one minus the squared error of the mean over the prior's variance; over all pairs, both kinds weighted.",
        "",
        "| | wave passes | land stops it | over all pairs | mean sd, wave passes |",
        "|---|---|---|---|---|",
    ]
    for name, samples in (("true posterior", truth), ("network", draws)):
        error = ((samples.mean(0) - theta) ** 2).mean(1) / shallow_water.PRIOR.variance
        passes, stops = 1 - error[~dry].mean(), 1 - error[dry].mean()
        overall = (1 - share) * passes + share * stops
        sd = samples[:, ~dry].std(0).mean()
        lines.append(f"| {name} | {passes:.4f} | {stops:.2f} | {overall:.3f} | {sd:.3f} m |")
    return [
        *lines,
        "",
        f"At {100 * near.mean():.0f} % of points the truth is within two standard deviations of the posterior mean.",
    ]


def plot(posterior: Posterior, ranks: np.ndarray) -> None:
    """One observation as in the paper, and the ranks of all points."""
    truth, x = TASK.true_parameters(1), TASK.observation(1)
    rows = {}
    samples = posterior.sample((50,), x=x, seed=SEED, show_progress_bars=False).numpy()
    for name, depth in (("prior", TASK.prior.sample(50, np.random.default_rng(SEED))), ("posterior", samples)):
        rows[name] = (depth, shallow_water.surface(depth))
    FIGURES.mkdir(exist_ok=True)
    wave = shallow_water.surface(truth[None])[0]
    ps.plots.waves((truth, wave), rows, times=(23, 70, 95)).savefig(FIGURES / "shallow_water.png", dpi=130)
    ps.plots.rank_lines(ranks, DRAWS).savefig(FIGURES / "shallow_water_ranks.png", dpi=130)


def compare(steps: int) -> list[str]:
    """Scores and adversarial training, with equally many steps."""
    lines = ["| trained by | seconds | steps | R2 | NRMSE | calibration error |", "|---|---|---|---|---|---|"]
    for name, options in METHODS.items():
        folder = FOLDER / f"method-{name.replace(' ', '').replace('/', '-')}-{steps}"
        note = folder / "measured.json"
        if not note.exists():
            posterior = load_or_train(folder, None, steps, stopping=(), **options)
            info = posterior.info
            write_json(note, {**measure(posterior, 250)[0], "steps": info["steps"], "seconds": info["seconds"]})
        lines.append(line(name, read_json(note)))
        print(lines[-1], flush=True)
    return lines


def line(name: str, metrics: dict[str, float]) -> str:
    figures = f"{metrics['r2']:.3f} | {metrics['nrmse']:.4f} | {metrics['calibration']:.3f}"
    return f"| {name} | {metrics['seconds']:.0f} | {metrics['steps']:.0f} | {figures} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0, help="training time")
    parser.add_argument("--steps", type=int, default=8000, help="training steps at most")
    parser.add_argument("--reference", type=int, default=0, help="sample the true posterior of so many test pairs")
    parser.add_argument("--methods", action="store_true", help="compare scores and adversarial training")
    options = parser.parse_args()
    if options.methods:
        title = "# Shallow water: scores and adversarial training"
        about = f"{SIMULATIONS:,} simulations; {TEST} fresh pairs, 250 draws each. So few steps show who learns fast."
        lines = [title, "", about, "", *compare(options.steps), "", signature()]
        (RESULTS / "shallow_water_methods.md").write_text("\n".join(lines) + "\n")
        return
    if options.reference:
        for i in reference_pairs(options.reference):
            reference(int(i))
        return
    posterior = load_or_train(FOLDER / "main", 60 * options.minutes, options.steps, rule=ENERGY)
    metrics, ranks = measure(posterior)
    info = posterior.info
    lines = [
        "# Shallow water",
        "",
        f"{SIMULATIONS:,} simulations, energy score, one pass, m = 10; {TEST} fresh pairs, {DRAWS} draws.",
        "",
        "| | seconds | steps | R2 | NRMSE | calibration error |",
        "|---|---|---|---|---|---|",
        line("propersbi", {**metrics, "steps": info["steps"], "seconds": info["seconds"]}),
        PUBLISHED,
        "",
        f"In {100 * metrics['blocked']:.1f} % of the test pairs land stops the wave and hides what lies behind it; "
        f"over all others R2 is {metrics['open']:.3f}.",
        "",
        *compare_with_references(posterior),
        "",
        signature(),
    ]
    (RESULTS / "shallow_water.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
    plot(posterior, ranks)


def signature() -> str:
    return (
        f"By `python -m benchmarks.shallow_water`, seed {SEED}. Machine: {machine()}. Date: {date.today().isoformat()}."
    )


if __name__ == "__main__":
    main()
