"""What the defaults are worth: one thing changed at a time, three observations, seed 0.

    python -m benchmarks.trials --tasks two_moons slcp --simulations 2000
    python -m benchmarks.trials --tasks gaussian_linear --simulations 1000 --trials defaults "no linear regression"
    python -m benchmarks.trials --tasks gaussian_mixture --simulations 1000 --trials defaults "warm-up of 100 steps"
    python -m benchmarks.trials --tasks slcp_distractors --simulations 10000 --trials defaults "no weight decay"

Runs what is not yet in ``results/trials-<task>.csv`` and writes ``trials.md`` beside it and a table in the
documentation. C2ST with 4 000 draws is good to about .01; the benchmark proper is :mod:`benchmarks.accuracy`.
"""

from __future__ import annotations

import argparse
import csv
from contextlib import nullcontext
from dataclasses import replace
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from scipy.special import ndtr, ndtri
from torch import Tensor, nn

import propersbi as ps
from benchmarks.accuracy import RESULTS, RUNS, between, machine
from propersbi import training
from propersbi.recipes import Defaults
from propersbi.networks import MLPGenerator
from propersbi.samplers.refined import PURE, ReverseMarkov

PAGE = Path(__file__).parent.parent / "docs" / "accuracy.md"
DRAWS, OBSERVATIONS, SEED = 4000, (1, 5, 10), 0  # the last two of Two Moons lie at the walls
FIELDS = [
    "task",
    "simulations",
    "trial",
    "sampling_steps",
    "c2st",
    "kept",
    "trained",
    "train_seconds",
    "machine",
    "date",
]


class Untold(ReverseMarkov):
    """A chain whose first step is told no parameter, in place of one that is nothing but noise."""

    def _raw(self, m: int, context: Tensor, noisy: Tensor, level: Tensor) -> Tensor:
        return super()._raw(m, context, torch.where(level.unsqueeze(1) < PURE, noisy, 0.0), level)


