r"""The paper's weights of the sum over patches, which decrease with the square of the number of patches :math:`N`.

.. math:: w_{energy} = \frac{D}{|p| N^2}, \qquad w_{kernel} = \frac{1}{N^2}

for :math:`D` grid points, :math:`|p|` of them in a patch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from propersbi.types import InputError

__all__ = ["patch_weight"]

NAMES = ("paper energy", "paper kernel")


def patch_weight(name: str, grid: Sequence[int], size: int, step: int) -> float:
    """The weight of the sum over patches.

    Arguments:
        name: ``"paper energy"`` or ``"paper kernel"``.
        grid: Grid points along each axis.
        size: Those of a patch along each axis.
        step: The stride between patches.

    >>> round(25 * patch_weight("paper energy", (28, 28), 8, 5), 4)
    0.49
    """
    if name not in NAMES:
        raise InputError(f"The weight of patches must be a number or one of {', '.join(NAMES)}, got '{name}'.")
    patches = math.prod((points - size) // step + 1 for points in grid)
    tiles = math.prod(grid) / size ** len(grid)  # patches that would tile the grid
    return (tiles if name == "paper energy" else 1) / patches**2
