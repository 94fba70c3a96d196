import math

import numpy as np
import pytest
import torch

from propersbi.sequential.ratio import effective_share, estimate_ratio, tamed
from propersbi.types import InputError


@pytest.fixture(scope="module")
def shifted():
    """Five draws of N(0, 1) for each one of N(1, 1): log ratio v - 1/2."""
    rng = np.random.default_rng(0)
    upper, lower = rng.normal(1, 1, (4000, 1)), rng.normal(0, 1, (20_000, 1))
    return estimate_ratio(upper, lower, max_steps=400, width=32)


def test_the_ratio_is_right_though_the_classes_are_not_equally_many(shifted):
    v = torch.linspace(-1.0, 2.0, 7)
    assert (shifted.log(v[:, None]) - (v - 0.5)).abs().max() < 0.25


def test_its_quality_is_that_of_the_truth(shifted):
    rng = np.random.default_rng(1)
    odds = torch.as_tensor(rng.normal(1, 1, 100_000) - 0.5)
    best = torch.nn.functional.softplus(-odds).mean().item()  # the log loss of the true odds, by symmetry of the two
    assert shifted.log_loss == pytest.approx(best, abs=0.03)
    assert shifted.effective == pytest.approx(math.exp(-1), abs=0.15)
    assert 0.8 < shifted.slope < 1.2


def test_equal_laws_cannot_be_told_apart():
    rng = np.random.default_rng(0)
    ratio = estimate_ratio(rng.normal(size=(1000, 2, 2)), rng.normal(size=(1000, 2, 2)), max_steps=200, width=16)
    assert ratio.log_loss == pytest.approx(math.log(2), abs=0.02)
    assert ratio.effective > 0.9
    assert ratio.log(torch.zeros(3, 5, 2, 2)).shape == (3, 5)


def test_an_overconfident_classifier_is_held_back():
    """Trained to the end on few draws without any pause, its odds are too large; the held-out line corrects them."""
    from propersbi.sequential.ratio import _calibrate
    from propersbi.types import Batch

    rng = np.random.default_rng(0)
    label = torch.as_tensor(rng.integers(2, size=20_000)).float()
    truth = torch.as_tensor(rng.normal(size=20_000)).float() + label - 0.5
    slope, shift = _calibrate(4 * truth + 2, Batch(label[:, None], truth[:, None]))
    assert slope == pytest.approx(0.25, abs=0.02)
    assert shift == pytest.approx(-0.5, abs=0.05)


def test_extremes_can_be_tamed():
    wild = torch.tensor([-50.0, 0.0, 50.0])
    assert torch.equal(tamed(wild), wild)
    torch.testing.assert_close(tamed(wild, limit=5.0).exp(), torch.tensor([0.2, 1.0, 5.0]))
    torch.testing.assert_close(tamed(wild, smoothing=1e-3).exp(), torch.tensor([1 / 1001, 1.0, 1001.0]))
    with pytest.raises(InputError, match=r"at least 1, got 0\.0 and 0\.5"):
        tamed(wild, limit=0.5)


def test_a_ratio_is_resumed_to_the_same_bits(tmp_path):
    rng = np.random.default_rng(0)
    sets = rng.normal(1, 1, (300, 1)), rng.normal(0, 1, (300, 1))
    first, again = (estimate_ratio(*sets, max_steps=60, checkpoint=tmp_path / "r.ckpt", width=8) for _ in range(2))
    whole = estimate_ratio(*sets, max_steps=60, width=8)
    v = torch.randn(5, 1)
    assert torch.equal(first.log(v), again.log(v))
    assert torch.equal(first.log(v), whole.log(v))


def test_effective_share_counts_equal_weights():
    assert effective_share(np.full(7, 3.0)) == pytest.approx(1)
    assert effective_share(np.eye(10)[0]) == pytest.approx(0.1)


def test_two_sets_must_fit():
    with pytest.raises(InputError, match=r"got \(30, 2\) and \(30, 1\)"):
        estimate_ratio(np.zeros((30, 2)), np.zeros((30, 1)))
