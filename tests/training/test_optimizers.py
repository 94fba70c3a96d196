from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

import propersbi as ps
from propersbi.training.config import TrainConfig
from propersbi.training.optimizers import UPDATE_AXES, build_optimizer
from tests.laws.cases import linear_pairs

OPTIMIZERS = ("adamw", "soap")


def regression(mixing, steps, *, optimizer="soap", dim=8, **options):
    """Losses of a linear regression on inputs that were mixed, its layer and its optimiser."""
    torch.manual_seed(0)
    x, truth = torch.randn(400, dim), torch.randn(dim, 4)
    x = x @ mixing
    y = x @ truth
    layer = nn.Linear(dim, 4)
    nn.init.zeros_(layer.weight)
    config = TrainConfig(optimizer=optimizer, learning_rate=0.02, **options)
    descent, losses = build_optimizer(layer, config), []
    for _ in range(steps):
        descent.zero_grad()
        loss = (layer(x) - y).square().mean()
        loss.backward()
        descent.step()
        losses.append(loss.item())
    return np.array(losses), layer, descent


def correlated(dim=8):
    torch.manual_seed(1)
    return torch.linalg.qr(torch.randn(dim, dim))[0] @ torch.diag(torch.logspace(0, -1.5, dim))


def test_fewer_steps_reach_the_same_score():
    task = ps.tasks.get("two_moons")
    sims = ps.simulate(task.prior, task.simulate, 3000, progress=False)
    options = {"prior": task.prior, "max_steps": 300, "warmup": 100, "settle": None, "progress": False}
    scores = {name: ps.fit(sims.theta, sims.x, optimizer=name, **options).info["kept_score"] for name in OPTIMIZERS}
    assert scores["soap"] < scores["adamw"] - 0.002


def test_until_its_axes_are_known_it_is_adamw():
    known, other = (regression(correlated(), UPDATE_AXES, optimizer=name)[0] for name in OPTIMIZERS)
    assert np.allclose(known, other, rtol=1e-5)


def test_without_rotated_layers_it_is_the_adamw_of_torch():
    _, layer, _ = regression(correlated(), 50, optimizer="adamw", weight_decay=0.1)
    torch.manual_seed(0)
    x, truth = torch.randn(400, 8), torch.randn(8, 4)
    x = x @ correlated()
    y = x @ truth
    other = nn.Linear(8, 4)
    other.load_state_dict({"weight": torch.zeros(4, 8), "bias": _first_bias()})
    descent = torch.optim.AdamW(other.parameters(), lr=0.02, betas=(0.9, 0.99), weight_decay=0.1, fused=True)
    for _ in range(50):
        descent.zero_grad()
        (other(x) - y).square().mean().backward()
        descent.step()
    assert torch.equal(layer.weight, other.weight)


def _first_bias():
    """That of the layer in :func:`regression`."""
    torch.manual_seed(0)
    torch.randn(400, 8), torch.randn(8, 4)
    return nn.Linear(8, 4).bias.detach()


def test_axes_stay_orthogonal_and_the_longest_comes_first():
    _, _, descent = regression(correlated(), 205)
    (axes,), (covariance,) = descent.axes, descent.covariances
    assert torch.allclose(axes.mT @ axes, torch.eye(8), atol=1e-5)
    variances = (axes.mT @ covariance @ axes).diagonal(dim1=-2, dim2=-1)[0]
    assert variances[0] == variances.max()


def test_weights_decay_where_there_is_no_gradient():
    layer = nn.Linear(4, 4)
    before = layer.weight.detach().clone()
    descent = build_optimizer(layer, TrainConfig(optimizer="soap", learning_rate=0.5, weight_decay=0.2))
    for weight in layer.parameters():
        weight.grad = torch.zeros_like(weight)
    descent.step()
    assert torch.allclose(layer.weight, 0.9 * before)


def test_weights_without_a_gradient_and_what_is_no_matrix_are_taken():
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.unused, self.cube = nn.Parameter(torch.ones(3, 3)), nn.Parameter(torch.ones(2, 2, 2))
            self.fixed = nn.Parameter(torch.ones(3, 3), requires_grad=False)

    odd = Odd()
    descent = build_optimizer(odd, TrainConfig(optimizer="soap"))
    for _ in range(2 * UPDATE_AXES + 1):
        descent.zero_grad()
        odd.cube.square().sum().backward()
        descent.step()
    assert (odd.cube < 1).all()
    assert all(tensor.isfinite().all() for tensor in descent.memory()[0])
    assert torch.equal(odd.unused, torch.ones(3, 3))
    assert torch.equal(odd.fixed, torch.ones(3, 3))


def test_a_gradient_that_is_not_finite_raises_nothing():
    layer = nn.Linear(4, 4)
    descent = build_optimizer(layer, TrainConfig(optimizer="soap"))
    for _ in range(2 * UPDATE_AXES + 1):  # the loop notices it at the next validation
        for weight in layer.parameters():
            weight.grad = torch.full_like(weight, torch.nan)
        descent.step()
    assert layer.weight.isnan().all()


@pytest.mark.parametrize("cut", [20, 45])
def test_a_resumed_training_is_the_uninterrupted_one(tmp_path, cut):
    theta, x = linear_pairs(200)
    options = {"optimizer": "soap", "validate_every": 5, "decay": False, "seed": 3, "progress": False}
    options |= {"network": partial(ps.networks.MLPGenerator, width=16), "refinement_steps": 2, "settle": None}
    whole = ps.fit(theta, x, max_steps=60, folder=tmp_path / "whole", **options)
    ps.fit(theta, x, max_steps=cut, folder=tmp_path / "cut", warmup=whole.recipe.training.warmup, **options)
    resumed = ps.fit(theta, x, max_steps=60, folder=tmp_path / "cut", **options)
    assert resumed.history.validation["score"] == whole.history.validation["score"]
    pairs = zip(resumed.sampler.state_dict().values(), whole.sampler.state_dict().values(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


def test_an_unknown_optimiser_gets_a_sentence():
    with pytest.raises(ps.InputError, match="'adamw' or 'soap', got 'sgd'"):
        TrainConfig(optimizer="sgd")
