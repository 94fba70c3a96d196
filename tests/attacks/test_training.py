"""Attacks on training: flipped bits in checkpoints, other data, a full disk, other defaults of torch."""

import errno
import os

import numpy as np
import pytest
import torch

import propersbi as ps
from propersbi.building import TrainingSet
from propersbi.training.checkpoint import read_checkpoint
from propersbi.types import InputError

FAST = {"max_steps": 6, "validate_every": 3, "refinement_steps": 1, "batch_size": 32, "progress": False}


def pairs(shift=0.0):
    rng = np.random.default_rng(0)
    theta = rng.normal(size=(200, 1))
    return theta, theta + shift + 0.1 * rng.normal(size=(200, 1))


def fit(folder=None, data=None, **changes):
    return ps.fit(*(data or pairs()), folder=folder, **{**FAST, **changes})


def weights(posterior):
    return torch.cat([tensor.double().flatten() for tensor in posterior.sampler.state_dict().values()])


def test_a_flipped_bit_in_a_checkpoint_is_refused(tmp_path):
    fit(tmp_path)
    path = tmp_path / "checkpoint.ckpt"
    content = path.read_bytes()
    rng = np.random.default_rng(0)
    for place in rng.integers(0, len(content), 40):
        path.write_bytes(content[:place] + bytes([content[place] ^ (1 << int(rng.integers(8)))]) + content[place + 1 :])
        with pytest.raises(InputError, match=r"checkpoint\.ckpt' cannot be read \(.*\): remove it to start anew"):
            read_checkpoint(path, torch.device("cpu"))
    with pytest.raises(InputError, match="cannot be read"):
        fit(tmp_path)


def test_a_checkpoint_of_other_data_is_not_continued(tmp_path):
    fit(tmp_path)
    with pytest.raises(InputError, match="trained on other simulations: remove it"):
        fit(tmp_path, pairs(shift=1e-3))
    with pytest.raises(InputError, match="was trained with"):
        fit(tmp_path, support=ps.samplers.Box(-9.0, 9.0))
    with pytest.raises(InputError, match="was trained with"):
        fit(tmp_path, noise=lambda x: x + torch.randn_like(x))
    with pytest.raises(InputError, match="was trained with"):
        fit(tmp_path, draws=7)


def test_every_number_counts_in_the_identity_of_data(tmp_path):
    theta, x = pairs()
    before = TrainingSet(theta, x).digest
    for column in (theta, x):
        column[123] += 1e-6
        assert TrainingSet(theta, x).digest != before
        column[123] -= 1e-6

    def stored(path, n, seed=0):
        return TrainingSet(
            *ps.simulate((np.zeros(1), np.ones(1)), np.sin, n, path=path, seed=seed, chunk_size=10, progress=False)
        ).digest

    before = stored(tmp_path / "a", 95)
    assert before == stored(tmp_path / "b", 95)
    assert stored(tmp_path / "a", 100) not in (before, stored(tmp_path / "c", 100, seed=1))
    assert stored(tmp_path / "a", 95) == before  # of a shard that has more rows now


def test_a_checkpoint_of_an_earlier_format_says_so(tmp_path):
    torch.save({"identity": {}}, tmp_path / "checkpoint.ckpt")
    with pytest.raises(InputError, match="an earlier version of the library wrote it"):
        fit(tmp_path)


def test_a_full_disk_at_a_checkpoint_is_a_sentence(tmp_path, monkeypatch):
    whole = weights(fit())

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    fit(tmp_path)
    before = (tmp_path / "checkpoint.ckpt").read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match=r"The disk of '.*' is full: 'checkpoint\.ckpt' was not written"):
            fit(tmp_path, max_steps=9)
    assert (tmp_path / "checkpoint.ckpt").read_bytes() == before
    assert {path.name for path in tmp_path.iterdir()} == {"checkpoint.ckpt", "history.json", "posterior"}
    assert torch.equal(weights(fit(tmp_path)), whole)


@pytest.fixture
def other_defaults():
    torch.set_default_dtype(torch.float64)
    torch.set_default_device("meta")
    with torch.no_grad():
        yield
    torch.set_default_dtype(torch.float32)
    torch.set_default_device(None)


@pytest.fixture(scope="module")
def usual():
    posterior = fit()
    return weights(posterior), posterior.sample((5,), x=[0.1], seed=0)


def test_the_defaults_of_the_caller_change_nothing(usual, tmp_path, other_defaults):
    posterior = fit(tmp_path)
    again = ps.Posterior.load(tmp_path / "posterior")
    draws = again.sample((5,), x=[0.1], seed=0)
    assert torch.get_default_dtype() == torch.float64
    assert draws.numpy().tolist() == usual[1].numpy().tolist()
    with torch.device("cpu"):
        assert torch.equal(weights(posterior), usual[0])
