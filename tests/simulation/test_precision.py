"""Numbers far from zero keep their digits, from the simulator to the draws of the posterior."""

import numpy as np
import pytest
import torch

import propersbi as ps
from propersbi.networks import MLPGenerator
from propersbi.samplers import Blocks, Box, Ordered

FAR = 1e9


def _simulator(theta, rng):
    return np.asarray(theta) + 0.1 * rng.normal(size=theta.shape)


@pytest.mark.parametrize("chunk_size", [1, 7, 100])
def test_simulations_far_from_zero_keep_their_digits_in_memory_and_on_disk(tmp_path, chunk_size):
    arguments = ([(FAR, FAR + 1)], _simulator, 300)
    memory = ps.simulate(*arguments, chunk_size=chunk_size, progress=False)
    disk = ps.simulate(*arguments, chunk_size=chunk_size, path=tmp_path, progress=False)
    for theta, x in (memory, disk):
        assert theta.dtype == x.dtype == np.float64
        assert len(np.unique(np.asarray(theta))) == len(np.unique(np.asarray(x))) == 300
    assert np.array_equal(memory.theta, np.asarray(disk.theta))
    assert np.array_equal(memory.x, np.asarray(disk.x))


def test_ordinary_simulations_stay_in_single_precision(tmp_path):
    for size in (1, 3, 50):
        sims = ps.simulate([(0.0, 1.0), (100.0, 200.0)], _simulator, 200, chunk_size=size, progress=False)
        assert sims.theta.dtype == sims.x.dtype == np.float32


def test_a_store_holds_chunks_of_both_precisions(tmp_path):
    """Each chunk decides by itself, so that it has the same bytes whoever computes it."""

    def simulator(theta, rng):
        return theta + FAR * (theta > 0.5)

    sims = ps.simulate([(0.0, 1.0)], simulator, 20, path=tmp_path, chunk_size=1, progress=False)
    assert sims.x.dtype == np.float64
    assert sims.x[0].dtype == np.float64
    assert {ps.Store.open(tmp_path).rows("train", n)[1].dtype.name for n in (1, 20)} == {"float32", "float64"}


def test_large_whole_numbers_are_exact():
    def prior(rng):
        return rng.integers(0, 10**9, size=1).astype(float)

    sims = ps.simulate(prior, lambda theta: theta, 100, chunk_size=50, progress=False)
    assert sims.theta.dtype == np.float64
    assert np.array_equal(sims.theta, sims.theta.round())
    assert np.array_equal(sims.theta, sims.x)


def _fitted(theta, x, prior):
    return ps.fit(theta, x, prior=prior, max_steps=30, network=MLPGenerator, refinement_steps=1, progress=False)


@pytest.mark.parametrize(
    "prior",
    [
        [(FAR, FAR + 1)],
        torch.distributions.Uniform(*torch.tensor([[FAR], [FAR + 1]], dtype=torch.float64)),
        {"time": (FAR, FAR + 1)},
    ],
)
def test_draws_far_from_zero_are_in_double_precision_and_inside_the_support(prior, tmp_path):
    sims = ps.simulate(prior, _simulator, 400, progress=False)
    posterior = _fitted(sims.theta, sims.x, prior)
    draws = posterior.sample(500, x=[FAR + 0.5], seed=0)
    assert draws.dtype == torch.float64
    assert bool(((draws >= FAR) & (draws <= FAR + 1)).all())
    assert len(draws.unique()) > 490
    posterior.save(tmp_path / "posterior")
    assert torch.equal(ps.Posterior.load(tmp_path / "posterior").sample(500, x=[FAR + 0.5], seed=0), draws)
    near = _fitted(sims.theta - FAR, sims.x - FAR, [(0.0, 1.0)]).sample(500, x=[0.5], seed=0)
    assert near.dtype == torch.float32
    assert abs((draws - FAR).mean() - near.mean()) < 0.05
    assert abs(draws.std() - near.std()) < 0.05


def test_large_whole_numbers_are_drawn_as_whole_numbers():
    rng = np.random.default_rng(0)
    theta = rng.integers(10**9, 10**9 + 50, size=(400, 1)).astype(float)
    posterior = _fitted(theta, theta + rng.normal(size=theta.shape), None).sample
    discrete = ps.fit(theta, theta + rng.normal(size=theta.shape), discrete=[0], max_steps=20, progress=False)
    draws = discrete.sample(300, x=[1e9 + 25])
    assert draws.dtype == torch.float64
    assert torch.equal(draws, draws.round())
    assert 3 < len(draws.unique()) < 50
    assert posterior(3, x=[1e9 + 25]).dtype == torch.float64


def test_ordered_parameters_far_from_zero_keep_their_digits():
    ordered = Ordered(2).from_real(torch.tensor([[FAR, 0.25]], dtype=torch.float64), torch.float64)
    assert ordered.tolist() == [[FAR, FAR + 0.25]]


def test_diagnostics_of_parameters_far_from_zero(tmp_path):
    sims = ps.simulate([(FAR, FAR + 1)], _simulator, 500, progress=False)
    posterior = _fitted(sims.theta[:400], sims.x[:400], [(FAR, FAR + 1)])
    checks = ps.diagnose(posterior, sims.theta[400:], sims.x[400:], observation=[FAR + 0.5], progress=False)
    assert checks.parameters["r2"][0] > 0.5
    assert len(np.unique(checks.arrays["mean"])) > 90
    assert len(np.unique(checks.arrays["theta"])) == 100


def test_parts_of_a_support_far_from_zero_keep_their_digits():
    real = torch.tensor([[FAR + 0.25, FAR, 0.5]], dtype=torch.float64)
    blocks = Blocks((Box(FAR, FAR + 1), Ordered(2)), (1, 2))
    assert blocks.from_real(real, torch.float64).tolist() == [[FAR + 0.25, FAR, FAR + 0.5]]
