"""The shallow-water simulator: its physics, and the law of its noise."""

import numpy as np
import pytest
import torch

from propersbi.tasks import tomography
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


def test_water_is_neither_made_nor_lost():
    height = surface(PRIOR.sample(5, np.random.default_rng(0)))
    total = height.sum(2)
    np.testing.assert_allclose(total, total[:, :1].repeat(101, 1), atol=2e-4)


def test_the_wave_runs_with_the_speed_of_long_waves():
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


def test_profiles_do_not_see_each_other():
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


def test_wrong_shapes_get_a_sentence():
    with pytest.raises(InputError, match=r"must have shape \(n, 100\), got \(100,\)"):
        surface(np.zeros(100))
    assert surface(np.zeros((0, 100))).shape == (0, 101, 100)


def test_what_is_seen_is_the_surface_in_noise():
    height = surface(PRIOR.sample(2, np.random.default_rng(0)))
    noise = heights(observe(height, np.random.default_rng(1))) - (height - height.mean(1, keepdims=True))
    assert noise.std() == pytest.approx(NOISE / np.sqrt(101 * 100), rel=0.02)


def test_half_the_hours_are_the_first_half():
    depth = PRIOR.sample(2, np.random.default_rng(0))
    np.testing.assert_array_equal(surface(depth, hours=20), surface(depth)[:, :21])


def test_the_climb_finds_the_profile_and_the_moves_leave_its_posterior_as_it_is(monkeypatch):
    """At the best point the misfit is that of noise, the truth is near, and chains accept and stay there."""
    monkeypatch.setattr(tomography, "HORIZONS", (*range(3, 36, 3), 60, 100))  # fewer, to be quick
    truth, x = TASK.true_parameters(1), TASK.observation(1)
    rng, problem = np.random.default_rng(0), tomography._Problem(x)
    law = tomography._climb(problem, rng)
    assert (problem.misfit(law.centre[None]) ** 2).sum() == pytest.approx(10_000, abs=500)
    assert np.abs(problem.depth(law.centre[None])[0] - truth)[1:-1].max() < 0.5
    u = law.sample(8, rng)
    value, accepted = problem.log_density(u), 0.0
    for _ in range(4):
        moved, value = tomography._move(problem, u, value, law, rng)
        accepted += (moved != u).any(1).mean() / 4
        u = moved
    np.testing.assert_allclose(value, problem.log_density(u), rtol=1e-6)
    assert accepted > 0.2
    assert np.abs(problem.depth(u).mean(0) - truth)[1:-1].max() < 0.6


def test_a_gaussian_law_is_left_as_it_is_by_its_own_moves():
    root = np.tril(np.random.default_rng(0).normal(size=(24, 24))) / 5 + np.eye(24)
    law, rng = tomography._Gaussian(np.arange(24.0), root), np.random.default_rng(1)
    u = law.renew(law.sample(20_000, rng), rng)
    np.testing.assert_allclose(u.mean(0), law.centre, atol=0.1)
    np.testing.assert_allclose(np.cov(u.T), root @ root.T, atol=0.15)


def test_noise_added_by_torch_is_that_of_the_simulator():
    theta = PRIOR.sample(2, np.random.default_rng(0))
    silent = simulate_without_noise(theta)
    for x in (simulate(theta, np.random.default_rng(1)), add_noise(torch.tensor(silent))):
        noise = np.asarray(x) - silent
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
