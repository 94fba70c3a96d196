from functools import partial

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cdist
from torch import distributions as dist
from torch import nn

import propersbi as ps
from propersbi.recipes import Defaults
from propersbi.networks import MLPGenerator, PaperMLP
from propersbi.types import InputError


def pairs(n=600, seed=0):
    rng = np.random.default_rng(seed)
    theta = rng.normal(size=(n, 2))
    return theta, theta + rng.normal(size=(n, 2))


small = partial(MLPGenerator, width=32, depth=1)
quick = partial(ps.fit, network=small, max_steps=30, validate_every=15, m=4, progress=False)


def test_a_linear_gaussian_posterior_is_found():
    """theta ~ N(0, 1), x = theta + N(0, 1): the posterior is N(x / 2, 1 / 2)."""
    theta, x = pairs(4000)
    posterior = ps.fit(theta, x, network=small, max_steps=600, m=10, progress=False)
    for x_o in ([1.0, -0.5], [-1.5, 0.0]):
        draws = posterior.sample((4000,), x=x_o, seed=0).double()
        torch.testing.assert_close(draws.mean(0), torch.tensor(x_o).double() / 2, atol=0.15, rtol=0)
        torch.testing.assert_close(draws.std(0), torch.full((2,), 0.5**0.5).double(), atol=0.12, rtol=0)


def test_training_leaves_the_gaussian_start_behind():
    """A mixture of a wide and a narrow Gaussian looks Gaussian at first: a hurried start stays there."""
    task = ps.tasks.get("gaussian_mixture")
    sims = ps.simulate(task.prior, task.simulate, 1000, seed=0, progress=False)
    start = Defaults((2,), (2,)).training(9000, steps=8, max_steps=5000)  # and the first few hundred of these steps:
    posterior = ps.fit(sims.theta, sims.x, prior=task.prior, max_steps=300, decay=False, progress=False, **start)
    spread = posterior.sample((2000,), x=np.zeros(2), seed=0).abs().log()
    normal = torch.randn(2000, 2, generator=torch.Generator().manual_seed(0)).abs().log()
    assert spread.std() > 1.1 * normal.std()  # 1.44 times as much in the end


def test_weights_decay_where_data_have_many_numbers(tmp_path):
    """Unless they are embedded or asked not to."""
    assert Defaults((2,), (100,)).weight_decay(9000) == 1
    assert Defaults((2,), (100,)).weight_decay(90_000) == 0.1  # as much per pass
    others = [Defaults((2,), (20,)), Defaults((2,), (100,), embedded=True), Defaults((2,), (60, 60))]
    assert [other.weight_decay(9000) for other in others] == [0, 0, 0]
    theta = np.random.default_rng(0).normal(size=(200, 2))
    x = np.random.default_rng(1).normal(size=(200, 60))
    options = {"max_steps": 10, "validate_every": 5, "progress": False}
    ps.fit(theta, x, folder=tmp_path, **options)
    with pytest.raises(ps.InputError, match=r"weight_decay = 1\.0, not 0"):
        ps.fit(theta, x, folder=tmp_path, weight_decay=0.0, **options)


@pytest.mark.parametrize("kind", ["float32", "float64", "torch", "torch grad", "list", "int"])
def test_any_numbers_go_in(kind):
    theta, x = pairs(100)
    convert = {
        "float32": lambda a: a.astype("float32"),
        "float64": lambda a: a,
        "torch": torch.from_numpy,
        "torch grad": lambda a: torch.from_numpy(a).requires_grad_(),
        "list": lambda a: a.tolist(),
        "int": lambda a: np.round(10 * a).astype(int),
    }[kind]
    posterior = quick(convert(theta), convert(x))
    assert posterior.sample((5,), x=x[0]).shape == (5, 2)


def test_any_event_shape_goes_in():
    rng = np.random.default_rng(0)
    theta = rng.normal(size=(100, 2, 3))
    posterior = quick(theta, theta.reshape(100, 1, 6, 1) + 1)
    assert posterior.sample((4,), x=np.zeros((1, 6, 1))).shape == (4, 2, 3)
    scalar = quick(theta[:, 0, 0], theta[:, 0, 0])
    assert scalar.sample((4,), x=0.1).shape == (4, 1)


