"""Where little is left to learn the learning rate falls to zero, and training ends early."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

import propersbi as ps
from propersbi.samplers import Standardize
from propersbi.training.batches import Batches
from propersbi.training.config import TrainConfig
from propersbi.training.history import History, StopReason
from propersbi.training.loop import train
from propersbi.training.objectives import Objective
from propersbi.training.stopping import Patience
from propersbi.types import Phase

QUICK = {"progress": False, "max_steps": 300, "settle": 60, "validate_every": 20, "draws": 5, "warmup": 75}


def linear(n=1500):
    rng = np.random.default_rng(0)
    theta = rng.normal(size=(n, 2))
    return theta, theta + 0.5 * rng.normal(size=(n, 2))


def curved(n=1500):
    rng = np.random.default_rng(0)
    theta = rng.normal(size=(n, 1))
    return theta, theta**3 / 10 + np.abs(theta) + 0.1 * rng.normal(size=(n, 1))


def test_a_linear_problem_ends_early_and_a_curved_one_does_not():
    easy, hard = ps.fit(*linear(), **QUICK), ps.fit(*curved(), **QUICK)
    assert easy.history.stopped is StopReason.SETTLED
    assert easy.history.settled == 60
    assert easy.history.steps == 96
    assert hard.history.settled is None
    assert hard.history.steps > 96


def test_few_pairs_cannot_tell_that_nothing_is_left_to_learn():
    theta, x = linear(5000)
    assert ps.recipe(theta, x).training.settle == 600
    assert ps.recipe(theta[:1000], x[:1000]).training.settle is None


def test_what_is_kept_is_no_worse_than_the_regression():
    posterior = ps.fit(*linear(), **QUICK)
    draws = posterior.sample((4000,), x=[1.0, -1.0], seed=0)
    np.testing.assert_allclose(draws.mean(0), [0.8, -0.8], atol=0.08)
    np.testing.assert_allclose(draws.std(0), [0.447, 0.447], atol=0.05)


def test_a_resumed_training_settles_where_the_uninterrupted_one_does(tmp_path):
    options = QUICK | {"checkpoint_every": 0.0, "warmup": 20}
    whole = ps.fit(*linear(), **options)
    for steps in (40, 80, 300):
        part = ps.fit(*linear(), folder=tmp_path, **{**options, "max_steps": steps, "decay": False})
    straight = ps.fit(*linear(), **{**options, "decay": False})
    assert part.history.settled == whole.history.settled == straight.history.settled
    assert part.history.steps == straight.history.steps
    assert torch.equal(part.sample((5,), x=[0.0, 0.0], seed=1), straight.sample((5,), x=[0.0, 0.0], seed=1))


def test_the_rate_reaches_zero_at_the_last_step():
    config = TrainConfig(max_steps=1000, learning_rate=1.0, warmup=0, settle=100)
    assert config.last_step(100) == 160
    assert config.rate(160, settled=100) == 0
    assert config.rate(130, settled=100) < 0.51
    assert config.rate(130) > 0.9


def test_a_history_of_an_earlier_version_can_be_read():
    data = History().to_json()
    del data["settled"]
    assert History.from_json(data) == History()


class Wanders(Objective):
    """A mean that gradients of few rows keep moving about, the more the higher the learning rate."""

    def __init__(self):
        self.network = nn.Linear(1, 1, bias=False)

    @property
    def networks(self):
        return {"net": self.network}

    def phases(self):
        return (Phase("net", lambda batch: self.validate(batch).mean()),)

    def validate(self, batch):
        return (self.network.weight[0, 0] - batch.theta[:, 0]).square()


def wandering(place=None, interrupted=(), **options):
    """Train a mean on batches of two rows, interrupted at some steps and continued."""
    theta, units = np.random.default_rng(0).normal(size=(200, 1)), (Standardize((1,)), Standardize((1,)))
    batches = Batches(theta, theta, np.arange(200), 2, *units)
    chosen = {"max_steps": 4000, "learning_rate": 0.3, "warmup": 0, "average": 0.0, "validate_every": 10}
    chosen |= {"keep_within": 0, "checkpoint_every": 0.0, "stopping": (Patience(20),)}
    config = TrainConfig(**{**chosen, **options})

    def interrupt(metrics, step):
        if step in left:
            left.remove(step)
            raise KeyboardInterrupt

    left, objective = set(interrupted), Wanders()
    run = partial(train, objective, batches, batches.read(np.arange(200)), config, checkpoint=place, progress=False)
    for _ in interrupted:
        with pytest.raises(KeyboardInterrupt):
            run(logger=interrupt)
    return run(), config


def test_a_score_that_no_longer_falls_is_given_lower_learning_rates():
    torch.manual_seed(0)
    history, config = wandering()
    assert history.stopped is StopReason.PATIENCE
    assert history.settled < history.steps == config.last_step(history.settled) < 4000
    curve = zip(history.validation["step"], history.validation["score"], strict=True)
    assert history.kept_score < min(score for step, score in curve if step <= history.settled)
    strict, _ = wandering(stopping=(Patience(20, overfitting=1e-9),))
    assert strict.settled is None  # what counts as far worse is the rule's own
    constant, _ = wandering(decay=False)
    assert constant.settled is None
    assert constant.stopped is StopReason.PATIENCE


def test_a_training_interrupted_at_its_lower_rates_continues_to_the_same_end(tmp_path):
    torch.manual_seed(0)
    straight, _ = wandering()
    steps = straight.settled, straight.settled + 50
    torch.manual_seed(0)
    resumed, _ = wandering(tmp_path / "c.ckpt", interrupted=steps)
    assert replace(resumed, seconds=0) == replace(straight, seconds=0)
