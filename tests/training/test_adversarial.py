"""Adversarial training and flows: the baselines."""

import warnings
from functools import partial

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.stats import norm

import propersbi as ps
from propersbi.networks import Flow, MLPCritic, MLPGenerator
from propersbi.samplers.bounds import Bounds
from propersbi.samplers.refined import Refined
from propersbi.samplers.standardized import Standardize
from propersbi.storage.config import decode, encode
from propersbi.training import Adversarial, Evenness, MaximumLikelihood, StopReason
from propersbi.training.batches import Batches, split
from propersbi.training.config import TrainConfig
from propersbi.training.divergences import KL, Hellinger, JensenShannon, Pearson, ReverseKL, TotalVariation, Wasserstein
from propersbi.training.loop import train
from propersbi.types import Batch, InputError
from tests.laws.cases import DIVERGENCES, critic, linear_pairs


def by_name(cases):
    return pytest.mark.parametrize("divergence", cases.values(), ids=cases.keys())


# -- the bounds

P, Q = norm(0, 1), norm(0.6, 1.25)
INTEGRANDS = {
    KL: lambda p, q: p * np.log(p / q),
    ReverseKL: lambda p, q: q * np.log(q / p),
    Pearson: lambda p, q: (p - q) ** 2 / q,
    Hellinger: lambda p, q: (np.sqrt(p) - np.sqrt(q)) ** 2,
    JensenShannon: lambda p, q: p * np.log(2 * p / (p + q)) + q * np.log(2 * q / (p + q)),
    TotalVariation: lambda p, q: abs(p - q) / 2,
}


def closed_form(kind):
    if kind is KL:
        return np.log(1.25) + (1 + 0.6**2) / (2 * 1.25**2) - 0.5
    if kind is ReverseKL:
        return -np.log(1.25) + (1.25**2 + 0.6**2) / 2 - 0.5
    return quad(lambda t: INTEGRANDS[kind](P.pdf(t), Q.pdf(t)), -8, 8, limit=200)[0]


@pytest.mark.parametrize("kind", INTEGRANDS, ids=lambda kind: kind.__name__)
def test_the_bound_of_a_trained_critic_approaches_the_divergence(kind):
    """theta given x is N(x, 1); the draws are N(x + 0.6, 1.25): the same divergence at every x."""
    torch.manual_seed(0)
    divergence, network = kind(), MLPCritic((1,), (1,), width=32, depth=2)
    optimizer = torch.optim.Adam(network.parameters(), lr=5e-3)

    def losses(n):
        x = torch.randn(n, 1)
        output = network(torch.stack([x + torch.randn(n, 1), x + 0.6 + 1.25 * torch.randn(n, 1)]), x)
        return divergence.critic_loss(output[0], output[1:])

    for step in range(500):
        optimizer.param_groups[0]["lr"] = 5e-3 * (1 - step / 500)
        optimizer.zero_grad()
        losses(1000).mean().backward()
        optimizer.step()
    with torch.no_grad():
        bound = -losses(300_000).mean().item()
    exact = closed_form(kind)
    assert 0.85 * exact < bound < 1.03 * exact


@by_name({name: case for name, case in DIVERGENCES.items() if name != "wasserstein"})
def test_the_generator_is_pushed_to_where_the_critic_sees_truth(divergence):
    fake = torch.tensor([[0.3]], requires_grad=True)
    assert torch.autograd.grad(divergence.generator_loss(fake).sum(), fake)[0] < 0
    torch.testing.assert_close(divergence.critic_loss(torch.zeros(1), torch.zeros(1, 1)).shape, torch.Size([1]))


@by_name(DIVERGENCES)
def test_losses_stay_finite_for_moderate_numbers(divergence):
    v = torch.linspace(-20, 20, 41)
    assert torch.isfinite(divergence.critic_loss(v, v[None])).all()
    assert torch.isfinite(divergence.generator_loss(v[None])).all()
    assert decode(encode(divergence)) == divergence


# -- training