def test_seed_repeats_the_posterior():
    theta, x = pairs(200)
    draws = [quick(theta, x, seed=s).sample((50,), x=[0.0, 0.0], seed=1) for s in (3, 3, 4)]
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])


def test_draws_are_inside_the_torch_prior():
    prior = dist.Independent(dist.Uniform(torch.tensor([0.0, -0.1]), torch.tensor([0.3, 0.1])), 1)
    sims = ps.simulate(prior, lambda theta: theta + 0.3 * torch.randn_like(theta), 300, seed=1, progress=False)
    posterior = quick(sims.theta, sims.x, prior=prior)
    draws = posterior.sample((5000,), x=[2.0, -2.0])
    assert torch.isfinite(prior.log_prob(draws)).all()
    assert posterior.prior is prior


def test_parameters_outside_the_support_are_a_mistake():
    theta, x = pairs(100)
    with pytest.raises(InputError, match="lie outside the support"):
        quick(theta, x, support=(0.0, 1.0))
    with pytest.raises(InputError, match="do not fit parameters of shape"):
        quick(theta, x, support=((0.0, 0.0, 0.0), (9.0, 9.0, 8.0)))


def test_bad_rows_are_left_out_with_a_warning():
    theta, x = pairs(100)
    x[3, 1] = np.nan
    theta[7, 0] = np.inf
    with pytest.warns(UserWarning, match="2 of 100 simulations hold NaN or infinite numbers"):
        posterior = quick(theta, x)
    assert torch.isfinite(posterior.sample((100,), x=[0.0, 0.0])).all()
    with pytest.raises(InputError, match="All 100 simulations"):
        quick(theta * np.nan, x)


def test_heavy_tailed_data_do_not_break_training():
    rng = np.random.default_rng(0)
    theta = rng.normal(size=(3000, 1))
    x = theta + 0.1 * rng.standard_cauchy(size=(3000, 1))
    x[0], x[1] = 1e30, -1e30
    posterior = ps.fit(theta, x, network=small, max_steps=300, m=5, progress=False)
    draws = posterior.sample((2000,), x=[1.0], seed=0)
    assert draws.mean().item() == pytest.approx(1.0, abs=0.25)
    assert torch.isfinite(posterior.sample((100,), x=[-1e35])).all()


def test_networks_can_be_chosen():
    theta, x = pairs(100)
    assert quick(theta, x, network=partial(MLPGenerator, width=32)).sampler.sampler.generator.width == 32
    assert isinstance(quick(theta, x, network=PaperMLP, steps=1).sampler, PaperMLP)
    assert isinstance(quick(theta, x, network=PaperMLP((2,), (2,)), steps=1).sampler, PaperMLP)
    with pytest.raises(InputError, match=r"for theta \(3,\) and x \(2,\), the simulations have \(2,\)"):
        quick(theta, x, network=PaperMLP((3,), (2,)), steps=1)


def test_an_own_embedding_is_trained_along():
    theta, x = pairs(200)
    embedding = nn.Sequential(nn.Linear(2, 7), nn.BatchNorm1d(7), nn.ReLU())
    before = embedding[0].weight.detach().clone()
    posterior = quick(theta, x, embedding=embedding)
    assert not torch.equal(embedding[0].weight, before)
    assert posterior.sample((4,), x=[0.0, 0.0]).shape == (4, 2)
    with pytest.raises(InputError, match=r"does not take data of shape \(2,\)"):
        quick(theta, x, embedding=nn.Linear(3, 7))


def test_a_folder_is_filled_and_resumed(tmp_path):
    theta, x = pairs(200)
    posterior = quick(theta, x, folder=tmp_path)
    assert {p.name for p in tmp_path.iterdir()} == {"checkpoint.ckpt", "history.json", "posterior"}
    again = quick(theta, x, folder=tmp_path)
    z = {"x": [0.0, 0.0], "seed": 1}
    assert torch.equal(again.sample((5,), **z), posterior.sample((5,), **z))
    assert torch.equal(ps.Posterior.load(tmp_path / "posterior").sample((5,), **z), posterior.sample((5,), **z))


