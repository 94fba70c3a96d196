r"""Letters and digits as images, drawn from fonts: a prior of handwriting that needs no download.

Every glyph is drawn once, large and in several stroke widths. An image is then a look at one of them through a random
map of the plane,

.. math:: \theta(p) = \mathrm{glyph}\big(A p + b + e(p)\big), \qquad
          e(p) = \sum_k c_k \exp(-\|p - q_k\|^2 / 2 \ell^2), \quad c_k \sim N(0, s^2 I),

affine (:math:`A`: size, slant, rotation) and elastic (:math:`e`), on 28 x 28 pixels of 256 grey values from 0 to 1.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from propersbi.types import InputError

__all__ = ["SIDE", "Glyphs"]

SIDE = 28
CHARACTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
FONTS = (
    "DejaVuSans",
    "DejaVuSans-Oblique",
    "DejaVuSerif-Italic",
    "DejaVuSansMono",
    "STIXGeneral",
    "STIXGeneralItalic",
    "cmss10",
    "cmtt10",
)
STROKES = (0, 1, 2)  # pixels of the large glyph added around it
LARGE, HEIGHT = 64, 42  # pixels: of the large picture, and of the longer side of the glyph in it
ZOOM = LARGE / SIDE
KNOTS = 4  # of the elastic map, along each axis
ROWS = 250  # images at once: what a processor's cache holds


class Glyphs:
    """Distorted letters and digits, ``(28, 28)``; can only be sampled.

    Arguments:
        bend: Standard deviation of the elastic map, in pixels.
        turn: Of the rotation and the slant, in radians.
        grow: Of the logarithm of the size.
        move: Of the place, in pixels.

    >>> images = Glyphs().sample(3, np.random.default_rng(0))
    >>> images.shape, bool((images == 0).mean() > 0.4)
    ((3, 28, 28), True)
    """

    lower, upper = 0.0, 1.0

    def __init__(self, *, bend: float = 1.0, turn: float = 0.15, grow: float = 0.1, move: float = 0.7) -> None:
        for name, value in {"bend": bend, "turn": turn, "grow": grow, "move": move}.items():
            if not 0 <= value <= SIDE:
                raise InputError(f"'{name}' must lie between 0 and {SIDE}, got {value}.")
        self.bend, self.turn, self.grow, self.move = bend, turn, grow, move

    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """``n`` images ``(n, 28, 28)``, single precision."""
        parts = [self._sample(min(ROWS, n - start), rng) for start in range(0, n, ROWS)]
        return np.concatenate(parts) if parts else np.zeros((0, SIDE, SIDE), np.float32)

    def _sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        glyphs = atlas()
        which = rng.integers(len(glyphs), size=n)
        places = self._places(n, rng) * np.float32(ZOOM) + np.float32((LARGE - 1) / 2)
        bright = rng.uniform(1.05, 1.35, (n, 1)).astype(np.float32)  # ink saturates inside the strokes
        grey = np.clip(bright * _look(glyphs, which, places) - np.float32(0.03), 0, 1)
        return (np.rint(255 * grey) / np.float32(255)).reshape(n, SIDE, SIDE)

    def _places(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Where each pixel looks, ``(n, 2, 784)``, in pixels from the middle of the glyph."""
        angle, slant = rng.normal(0, self.turn, (2, n))
        size = np.exp(rng.normal(0, self.grow, (n, 2)))
        rotation = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]).transpose(2, 0, 1)
        shear = np.broadcast_to(np.eye(2), (n, 2, 2)).copy()
        shear[:, 1, 0] = slant  # columns move with their row
        grid, basis = _pixels()
        affine = (rotation @ shear / size[:, :, None]).astype(np.float32) @ grid
        elastic = rng.normal(0, self.bend, (n, 2, len(basis))).astype(np.float32) @ basis
        return affine + elastic + rng.normal(0, self.move, (n, 2, 1)).astype(np.float32)


def _look(glyphs: np.ndarray, which: np.ndarray, places: np.ndarray) -> np.ndarray:
    """The glyphs ``(k, 64, 64)`` at places ``(n, 2, p)`` between their pixels, ``(n, p)``; nothing outside."""
    np.clip(places, 0, LARGE - 1.001, out=places)  # the rim of every glyph is empty
    corner = places.astype(np.int32)
    down, right = (places - corner.astype(np.float32)).transpose(1, 0, 2)
    first = (which[:, None] * LARGE + corner[:, 0]) * LARGE + corner[:, 1]
    flat = glyphs.reshape(-1)
    above = flat[first] * (1 - right) + flat[first + 1] * right
    below = flat[first + LARGE] * (1 - right) + flat[first + LARGE + 1] * right
    return above * (1 - down) + below * down


@cache
def _pixels() -> tuple[np.ndarray, np.ndarray]:
    """Coordinates ``(2, 784)`` of the pixels, and the bumps ``(16, 784)`` of elastic maps, of unit variance in sum."""
    axis = np.arange(SIDE) - (SIDE - 1) / 2
    grid = np.stack([part.ravel() for part in np.meshgrid(axis, axis, indexing="ij")])
    knots = np.linspace(axis[0], axis[-1], KNOTS)
    centres = np.stack([part.ravel() for part in np.meshgrid(knots, knots, indexing="ij")], 1)
    apart = ((grid[None] - centres[:, :, None]) ** 2).sum(1)
    bumps = np.exp(-apart / (2 * (SIDE / KNOTS) ** 2))
    return grid.astype(np.float32), (bumps / np.sqrt((bumps**2).sum(0))).astype(np.float32)


@cache
def atlas() -> np.ndarray:
    """Every glyph in every font and stroke width, ``(k, 64, 64)``, a little blurred, with an empty rim."""
    from PIL import Image, ImageDraw, ImageFilter, ImageFont

    pictures = []
    for name in FONTS:
        for stroke in STROKES:
            for character in CHARACTERS:
                font = _sized(ImageFont, name, character)
                box = font.getbbox(character, stroke_width=stroke)
                picture = Image.new("L", (LARGE, LARGE))
                middle = ((LARGE - box[0] - box[2]) / 2, (LARGE - box[1] - box[3]) / 2)
                ImageDraw.Draw(picture).text(
                    middle, character, fill=255, font=font, stroke_width=stroke, stroke_fill=255
                )
                # One pixel of an image covers more than two of the large picture.
                pictures.append(np.asarray(picture.filter(ImageFilter.GaussianBlur(0.5 * ZOOM))))
    glyphs = np.stack(pictures).astype(np.float32) / 255
    glyphs[:, [0, -1]] = 0
    glyphs[:, :, [0, -1]] = 0
    return glyphs


def _sized(fonts: Any, name: str, character: str) -> Any:
    """The font in the size in which the longer side of this character has the height of all."""
    spec = find_spec("matplotlib")
    if spec is None or not spec.submodule_search_locations:
        raise InputError("The glyphs are drawn from the fonts of matplotlib, which is not installed.")
    path = Path(spec.submodule_search_locations[0]) / "mpl-data" / "fonts" / "ttf" / f"{name}.ttf"
    if not path.is_file():
        raise InputError(f"The font '{path}' is missing: install matplotlib again.")
    left, top, right, bottom = fonts.truetype(path, 100).getbbox(character)
    return fonts.truetype(path, 100 * HEIGHT / max(right - left, bottom - top))
