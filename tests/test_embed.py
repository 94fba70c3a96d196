"""Data on grids and smooth fields: embeddings and the last layer of a field generator."""

import numpy as np
import pytest
import torch

import propersbi as ps
from propersbi.networks import GridEmbedding, MLPGenerator
from propersbi.networks.mlp import Scales
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
def test_wrong_grids_get_a_sentence(options, sentence):
    with pytest.raises(InputError, match=sentence):
        GridEmbedding(**options)


def test_new_fields_are_smooth_and_rough_ones_can_be_reached():
    layer = Scales(32, 100)
    with torch.no_grad():
        fields = layer(torch.randn(200, 32))
    assert fields.diff(dim=1).std() < 0.3 * fields.std()
    rough = torch.randn(100)
    nodes = layer.grids.T.double()
    answer = torch.linalg.lstsq(nodes, rough.double().unsqueeze(1), driver="gelsd").solution
    torch.testing.assert_close((nodes @ answer)[:, 0].float(), rough, atol=1e-3, rtol=0)


@pytest.mark.parametrize("steps", [1, 3])
def test_smooth_fields_are_learnt_from_grids_and_come_back_from_disk(tmp_path, steps):
    """The field is a bump whose place is seen in the data, as a spectrum."""
    rng = np.random.default_rng(0)
    place = rng.uniform(2, 14, (600, 1))
    theta = np.exp(-0.5 * ((np.arange(16) - place) / 2) ** 2)
    seen = np.repeat(theta[:, None], 8, 1) + 0.05 * rng.normal(size=(600, 8, 16))
    embedding = GridEmbedding((2, 8, 16), channels=(4, 8), width=24, features=32, spectrum=True)
    options = {"width": 32, "depth": 0, "smooth": True}
    posterior = ps.fit(
        theta,
        spectrum(seen),
        network=lambda *shapes, **more: MLPGenerator(*shapes, **options, **more),
        embedding=embedding,
        steps=steps,
        m=4,
        max_steps=250,
        progress=False,
    )
    draws = posterior.sample_batched((50,), x=spectrum(seen[:20]), seed=0)
    assert draws.shape == (50, 20, 16)
    assert (draws.mean(0).numpy() - theta[:20]).std() < 0.5 * theta.std()
    posterior.save(tmp_path / "posterior")
    again = ps.Posterior.load(tmp_path / "posterior").sample_batched((50,), x=spectrum(seen[:20]), seed=0)
    torch.testing.assert_close(draws, again, atol=1e-5, rtol=1e-4)
