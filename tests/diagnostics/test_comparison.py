import numpy as np
import pytest
import torch

import propersbi as ps
from propersbi.types import InputError


def conjugate(n=400, seed=0):
    """theta ~ N(0, 1), x = theta + N(0, 1), posterior N(x / 2, 1 / 2)."""
    rng = np.random.default_rng(seed)
    theta = rng.normal(size=(n, 2))
    return theta, theta + rng.normal(size=(n, 2))


def gaussian(width, seed=1):
    rng = np.random.default_rng(seed)
    return lambda m, x: x / 2 + width * rng.normal(0, 0.5**0.5, (m, *x.shape))


def test_the_exact_posterior_comes_first_and_the_prior_last():
    theta, x = conjugate()
    rng = np.random.default_rng(2)
    prior = rng.normal(size=(250, 400, 2))
    samplers = {"narrow": gaussian(0.5), "prior": prior, "exact": gaussian(1.0), "wide": gaussian(2.0)}
    result = ps.compare(samplers, theta, x, progress=False)
    rows = result.rows()
    assert rows[0]["name"] == "exact"
    assert rows[-1]["name"] == "prior"
    assert result.best == "exact"
    skill = {row["name"]: row["skill"] for row in rows}
    assert skill["exact"] == pytest.approx(0.29, abs=0.05)  # 1 - sqrt(1/2)
    assert skill["prior"] == pytest.approx(0, abs=0.03)
    assert not any(row["tied"] for row in rows[1:])
    calibration = {row["name"]: row["calibration_error"].mean() for row in rows}
    assert calibration["exact"] < 0.04 < calibration["narrow"]


def test_equal_samplers_are_tied_and_intervals_hold_the_score():
    theta, x = conjugate(300)
    result = ps.compare({"a": gaussian(1.0, 1), "b": gaussian(1.0, 2)}, theta, x, progress=False)
    first, second = result.rows()
    assert first["behind"] == 0
    assert second["tied"]
    for row in (first, second):
        assert row["energy_interval"][0] < row["energy_score"] < row["energy_interval"][1]
        assert row["skill_interval"][0] < row["skill"] < row["skill_interval"][1]


def test_anything_that_samples_takes_part():
    theta, x = conjugate(60)

    class Single:
        """Knows one observation at a time, as a user's own class may."""

        def sample(self, shape, x):
            return x / 2 + torch.randn(*shape, 2) * 0.5**0.5

    posterior = ps.fit(theta, x, max_steps=3, parameter_names=["a", "b"], progress=False)
    samplers = {"ours": posterior, "single": Single(), "function": gaussian(1.0), "draws": gaussian(1.0)(100, x)}
    text = ps.compare(samplers, theta, x, num_samples=50, progress=False).summary()
    assert all(name in text for name in [*samplers, "CRPS a", "CRPS b", "60 pairs"])
    assert (
        text == ps.compare(dict(samplers, function=gaussian(1.0)), theta, x, num_samples=50, progress=False).summary()
    )


def test_fields_are_compared_as_a_whole():
    rng = np.random.default_rng(0)
    theta = rng.normal(size=(50, 3, 2))
    result = ps.compare({"noise": rng.normal(size=(20, 50, 3, 2))}, theta, theta, progress=False)
    assert result.crps.shape == (1, 50, 6)


def test_bad_input_gets_a_sentence():
    theta, x = conjugate(20)
    with pytest.raises(InputError, match="nothing to compare"):
        ps.compare({}, theta, x)
    with pytest.raises(InputError, match="'num_samples' must be at least 2, got 1"):
        ps.compare({"a": gaussian(1.0)}, theta, x, num_samples=1)
    with pytest.raises(InputError, match="'level' must lie between 0 and 1, got 95"):
        ps.compare({"a": gaussian(1.0)}, theta, x, level=95)
    with pytest.raises(InputError, match=r"'a' gave draws of shape \(5, 3, 2\), expected \(draws > 1, 20, \(2,\)\)"):
        ps.compare({"a": np.zeros((5, 3, 2))}, theta, x, progress=False)
    with pytest.raises(InputError, match="'a' gave 200 of 200 draws that are not finite"):
        ps.compare({"a": np.full((5, 20, 2), np.nan)}, theta, x, progress=False)
    with pytest.raises(InputError, match="1 test pairs; at least 20 are needed"):
        ps.compare({"a": gaussian(1.0)}, theta[:1], x[:1])
    with pytest.raises(InputError, match="1 of the 2 parameters do not vary"):
        ps.compare({"a": gaussian(1.0)}, theta * [1, 0], x)


def test_images_with_pixels_that_never_change_can_be_compared():
    rng = np.random.default_rng(0)
    theta = rng.normal(size=(30, 8, 8)) * (np.arange(8) > 0)
    x = theta + rng.normal(size=theta.shape)
    near = x / 2 + rng.normal(0, 0.5**0.5, (20, *x.shape))
    far = rng.normal(size=(20, *x.shape))
    assert ps.compare({"far": far, "near": near}, theta, x, progress=False).best == "near"
