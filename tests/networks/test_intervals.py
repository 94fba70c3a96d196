"""Numbers seen in intervals between their quantiles."""

import pytest
import torch
from torch import nn

from propersbi.networks import MLPGenerator
from propersbi.networks.layers import Intervals
from propersbi.types import InputError


def test_intervals_hold_an_equal_share_each_and_saturate_outside():
    x = torch.rand(4001, 2) ** torch.tensor([1.0, 3.0])
    layer = Intervals(2, 4)
    layer.prepare(x)
    seen = layer(x)[:, 2:].reshape(-1, 2, 4)
    assert torch.allclose(seen.mean(0), torch.zeros(2, 4), atol=0.1)
    share = seen + 1 - (torch.arange(4) + 0.5) / 4  # of each interval that lies below the number
    inside = ((share > 1e-6) & (share < 1 - 1e-6)).float().mean(0)
    assert torch.allclose(inside, torch.full((2, 4), 0.25), atol=0.01)
    beyond = layer(torch.tensor([[-9.0, 99.0]]))[0]
    assert torch.equal(beyond[:2], torch.tensor([-9.0, 99.0]))
    assert torch.allclose(beyond[2:6], (torch.arange(4) + 0.5) / 4 - 1)
    assert torch.allclose(beyond[6:], (torch.arange(4) + 0.5) / 4)


def test_intervals_of_equal_numbers_are_finite():
    layer = Intervals(1, 8)
    layer.prepare(torch.tensor([[0.0]] * 90 + [[5.0]] * 10))
    assert layer(torch.tensor([[0.0], [2.5], [5.0]])).isfinite().all()


@pytest.mark.parametrize("options", [{"intervals": -1}, {"intervals": 4, "embedding": nn.Identity()}])
def test_intervals_that_cannot_be(options):
    with pytest.raises(InputError, match="'intervals' must be a whole number"):
        MLPGenerator((2,), (3,), **options)
