"""Trainings on one device and on several: ``python -m tests.training.together train|fit|online FOLDER DEVICES``."""

import os
import sys
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import nn

import propersbi as ps
from propersbi.networks import Flow
from propersbi.samplers import Sampler
from propersbi.scoring import EnergyScore
from propersbi.training import Adversarial, MaximumLikelihood, ScoreMinimization, TrainConfig, train
from propersbi.training.batches import Batches

ROWS, BATCH, STEPS = 100, 33, 8  # two devices have 17 and 16 rows of a batch


class FixedNoise(Sampler):
    """Draws by the same noise for every row, so that it does not matter who draws."""

    def __init__(self):
        super().__init__()
        self.theta_shape, self.x_shape = (2,), (2,)
        self.net = nn.Linear(4, 2)
        self.register_buffer("noise", torch.randn(6, 1, 2))

    def sample(self, m, x):
        noise = self.noise[:m].expand(m, len(x), 2)
        return self.net(torch.cat([x.expand(m, *x.shape), noise], -1))


OBJECTIVES = {
    "score": lambda: ScoreMinimization(FixedNoise(), EnergyScore(), 4),
    "likelihood": lambda: MaximumLikelihood(Flow((2,), (2,))),
    "adversarial": lambda: Adversarial(FixedNoise(), validation_draws=4, draws=3, unrolled=0),
}


class Counted:
    """Rows that count how many of them are read."""

    def __init__(self, rows):
        self.rows, self.shape, self.read = rows, rows.shape, 0

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        self.read += np.size(index)
        return self.rows[index]


def train_one(name, devices, steps=STEPS, checkpoint=None):
    """The weights after some steps in double precision, and how many rows of x were read."""
    rng = np.random.default_rng(0)
    theta = rng.normal(size=(ROWS, 2))
    x = Counted(theta + rng.normal(size=theta.shape))
    weight = rng.uniform(0.5, 1.5, size=ROWS)
    batches = Batches(theta, x, np.arange(ROWS), BATCH, torch.Tensor.double, torch.Tensor.double, weight=weight)
    torch.manual_seed(0)
    objective = OBJECTIVES[name]()
    for network in objective.networks.values():
        network.double()
    config = TrainConfig(
        max_steps=steps, validate_every=4, warmup=1, decay=False, stopping=(), devices=devices, keep="last"
    )
    validation = batches.read(np.arange(20))
    x.read = 0
    train(objective, batches, validation, config, device="cpu", checkpoint=checkpoint, progress=False)
    weights = [weight.detach().flatten() for net in objective.networks.values() for weight in net.parameters()]
    return torch.cat(weights).numpy(), x.read


def train_all(folder, devices):
    """Train by every objective, and one half of the way with a checkpoint."""
    found = {name: train_one(name, devices) for name in OBJECTIVES}
    train_one("score", devices, STEPS // 2, folder / "half.ckpt")
    np.savez(
        folder / f"rank-{os.environ.get('LOCAL_RANK', '0')}.npz", **{name: part[0] for name, part in found.items()}
    )
    (folder / f"read-{os.environ.get('LOCAL_RANK', '0')}").write_text(str({part[1] for part in found.values()}))


def simulator(theta, rng):
    return theta + rng.normal(size=theta.shape)


def fit(folder, devices, steps=20_000):
    """Fit from a store."""
    (folder / f"pid-{os.environ.get('LOCAL_RANK', '0')}").write_text(str(os.getpid()))
    prior = [(0.0, 1.0), (0.0, 1.0)]
    sims = ps.simulate(prior, simulator, 400, path=folder / "store", progress=False)
    options = {"refinement_steps": 1, "draws": 4, "network": partial(ps.networks.MLPGenerator, width=8)}
    options |= {"validate_every": 20, "checkpoint_every": 0.0, "stopping": (), "progress": False, "device": "cpu"}
    return ps.fit(*sims, prior=prior, folder=folder / "run", devices=devices, max_steps=steps, **options)


def online(folder, devices):
    """Train on fresh simulations, by a sampler whose noise is fixed; each process keeps its weights."""
    torch.manual_seed(0)
    options = {"network": FixedNoise(), "simulations": 100, "batch_size": BATCH, "draws": 4, "max_steps": STEPS}
    options |= {"workers": 0, "keep": "last", "device": "cpu", "progress": False, "warmup": 1}
    posterior = ps.fit_online([(0.0, 1.0), (0.0, 1.0)], simulator, devices=devices, **options)
    weights = torch.cat([weight.detach().flatten() for weight in posterior.sampler.parameters()]).numpy()
    np.save(folder / f"online-{os.environ.get('LOCAL_RANK', '0')}.npy", weights)
    return weights


if __name__ == "__main__":
    torch.set_num_threads(1)
    {"train": train_all, "fit": fit, "online": online}[sys.argv[1]](Path(sys.argv[2]), int(sys.argv[3]))
