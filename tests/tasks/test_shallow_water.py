"""The shallow-water simulator: its physics, the distribution of its noise, and its reference posterior."""

import numpy as np
import pytest
import torch

from propersbi.tasks.reference import tomography
from propersbi.tasks.shallow_water import (
    NOISE,
    PRIOR,
    TASK,
    add_noise,
    heights,
    observe,
    simulate,
    simulate_without_noise,
    surface,
)
from propersbi.types import InputError


def test_profiles_have_the_covariance_of_the_prior():
    depth = PRIOR.sample(20_000, np.random.default_rng(0))
    assert depth.mean() == pytest.approx(10, abs=0.05)
    assert depth.std() == pytest.approx(15**0.5, abs=0.03)
    correlation = np.corrcoef(depth[:, 50], depth[:, 60])[0, 1]
    assert correlation == pytest.approx(np.exp(-0.5), abs=0.02)  # ten points apart


def test_the_volume_of_water_is_conserved():
    height = surface(PRIOR.sample(5, np.random.default_rng(0)))
    total = height.sum(2)
    np.testing.assert_allclose(total, total[:, :1].repeat(101, 1), atol=2e-4)


def test_the_wave_has_the_speed_of_long_waves():
    """sqrt(g d) in a basin of even depth: four times the depth, twice the speed."""
    for depth, hours in ((10.0, 20), (40.0, 10)):
        front = np.argmax(surface(np.full((1, 100), depth))[0, hours])
        assert front * 10_000 == pytest.approx((9.81 * depth) ** 0.5 * hours * 3600, rel=0.1)


def test_land_stops_the_wave():
    depth = np.full((1, 100), 10.0)
    depth[0, 50] = -1.0
    height = surface(depth)[0]
    assert np.abs(height[:, 51:]).max() == 0
    assert np.abs(height[-1, 1:50]).max() > 1e-4
    assert (height[:, [0, 50, 99]] == 0).all()


def test_profiles_are_independent_of_each_other():
    depth = PRIOR.sample(4, np.random.default_rng(1))
    assert np.array_equal(surface(depth)[2], surface(depth[2:3])[0])
    before = depth.copy()
    surface(depth)
    assert (depth == before).all()


def test_spectra_have_independent_noise_and_no_zero_frequency():
    height = surface(PRIOR.sample(2, np.random.default_rng(0)))
    x = observe(height, np.random.default_rng(1))
    assert x.shape == (2, 2, 100, 100)
    exact = np.fft.fft2(height)
    noise = x[:, 0] - exact.real[:, 1:]
    assert noise.std() == pytest.approx(NOISE, abs=0.003)
    assert abs(np.corrcoef(noise.ravel(), (x[:, 1] - exact.imag[:, 1:]).ravel())[0, 1]) < 0.03


def test_the_same_seed_gives_the_same_data():
    depth = PRIOR.sample(2, np.random.default_rng(0))
    first, second = (simulate(depth, np.random.default_rng(3)) for _ in range(2))
    assert np.array_equal(first, second)


def test_wrong_shapes_are_reported():
    with pytest.raises(InputError, match=r"must have shape \(n, 100\), got \(100,\)"):
        surface(np.zeros(100))
    assert surface(np.zeros((0, 100))).shape == (0, 101, 100)


def test_the_data_show_the_surface_in_noise():
    height = surface(PRIOR.sample(2, np.random.default_rng(0)))
    noise = heights(observe(height, np.random.default_rng(1))) - (height - height.mean(1, keepdims=True))
    assert noise.std() == pytest.approx(NOISE / np.sqrt(101 * 100), rel=0.02)


def test_fewer_hours_are_the_first_ones():
    depth = PRIOR.sample(2, np.random.default_rng(0))
    np.testing.assert_array_equal(surface(depth, hours=20), surface(depth)[:, :21])


def test_the_optimisation_finds_the_profile_and_the_moves_stay_in_the_posterior(monkeypatch):
    """At the best point the misfit is that of noise, the truth is close, and chains accept moves and stay there."""
    monkeypatch.setattr(tomography, "HORIZONS", (*range(3, 36, 3), 60, 100))  # fewer, to save time
    truth, x = TASK.true_parameters(1), TASK.observation(1)
    rng, target = np.random.default_rng(0), tomography._Target(x)
    approximation = tomography._optimise(target, rng)
    assert (target.misfit(approximation.centre[None]) ** 2).sum() == pytest.approx(10_000, abs=500)
    assert np.abs(target.depth(approximation.centre[None])[0] - truth)[1:-1].max() < 0.5
    u = approximation.sample(8, rng)
    value, acceptance = target.log_density(u), 0.0
    for _ in range(4):
        moved, value = tomography._move(target, u, value, approximation, rng)
        acceptance += (moved != u).any(1).mean() / 4
        u = moved
    np.testing.assert_allclose(value, target.log_density(u), rtol=1e-6)
    assert acceptance > 0.2
    assert np.abs(target.depth(u).mean(0) - truth)[1:-1].max() < 0.6


def test_a_gaussian_is_invariant_under_its_proposals():
    root = np.tril(np.random.default_rng(0).normal(size=(24, 24))) / 5 + np.eye(24)
    gaussian, rng = tomography._Gaussian(np.arange(24.0), root), np.random.default_rng(1)
    u = gaussian.propose(gaussian.sample(20_000, rng), rng)
    np.testing.assert_allclose(u.mean(0), gaussian.centre, atol=0.1)
    np.testing.assert_allclose(np.cov(u.T), root @ root.T, atol=0.15)


def test_noise_added_by_torch_is_that_of_the_simulator():
    theta = PRIOR.sample(2, np.random.default_rng(0))
    noiseless = simulate_without_noise(theta)
    for x in (simulate(theta, np.random.default_rng(1)), add_noise(torch.tensor(noiseless))):
        noise = np.asarray(x) - noiseless
        assert abs(noise.mean()) < 0.005
        assert abs(noise.std() - NOISE) < 0.005


def test_without_a_wave_the_posterior_is_the_prior_of_dry_starts():
    rng = np.random.default_rng(0)
    truth = PRIOR.sample(2000, rng)
    truth = truth[truth[:, 1] < -1][:1]
    draws = TASK.reference_posterior(simulate(truth, rng)[0], 50, rng)
    assert draws.shape == (50, 100)
    assert (draws[:, 1:3].min(1) <= 0.1).all()
    assert not np.ptp(surface(draws), axis=1).any()
