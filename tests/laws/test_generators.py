"""Laws of generators, besides those of samplers."""

import torch

from tests.laws.cases import GENERATORS
from tests.laws.common import every


@every(GENERATORS)
def test_generator_draws_belong_to_their_rows(case):
    """Splitting the rows or the draws changes nothing."""
    generator = case().eval()
    x, z = torch.randn(4, *generator.x_shape), generator.noise(3, 4)
    whole = generator(generator.embed(x), z)
    parts = [generator(generator.embed(x[i : i + 1]), z[:, i : i + 1]) for i in range(4)]
    torch.testing.assert_close(torch.cat(parts, 1), whole, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(generator(generator.embed(x), z[1:2])[0], whole[1], rtol=1e-4, atol=1e-5)


@every(GENERATORS)
def test_generator_uses_noise_and_data(case):
    generator = case().eval()
    x = torch.randn(2, *generator.x_shape)
    samples = generator.sample(200, x)
    assert (samples.std(0) > 1e-4).all()
    z = generator.noise(1, 2)
    moved = generator(generator.embed(x + 1), z) - generator(generator.embed(x), z)
    assert moved.abs().max() > 1e-4
