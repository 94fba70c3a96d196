"""Where nothing is left to learn beyond the linear regression, training ends early."""

import numpy as np
import torch

import propersbi as ps
from propersbi.training.config import TrainConfig
from propersbi.training.history import History, StopReason

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
