"""The weights of patches in the paper."""

import pytest
from benchmarks.paper.weights import patch_weight

from propersbi.types import InputError


@pytest.mark.parametrize(
    ("grid", "size", "step", "energy", "kernel"),
    [  # as the paper states them, with the number of patches divided out
        ((100,), 20, 10, 0.5556 / 9, 0.1111 / 9),
        ((100,), 10, 5, 0.5263 / 19, 0.0526 / 19),
        ((28, 28), 8, 5, 0.49 / 25, 0.04 / 25),
        ((28, 28), 14, 7, 0.4444 / 9, 0.1111 / 9),
    ],
)
def test_the_weights_of_the_paper(grid, size, step, energy, kernel):
    assert patch_weight("paper energy", grid, size, step) == pytest.approx(energy, rel=2e-3)
    assert patch_weight("paper kernel", grid, size, step) == pytest.approx(kernel, rel=2e-3)


def test_an_unknown_weight_is_reported():
    with pytest.raises(InputError, match="a number or one of paper energy, paper kernel, got 'heavy'"):
        patch_weight("heavy", (28, 28), 8, 5)
