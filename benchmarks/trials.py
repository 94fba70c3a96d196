"""What the defaults are worth: one choice of the recipe changed at a time, three observations, seed 0.

    python -m benchmarks.trials --tasks two_moons slcp --simulations 2000
    python -m benchmarks.trials --tasks gaussian_linear --simulations 1000 --trials defaults "no linear regression"
    python -m benchmarks.trials --tasks gaussian_mixture --simulations 1000 --trials defaults "warm-up of 100 steps"
    python -m benchmarks.trials --tasks slcp_distractors --simulations 2000 --trials defaults "no numbers ignored"

Runs what is not yet in ``results/trials-<task>.csv`` and writes ``trials.md`` and a table in the documentation. C2ST
with 4 000 draws has an error of about .01; the benchmark proper is :mod:`benchmarks.accuracy`.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.special import ndtr, ndtri
from torch import Tensor, nn

import propersbi as ps
from benchmarks.accuracy import RESULTS, RUNS, between, machine
from propersbi.choices import CHAIN_WIDTH
from propersbi.networks import MLPGenerator
from propersbi.networks.layers import SLOPE
from propersbi.networks.mlp import GatedBlock
from propersbi.posterior import Posterior
from propersbi.recipes import Recipe
from propersbi.samplers import Bounds, Box, Refined
from propersbi.samplers.refined import PURE_NOISE
from propersbi.tasks.task import Task

PAGE = Path(__file__).parent.parent / "docs" / "accuracy.md"
DRAWS, OBSERVATIONS, SEED = 4000, (1, 5, 10), 0  # the last two of Two Moons lie at the bounds
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


class BlankStart(Refined):
    """A chain whose first step is conditioned on zeros instead of pure noise."""

    def step(self, m: int, context: Tensor, noisy: Tensor, level: Tensor) -> Tensor:
        return super().step(m, context, torch.where(level.unsqueeze(1) < PURE_NOISE, noisy, 0.0), level)


class ParameterUnits(Refined):
    """A chain whose steps are scored in units of the parameters: those from high noise levels have a larger weight."""

    def step(self, m: int, context: Tensor, noisy: Tensor, level: Tensor) -> Tensor:
        self.last_level = level
        return super().step(m, context, noisy, level)

    def training_pair(self, m: int, theta: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        draws, target = super().training_pair(m, theta, x)
        out = (self.last_level / (1 + self.last_level**2).sqrt()).unsqueeze(1)
        return out * draws, out * target


def refined_network(
    theta_shape: Sequence[int], x_shape: Sequence[int], *, chain: bool, kind: type[Refined] = Refined, **levels: float
) -> Refined:
    """The default network in another chain, or with other noise levels."""
    return kind(MLPGenerator(theta_shape, x_shape, width=CHAIN_WIDTH, chain=chain), **levels)  # type: ignore[arg-type]


class Unbounded(MLPGenerator):
    """The default network, not conditioned on the bounds of the prior."""

    def prepare(self, theta: Tensor, x: Tensor, bounds: Bounds) -> None:
        """Nothing."""


class SumBlock(GatedBlock):
    """Two rectified layers instead of a product; half of the first layer is unused."""

    def forward(self, h: Tensor) -> Tensor:
        hidden = nn.functional.leaky_relu(self.wide(nn.functional.leaky_relu(self.norm(h), SLOPE)), SLOPE)
        return h + self.last(hidden[..., : h.shape[-1]])


class DropoutBlock(GatedBlock):
    """A block with a tenth of its hidden units dropped at random in training."""

    def forward(self, h: Tensor) -> Tensor:
        value, gate = self.wide(self.norm(h)).chunk(2, -1)
        hidden = nn.functional.dropout(value * nn.functional.leaky_relu(gate, SLOPE), 0.1, self.training)
        return h + self.last(hidden)


class OtherBlocks(MLPGenerator):
    """The default network with blocks of another kind, of the same weights."""

    def __init__(self, *shapes: Sequence[int], block: Callable[[int], GatedBlock], **options: Any) -> None:
        super().__init__(*shapes, **options)
        for blocks in (self.trunk, *([self.step] if self.chain else [])):
            for place, old in enumerate(blocks):
                if isinstance(old, GatedBlock):
                    blocks[place] = block(self.width)
                    blocks[place].load_state_dict(old.state_dict())


def few_latent(theta_shape: Sequence[int], x_shape: Sequence[int], **options: Any) -> MLPGenerator:
    """The default network with as many latent variables as parameters."""
    return MLPGenerator(theta_shape, x_shape, latent=theta_shape[0], width=CHAIN_WIDTH, **options)


def clamped_support(recipe: Recipe) -> dict[str, Any]:
    """Draws beyond a bound are moved onto it instead of being reflected."""
    assert isinstance(recipe.support, Box)  # as of all tasks
    return {"support": replace(recipe.support, point_masses=0.0)}


Changes = Mapping[str, Any]
PROBITS = "no bounds, in probits of the parameters"
TRIALS: dict[str, Changes | Callable[[Recipe], Changes]] = {
    "defaults": {},
    "with emulated pairs, as by default": {"emulated": 100_000},
    "no view of the bounds": {"network": partial(Unbounded, width=CHAIN_WIDTH)},
    PROBITS: {},  # the parameters are transformed, see `run`
    "clamped at the bounds, not reflected": clamped_support,
    "tails of the data left alone": {"tail": None},
    "sums in place of products": {"network": partial(OtherBlocks, block=SumBlock, width=CHAIN_WIDTH)},
    "dropout 0.1": {"network": partial(OtherBlocks, block=DropoutBlock, width=CHAIN_WIDTH)},
    "learning rate 0.002": {"learning_rate": 2e-3},
    "learning rate 0.012": {"learning_rate": 1.2e-2},
    "warm-up of 100 steps": {"warmup": 100},
    "beta 1": {"rule": ps.EnergyScore(beta=1.0)},
    "20 draws per pair": {"draws": 20},
    "4 draws per pair": {"draws": 4},
    "width 256, learning rate 0.002": {"network": MLPGenerator, "learning_rate": 2e-3},
    "width 64": {"network": partial(MLPGenerator, width=64)},
    "as many latent variables as parameters": {"network": few_latent},
    "noise in both layers of the head": {"network": partial(MLPGenerator, places=(0, 1), width=CHAIN_WIDTH)},
    "weight decay 0.3": {"weight_decay": 0.3},
    "no numbers ignored": {"ignored_x": ()},
    "no numbers ignored, no weight decay": {"ignored_x": (), "weight_decay": 0.0},
    "weights of the lowest score": {"keep_within": 0.0},
    "half the batch": lambda recipe: {"batch_size": round(0.5 * recipe.batch_size)},
    "half the steps of training": lambda recipe: {"max_steps": round(0.5 * recipe.training.max_steps)},
    "twice the steps of training": lambda recipe: {"max_steps": 2 * recipe.training.max_steps},
    "levels spread by 2.2": {"network": partial(refined_network, spread=2.2)},
    "levels up to 5": {"network": partial(refined_network, highest=5.0)},
    "first step without a noisy parameter": {"network": partial(refined_network, kind=BlankStart)},
    "scored in units of the parameters": {"network": partial(refined_network, kind=ParameterUnits)},
    "no linear regression": {"regression": False},
    "one pass": {"refinement_steps": 1},
    "three networks, a third of the draws each": {"ensemble": 3},
}
ANEW = {"with emulated pairs, as by default", "no numbers ignored", "one pass"}
"""Trials after which other choices follow from what is changed; in the others everything else stays."""
SHORT = [trial for trial in TRIALS if not trial.startswith("no numbers")]  # for data of few numbers


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
    task = ps.tasks.get(name)
    sims = ps.simulate(task.prior, task.simulate, simulations, seed=SEED, progress=False)
    theta, prior = np.asarray(sims.theta), task.prior
    if trial == PROBITS:
        theta, prior = ndtri((theta - prior.lower) / (prior.upper - prior.lower)), None
    # Trials are made on the simulations alone; so is a row of the accuracy benchmark.
    folder = RUNS / f"{name}-{simulations}-{SEED}-simulations-alone-10x10000" if trial == "defaults" else None
    posterior = ps.fit(
        theta, sims.x, recipe=recipe_of(trial, theta, sims.x, prior), seed=SEED, prior=prior, folder=folder
    )
    rows = []
    for steps in (2, 4, 8, 16) if trial == "defaults" else (None,):
        row = {"task": name, "simulations": simulations, "trial": trial, **measure(task, posterior, steps, trial)}
        rows.append(row | {"machine": machine(), "date": date.today().isoformat()})
        print(row, flush=True)
    return rows


def recipe_of(trial: str, theta: Any, x: Any, prior: Any) -> Recipe:
    """The default recipe for the simulations alone, with what a trial changes."""
    usual, changes = ps.recipe(theta, x, prior=prior, emulated=0), TRIALS[trial]
    changes = changes(usual) if callable(changes) else changes
    return ps.recipe(theta, x, prior=prior, **{"emulated": 0, **changes}) if trial in ANEW else usual.change(**changes)


def measure(task: Task, posterior: Posterior, steps: int | None, trial: str) -> dict[str, Any]:
    """Mean C2ST over the observations, and how the posterior was trained."""
    scores = []
    for i in OBSERVATIONS:
        x = task.observation(i)
        samples = posterior.sample((DRAWS,), x=x, refinement_steps=steps, seed=SEED).numpy()
        if trial == PROBITS:
            samples = task.prior.lower + (task.prior.upper - task.prior.lower) * ndtr(samples)
        scores.append(ps.metrics.c2st(samples, task.reference_posterior(x, DRAWS, np.random.default_rng([SEED, i]))))
    info, recipe = posterior.info, posterior.recipe
    assert recipe is not None
    return {
        "sampling_steps": steps or recipe.refinement_steps,
        "c2st": round(float(np.mean(scores)), 3),
        "kept": info["kept_step"],
        "trained": info["steps"],
        "train_seconds": round(info["seconds"]),
    }


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
        "One thing changed at a time, trained on the simulations alone unless said otherwise: seed 0, mean C2ST over",
        "observations 1, 5 and 10, 4 000 draws (about ±.01). Rows before 2026-11-18 are of the earlier defaults that",
        "`docs/accuracy.md` names.",
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
    """The table of the documentation: what was changed, and the C2ST of each task."""
    scores: dict[str, dict[tuple[str, str], str]] = {}
    for row in rows:
        usual = row["trial"] != "defaults" or row["sampling_steps"] == "8"
        trial = row["trial"] if usual else f"{row['sampling_steps']} steps at sampling"
        scores.setdefault(trial, {})[row["task"], row["simulations"]] = row["c2st"]
    columns = sorted({column for cells in scores.values() for column in cells})
    lines = ["| changed | " + " | ".join(f"{task}, {int(n):,}" for task, n in columns) + " |"]
    lines.append("|---|" + "---|" * len(columns))
    for trial in sorted(scores, key=lambda trial: list(TRIALS).index(trial) if trial in TRIALS else 0):
        figures = [f"{float(scores[trial][at]):.3f}".lstrip("0") if at in scores[trial] else "" for at in columns]
        lines.append(f"| {'**nothing**' if trial == 'defaults' else trial} | {' | '.join(figures)} |")
    return "\n".join([*lines, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=["two_moons", "slcp"])
    parser.add_argument("--simulations", type=int, default=10_000)
    parser.add_argument("--trials", nargs="+", default=SHORT)
    options = parser.parse_args()
    for trial in options.trials:
        for task in options.tasks:
            done = [(row["trial"], row["simulations"]) for row in read(task)]
            if (trial, str(options.simulations)) not in done:
                write(task, [*read(task), *run(task, options.simulations, trial)])


if __name__ == "__main__":
    main()