def learnt(objective, steps=300):
    theta, x = linear_pairs(2000)
    rows, held_out = split(2000, 0.1)
    batches = Batches(theta.numpy(), x.numpy(), rows, 128, Standardize((2,)), Standardize((2,)))
    config = TrainConfig(max_steps=steps, validate_every=50, learning_rate=2e-3, betas=(0.5, 0.99), warmup=10)
    history = train(objective, batches, batches.read(held_out), config, progress=False)
    return history, batches.read(held_out)


@by_name(DIVERGENCES)
def test_every_divergence_lowers_the_held_out_energy_score(divergence):
    torch.manual_seed(0)
    objective = Adversarial(MLPGenerator((2,), (2,), width=32, depth=1), divergence, critic=critic(), critic_steps=2)
    before = objective.validate(Batch(*linear_pairs(500, seed=5))).mean()
    history, held_out = learnt(objective)
    after = objective.validate(held_out).mean()
    assert after < before - 0.1
    assert history.stopped == "max_steps"


def test_spectral_norms_bound_the_slope():
    network = critic(spectral=True)
    theta = torch.randn(200, 2, requires_grad=True)
    for _ in range(30):
        network(theta, torch.randn(200, 2))  # power iterations
    slope = torch.autograd.grad(network(theta, torch.randn(200, 2)).sum(), theta)[0].norm(dim=1)
    assert slope.max() < 1.05


def test_the_penalty_keeps_the_critics_slope_near_one():
    torch.manual_seed(0)
    objective = Adversarial(MLPGenerator((2,), (2,), width=16, depth=1), Wasserstein(), critic=critic(), critic_steps=5)
    _, held_out = learnt(objective, steps=100)
    theta = held_out.theta.clone().requires_grad_()
    slope = torch.autograd.grad(objective.critic(theta, held_out.x).sum(), theta)[0].norm(dim=1)
    assert 0.3 < slope.mean() < 1.3


def test_an_unrolled_critic_is_looked_at_and_taken_back():
    batch = Batch(*linear_pairs(50))
    plain, foresighted = (
        Adversarial(MLPGenerator((2,), (2,), width=16), critic=critic(), unrolled=k, unroll_rate=0.1) for k in (0, 5)
    )
    foresighted.critic.load_state_dict(plain.critic.state_dict())
    foresighted.sampler.load_state_dict(plain.sampler.state_dict())
    before = [weight.clone() for weight in foresighted.critic.parameters()]
    losses = []
    for objective in (plain, foresighted):
        torch.manual_seed(0)
        losses.append(objective.sampler_loss(batch).item())
    assert losses[0] != losses[1]
    assert all(torch.equal(a, b) for a, b in zip(before, foresighted.critic.parameters(), strict=True))
    assert all(weight.grad is None for weight in foresighted.critic.parameters())


def test_weights_count_rows():
    theta, x = linear_pairs(40)
    objective = Adversarial(MLPGenerator((2,), (2,), width=16), critic=critic())
    for loss in (objective.critic_loss, objective.sampler_loss):
        values = []
        for weight in (None, torch.ones(40), 2 * torch.ones(40)):
            torch.manual_seed(0)
            values.append(loss(Batch(theta, x, weight)).item())
        assert values[0] == pytest.approx(values[1])
        assert 2 * values[0] == pytest.approx(values[2])


def test_a_collapsed_generator_is_reported_in_words():
    rng = np.random.default_rng(0)
    theta = rng.normal(size=(300, 2))
    x = theta + rng.normal(size=(300, 2))
    network = MLPGenerator((2,), (2,), width=16, depth=1)
    for modulation in network.modulations.values():
        torch.nn.init.zeros_(modulation.scale)
        torch.nn.init.zeros_(modulation.shift)
        modulation.requires_grad_(False)  # noise never enters
    with pytest.warns(UserWarning, match="the generator collapsed: its draws for one observation hardly differed"):
        posterior = ps.fit(theta, x, objective=Adversarial, network=network, progress=False)
    assert posterior.history.stopped is StopReason.COLLAPSED
    assert torch.isfinite(posterior.sample((5,), x=[0.0, 0.0])).all()


