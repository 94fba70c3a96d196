from functools import partial

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cdist
from torch import distributions as dist
from torch import nn

import propersbi as ps
from propersbi.networks import MLPGenerator
from propersbi.samplers import Generator, Mixture
from propersbi.types import InputError
from propersbi.typicality import UnlikeSimulations


def pairs(n=600, seed=0):
    rng = np.random.default_rng(seed)
    theta = rng.normal(size=(n, 2))
    return theta, theta + rng.normal(size=(n, 2))


small = partial(MLPGenerator, width=32, depth=1)
quick = partial(ps.fit, network=small, max_steps=30, validate_every=15, draws=4, progress=False)


def test_a_linear_gaussian_posterior_is_found():
    """theta ~ N(0, 1), x = theta + N(0, 1): the posterior is N(x / 2, 1 / 2)."""
    theta, x = pairs(4000)
    posterior = ps.fit(theta, x, network=small, max_steps=600, draws=10, progress=False)
    for x_o in ([1.0, -0.5], [-1.5, 0.0]):
        draws = posterior.sample((4000,), x=x_o, seed=0).double()
        torch.testing.assert_close(draws.mean(0), torch.tensor(x_o).double() / 2, atol=0.15, rtol=0)
        torch.testing.assert_close(draws.std(0), torch.full((2,), 0.5**0.5).double(), atol=0.12, rtol=0)


def test_training_leaves_the_gaussian_start_behind():
    """A mixture of a wide and a narrow Gaussian looks Gaussian at first: a hurried start stays there."""
    task = ps.tasks.get("gaussian_mixture")
    sims = ps.simulate(task.prior, task.simulate, 1000, seed=0, progress=False)
    # The warm-up of a full training, and the first few hundred of its steps.
    posterior = ps.fit(sims.theta, sims.x, prior=task.prior, max_steps=600, warmup=900, decay=False, progress=False)
    spread = posterior.sample((2000,), x=np.zeros(2), seed=0).abs().log()
    normal = torch.randn(2000, 2, generator=torch.Generator().manual_seed(0)).abs().log()
    assert spread.std() > 1.1 * normal.std()  # 1.44 times as much in the end


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
    with pytest.warns(UnlikeSimulations):
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
    posterior = ps.fit(theta, x, network=small, max_steps=300, draws=5, progress=False)
    draws = posterior.sample((2000,), x=[1.0], seed=0)
    assert draws.mean().item() == pytest.approx(1.0, abs=0.25)
    with pytest.warns(UnlikeSimulations):
        assert torch.isfinite(posterior.sample((100,), x=[-1e35])).all()


class Plain(Generator):
    """A generator of a user's own."""

    def __init__(self, theta_shape, x_shape):
        super().__init__()
        self.theta_shape, self.x_shape, self.latent = tuple(theta_shape), tuple(x_shape), 2
        self.layer = nn.Linear(x_shape[0], theta_shape[0])

    def embed(self, x):
        return self.layer(x)

    def forward(self, context, z):
        return context + z


def test_networks_can_be_chosen():
    theta, x = pairs(100)
    posterior = quick(theta, x, network=partial(MLPGenerator, width=32))
    assert posterior.sampler.sampler.sampler.generator.width == 32
    for network in (Plain, Plain((2,), (2,))):  # draws in one pass, so no refinement is asked of it
        posterior = quick(theta, x, network=network)
        assert isinstance(posterior.sampler.sampler, Plain)
        assert posterior.recipe.refinement_steps == 1
    with pytest.raises(InputError, match=r"for theta \(3,\) and x \(2,\), the simulations have \(2,\)"):
        quick(theta, x, network=Plain((3,), (2,)))
    with pytest.raises(InputError, match="'network' must make a torch module, got str"):
        quick(theta, x, network=lambda *shapes: "none")


@pytest.mark.parametrize("given", ["module", "class"])
def test_a_module_with_the_methods_of_a_sampler_is_enough(given, tmp_path):
    class Own(nn.Module):
        def __init__(self, *shapes):
            super().__init__()
            self.layer = nn.Linear(2, 4)

        def sample(self, m, x):
            mean, scale = self.layer(x).chunk(2, -1)
            return mean + scale * torch.randn(m, *mean.shape)

        def training_pair(self, m, theta, x):
            return self.sample(m, x), theta

    theta, x = pairs(200)
    posterior = quick(theta, x, network=Own() if given == "module" else Own, max_steps=100, learning_rate=0.05)
    draws = posterior.sample((500,), x=[1.0, -1.0], seed=0)
    assert draws[:, 0].mean() > 0.1 > -0.1 > draws[:, 1].mean()
    posterior.save(tmp_path / "p")
    twin = ps.Posterior.load(tmp_path / "p", network=Own())
    assert torch.equal(twin.sample((500,), x=[1.0, -1.0], seed=0), draws)


def test_a_flow_is_the_network_of_the_log_score_however_it_is_asked_for():
    theta, x = pairs(100)
    for objective in (ps.MaximumLikelihood, partial(ps.MaximumLikelihood)):
        posterior = ps.fit(theta, x, objective=objective, max_steps=2, progress=False)
        assert posterior.recipe.network.name == "Flow"
        assert torch.isfinite(posterior.log_prob(theta[:3], x=x[0])).all()


