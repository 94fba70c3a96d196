"""The noisy camera: how well sharp images are inferred from blurred ones, and with how much training.

    python -m benchmarks.camera --minutes 60       the main run: results/camera.md and docs/figures/camera.png
    python -m benchmarks.camera --images mnist     the same on handwritten digits: results/camera_digits.md
    python -m benchmarks.camera --trials           settings compared with few steps each: results/camera_trials.md

Images are letters and digits from fonts, or those of idx files in a folder (``--images``). Errors are those of the
posterior mean on fresh images. The calibration error is the median over levels of |coverage - level|; a true value that
equals several draws gets a random rank among them, since most pixels are black in truth and in all draws. It is
averaged over the pixels that vary; and, more strictly, over pairs of image and pixel where the posterior is uncertain.
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
from benchmarks.paper.gatsbi import AdversarialMaker
from propersbi.metrics.calibration import sbc_ranks
from propersbi.networks import UNetGenerator
from propersbi.posterior import Posterior
from propersbi.recipes import Factory
from propersbi.simulation import Simulations
from propersbi.tasks.task import Task
from propersbi.training.divergences import JensenShannon

SEED, DRAWS, COLUMNS = 0, 100, 10
FIGURES = Path(__file__).parent.parent / "docs" / "figures"
LEVELS = np.linspace(0.02, 0.98, 49)
NOISE = (1e-6, 1e-5, 1e-4, 1e-3)  # on data between 0 and 1
UNCERTAIN = 0.01  # the standard deviation of the draws of a pixel above which it is uncertain

ENERGY, KERNEL = ps.EnergyScore(), ps.KernelScore()
PATCHES = {
    f"{name} {size}/{step}": ps.Patched(rule, size=size, step=step)
    for name, rule in (("energy", ENERGY), ("kernel", KERNEL))
    for size, step in ((8, 5), (14, 7))
}
PAPER = Factory("PaperCamera")
GAN = {**ps.Adversarial.settings, "objective": AdversarialMaker(Factory("PaperImageCritic"), JensenShannon())}
TRIALS: dict[str, dict[str, Any]] = {
    "untrained, the regression alone": {"max_steps": 1},
    "default": {},
    "m = 10": {"draws": 10},
    "m = 3": {"draws": 3},
    "beta = 1": {"rule": ENERGY},
    "kernel": {"rule": KERNEL},
    **{name: {"rule": rule} for name, rule in PATCHES.items()},
    "wider (24, 48, 96)": {"network": partial(UNetGenerator, channels=(24, 48, 96))},
    "finest ridge 1e-10": {"network": partial(UNetGenerator, finest=1e-10)},
    "without the regression": {"network": partial(UNetGenerator, regression=False)},
    "without it, energy 8/5": {"network": partial(UNetGenerator, regression=False), "rule": PATCHES["energy 8/5"]},
    "four steps": {"network": UNetGenerator, "refinement_steps": 4},
    "paper's network": {"network": PAPER, "rule": ENERGY, "batch_size": 100},
    "paper's network, energy 8/5": {"network": PAPER, "rule": PATCHES["energy 8/5"], "batch_size": 100},
    "GAN": GAN,
    "paper's GAN": {**GAN, "network": PAPER, "batch_size": 100},
}


def pairs(task: Task, n: int, fresh: int) -> tuple[Simulations, Simulations]:
    """Training pairs, and test pairs of images that are not among them."""
    train = ps.simulate(task.prior, task.simulate, n, seed=SEED)
    return train, ps.simulate(task.test_prior, task.simulate, fresh, seed=SEED + 1, group="test")


def train_camera(task: Task, pairs: Simulations, seconds: float | None, **options: Any) -> Posterior:
    """A posterior trained by the defaults but for the options."""
    return ps.fit(
        pairs.theta,
        pairs.x,
        prior=task.prior,
        seed=SEED,
        time_limit=seconds,
        **{"max_steps": 10**6, "stopping": (), **options},
    )


def measure(posterior: Posterior, test: Simulations, draws: int = DRAWS) -> dict[str, float]:
    """Errors and calibration, a hundred images at a time."""
    theta = np.asarray(test.theta)
    started, square, ranks, uncertain = time.monotonic(), 0.0, [], []
    for rows in np.array_split(np.arange(len(theta)), -(-len(theta) // 100)):
        samples = posterior.sample_batched((draws,), x=test.x[rows], seed=int(rows[0]), show_progress_bars=False)
        flat = samples.numpy().reshape(draws, len(rows), -1)
        square += ((flat.mean(0, dtype=float) - theta[rows].reshape(len(rows), -1)) ** 2).sum()
        ranks.append(sbc_ranks(flat, theta[rows].reshape(len(rows), -1), seed=int(rows[0])))
        uncertain.append(flat.std(0) > UNCERTAIN)
    level = np.abs(2 * (np.concatenate(ranks) + 0.5) / (draws + 1) - 1)  # of the interval that ends at the truth
    varies = np.ptp(theta.reshape(len(theta), -1), axis=0) > 0
    by_pixel = np.stack([(level[:, varies] <= bound).mean(0) for bound in LEVELS])
    selected = level[np.concatenate(uncertain)]
    pooled = np.array([(selected <= bound).mean() for bound in LEVELS])
    return {
        "rmse": float(np.sqrt(square / theta.size)),
        "calibration": float(np.median(np.abs(by_pixel - LEVELS[:, None]), 0).mean()),
        "uncertain": float(np.median(np.abs(pooled - LEVELS))),
        "coverage": float((selected <= 0.9).mean()),
        "uncertain_share": len(selected) / level.size,
        "ms": 1000 * (time.monotonic() - started) / (draws * len(theta)),
    }


def plot(posteriors: dict[str, Posterior], test: Simulations, path: Path, num_samples: int) -> None:
    """Truth, observation, and the posterior of each method for the first test images."""
    samples = {
        name: posterior.sample_batched((DRAWS,), x=test.x[:COLUMNS], seed=SEED, show_progress_bars=False).numpy()
        for name, posterior in posteriors.items()
    }
    theta, x = np.asarray(test.theta)[:COLUMNS], np.asarray(test.x)[:COLUMNS]
    path.parent.mkdir(exist_ok=True)
    ps.plots.images(theta, x, samples, num_samples=num_samples).savefig(path, dpi=130)


def add_noise(test: Simulations, noise: float) -> Simulations:
    """Some of the test pairs, with noise added to the data that no training pair had."""
    theta, x = np.asarray(test.theta)[:200], np.asarray(test.x)[:200]
    return Simulations(theta, x + np.random.default_rng(SEED).normal(0, noise, x.shape).astype(np.float32))


HEAD = "| | training s | steps | RMSE | calibration error | on uncertain pixels | 90 % coverage there | ms per draw |"


def row(name: str, posterior: Posterior, metrics: dict[str, float]) -> str:
    return (
        f"| {name} | {posterior.info['seconds']:.0f} | {posterior.info['steps']} | {metrics['rmse']:.4f} "
        f"| {metrics['calibration']:.3f} | {metrics['uncertain']:.3f} | {metrics['coverage']:.3f} "
        f"| {metrics['ms']:.1f} |"
    )


def main_run(options: argparse.Namespace) -> None:
    task = ps.tasks.get(f"camera:{options.images}" if options.images else "camera")
    train, test = pairs(task, options.simulations, 1000)
    network = partial(UNetGenerator, finest=options.finest)
    posterior = train_camera(task, train, 60 * options.minutes, folder=options.folder, network=network)
    metrics = measure(posterior, test)
    kind = "handwritten digits (MNIST)" if options.images else "letters and digits from fonts"
    name = "camera_digits" if options.images else "camera"
    lines = [
        f"# The noisy camera: {kind}",
        "",
        f"{options.simulations:,} simulations, {options.minutes:g} minutes of training on one thread, seed {SEED};",
        f"1 000 fresh images, {DRAWS} draws each. By `python -m benchmarks.camera --minutes {options.minutes:g}",
        f"--simulations {options.simulations} --finest {options.finest:g}{' --images FOLDER' * bool(options.images)}`,",
        "where the columns are explained.",
        "",
        HEAD,
        "|---" * 8 + "|",
        row("fresh images", posterior, metrics),
        *(
            row(
                f"200 of them, noise of {noise:g} added to the data",
                posterior,
                measure(posterior, add_noise(test, noise)),
            )
            for noise in NOISE
        ),
        "",
        f"{100 * metrics['uncertain_share']:.0f} % of the pixels are uncertain: the draws' standard deviation exceeds",
        f"{UNCERTAIN}. Published on EMNIST, after hours of training and with test images among the training images:",
        "RMSE .063 for the energy score with patches 8/5, .078 without, .25 for the GAN; calibration error .36, .36",
        "and .50, where ties count as misses.",
        "",
        f"Machine: {machine()}. Date: {date.today().isoformat()}.",
        "",
    ]
    (RESULTS / f"{name}.md").write_text("\n".join(lines))
    print("\n".join(lines))
    plot({"posterior": posterior}, test, FIGURES / f"{name}.png", 2)


def trials(options: argparse.Namespace) -> None:
    task = ps.tasks.get("camera")
    train, test = pairs(task, options.simulations, 200)
    lines, posteriors = [], {}
    for name in options.only or list(TRIALS):
        short = name.replace(" ", "").replace("/", "-")
        place = RUNS / "camera-trials" / f"{short}-{options.simulations}-{options.steps}"
        posteriors[name] = train_camera(task, train, None, max_steps=options.steps, folder=place, **TRIALS[name])
        lines.append(row(name, posteriors[name], measure(posteriors[name], test)))
        print(lines[-1], flush=True)
    text = [
        "# Trials on the noisy camera",
        "",
        f"{options.simulations:,} simulations, {options.steps} training steps each on one thread of a busy machine,",
        f"seed {SEED}; 200 fresh images, {DRAWS} draws each. By `python -m benchmarks.camera --trials`.",
        f"Machine: {machine()}. Date: {date.today().isoformat()}.",
        "",
        HEAD,
        "|---" * 8 + "|",
        *lines,
    ]
    (RESULTS / "camera_trials.md").write_text("\n".join(text) + "\n")
    plot(posteriors, test, FIGURES / "camera_methods.png", 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0, help="training time")
    parser.add_argument("--simulations", type=int, default=50_000)
    parser.add_argument("--finest", type=float, default=1e-6, help="the weakest ridge of the regression")
    parser.add_argument("--folder", type=Path, help="where to keep the run, so that it can continue")
    parser.add_argument("--images", help="a folder with the idx files of MNIST")
    parser.add_argument("--trials", action="store_true", help="compare settings instead")
    parser.add_argument("--steps", type=int, default=150, help="training steps of each trial")
    parser.add_argument("--only", nargs="+", choices=list(TRIALS), help="these trials")
    options = parser.parse_args()
    trials(options) if options.trials else main_run(options)


if __name__ == "__main__":
    main()
