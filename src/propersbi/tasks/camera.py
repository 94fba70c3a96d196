r"""The noisy camera: a sharp image, from one that was counted photon by photon and then blurred (Ramesh et al. 2022).

An image :math:`\theta` of 28 x 28 pixels between 0 and 1 is seen as

.. math:: x = G_\sigma * \mathrm{clip}\big(\mathrm{Poisson}(N \theta) / N,\, 0,\, 1\big), \qquad
          N = 2^{\lceil \log_2 k \rceil},

where :math:`k` is the number of different grey values, of 256, in the image and :math:`G_\sigma` a Gaussian of three
pixels, reflected at the edges. The noise comes first and is blurred like the image: nothing hides the blurred detail
but the rounding of single-precision numbers.

The prior is one of handwriting: EMNIST, if the folder of its files is given (``PROPERSBI_EMNIST``), else letters and
digits from fonts, distorted (:mod:`propersbi.tasks.images.glyphs`).
"""

from __future__ import annotations

import os
from functools import cache, partial

import numpy as np

from propersbi.tasks.images.glyphs import SIDE, Glyphs
from propersbi.tasks.images.idx import IdxImages
from propersbi.tasks.task import Task
from propersbi.types import Prior

__all__ = ["TASK", "make_task", "simulate"]

BLUR, REACH = 3.0, 12  # pixels: standard deviation, and how far it is followed
FOLDER = "PROPERSBI_EMNIST"


def simulate(theta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """What the camera sees, ``(n, 28, 28)``, of images ``(n, 28, 28)``.

    >>> simulate(np.ones((1, 28, 28)), np.random.default_rng(0)).shape
    (1, 28, 28)
    """
    image = np.clip(np.asarray(theta, dtype=np.float32), 0, 1)
    level = _photons(image)[:, None, None]
    counts = np.zeros(image.shape, np.float32)
    lit = image > 0  # darkness needs no random numbers
    counts[lit] = rng.poisson((image * level)[lit])
    blur = blurring(image.shape[1])
    return blur @ np.clip(counts / level, 0, 1) @ blurring(image.shape[2]).T


def _photons(image: np.ndarray) -> np.ndarray:
    """How many photons make a pixel white, ``(n,)``: the power of two next to the number of grey values.

    Grey values are those of images in bytes: draws of a posterior, which lie between them, are as noisy as images are.
    """
    ordered = np.sort(np.rint(255 * image).astype(np.uint8).reshape(len(image), -1), axis=1)
    values = 1 + (ordered[:, 1:] != ordered[:, :-1]).sum(1)
    return np.exp2(np.ceil(np.log2(values))).astype(np.float32)


@cache
def blurring(size: int) -> np.ndarray:
    """The matrix ``(size, size)`` that blurs along one axis; what leaves at an end comes back reflected.

    >>> np.allclose(blurring(28).sum(1), 1)
    True
    """
    reach = np.arange(-REACH, REACH + 1)
    weight = np.exp(-0.5 * (reach / BLUR) ** 2)
    place = (np.arange(size)[:, None] + reach) % (2 * size)
    matrix = np.zeros((size, size))
    np.add.at(
        matrix,
        (np.arange(size)[:, None], np.where(place < size, place, 2 * size - 1 - place)),
        weight / weight.sum(),
    )
    return matrix.astype(np.float32)


def make_task(folder: str | None = None) -> Task:
    """The task with the images of a folder of EMNIST's files, or with drawn letters if there is none.

    >>> make_task().prior.sample(2, np.random.default_rng(0)).shape
    (2, 28, 28)
    """
    prior, fresh = (IdxImages(folder, "train"), IdxImages(folder, "test")) if folder else (Glyphs(), Glyphs())
    return Task(
        name="camera",
        description="Noisy camera: a letter or digit of 28 x 28 pixels from its noisy, blurred image",
        prior=prior,
        simulator=simulate,
        parameter_names=tuple(f"pixel_{row}_{column}" for row in range(SIDE) for column in range(SIDE)),
        theta_shape=(SIDE, SIDE),
        x_shape=(SIDE, SIDE),
        test_prior=fresh,
        pair=partial(_known, fresh),
        quick={"simulations": 20_000, "test": 300, "draws": 100, "training": {"time_limit": 240.0, "max_steps": 5000}},
    )


def _known(prior: Prior, i: int) -> tuple[np.ndarray, np.ndarray]:
    """True image and observation ``i``."""
    rng = np.random.default_rng([i, SIDE])
    theta = prior.sample(1, rng)
    return theta[0], simulate(theta, rng)[0]


TASK = make_task(os.environ.get(FOLDER))
