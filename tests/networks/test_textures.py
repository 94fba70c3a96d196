"""Statistics of textures: which waves an image has, and how rough it is."""

import numpy as np
import torch

from propersbi.networks import ImageEmbedding
from propersbi.networks.statistics import log_second_differences, log_spectrum, rings, split_missing


def wave(cycles, size=32):
    """A plane wave with so many periods in an image."""
    return torch.cos(2 * torch.pi * cycles * torch.arange(size) / size).expand(1, 1, size, size)


def random_fields(slopes, size, rng):
    """Fields whose power falls with the frequency by these slopes."""
    k = np.hypot(np.fft.fftfreq(size)[:, None], np.fft.rfftfreq(size))
    k[0, 0] = np.inf
    noise = rng.normal(size=(2, len(slopes), *k.shape))
    return np.fft.irfft2(k ** (-slopes[:, None, None] / 2) * (noise[0] + 1j * noise[1]), s=(size, size))


def test_a_wave_has_its_power_in_the_ring_of_its_frequency():
    mask = torch.ones(1, 1, 32, 32, dtype=torch.bool)
    found = [int(log_spectrum(wave(cycles), mask).argmax()) for cycles in (1, 4, 16)]
    assert found == [0, 4, 8]  # two rings in each octave
    assert len(rings(32, 32)) == 10


def test_the_scale_of_an_image_shifts_its_spectrum_and_its_second_differences_alike():
    x = torch.randn(3, 2, 16, 20)
    mask = torch.ones_like(x, dtype=torch.bool)
    for found in (log_spectrum, lambda *grid: log_second_differences(*grid, 2)):
        torch.testing.assert_close(found(10 * x + 3, mask), found(x, mask) + np.log(10), rtol=1e-3, atol=1e-3)


def test_a_ramp_has_no_second_differences():
    ramp = torch.arange(16.0).expand(1, 1, 16, 16)
    noisy = ramp + 0.1 * torch.randn(1, 1, 16, 16)
    mask = torch.ones_like(ramp, dtype=torch.bool)
    assert log_second_differences(ramp, mask, 2).max() < -10 < -3 < log_second_differences(noisy, mask, 2).min()


def test_textures_hardly_change_where_few_pixels_are_missing():
    x = torch.as_tensor(random_fields(np.full(20, 2.0), 32, np.random.default_rng(0))).float().unsqueeze(1)
    x = x / x.std()
    few = torch.where(torch.rand_like(x) < 0.02, torch.nan, x)
    whole, some = (log_second_differences(*split_missing(values), 3) for values in (x, few))
    assert (whole - some).abs().max() < 0.3


def test_the_size_of_learnt_features_is_limited_and_small_ones_are_left_alone():
    torch.manual_seed(0)
    embedding, x = ImageEmbedding((16, 16)), torch.randn(5, 16, 16)
    usual, large, larger = (embedding.learn(scale * x).square().mean(1).sqrt() for scale in (1.0, 1e3, 1e6))
    assert usual.max() < 0.9  # below the limit
    torch.testing.assert_close(large, torch.ones(5))
    torch.testing.assert_close(larger, torch.ones(5))


def test_statistics_of_an_image_tell_the_slope_of_its_spectrum():
    rng = np.random.default_rng(0)
    slopes = rng.uniform(1, 4, 600)
    periodic, cut = random_fields(slopes, 32, rng), random_fields(slopes, 64, rng)[:, :32, :32]
    for fields in (periodic, cut):
        x = torch.as_tensor(fields / fields.std((1, 2), keepdims=True)).float()
        embedding = ImageEmbedding((32, 32))
        embedding.prepare(x)
        features = np.column_stack([np.ones(600), embedding.statistics(x)])
        fitted = np.linalg.lstsq(features[:400], slopes[:400], rcond=None)[0]
        error = slopes[400:] - features[400:] @ fitted
        assert error.std() < 0.25  # of a prior standard deviation of 0.87
