"""The exact posterior of random fields, and the camera in torch that Fashion-MNIST is trained with."""

import numpy as np
import torch
from benchmarks import fashion, random_fields

import propersbi as ps


def test_draws_of_the_exact_posterior_of_a_field_have_uniform_ranks():
    rng = np.random.default_rng(0)
    theta = random_fields.prior(100, rng)
    draws = random_fields.exact_posterior(random_fields.simulate(theta, rng), 99, rng)
    assert ps.calibration.sbc_p_values(ps.calibration.sbc_ranks(draws, theta), 99).min() > 0.001
    assert np.all(draws.std(0).mean(0) < [0.04, 0.06])  # of a prior with 0.3 and 0.5


def test_errors_are_zero_for_the_truth_and_grow_with_the_width():
    theta = random_fields.prior(250, np.random.default_rng(0))
    noise = np.random.default_rng(1).normal(size=(50, 250, 2))
    none, some = (random_fields.errors(theta + scale * noise, theta)[0] for scale in (0.0, 0.1))
    assert none.tolist() == [0.0, 0.0]
    np.testing.assert_allclose(some * np.ptp(theta, axis=0), 0.1, rtol=0.05)


def test_the_camera_in_torch_makes_the_data_of_the_simulator():
    image = np.zeros((1, 28, 28), np.float32)
    image[:, 8:20, 10:16] = np.linspace(0.1, 1, 6)
    torch.manual_seed(0)
    ours = fashion.camera(torch.from_numpy(image).expand(4000, -1, -1)).numpy()
    theirs = fashion.CAMERA(np.repeat(image, 4000, 0), np.random.default_rng(0))
    np.testing.assert_allclose(ours.mean(0), theirs.mean(0), atol=0.01)
    np.testing.assert_allclose(ours.std(0), theirs.std(0), atol=0.002)
    assert theirs.std(0).max() > 0.015