def even(**options):
    """Training with a critic that counts as even at once, stopped by the rule after ten validations."""
    torch.manual_seed(0)
    objective = Adversarial(MLPGenerator((2,), (2,), width=16), critic=critic())
    theta, x = linear_pairs(2000)
    rows, held_out = split(2000, 0.1)
    batches = Batches(theta.numpy(), x.numpy(), rows, 128, Standardize((2,)), Standardize((2,)))
    config = TrainConfig(max_steps=200, validate_every=10, stopping=(Evenness(1.0),), checkpoint_every=0.0)
    return train(objective, options.get("cut", lambda b: b)(batches), batches.read(held_out), config, progress=False,
                 checkpoint=options.get("checkpoint"))  # fmt: skip


def test_training_stops_when_the_critic_is_even():
    history = even()
    assert history.steps == 100  # ten validations
    assert history.stopped is StopReason.EVEN
    assert len(history.measures["evenness"]) == 10


def test_training_that_was_cut_off_stops_where_the_uninterrupted_one_does(tmp_path):
    class Cut:
        def __init__(self, batches):
            self.batches = batches

        def __getitem__(self, i):
            if i >= 130:  # two batches a step
                raise RuntimeError("the power fails")
            return self.batches[i]

    with pytest.raises(RuntimeError, match="the power fails"):
        even(cut=Cut, checkpoint=tmp_path / "c.ckpt")
    resumed = even(checkpoint=tmp_path / "c.ckpt")
    assert (resumed.steps, resumed.stopped) == (100, StopReason.EVEN)
    assert resumed.measures == even().measures


def test_adversarial_training_refuses_chains_and_bad_numbers():
    with pytest.raises(InputError, match="one pass: ask for refinement_steps=1"):
        Adversarial(Refined(MLPGenerator((2,), (2,), width=16, chain=True)))
    with pytest.raises(InputError, match="'critic_steps' must be at least 1, got 0"):
        Adversarial(MLPGenerator((2,), (2,), width=16), critic_steps=0)
    with pytest.raises(InputError, match="'penalty' must not be negative, got -1"):
        Wasserstein(penalty=-1.0)
    with pytest.raises(
        InputError, match=r"needs a sampler with a density, such as networks.Flow; MLPGenerator has none"
    ):
        MaximumLikelihood(MLPGenerator((2,), (2,), width=16))
    theta, x = (values.numpy() for values in linear_pairs(50))
    with pytest.raises(InputError, match="Give 'draws' to the objective itself"):
        ps.fit(theta, x, objective=Adversarial, draws=3)
    with pytest.raises(InputError, match="must make an objective from a sampler, got MLPGenerator"):
        ps.fit(theta, x, objective=lambda sampler: sampler, refinement_steps=1)


# -- in ps.fit


