"""Laws of objectives, and of the loop that trains them."""

import pytest
import torch

from propersbi.samplers import Standardize
from propersbi.scoring import EnergyScore
from propersbi.training import ScoreMinimization, TrainConfig, train
from propersbi.training.batches import Batches, split
from propersbi.types import InputError
from tests.laws.cases import ADVERSARIAL, GENERATORS, OBJECTIVES, linear_pairs
from tests.laws.common import every


def training_data(n=400):
    theta, x = linear_pairs(n)
    rows, held_out = split(n, 0.2)
    batches = Batches(theta.numpy(), x.numpy(), rows, 64, Standardize((2,)), Standardize((2,)))
    return batches, batches.read(held_out)


def trained(case, steps, **options):
    torch.manual_seed(0)
    objective = case()
    config = TrainConfig(max_steps=60, validate_every=10, warmup=5, learning_rate=3e-3, stopping=(), **options)
    batches, held_out = training_data()
    if steps == "all":
        train(objective, batches, held_out, config, progress=False)
    return objective, batches, held_out, config


@every({name: case for name, case in OBJECTIVES.items() if name not in ADVERSARIAL})  # see test_adversarial.py
def test_objective_lowers_its_validation_score(case):
    objective, _, held_out, _ = trained(case, "none")
    before = objective.validate(held_out).mean()
    objective, *_ = trained(case, "all")
    after = objective.validate(held_out)
    assert after.shape == (len(held_out),)
    assert after.mean() < before - 0.05


class CutError(Exception):
    """The power fails."""


class CutBatches:
    """Batches that stop the training after some steps, as a crash would."""

    def __init__(self, batches, last):
        self.batches, self.last = batches, last

    def __getitem__(self, i):
        if i >= self.last:
            raise CutError
        return self.batches[i]


@every(OBJECTIVES)
@pytest.mark.parametrize("cut", [23, 40])
def test_resuming_equals_never_stopping(case, cut, tmp_path):
    whole, batches, held_out, config = trained(case, "all", checkpoint_every=0.0)
    parts, *_ = trained(case, "none")
    with pytest.raises(CutError):
        train(parts, CutBatches(batches, cut), held_out, config, checkpoint=tmp_path / "c.ckpt", progress=False)
    torch.manual_seed(99)  # the state of the caller does not matter
    again, *_ = trained(case, "none")
    history = train(again, batches, held_out, config, checkpoint=tmp_path / "c.ckpt", progress=False)
    for name, network in whole.networks.items():
        for a, b in zip(network.parameters(), again.networks[name].parameters(), strict=True):
            assert torch.equal(a, b)
    assert history.steps == 60
    assert history.validation["step"] == [10, 20, 30, 40, 50, 60]


def test_a_score_refuses_one_draw():
    with pytest.raises(InputError, match="m > 1 draws, got draws = 1"):
        ScoreMinimization(GENERATORS["mlp"](), EnergyScore(), draws=1)
