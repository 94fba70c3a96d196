"""Data on grids and smooth fields: embeddings and the last layer of a field generator."""

from functools import partial

import numpy as np
import pytest
import torch

import propersbi as ps
from propersbi.networks import FieldGenerator, GridEmbedding, MLPGenerator
from propersbi.types import InputError


def spectrum(field):
    full = np.fft.fft2(field)
    return torch.tensor(np.stack([full.real, full.imag], 1), dtype=torch.float32)


@pytest.mark.parametrize("shape", [(20, 30), (1, 20, 30), (3, 21, 29), (5, 4)])
def test_grids_of_any_shape_become_features(shape):
    embedding = GridEmbedding(shape, channels=(4, 6), width=12, features=7)
    assert embedding(torch.randn(3, *shape)).shape == (3, 7)


def test_a_spectrum_is_turned_back_into_its_field():
    field = np.random.default_rng(0).normal(size=(2, 12, 8))
    embedding = GridEmbedding((2, 12, 8), channels=(2, 2), width=6, spectrum=True)
    found = embedding._field(spectrum(field))
    np.testing.assert_allclose(found.numpy() / (12 * 8) ** 0.5, field, atol=1e-5)


def test_lost_rows_take_the_mean_over_them_away():
    field = np.random.default_rng(0).normal(size=(2, 13, 8))
    embedding = GridEmbedding((2, 12, 8), channels=(2, 2), width=6, spectrum=True, lost=1)
    found = embedding._field(spectrum(field)[:, :, 1:])
    np.testing.assert_allclose(found.numpy() / (13 * 8) ** 0.5, field - field.mean(1, keepdims=True), atol=1e-5)


def test_white_noise_in_the_spectrum_is_white_noise_of_the_same_size_in_the_field():
    embedding = GridEmbedding((2, 40, 50), channels=(2, 2), width=6, spectrum=True)
    noise = embedding._field(torch.randn(20, 2, 40, 50, generator=torch.Generator().manual_seed(0)))
    assert noise.std().item() == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"x_shape": (5,)}, "shape"),
        ({"x_shape": (3, 8, 8), "spectrum": True}, r"\(2, rows, columns\) for a spectrum, got \(3, 8, 8\)"),
        ({"x_shape": (8, 8), "channels": (4,)}, "channels"),
    ],
)
def test_wrong_grids_are_reported(options, sentence):
    with pytest.raises(InputError, match=sentence):
        GridEmbedding(**options)


def bumps(n):
    """Fields with a bump, and noisy data that show it over time."""
    rng = np.random.default_rng(0)
    theta = np.exp(-0.5 * ((np.arange(16) - rng.uniform(2, 14, (n, 1))) / 2) ** 2)
    return theta, np.repeat(theta[:, None], 8, 1) + 0.05 * rng.normal(size=(n, 8, 16))


def test_places_are_interpolated_and_noise_has_several_lengths():
    generator = FieldGenerator((100,), (20, 100), width=16)
    assert generator.sizes == [25, 13, 7]
    torch.testing.assert_close(generator.noises.reshape(-1, 100).sum(0), torch.full((100,), 3.0))
    field = torch.randn(500, 45) @ generator.noises
    assert field.std(0).min() > 0.5
    assert field.diff(dim=1).std() < 0.4 * field.std()  # neighbours are drawn together
    with pytest.raises(InputError, match=r"at least 8 points, got the shape \(2, 3\)"):
        FieldGenerator((2, 3), (20, 100))


@pytest.mark.parametrize("network", ["field", "embedding", "chain"])
def test_fields_are_learnt_from_grids_and_come_back_from_disk(tmp_path, network):
    theta, data = bumps(600)
    embedding = GridEmbedding((2, 8, 16), channels=(4, 8), width=24, features=32, spectrum=True)
    options = {
        "field": {"network": partial(FieldGenerator, shared=4, width=32, spectrum=True), "refinement_steps": 1},
        "embedding": {
            "network": partial(MLPGenerator, width=32, depth=0),
            "embedding": embedding,
            "refinement_steps": 1,
        },
        "chain": {"network": partial(MLPGenerator, width=32, depth=0), "embedding": embedding, "refinement_steps": 3},
    }[network]
    posterior = ps.fit(theta, spectrum(data), draws=4, max_steps=150, progress=False, **options)
    draws = posterior.sample_batched((50,), x=spectrum(data[:20]), seed=0)
    assert draws.shape == (50, 20, 16)
    assert (draws.mean(0).numpy() - theta[:20]).std() < 0.7 * theta.std()
    posterior.save(tmp_path / "posterior")
    again = ps.Posterior.load(tmp_path / "posterior").sample_batched((50,), x=spectrum(data[:20]), seed=0)
    torch.testing.assert_close(draws, again, atol=1e-5, rtol=1e-4)


def test_large_grids_get_an_embedding_and_one_pass_by_themselves():
    rng = np.random.default_rng(0)
    posterior = ps.fit(rng.normal(size=(60, 2)), rng.normal(size=(60, 120, 90)), max_steps=2, progress=False)
    assert isinstance(posterior.sampler.sampler.embedding, GridEmbedding)
    assert posterior.sample((3,), x=np.zeros((120, 90))).shape == (3, 2)


def test_noise_is_drawn_anew_for_every_batch():
    """Without its noise, x determines the parameter; the posterior must have the width of the noise all the same."""
    rng = np.random.default_rng(0)
    theta = rng.normal(size=(500, 1))
    calls = []

    def noise(x):
        calls.append(len(x))
        return x + torch.randn_like(x)

    options = {"noise": noise, "network": partial(MLPGenerator, width=32), "progress": False}
    posterior = ps.fit(theta, theta, max_steps=150, batch_size=100, **options)
    spread = posterior.sample((2000,), x=[0.0], seed=0).std().item()
    assert spread == pytest.approx(0.5**0.5, abs=0.12)  # of N(0, 1) given a sum with N(0, 1)
    assert len(calls) >= 150
    again = ps.fit(theta, theta, max_steps=150, batch_size=100, **options)
    assert again.sample((2000,), x=[0.0], seed=0).std().item() == spread
