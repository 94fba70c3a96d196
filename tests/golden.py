"""Small seeded fits of every kind, whose numbers must not change unnoticed.

``python -m tests.golden`` writes ``golden.json`` anew, after a change that is meant to change numbers.
"""

import json
from functools import partial
from pathlib import Path

import numpy as np
import torch

import propersbi as ps

PATH = Path(__file__).with_name("golden.json")
SHORT = {"max_steps": 20, "validate_every": 10, "progress": False}


class Uniform:
    lower, upper = np.array([-1.0, -1.0]), np.array([1.0, 1.0])

    def sample(self, n, rng):
        return rng.uniform(-1, 1, (n, 2))


def vectors(n=300):
    rng = np.random.default_rng(0)
    theta = rng.uniform(-1, 1, (n, 2)).astype(np.float32)
    x = np.stack([theta[:, 0] + theta[:, 1] ** 2, theta[:, 1], theta[:, 0] * theta[:, 1]], 1)
    return theta, (x + 0.1 * rng.normal(size=(n, 3))).astype(np.float32)


def images(n=150):
    rng = np.random.default_rng(2)
    theta = np.clip(rng.normal(0.2, 0.5, (n, 8, 8)), 0, 1).astype(np.float32)
    return theta, (theta + 0.2 * rng.normal(size=theta.shape)).astype(np.float32)


def fields(n=80):
    rng = np.random.default_rng(3)
    theta = np.cumsum(rng.normal(size=(n, 20)), 1).astype(np.float32)
    grid = theta[:, None, :].repeat(8, 1) + rng.normal(size=(n, 8, 20))
    return theta, np.tile(grid, (1, 4, 2)).astype(np.float32)


def fitted(pairs, **options):
    theta, x = pairs
    return ps.fit(theta, x, **{**SHORT, **options}), x[0]


def rounds(correction):
    options = {"simulations": 240, "rounds": 2, "correction": correction, **SHORT, "max_steps": 10}
    simulator = lambda theta, rng: theta + 0.1 * rng.normal(size=theta.shape)  # noqa: E731
    return ps.fit_sequential(Uniform(), simulator, [0.5, 0.1], **options), [0.5, 0.1]


CASES = {
    "default": lambda: fitted(vectors(), prior=Uniform(), seed=3),
    "one pass": lambda: fitted(vectors(), prior=Uniform(), refinement_steps=1),
    "kernel": lambda: fitted(vectors(), prior=Uniform(), rule=ps.KernelScore(), draws=5),
    "flow": lambda: fitted(vectors(), prior=Uniform(), objective=ps.MaximumLikelihood),
    "adversarial": lambda: fitted(vectors(), prior=Uniform(), objective=ps.Adversarial),
    "noise": lambda: fitted(vectors(), noise=lambda x: x + 0.1 * torch.randn_like(x)),
    "images": lambda: fitted(images(), support=(0.0, 1.0)),
    "grid": lambda: fitted(fields(), embedding=ps.networks.GridEmbedding, max_steps=4, validate_every=2),
    "field": lambda: fitted(
        fields(), network=partial(ps.networks.FieldGenerator, width=32), max_steps=4, validate_every=2
    ),
    "truncated": lambda: rounds(ps.Truncated(draws=1000)),
    "weights": lambda: rounds(ps.ImportanceWeights(draws=500)),
    "rejection": lambda: rounds(ps.CorrectedLatent(ps.Rejection(batch=20), draws=500)),
    "metropolis": lambda: rounds(ps.CorrectedLatent(ps.Metropolis(steps=5), draws=500)),
    "uncorrected": lambda: rounds(ps.Uncorrected()),
}


def numbers(name):
    """Losses, validation scores, some draws and the sums of the weights of a case."""
    posterior, x = CASES[name]()
    draws = posterior.sample((3,), x=np.asarray(x, np.float32), seed=5, show_progress_bars=False).flatten()[:12]
    weights = [weight.double().abs().sum().item() for weight in posterior.sampler.parameters()]
    history = posterior.history
    return {
        "losses": history.train["loss"],
        "scores": history.validation["score"],
        "draws": draws.tolist(),
        "weights": [sum(weights), max(weights)],
    }


if __name__ == "__main__":
    PATH.write_text(json.dumps({name: numbers(name) for name in CASES}, indent=1) + "\n")
