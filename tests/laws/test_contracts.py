"""The laws: what every implementation of a protocol must keep."""

import math

import numpy as np
import pytest
import torch

from propersbi.storage.config import ALLOWED, decode, encode
from propersbi.training.batches import Batches, split
from propersbi.training.objectives import ScoreMinimization
from propersbi.scoring import EnergyScore
from propersbi.simulation.simulations import simulate
from propersbi.samplers.bounds import Standardize
from propersbi.training.loop import TrainConfig, train
from propersbi.types import InputError
from tests.laws.cases import BLIND, COMPOSED, EXECUTORS, GENERATORS, KERNELS, OBJECTIVES, RULES, linear_pairs


def every(cases):
    return pytest.mark.parametrize("case", cases.values(), ids=cases.keys())


def draws(m, n, d, seed=0, scale=1.0, shift=0.0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(m, n, d, generator=generator, dtype=dtype) + shift


def z_score(differences):
    """How many standard errors the mean of some differences lies from zero."""
    return (differences.mean() / (differences.std() / math.sqrt(len(differences)))).item()


# -- kernels


@every(KERNELS)
def test_kernel_falls_from_one_to_zero(case):
    r = torch.linspace(0, 40, 400, dtype=torch.float64)
    k = case(r)
    assert k[0] == 1
    assert (k.diff() < 0).sum() > 100
    assert (k.diff() <= 0).all()
    assert (k > 0).sum() > 30
    assert k[-1] < 0.05


@every(KERNELS)
def test_kernel_is_positive_definite(case):
    points = draws(1, 60, 2)[0]
    assert torch.linalg.eigvalsh(case(torch.cdist(points, points))).min() > -1e-10


@every(KERNELS)
def test_kernel_survives_json_and_keeps_its_bandwidth(case):
    assert decode(encode(case)) == case
    assert case.resolve(draws(1, 50, 2)[0]) == case


@every(KERNELS)
def test_kernel_finds_its_bandwidth(case):
    kernel = type(case)()
    theta = draws(1, 500, 2)[0]
    found, larger = kernel.resolve(theta), kernel.resolve(10 * theta)
    r = torch.tensor([0.3, 1.0, 3.0], dtype=torch.float64)
    torch.testing.assert_close(larger(10 * r), found(r))
    with pytest.raises(InputError, match="still a heuristic"):
        kernel(r)


# -- scoring rules

TWO = {**RULES, **COMPOSED}


def scored(case, samples, theta):
    torch.manual_seed(0)  # some rules draw directions
    return case(samples, theta)


@every({name: case for name, case in TWO.items() if name != "sliced"})  # all its rows share their lines: see below
def test_rule_is_unbiased_in_m(case):
    few, many = (
        case(draws(2, 100_000, 2), draws(1, 100_000, 2, 1)[0]),
        case(draws(12, 20_000, 2, 2), draws(1, 20_000, 2, 3)[0]),
    )
    error = (few.var() / len(few) + many.var() / len(many)).sqrt()
    assert abs(few.mean() - many.mean()) < 4.5 * error


@pytest.mark.parametrize("m", [2, 12])
def test_random_lines_leave_the_energy_score_unbiased(m):
    samples, theta = draws(m, 200, 2, 2), draws(1, 200, 2, 3)[0]
    scores = torch.stack([RULES["sliced"](samples, theta).mean() for _ in range(400)])
    assert abs(z_score(scores - EnergyScore()(samples, theta).mean())) < 4


@pytest.mark.parametrize("wrong", ["narrow", "wide", "shifted", "one mode", "dependent"])
@pytest.mark.parametrize("name", TWO)
def test_rule_is_proper(name, wrong):
    m, n, case = 6, 60_000, TWO[name]
    side = lambda seed: draws(1, n, 1, seed).sign().expand(-1, -1, 2)[0] * torch.tensor([1.5, 0.0])  # noqa: E731
    truth = draws(1, n, 2, 1)[0] + side(2)
    exact = draws(m, n, 2, 3) + torch.stack([side(10 + k) for k in range(m)])
    other = {
        "narrow": 0.6 * draws(m, n, 2, 3) + torch.stack([side(10 + k) for k in range(m)]),
        "wide": 1.5 * draws(m, n, 2, 3) + torch.stack([side(10 + k) for k in range(m)]),
        "shifted": exact + 0.5,
        "one mode": draws(m, n, 2, 3) + torch.tensor([1.5, 0.0]),
        "dependent": exact + torch.tensor([0.0, 0.8]) * exact[..., :1],
    }[wrong]
    better = z_score(scored(case, other, truth) - scored(case, exact, truth))
    assert better > 5 or ((name, wrong) in BLIND and better > -5)


@every(TWO)
def test_rule_does_not_care_for_the_order_of_draws(case):
    samples, theta = draws(7, 5, 2), draws(1, 5, 2, 1)[0]
    torch.testing.assert_close(scored(case, samples.flip(0), theta), scored(case, samples, theta))


@every(TWO)
def test_rule_scores_each_row_on_its_own(case):
    samples, theta = draws(7, 5, 2), draws(1, 5, 2, 1)[0]
    rows = [scored(case, samples[:, i : i + 1], theta[i : i + 1]) for i in range(5)]
    torch.testing.assert_close(torch.cat(rows), scored(case, samples, theta))


@every(RULES)
def test_rule_flattens_events(case):
    samples, theta = draws(4, 5, 6), draws(1, 5, 6, 1)[0]
    events = scored(case, samples.unflatten(-1, (2, 3)), theta.unflatten(-1, (2, 3)))
    torch.testing.assert_close(events, scored(case, samples, theta))


@every(TWO)
def test_rule_has_the_right_gradient(case):
    samples, theta = draws(4, 3, 2).requires_grad_(), draws(1, 3, 2, 1)[0].requires_grad_()
    assert torch.autograd.gradcheck(lambda s, t: scored(case, s, t), (samples, theta))


@every(RULES)
def test_rule_has_the_right_gradient_in_many_dimensions(case):
    samples, theta = draws(4, 2, 9).requires_grad_(), draws(1, 2, 9, 1)[0].requires_grad_()
    assert torch.autograd.gradcheck(lambda s, t: scored(case, s, t), (samples, theta))


def coinciding(m, d, dtype):
    samples = torch.zeros(m, 2, d, dtype=dtype)
    samples[3:, 1] = 1.0
    return samples.requires_grad_()


@every(TWO)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rule_has_finite_gradients_where_draws_coincide(case, dtype):
    samples = coinciding(5, 2, dtype)
    case(samples, torch.zeros(2, 2, dtype=dtype)).sum().backward()
    assert torch.isfinite(samples.grad).all()


@every(RULES)
def test_rule_has_finite_gradients_where_draws_coincide_in_many_dimensions(case):
    samples = coinciding(5, 9, torch.float32)
    case(samples, torch.zeros(2, 9)).sum().backward()
    assert torch.isfinite(samples.grad).all()
    assert samples.grad.abs().max() < 10


@every(RULES)
@pytest.mark.parametrize("d", [2, 9])
def test_rule_is_exact_for_clustered_draws_far_from_the_origin(case, d):
    samples = draws(40, 3, d, scale=1e-3).float()
    near = scored(case, samples.double(), torch.zeros(3, d).double())
    offset = 64.0  # a power of two: the shifted numbers are rounded, but to the same grid in both precisions
    far = (samples + offset).float()
    expected = scored(case, far.double() - offset, torch.zeros(3, d).double())
    given = scored(case, far, torch.full((3, d), offset)).double()
    torch.testing.assert_close(given, expected, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(expected, near, rtol=2e-2, atol=1e-4)


@every(TWO)
def test_rule_refuses_one_draw_and_wrong_shapes(case, unchecked_shapes):
    with pytest.raises(InputError, match="m > 1 draws, got 1"):
        case(draws(1, 4, 2), draws(1, 4, 2)[0])
    with pytest.raises(InputError, match=r"\(3, 4, 2\) do not fit theta of shape \(5, 2\)"):
        case(draws(3, 4, 2), draws(1, 5, 2)[0])


@every({name: case for name, case in TWO.items() if name != "derived"})
def test_rule_survives_json(case):
    assert decode(encode(case)) == case


# -- generators


@every(GENERATORS)
def test_generator_shapes(case):
    generator = case().eval()
    x = torch.randn(4, *generator.x_shape)
    assert generator.sample(3, x).shape == (3, 4, *generator.theta_shape)
    samples, target = generator.aim(3, torch.randn(4, *generator.theta_shape), x)
    assert samples.shape[1:] == target.shape


@every(GENERATORS)
def test_generator_draws_belong_to_their_rows(case):
    """Splitting the rows or the draws changes nothing."""
    generator = case().eval()
    x, z = torch.randn(4, *generator.x_shape), generator.noise(3, 4)
    whole = generator(generator.embed(x), z)
    parts = [generator(generator.embed(x[i : i + 1]), z[:, i : i + 1]) for i in range(4)]
    torch.testing.assert_close(torch.cat(parts, 1), whole, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(generator(generator.embed(x), z[1:2])[0], whole[1], rtol=1e-4, atol=1e-5)


@every({name: case for name, case in GENERATORS.items() if name != "paper camera"})  # hardly any: see test_conv.py
def test_generator_uses_noise_and_data(case):
    generator = case().eval()
    x = torch.randn(2, *generator.x_shape)
    samples = generator.sample(200, x)
    assert (samples.std(0) > 1e-4).all()
    z = generator.noise(1, 2)
    moved = generator(generator.embed(x + 1), z) - generator(generator.embed(x), z)
    assert moved.abs().max() > 1e-4


@every(GENERATORS)
def test_generator_survives_json(case):
    generator = case().eval()
    twin = decode(encode(generator)).eval()
    twin.load_state_dict(generator.state_dict())
    z = generator.noise(2, 3)
    x = torch.randn(3, *generator.x_shape)
    torch.testing.assert_close(twin(twin.embed(x), z), generator(generator.embed(x), z), rtol=0, atol=0)


def test_every_class_that_can_be_saved_exists():
    from importlib import import_module

    for name, module in ALLOWED.items():
        assert getattr(import_module(module), name).__module__ == module


# -- objectives


def training_data(n=400):
    theta, x = linear_pairs(n)
    rows, held_out = split(n, 0.2)
    batches = Batches(theta.numpy(), x.numpy(), rows, 64, Standardize((2,)), Standardize((2,)))
    return batches, batches.read(held_out)


def trained(case, steps, **options):
    torch.manual_seed(0)
    objective = case()
    config = TrainConfig(max_steps=60, validate_every=10, warmup=5, learning_rate=3e-3, patience=None, **options)
    batches, held_out = training_data()
    if steps == "all":
        train(objective, batches, held_out, config, progress=False)
    return objective, batches, held_out, config


@every(
    {name: case for name, case in OBJECTIVES.items() if "gan" not in name and name != "wasserstein"}
)  # see test_games.py
def test_objective_lowers_its_validation_score(case):
    objective, _, held_out, _ = trained(case, "none")
    before = objective.validate(held_out).mean()
    objective, *_ = trained(case, "all")
    after = objective.validate(held_out)
    assert after.shape == (len(held_out),)
    assert after.mean() < before - 0.1


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
    with pytest.raises(InputError, match="m > 1 draws, got m = 1"):
        ScoreMinimization(GENERATORS["mlp"](), EnergyScore(), m=1)


# -- executors


@every(EXECUTORS)
def test_executor_gives_the_bytes_of_serial(case):
    def prior_sample(n, rng):
        return rng.normal(size=(n, 2))

    prior = type("Normal", (), {"sample": staticmethod(prior_sample)})()
    simulator = lambda theta, rng: theta + rng.normal(size=theta.shape)  # noqa: E731
    expected = simulate(prior, simulator, 250, seed=3, progress=False)
    given = simulate(prior, simulator, 250, seed=3, executor=case, progress=False)
    assert np.asarray(given.theta).tobytes() == np.asarray(expected.theta).tobytes()
    assert np.asarray(given.x).tobytes() == np.asarray(expected.x).tobytes()
