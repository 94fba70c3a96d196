import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from propersbi.networks import MLPGenerator
from propersbi.samplers.standardized import Standardize
from propersbi.scoring import EnergyScore
from propersbi.training import FirstRise, Objective, Patience, ScoreMinimization
from propersbi.training.batches import Batches, checked_pairs, split
from propersbi.training.config import TrainConfig
from propersbi.training.loop import train
from propersbi.types import Batch, InputError, Phase
from tests.laws.cases import linear_pairs


def problem(n=300, size=32):
    torch.manual_seed(0)
    theta, x = linear_pairs(n)
    rows, held_out = split(n, 0.2)
    batches = Batches(theta.numpy(), x.numpy(), rows, size, Standardize((2,)), Standardize((2,)))
    objective = ScoreMinimization(MLPGenerator((2,), (2,), width=16, depth=1), EnergyScore(), draws=4)
    return objective, batches, batches.read(held_out)


def quick(**options):
    return TrainConfig(**{"max_steps": 40, "validate_every": 10, "warmup": 5, **options})


def test_every_pass_visits_each_row_once():
    theta = np.arange(50.0)[:, None]
    batches = Batches(theta, theta, np.arange(50), 10, Standardize((1,)), Standardize((1,)), seed=3)
    first, second = (torch.cat([batches[i].theta for i in range(k, k + 5)]).flatten().tolist() for k in (0, 5))
    assert sorted(first) == sorted(second) == theta[:, 0].tolist()
    assert first != second
    again = Batches(theta, theta, np.arange(50), 10, Standardize((1,)), Standardize((1,)), seed=3)
    assert torch.equal(again[7].theta, batches[7].theta)


