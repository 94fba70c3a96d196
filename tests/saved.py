"""Small posteriors of every kind, saved: ``tests/saved/FORMAT`` keeps those of every released format.

``python -m tests.saved`` writes those of the present format. What a released version wrote is loaded for ever and never
written again; before a format is released, delete its folder and write it anew.
"""

import json
from functools import partial
from pathlib import Path

import numpy as np
import torch

import propersbi as ps
from propersbi.posterior_formats import FORMAT

FOLDER = Path(__file__).with_name("saved")
SHORT = {"max_steps": 2, "validate_every": 1, "progress": False}
SMALL = partial(ps.networks.MLPGenerator, width=8, depth=1)
RNG = np.random.default_rng(0)


def pairs(n=60):
    theta = RNG.uniform(-1, 1, (n, 2)).astype(np.float32)
    return theta, (theta + 0.1 * RNG.normal(size=(n, 2))).astype(np.float32)


def fitted(theta, x, **options):
    return ps.fit(theta, x, **{**SHORT, "network": SMALL, **options}).set_default_x(x[0])


def images(n=40):
    theta = np.clip(RNG.normal(0.2, 0.5, (n, 8, 8)), 0, 1).astype(np.float32)
    return theta, (theta + 0.2 * RNG.normal(size=theta.shape)).astype(np.float32)


def fields(n=40):
    theta = np.cumsum(RNG.normal(size=(n, 12)), 1).astype(np.float32)
    return theta, np.tile(theta[:, None, :], (1, 8, 1)).astype(np.float32)


def constrained():
    prior = {
        "shares": torch.distributions.Dirichlet(torch.ones(3)),
        "events": torch.distributions.Poisson(3.0),
        "scale": torch.distributions.Exponential(1.0),
    }
    sims = ps.simulate(prior, lambda theta, rng: {"a": theta[:2], "b": theta[3]}, 60, progress=False)
    posterior = fitted(np.asarray(sims.theta), np.asarray(sims.x), prior=prior)
    posterior.x_names = sims.x_names
    return posterior


def rounds():
    simulator = lambda theta, rng: theta + 0.1 * rng.normal(size=theta.shape)  # noqa: E731
    options = {"simulations": 80, "rounds": 2, "correction": ps.CorrectedLatent(ps.Rejection(batch=20), draws=200)}
    return ps.fit_sequential([(-1.0, 1.0)] * 2, simulator, [0.1, 0.2], network=SMALL, **options, **SHORT)


KINDS = {
    "default": lambda: fitted(*pairs(), prior=[(-1.0, 1.0)] * 2, parameter_names=["east", "north"]),
    "one_pass": lambda: fitted(*pairs(), refinement_steps=1, rule=ps.EnergyScore() + 0.5 * ps.VariogramScore()),
    "kernel": lambda: fitted(*pairs(), rule=ps.KernelScore(kernel=ps.kernels.Gaussian(0.5)), draws=5),
    "ensemble": lambda: fitted(*pairs(), ensemble=2),
    "adversarial": lambda: fitted(*pairs(), objective=ps.Adversarial),
    "flow": lambda: fitted(
        *pairs(), objective=ps.MaximumLikelihood, network=partial(ps.networks.Flow, transforms=1, width=8)
    ),
    "constrained": constrained,
    "rounds": rounds,
    "grid": lambda: fitted(
        *fields(), embedding=ps.networks.GridEmbedding((8, 12), channels=(4, 4), width=4, mixing=1, features=8)
    ),
    "image": lambda: fitted(*images(), network=partial(ps.networks.UNetGenerator, channels=(4, 8)), support=(0.0, 1.0)),
}


def write(folder):
    """Save every kind, and beside each some draws of it."""
    for name, make in KINDS.items():
        posterior = make()
        posterior.save(folder / name)
        draws = posterior.sample((3,), seed=7, show_progress_bars=False)
        (folder / name / "draws.json").write_text(json.dumps(draws.tolist()) + "\n")


if __name__ == "__main__":
    if (FOLDER / str(FORMAT)).exists():
        raise SystemExit(
            f"Posteriors of format {FORMAT} are there already: raise FORMAT, or delete them if it was never released."
        )
    write(FOLDER / str(FORMAT))