class Natural(ReverseMarkov):
    """A chain whose steps are scored in units of the parameters: those from high levels count for more."""

    def _raw(self, m: int, context: Tensor, noisy: Tensor, level: Tensor) -> Tensor:
        self.seen = level
        return super()._raw(m, context, noisy, level)

    def aim(self, m: int, theta: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        draws, target = super().aim(m, theta, x)
        out = (self.seen / (1 + self.seen**2).sqrt()).unsqueeze(1)
        return out * draws, out * target


def chain(
    theta_shape: Any, x_shape: Any, *, chain: bool, kind: type[ReverseMarkov] = ReverseMarkov, **levels: float
) -> ReverseMarkov:
    """The default network in another chain, or with other noise levels."""
    return kind(MLPGenerator(theta_shape, x_shape, chain=chain), **levels)  # type: ignore[arg-type]


class Blind(MLPGenerator):
    """The default network without a view of the prior's walls."""

    def bound(self, *walls: Any) -> None:
        pass


class Summing(MLPGenerator):
    """The default network with blocks of two rectified layers in place of products."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        for block in [*list(self.trunk)[1:], *self.step]:
            block.forward = partial(self.rectified, block)

    @staticmethod
    def rectified(block: Any, h: Tensor) -> Tensor:
        hidden = nn.functional.leaky_relu(block.wide(nn.functional.leaky_relu(block.norm(h), 0.1)), 0.1)
        return h + block.last(block.dropout(hidden[..., : h.shape[-1]]))


TRIALS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "no view of the walls": {"network": Blind},
    "no walls, in probits of the parameters": {"probits": True},
    "cut off at the walls, not reflected": {"cut": True},
    "tails of the data left alone": {"tails": True},
    "sums in place of products": {"network": Summing},
    "dropout 0.1": {"network": partial(MLPGenerator, dropout=0.1)},
    "learning rate 0.001": {"learning_rate": 1e-3},
    "warm-up of 100 steps": {"warmup": 100},
    "beta 1": {"rule": ps.EnergyScore(beta=1.0)},
    "m 10": {"m": 10},
    "m 4": {"m": 4},
    "width 128": {"network": partial(MLPGenerator, width=128, head_width=128)},
    "as many latent variables as parameters": {"network": lambda t, x, **o: MLPGenerator(t, x, latent=t[0], **o)},
    "noise in both layers of the head": {"network": partial(MLPGenerator, places=(0, 1))},
    "weight decay 0.3": {"weight_decay": 0.3},
    "no weight decay": {"weight_decay": 0.0},  # which data of few numbers do not have anyway
    "weights of the lowest score": {"lowest": True},
    "half the batch": {"batch_size": 0.5},
    "half the steps of training": {"max_steps": 0.5},
    "twice the steps of training": {"max_steps": 2.0},
    "levels spread by 2.2": {"network": partial(chain, spread=2.2)},
    "levels up to 5": {"network": partial(chain, highest=5.0)},
    "first step told no parameter": {"network": partial(chain, kind=Untold)},
    "scored in units of the parameters": {"network": partial(chain, kind=Natural)},
    "no linear regression": {"network": "bare"},
    "one pass": {"steps": 1},
    "three networks, a third of the draws each": {"networks": 3},
}


OWN = ("probits", "cut", "tails", "lowest", "networks")  # handled here; the others are options of ``ps.fit``


def path(task: str) -> Path:
    return RESULTS / f"trials-{task}.csv"


def read(task: str) -> list[dict[str, str]]:
    if not path(task).exists():
        return []
    with path(task).open(newline="") as file:
        return list(csv.DictReader(file))


def recorded() -> list[dict[str, str]]:
    return [row for name in ps.tasks.names() for row in read(name)]


def run(name: str, simulations: int, trial: str) -> list[dict[str, Any]]:
    """Train and compare; a row for each number of sampling steps."""
    task: Any = ps.tasks.get(name)
    options = dict(TRIALS[trial])
    probits, cut, tails, lowest, networks = (options.pop(key, 0) for key in OWN)
    sims = ps.simulate(task.prior, task.simulate, simulations, seed=SEED, progress=False)
    theta, prior = np.asarray(sims.theta), task.prior
    if options.get("network") == "bare":  # a network that is already built is taken as it is
        options["network"] = MLPGenerator(sims.theta.shape[1:], sims.x.shape[1:], chain=True)
    if cut or not TRIALS[trial]:  # the benchmark trains this one, too
        options["folder"] = RUNS / f"{name}-{simulations}-{SEED}-default-10x10000"
    default, rows = Defaults(sims.theta.shape[1:], sims.x.shape[1:]), round(0.9 * simulations)
    usual = {"max_steps": default.max_steps(rows, 8), "batch_size": default.batch_size(rows)}
    options |= {key: round(options[key] * usual[key]) for key in usual.keys() & options.keys()}
    if probits:
        theta = ndtri((theta - prior.lower) / (prior.upper - prior.lower))
    change: Any = mock.patch.object(Defaults, "tail", return_value=None) if tails else nullcontext()
    change = mock.patch.object(training, "_worse", partial(training._worse, errors=0.0)) if lowest else change
    with change:
        posteriors = [
            ps.fit(theta, sims.x, prior=None if probits else prior, seed=SEED + k, **options)
            for k in range(networks or 1)
        ]
    if cut:
        posteriors[0].support = replace(posteriors[0].support, atoms=0.0)
    found = []
    for steps in (2, 4, 8, 16) if trial == "defaults" else (None,):
        scores = []
        for i in OBSERVATIONS:
            each = [(DRAWS + k) // len(posteriors) for k in range(len(posteriors))]
            parts = zip(posteriors, each, strict=True)
            drawn = [p.sample((n,), x=task.observation(i), steps=steps, seed=SEED).numpy() for p, n in parts]
            samples = np.concatenate(drawn)
            if probits:
                samples = prior.lower + (prior.upper - prior.lower) * ndtr(samples)
            reference = task.reference_posterior(task.observation(i), DRAWS, np.random.default_rng([SEED, i]))
            scores.append(ps.metrics.c2st(samples, reference))
        info = posteriors[0].info
        row = {
            "task": name,
            "simulations": simulations,
            "trial": trial,
            "sampling_steps": steps or options.get("steps", 8),
            "c2st": round(float(np.mean(scores)), 3),
        }
        seconds = round(sum(posterior.info["seconds"] for posterior in posteriors))
        row |= {"kept": info["best_step"], "trained": info["steps"], "train_seconds": seconds}
        found.append(row | {"machine": machine(), "date": date.today().isoformat()})
        print(row, flush=True)
    return found


def write(task: str, rows: list[dict[str, Any]]) -> None:
    with path(task).open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        writer.writeheader()
        writer.writerows(rows)
    (RESULTS / "trials.md").write_text(table(recorded()))
    before, _, after = between(PAGE.read_text(), "trials")
    PAGE.write_text(before + brief(recorded()) + after)


def table(rows: list[dict[str, str]]) -> str:
    lines = [
        "# Trials",
        "",
        "One thing changed at a time: seed 0, mean C2ST over observations 1, 5 and 10, 4 000 draws (about ±.01).",
        "Written by `python -m benchmarks.trials`. Training times are rough: the machine's two cores did other work at",
        "the same time.",
        "",
        "| task | simulations | trial | sampling steps | C2ST | weights kept of step | training | date |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row['task']} | {int(row['simulations']):,} | {row['trial']} | {row['sampling_steps']} "
        f"| {float(row['c2st']):.3f} | {row['kept']} of {row['trained']} | {row['train_seconds']} s | {row['date']} |"
        for row in rows
    ]
    return "\n".join([*lines, "", f"Machine: {'; '.join(sorted({row['machine'] for row in rows}))}.", ""])


def brief(rows: list[dict[str, str]]) -> str:
    """The table of the documentation: what was changed, and C2ST of each task."""
    found: dict[str, dict[tuple[str, str], str]] = {}
    for row in rows:
        usual = row["trial"] != "defaults" or row["sampling_steps"] == "8"
        trial = row["trial"] if usual else f"{row['sampling_steps']} steps at sampling"
        found.setdefault(trial, {})[row["task"], row["simulations"]] = row["c2st"]
    columns = sorted({column for cells in found.values() for column in cells})
    lines = ["| changed | " + " | ".join(f"{task}, {int(n):,}" for task, n in columns) + " |"]
    lines.append("|---|" + "---|" * len(columns))
    for trial in sorted(found, key=lambda trial: list(TRIALS).index(trial) if trial in TRIALS else 0):
        figures = [f"{float(found[trial][at]):.3f}".lstrip("0") if at in found[trial] else "" for at in columns]
        lines.append(f"| {'**nothing**' if trial == 'defaults' else trial} | {' | '.join(figures)} |")
    return "\n".join([*lines, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=["two_moons", "slcp"])
    parser.add_argument("--simulations", type=int, default=10_000)
    parser.add_argument("--trials", nargs="+", default=list(TRIALS))
    options = parser.parse_args()
    for trial in options.trials:
        for task in options.tasks:
            done = [(row["trial"], row["simulations"]) for row in read(task)]
            if (trial, str(options.simulations)) not in done:
                write(task, [*read(task), *run(task, options.simulations, trial)])


if __name__ == "__main__":
    main()