@pytest.mark.parametrize("few", [20, 4])
def test_the_last_batches_may_have_other_rows(few):
    theta, units = np.arange(50.0)[:, None], (Standardize((1,)), Standardize((1,)))
    batches = Batches(theta, theta, np.arange(50), 10, *units, final=(7, np.arange(few)))
    assert max(batches[6].theta) >= few
    size = min(few, 10)
    last = torch.cat([batches[7 + i].theta for i in range(few // size)]).flatten().tolist()
    assert sorted(last) == theta[:few, 0].tolist()
    assert torch.equal(batches[6].theta, Batches(theta, theta, np.arange(50), 10, *units)[6].theta)


@pytest.mark.parametrize("weight", [None, np.linspace(0.5, 1.5, 300)])
def test_converted_rows_make_the_same_batches(weight):
    _, batches, _ = problem()
    batches = replace(batches, theta_units=Standardize((2,)).fit(torch.randn(50, 2)), weight=weight)
    converted = batches.converted()
    assert converted is not batches
    for number in (0, 7, 40):
        one, other = batches[number], converted[number]
        assert torch.equal(one.theta, other.theta)
        assert torch.equal(one.x, other.x)
        assert weight is None or torch.equal(one.weight, other.weight)


def test_rows_that_are_large_or_on_disk_or_noisy_are_converted_batch_by_batch(tmp_path, monkeypatch):
    _, batches, _ = problem()
    np.save(tmp_path / "x.npy", batches.x)
    assert replace(batches, x=np.load(tmp_path / "x.npy", mmap_mode="r")).converted().theta is batches.theta
    assert replace(batches, noise=torch.sin).converted().theta is batches.theta
    monkeypatch.setattr("propersbi.training.batches.CONVERTED_NUMBERS", 1000)
    assert batches.converted() is batches


def test_the_learning_rate_rises_and_falls_to_zero():
    config = quick(max_steps=100, warmup=10, learning_rate=1.0)
    rates = [config.rate(step) for step in range(100)]
    assert rates[0] == pytest.approx(0.1)
    assert max(rates) == pytest.approx(rates[9], abs=0.03)
    assert rates[-1] < 1e-3
    assert quick(time_limit=10.0).rate(5, seconds=10.0) == 0.0


class Overfits(Objective):
    """A score that gets worse after some steps."""

    def __init__(self):
        self.network = nn.Linear(1, 1, bias=False)
        nn.init.zeros_(self.network.weight)

    @property
    def networks(self):
        return {"net": self.network}

    def phases(self):
        return (Phase("net", lambda batch: -self.network.weight.sum()),)  # the weight grows for ever

    def validate(self, batch):
        return (self.network.weight.sum() - 0.2).abs().expand(len(batch))


def test_the_best_average_is_kept():
    """The network must end as it was at the best validation."""
    objective = Overfits()
    _, batches, held_out = problem()
    config = quick(max_steps=400, learning_rate=0.01, clip=None, average=0.0, stopping=(Patience(3),))
    history = train(objective, batches, held_out, config, progress=False)
    assert history.stopped == "patience"
    assert history.steps == history.kept_step + 30
    assert abs(objective.network.weight.item() - 0.2) == pytest.approx(history.kept_score, abs=1e-6)
    assert min(history.validation["score"]) == history.kept_score
    assert len(history.train["loss"]) == len(history.validation["score"]) == history.steps // 10


@pytest.mark.parametrize(("stopping", "waited"), [((Patience(20),), 50), ((), None)])
def test_a_score_that_is_far_worse_ends_the_training_sooner(stopping, waited):
    _, batches, held_out = problem()
    config = quick(max_steps=200, learning_rate=0.01, clip=None, average=0.0, stopping=stopping)
    history = train(Overfits(), batches, held_out, config, progress=False)
    assert history.steps == (200 if waited is None else history.kept_step + waited)


def test_training_can_stop_at_the_first_rise_and_keep_the_last_weights():
    _, batches, held_out = problem()
    options = {"max_steps": 200, "learning_rate": 0.01, "clip": None, "average": 0.0, "decay": False, "warmup": 0}
    objective = Overfits()
    history = train(
        objective, batches, held_out, quick(**options, stopping=(FirstRise(10),), keep="last"), progress=False
    )
    scores = history.validation["score"]
    assert history.stopped == "first_rise"
    assert scores[-1] > scores[-2]
    assert (np.diff(scores[:-1]) < 0).all()
    assert history.kept_step == history.steps  # not the best
    assert abs(objective.network.weight.item() - 0.2) == pytest.approx(scores[-1], abs=1e-6)
    assert set(history.learning_rate["value"]) == {0.01}
    later = train(
        Overfits(), batches, held_out, quick(**options, stopping=(FirstRise(100),), keep="last"), progress=False
    )
    assert later.steps == 100 > history.steps


def test_validations_have_noise_of_their_own_where_the_last_weights_are_kept():
    objective, batches, held_out = problem()
    config = quick(max_steps=30, learning_rate=1e-12, average=0.0, keep="last")
    history = train(objective, batches, held_out, config, progress=False)
    assert np.ptp(history.validation["score"]) > 1e-4


def test_the_running_average_is_what_is_validated_and_kept():
    """The weights move by a constant step; their average follows with the decay that was asked for."""
    objective = Overfits()
    _, batches, held_out = problem()
    config = quick(max_steps=40, learning_rate=0.01, clip=None, average=0.9, decay=False, warmup=0, keep="last")
    history = train(objective, batches, held_out, config, progress=False)
    weight, average = 0.0, 0.0
    expected = []
    for step in range(40):
        weight += 0.01  # Adam's step is the learning rate, whatever the constant gradient is
        decay = min(0.9, (1 + step) / (10 + step))
        average = decay * average + (1 - decay) * weight
        expected += [abs(average - 0.2)] if (step + 1) % 10 == 0 else []
    assert history.validation["score"] == pytest.approx(expected, abs=1e-4)
    assert objective.network.weight.item() == pytest.approx(average, abs=1e-4)
    assert abs(average - weight) > 0.03


class Moving(nn.Module):
    """An embedding that remembers its modes and replaces a buffer, as own modules may."""

    def __init__(self):
        super().__init__()
        self.register_buffer("steps", torch.zeros(()))
        self.inner, self.modes = nn.Dropout(0.5), []

    def forward(self, x):
        if self.training:
            self.modes.append(self.inner.training)
            self.steps = self.steps + 1.0
        return self.inner(x)


def test_modules_of_ones_own_are_in_training_mode_and_their_buffers_are_averaged():
    _, batches, held_out = problem()
    embedding = Moving()
    network = MLPGenerator((2,), (2,), width=8, embedding=embedding)
    embedding.inner.eval()  # left so by a training elsewhere
    embedding.steps = torch.zeros(())
    objective = ScoreMinimization(network, EnergyScore(), 2)
    train(objective, batches, held_out, quick(max_steps=20, average=0.5, keep="last"), progress=False)
    assert embedding.modes == [True] * 20
    assert 18 < embedding.steps < 20  # the average of the buffer's last values, not of the first one


def test_weights_within_the_error_of_the_lowest_score_are_preferred_if_they_are_later():
    objective, batches, held_out = problem()
    lowest = train(objective, batches, held_out, quick(max_steps=200, keep_within=0.0), progress=False)
    assert lowest.kept_step == lowest.lowest_step
    assert lowest.kept_score == lowest.lowest_score
    objective, batches, held_out = problem()
    later = train(objective, batches, held_out, quick(max_steps=200, keep_within=1e9), progress=False)
    assert later.kept_step == 200 >= later.lowest_step


def test_validation_noise_is_frozen():
    objective, batches, held_out = problem()
    config = quick(max_steps=30, learning_rate=1e-12, average=0.0)
    history = train(objective, batches, held_out, config, progress=False)
    assert np.ptp(history.validation["score"]) < 1e-6


def test_same_seed_same_weights_whatever_the_callers_state():
    weights = []
    for state in (1, 2):
        objective, batches, held_out = problem()
        torch.manual_seed(state)
        before = torch.get_rng_state()
        train(objective, batches, held_out, quick(), progress=False)
        assert torch.equal(torch.get_rng_state(), before)
        weights.append(torch.cat([w.flatten() for w in objective.sampler.parameters()]))
    assert torch.equal(*weights)


def test_importance_weights_count():
    theta, x = linear_pairs(100)
    objective, *_ = problem()
    torch.manual_seed(0)
    plain = objective.loss(Batch(theta[:50], x[:50])).detach()
    torch.manual_seed(0)
    ones = torch.ones(50)
    assert objective.loss(Batch(theta[:50], x[:50], ones)).item() == pytest.approx(plain.item(), rel=1e-6)
    torch.manual_seed(0)
    assert objective.loss(Batch(theta[:50], x[:50], 2 * ones)).item() == pytest.approx(2 * plain.item(), rel=1e-6)


def test_time_limit_stops_training():
    objective, batches, held_out = problem()
    history = train(objective, batches, held_out, quick(max_steps=10**6, time_limit=0.5), progress=False)
    assert history.stopped == "time_limit"
    assert 0 < history.steps < 10**6


def test_time_is_checked_between_validations():
    objective, batches, held_out = problem()
    config = quick(max_steps=10**6, time_limit=0.2, validate_every=10**6)
    history = train(objective, batches, held_out, config, progress=False)
    assert history.stopped == "time_limit"
    assert history.validation["step"] == [history.steps]


def test_divergence_is_noticed_and_the_best_weights_stay():
    objective, batches, held_out = problem()

    class Breaks(Objective):
        networks = objective.networks
        calls = 0

        def phases(self):
            return (Phase("sampler", self.loss),)

        def loss(self, batch):
            self.calls += 1
            return objective.loss(batch) * (1.0 if self.calls < 25 else float("nan"))

        def validate(self, batch):
            return objective.validate(batch)

    history = train(Breaks(), batches, held_out, quick(max_steps=100), progress=False)
    assert history.stopped == "diverged"
    assert history.kept_step == 20
    assert all(torch.isfinite(w).all() for w in objective.sampler.parameters())


def test_a_device_that_is_not_there_gets_a_sentence():
    objective, batches, held_out = problem()
    with pytest.raises(InputError, match="Training cannot run on 1 x 'abacus'"):
        train(objective, batches, held_out, quick(), device="abacus", progress=False)


def test_progress_goes_to_stderr_only_when_asked(capsys):
    objective, batches, held_out = problem()
    train(objective, batches, held_out, quick(), progress=True)
    shown = capsys.readouterr()
    assert "training" in shown.err
    assert "loss" in shown.err
    assert "score" in shown.err
    assert shown.out == ""
    train(objective, batches, held_out, quick(), progress=False)
    assert capsys.readouterr().err == ""


def test_a_checkpoint_of_something_else_is_refused(tmp_path):
    objective, batches, held_out = problem()
    train(objective, batches, held_out, quick(), checkpoint=tmp_path / "c.ckpt", progress=False)
    with pytest.raises(InputError, match=r"trained with learning_rate = 0.002, not 0.01: remove it"):
        train(objective, batches, held_out, quick(learning_rate=0.01), checkpoint=tmp_path / "c.ckpt", progress=False)
    other, batches, held_out = problem(n=320)
    with pytest.raises(InputError, match=r"trained with validation = "):
        train(other, batches, held_out, quick(), checkpoint=tmp_path / "c.ckpt", progress=False)
    objective, batches, held_out = problem()
    moved = Batch(held_out.theta, held_out.x + 1e-3)
    with pytest.raises(InputError, match=r"trained with validation = "):
        train(objective, batches, moved, quick(), checkpoint=tmp_path / "c.ckpt", progress=False)
    with pytest.raises(InputError, match=r"trained with threads = 1, not 2"):
        train(objective, batches, held_out, quick(threads=2), checkpoint=tmp_path / "c.ckpt", progress=False)


def test_a_finished_checkpoint_can_be_trained_further(tmp_path):
    objective, batches, held_out = problem()
    train(objective, batches, held_out, quick(), checkpoint=tmp_path / "c.ckpt", progress=False)
    again, *_ = problem()
    history = train(again, batches, held_out, quick(max_steps=60), checkpoint=tmp_path / "c.ckpt", progress=False)
    assert history.steps == 60


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 not a zip", b"\x80\x04cos\nsystem\n(S'true'\ntR."])
def test_a_broken_or_hostile_checkpoint_is_refused(tmp_path, content):
    objective, batches, held_out = problem()
    (tmp_path / "c.ckpt").write_bytes(content)
    with pytest.raises(InputError, match="cannot be read"):
        train(objective, batches, held_out, quick(), checkpoint=tmp_path / "c.ckpt", progress=False)


def test_bad_options_get_a_sentence():
    with pytest.raises(InputError, match="'max_steps' must be positive, got 0"):
        TrainConfig(max_steps=0)
    with pytest.raises(InputError, match="'clip' must be positive or None, got -1"):
        TrainConfig(clip=-1)
    with pytest.raises(InputError, match="'validations' must be a positive number, got -1"):
        Patience(-1)
    with pytest.raises(InputError, match="'stopping' must hold rules such as"):
        TrainConfig(stopping=(3,))
    with pytest.raises(InputError, match="'keep' must be 'best' or 'last', got 'all'"):
        TrainConfig(keep="all")
    with pytest.raises(InputError, match=r"'average' must lie in \[0, 1\), got 1.0"):
        TrainConfig(average=1.0)
    with pytest.raises(InputError, match="batch of 64 rows cannot be drawn from 10"):
        Batches(np.zeros((10, 1)), np.zeros((10, 1)), np.arange(10), 64, Standardize((1,)), Standardize((1,)))
    with pytest.raises(InputError, match="theta has 3 rows but x has 4"):
        checked_pairs(np.zeros((3, 1)), np.zeros((4, 1)))
    with pytest.raises(InputError, match="theta and x are empty"):
        checked_pairs(np.zeros((0, 1)), np.zeros((0, 1)))
    with pytest.raises(InputError, match="'x' must hold numbers, got <U1"):
        checked_pairs(np.zeros((1, 1)), np.array([["a"]]))


SCRIPT = """
import hashlib, json, os, sys
import numpy as np, torch
import propersbi as ps

if __name__ == "__main__":
    rng = np.random.default_rng(0)
    theta = rng.normal(size=(400, 2)).astype("float32")
    x = np.abs(theta) + 0.1 * rng.normal(size=(400, 2)).astype("float32")  # a linear regression sees nothing
    network = lambda *shapes, **options: ps.networks.MLPGenerator(*shapes, width=16, depth=1, **options)
    posterior = ps.fit(theta, x, folder=sys.argv[1], network=network, progress=False, **json.loads(sys.argv[2]))
    weights = torch.cat([w.detach().flatten() for w in posterior.sampler.parameters()])
    result = {"digest": hashlib.sha256(weights.numpy().tobytes()).hexdigest(),
              "first": posterior.history.validation["score"][0], "best": posterior.history.kept_score}
    os.makedirs(sys.argv[1], exist_ok=True)  # only the first process writes the posterior there, perhaps later
    with open(sys.argv[1] + "/rank-" + os.environ.get("LOCAL_RANK", "0"), "w") as file:
        json.dump(result, file)
"""


def start_script(tmp_path, folder, **options):
    script = tmp_path / "script.py"
    if not script.exists():  # another process may be reading it
        script.write_text(SCRIPT)
    command = [sys.executable, str(script), str(tmp_path / folder), json.dumps(options)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


def results(process, folder):
    _, error = process.communicate()
    assert process.returncode == 0, error
    return [json.loads(path.read_text()) for path in sorted(folder.glob("rank-*"))]


def test_kill_9_in_training_resumes_to_the_same_bits(tmp_path):
    options = {"max_steps": 300, "validate_every": 20, "checkpoint_every": 0.0, "draws": 4, "stopping": []}
    cut = start_script(tmp_path, "cut", **options)
    while not (tmp_path / "cut" / "checkpoint.ckpt").exists() and cut.poll() is None:
        time.sleep(0.02)
    os.kill(cut.pid, signal.SIGKILL)
    cut.communicate()
    assert not (tmp_path / "cut" / "posterior").exists()
    resumed, whole = start_script(tmp_path, "cut", **options), start_script(tmp_path, "whole", **options)
    assert results(resumed, tmp_path / "cut") == results(whole, tmp_path / "whole")