def test_an_own_embedding_is_trained_along_but_not_in_place():
    theta, x = pairs(200)
    embedding = nn.Sequential(nn.Linear(2, 7), nn.BatchNorm1d(7), nn.ReLU())
    before = embedding[0].weight.detach().clone()
    posterior = quick(theta, x, embedding=embedding)
    trained = posterior.sampler.sampler.sampler.generator.embedding
    assert not torch.equal(trained[0].weight, before)
    assert torch.equal(embedding[0].weight, before)
    assert posterior.sample((4,), x=[0.0, 0.0]).shape == (4, 2)
    with pytest.raises(InputError, match=r"does not take data of shape \(2,\)"):
        quick(theta, x, embedding=nn.Linear(3, 7))


def test_an_ensemble_is_trained_member_by_member_and_sampled_in_equal_shares(tmp_path):
    theta, x = pairs(200)
    posterior = quick(theta, x, ensemble=3, folder=tmp_path)
    assert isinstance(posterior.sampler, Mixture)
    assert [member["seed"] for member in posterior.info["members"]] == [0, 1, 2]
    for seed, member in enumerate(posterior.sampler.samplers):
        alone = quick(theta, x, seed=seed)
        assert torch.equal(ps.Posterior(member).sample((5,), x=x[0], seed=0), alone.sample((5,), x=x[0], seed=0))
    draws = posterior.sample((20,), x=x[0], seed=1)
    again = quick(theta, x, ensemble=3, folder=tmp_path)
    assert torch.equal(again.sample((20,), x=x[0], seed=1), draws)
    assert torch.equal(ps.Posterior.load(tmp_path / "posterior").sample((20,), x=x[0], seed=1), draws)
    assert sorted(path.name for path in (tmp_path / "members").iterdir()) == ["1", "2", "3"]


def test_training_goes_on_from_a_posterior():
    theta, x = pairs(300)
    first = quick(theta, x, parameter_names=["a", "b"])
    weights = first.sampler.state_dict()["sampler.sampler.generator.out.weight"].clone()
    again = quick_start(theta, x, first, max_steps=1, learning_rate=1e-12)
    torch.testing.assert_close(again.sample((5,), x=x[0], seed=0), first.sample((5,), x=x[0], seed=0))
    further = quick_start(theta + 1, x, first, max_steps=30)
    assert further.recipe == first.recipe.change(max_steps=30)
    assert further.parameter_names == ("a", "b")
    assert torch.equal(first.sampler.state_dict()["sampler.sampler.generator.out.weight"], weights)
    assert torch.equal(further.sampler.theta_units.center, first.sampler.theta_units.center)
    with pytest.raises(InputError, match="'start' is for theta and x of shapes"):
        ps.fit(theta[:, :1], x, start=first)
    with pytest.raises(InputError, match="give either 'start' or 'network'"):
        ps.fit(theta, x, start=first, network=MLPGenerator((2,), (2,), chain=True))


def quick_start(theta, x, start, **options):
    return ps.fit(theta, x, start=start, progress=False, **options)


def test_a_checkpoint_is_not_continued_on_other_data_or_by_another_recipe(tmp_path):
    theta, x = pairs(200)
    quick(theta, x, folder=tmp_path)
    moved = x.copy()
    moved[7, 1] += 0.1
    for name, (other, options) in {
        "other simulations": (moved, {}),
        "draws = 4, not 5": (x, {"draws": 5}),
        "support = ": (x, {"support": (-9.0, 9.0)}),
        "noise = None, not": (x, {"noise": lambda x: x}),
        "tail = 5.0, not None": (x, {"tail": None}),
        "seed = 0, not 1": (x, {"seed": 1}),
    }.items():
        with pytest.raises(InputError, match=name):
            quick(theta, other, folder=tmp_path, **options)
    with pytest.raises(InputError, match="other simulations"):
        quick(theta, x, folder=tmp_path, weight=np.linspace(0.5, 1.5, 200))


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
        ({"draws": 1}, "m > 1 draws, got draws = 1"),
        ({"learning_rat": 1.0}, "There is no option 'learning_rat'; did you mean 'learning_rate'?"),
        ({"steps": 4}, "There is no option 'steps'; did you mean 'refinement_steps'?"),
        ({"batch_size": 0}, "'batch_size' must be a whole number of at least 1, got 0"),
        ({"max_steps": 0}, "'max_steps' must be a whole number of at least 1, got 0"),
        ({"parameter_names": ["a"]}, "1 parameter names for 2 parameters"),
        ({"validation_fraction": 1.5}, r"must lie in \(0, 1\), got 1.5"),
        ({"max_steps": -1}, "'max_steps' must be a whole number of at least 1, got -1"),
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
    "mixture": ps.KernelScore(ps.kernels.KernelMixture()),
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
        sims.theta, sims.x, prior=task.prior, rule=rule, draws=10, max_steps=250, network=network, progress=False
    )
    x = task.observation(1)
    draws = posterior.sample((1000,), x=x, seed=0).numpy()
    truth = task.reference_posterior(x, 1000, np.random.default_rng(0))
    apart = cdist(draws, truth)
    assert apart.min(1).mean() < 0.25  # near the crescents; 0.66 before training
    assert apart.min(0).mean() < 0.02  # all along them
    upper = (draws.sum(1) > 0).mean()  # one crescent lies above the diagonal, one below
    assert 0.25 < upper < 0.75
