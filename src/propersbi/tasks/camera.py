r"""The noisy camera: a sharp image, from one with Poisson noise and blur (Ramesh et al. 2022).

An image :math:`\theta` of 28 x 28 pixels between 0 and 1 is observed as

.. math:: x = G_\sigma * \mathrm{clip}\big(\mathrm{Poisson}(N \theta) / N,\, 0,\, 1\big), \qquad
          N = 2^{\lceil \log_2 k \rceil},

where :math:`k` is the number of distinct grey values, of 256, in the image, and :math:`G_\sigma` is a Gaussian kernel
of three pixels, with reflection at the edges. The noise is added before the blur, so that only the rounding of
single-precision numbers hides the blurred detail.

The prior is distorted letters and digits rendered from fonts (:mod:`propersbi.tasks.images.glyphs`), or the images of a
folder with the files of MNIST or EMNIST: that of ``propersbi run camera --images FOLDER``, of
``tasks.get("camera:FOLDER")``, or of the environment variable ``PROPERSBI_EMNIST``.
"""

from __future__ import annotations

import os
from dataclasses import replace
from functools import cache, partial

import numpy as np

from propersbi.problem import Settings
from propersbi.tasks.images.glyphs import SIDE, Glyphs
from propersbi.tasks.images.idx import IdxImages
from propersbi.tasks.task import Task
from propersbi.types import Prior

__all__ = ["TASK", "make_task", "simulate"]

BLUR = 3.0  # pixels: the standard deviation of the kernel, which ends at four of them
FOLDER_VARIABLE = "PROPERSBI_EMNIST"


def simulate(theta: np.ndarray, rng: np.random.Generator, blur: float = BLUR) -> np.ndarray:
    """Noisy, blurred images ``(n, 28, 28)`` of images ``(n, 28, 28)``.

    >>> simulate(np.ones((1, 28, 28)), np.random.default_rng(0)).shape
    (1, 28, 28)
    """
    image = np.clip(np.asarray(theta, dtype=np.float32), 0, 1)
    level = _photons(image)[:, None, None]
    counts = np.zeros(image.shape, np.float32)
    nonzero = image > 0  # the noise of black pixels is zero
    counts[nonzero] = rng.poisson((image * level)[nonzero])
    rows, columns = blurring(image.shape[1], blur), blurring(image.shape[2], blur)
    blurred: np.ndarray = rows @ np.clip(counts / level, 0, 1) @ columns.T
    return blurred


def _photons(image: np.ndarray) -> np.ndarray:
    """The number of photons of a white pixel, ``(n,)``: the number of grey values, rounded up to a power of two.

    Images are rounded to 256 grey values, so that posterior draws, which are continuous, get the same noise.
    """
    ordered = np.sort(np.rint(255 * image).astype(np.uint8).reshape(len(image), -1), axis=1)
    num_values = 1 + (ordered[:, 1:] != ordered[:, :-1]).sum(1)
    photons: np.ndarray = np.exp2(np.ceil(np.log2(num_values))).astype(np.float32)
    return photons


@cache
def blurring(size: int, blur: float = BLUR) -> np.ndarray:
    """The matrix ``(size, size)`` that blurs along one axis, with reflection at both ends.

    >>> np.allclose(blurring(28).sum(1), 1)
    True
    """
    radius = round(4 * blur)
    offset = np.arange(-radius, radius + 1)
    weight = np.exp(-0.5 * (offset / blur) ** 2)
    row = np.arange(size)[:, None]
    position = (row + offset) % (2 * size)
    column = np.where(position < size, position, 2 * size - 1 - position)
    matrix = np.zeros((size, size))
    np.add.at(matrix, (row, column), weight / weight.sum())
    return matrix.astype(np.float32)


def make_task(folder: str | None = None) -> Task:
    """The task with the images in a folder of MNIST's or EMNIST's files, or with rendered letters if none is given.

    >>> make_task().prior.sample(2, np.random.default_rng(0)).shape
    (2, 28, 28)
    """
    prior, test_prior = (IdxImages(folder, "train"), IdxImages(folder, "test")) if folder else (Glyphs(), Glyphs())
    return Task(
        name=f"camera:{folder}" if folder else "camera",
        description="Noisy camera: a letter or digit of 28 x 28 pixels from its noisy, blurred image",
        prior=prior,
        simulator=simulate,
        parameter_names=tuple(f"pixel_{row}_{column}" for row in range(SIDE) for column in range(SIDE)),
        theta_shape=(SIDE, SIDE),
        x_shape=(SIDE, SIDE),
        test_prior=test_prior,
        pair=partial(_observation_pair, test_prior),
        settings=Settings(simulations=20_000, test=300, num_samples=100),
        training={"time_limit": 240.0, "max_steps": 5000},
    )


def _observation_pair(prior: Prior, i: int) -> tuple[np.ndarray, np.ndarray]:
    """The true image and the data of observation ``i``."""
    rng = np.random.default_rng([i, SIDE])
    theta = prior.sample(1, rng)
    return theta[0], simulate(theta, rng)[0]


TASK = replace(make_task(os.environ.get(FOLDER_VARIABLE)), name="camera")