def test_simulations_on_disk_give_the_same_posterior(tmp_path):
    task = ps.tasks.get("two_moons")
    draws = []
    for path in (None, tmp_path / "sims"):
        sims = ps.simulate(task.prior, task.simulate, 500, seed=0, path=path, progress=False)
        posterior = quick(sims.theta, sims.x, prior=task.prior)
        draws.append(posterior.sample((20,), x=task.observation(1), seed=0))
    assert torch.equal(*draws)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"m": 1}, "m > 1 draws, got m = 1"),
        ({"learning_rat": 1.0}, "'fit' has no option 'learning_rat'"),
        ({"parameter_names": ["a"]}, "1 parameter names for 2 parameters"),
        ({"validation_fraction": 1.5}, r"must lie in \(0, 1\), got 1.5"),
        ({"max_steps": -1}, "'max_steps' must be positive, got -1"),
    ],
)
def test_bad_options_get_a_sentence(options, message):
    with pytest.raises(InputError, match=message):
        quick(*pairs(50), **options)


def test_a_rule_that_breaks_at_once_is_reported():
    with pytest.raises(RuntimeError, match="broke down within its first 15 steps"):
        quick(*pairs(100), rule=lambda samples, theta: samples.sum((0, 2)) * float("nan"))


def test_an_own_rule_is_a_function():
    posterior = quick(*pairs(100), rule=lambda samples, theta: (samples - theta).abs().mean((0, 2)))
    assert posterior.info["rule"]["class"] == "custom"


TRAINABLE = {
    "energy": ps.EnergyScore(),
    "energy 0.5": ps.EnergyScore(beta=0.5),
    "all pairs": ps.EnergyScore(fair=False),
    "gaussian": ps.KernelScore(),
    "laplace": ps.KernelScore(ps.kernels.Laplace()),
    "rational quadratic": ps.KernelScore(ps.kernels.RationalQuadratic()),
    "inverse multiquadric": ps.KernelScore(ps.kernels.InverseMultiquadric()),
    "matern": ps.KernelScore(ps.kernels.Matern()),
    "mixture": ps.KernelScore(ps.kernels.Mixture()),
    "sliced": ps.SlicedEnergyScore(),
    "energy and variogram": ps.EnergyScore() + 0.5 * ps.VariogramScore(),
    "patched": ps.Patched(ps.EnergyScore(), size=1, step=1),
    "patched kernel": ps.Patched(ps.KernelScore(), size=1, step=1),
    "scaled": ps.Scaled(ps.EnergyScore(), scales=(1.0, 2.0)),
    "derived": ps.Derived(ps.EnergyScore(), lambda theta: torch.cat([theta, theta.sum(-1, keepdim=True)], -1)),
    "own": lambda samples, theta: ps.EnergyScore()(samples, theta),
}


@pytest.mark.parametrize("rule", TRAINABLE.values(), ids=TRAINABLE)
def test_two_moons_can_be_learnt_by_every_rule(rule):
    """Short training: the draws must lie along both crescents, where a broken gradient does not bring them."""
    task = ps.tasks.get("two_moons")
    sims = ps.simulate(task.prior, task.simulate, 2000, seed=0, progress=False)
    network = partial(MLPGenerator, width=64, depth=1)
    posterior = ps.fit(
        sims.theta, sims.x, prior=task.prior, rule=rule, m=10, max_steps=250, network=network, progress=False
    )
    x = task.observation(1)
    draws = posterior.sample((1000,), x=x, seed=0).numpy()
    truth = task.reference_posterior(x, 1000, np.random.default_rng(0))
    apart = cdist(draws, truth)
    assert apart.min(1).mean() < 0.25  # near the crescents; 0.66 before training
    assert apart.min(0).mean() < 0.02  # all along them
    upper = (draws.sum(1) > 0).mean()  # one crescent lies above the diagonal, one below
    assert 0.25 < upper < 0.75