@pytest.mark.parametrize(
    "objective",
    [
        Adversarial,
        partial(Adversarial, divergence=Wasserstein(penalty=0.0), critic=critic(spectral=True)),
        MaximumLikelihood,
    ],
    ids=["gan", "wasserstein", "flow"],
)
def test_fit_takes_other_objectives_and_resumes(objective, tmp_path):
    theta, x = (values.numpy() for values in linear_pairs(300))
    fit = partial(ps.fit, theta, x, objective=objective, seed=1, progress=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        posterior = fit(max_steps=20, folder=tmp_path)
        again = fit(max_steps=20, folder=tmp_path)
    assert posterior.sample((5,), x=x[0], seed=0).shape == (5, 2)
    assert torch.equal(again.sample((5,), x=x[0], seed=0), posterior.sample((5,), x=x[0], seed=0))
    loaded = ps.Posterior.load(tmp_path / "posterior")
    assert torch.equal(loaded.sample((5,), x=x[0], seed=0), posterior.sample((5,), x=x[0], seed=0))
    assert loaded.info["objective"] in ("Adversarial", "MaximumLikelihood")


# -- flows

BOUNDS = {"line": (-np.inf, np.inf), "interval": (-1.0, 2.0), "above": (-1.0, np.inf), "below": (-np.inf, 1.0)}


@pytest.mark.parametrize("bounds", BOUNDS.values(), ids=BOUNDS)
def test_the_density_of_a_flow_integrates_to_one_and_is_that_of_its_draws(bounds):
    torch.manual_seed(0)
    flow = Flow((1,), (1,), transforms=2, width=16).eval()
    lower, upper = torch.tensor(bounds)
    flow.prepare(torch.zeros(1, 1), torch.zeros(1, 1), Bounds(lower[None], upper[None]))
    grid = torch.linspace(-12, 12, 20_001)[:, None]
    x = torch.zeros(1, 1)
    with torch.no_grad():
        density = flow.log_prob(grid[:, None], x)[:, 0].exp()
        draws = flow.sample(20_000, x)[:, 0, 0]
    assert torch.trapezoid(density, grid[:, 0]).item() == pytest.approx(1, abs=0.01)
    assert (draws >= lower).all()
    assert (draws <= upper).all()
    line = torch.cumulative_trapezoid(density, grid[:, 0])
    share = (draws[:, None] < torch.quantile(draws, torch.tensor([0.1, 0.5, 0.9]))).float().mean(0)
    at = torch.searchsorted(grid[:, 0].contiguous(), torch.quantile(draws, torch.tensor([0.1, 0.5, 0.9])))
    torch.testing.assert_close(line[at - 1], share, atol=0.015, rtol=0)


def test_a_posterior_has_a_density_if_its_sampler_has():
    theta, x = (values.numpy() for values in linear_pairs(400))
    network = partial(Flow, transforms=2, width=32)
    posterior = ps.fit(theta, x, objective=MaximumLikelihood, network=network, max_steps=200, progress=False)
    grid = np.linspace(-5, 5, 201)
    points = np.stack(np.meshgrid(grid, grid, indexing="ij"), -1).reshape(-1, 2)
    density = posterior.log_prob(points, x=[0.5, 0.5]).exp().sum() * (grid[1] - grid[0]) ** 2
    assert density.item() == pytest.approx(1, abs=0.02)
    mean = posterior.sample((2000,), x=[0.5, 0.5], seed=0).mean(0)
    assert (mean - 0.4).abs().max() < 0.25  # the exact mean is 0.4
    with pytest.raises(InputError, match=r"'theta' must have shape \(k, 2,\), got \(3,\)"):
        posterior.log_prob(np.zeros(3), x=[0.5, 0.5])
    with pytest.raises(InputError, match="can only be sampled"):
        ps.fit(theta, x, max_steps=2, progress=False).log_prob(points, x=[0.5, 0.5])


def test_the_density_of_two_moons_integrates_to_one_inside_the_prior():
    task = ps.tasks.get("two_moons")
    sims = ps.simulate(task.prior, task.simulate, 1000, seed=0, progress=False)
    network = partial(Flow, transforms=2, width=32)
    options = {"objective": MaximumLikelihood, "network": network, "max_steps": 100, "progress": False}
    posterior = ps.fit(sims.theta, sims.x, prior=task.prior, **options)
    edges = np.linspace(-1, 1, 401)
    grid = (edges[1:] + edges[:-1]) / 2
    points = np.stack(np.meshgrid(grid, grid, indexing="ij"), -1).reshape(-1, 2)
    density = posterior.log_prob(points, x=task.observation(1)).exp()
    assert density.sum().item() * (grid[1] - grid[0]) ** 2 == pytest.approx(1, abs=0.02)
    assert posterior.log_prob(np.array([[1.5, 0.0]]), x=task.observation(1)).item() == -np.inf


def test_an_absurdly_large_flow_is_refused():
    with pytest.raises(InputError, match="is too large"):
        Flow((1000,), (1000,), width=100_000)
