r"""Images of letters and digits, rendered from fonts: a prior similar to handwriting that needs no download.

Every glyph is rendered once, at high resolution and with several stroke widths. An image is one of them under a random
deformation of the plane,

.. math:: \theta(p) = \mathrm{glyph}\big(A p + b + e(p)\big), \qquad
          e(p) = \sum_k c_k \exp(-\|p - q_k\|^2 / 2 \ell^2), \quad c_k \sim N(0, s^2 I),

affine (:math:`A`: size, slant, rotation) and elastic (:math:`e`), on 28 x 28 pixels of 256 grey values from 0 to 1.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
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
STROKES = (0, 1, 2)  # pixels added around the rendered glyph
RENDER_SIDE, GLYPH_SIDE = 64, 42  # pixels: the rendered image, and the longer side of the glyph in it
SCALE = RENDER_SIDE / SIDE
KNOTS = 4  # of the elastic deformation, per axis
MAX_IMAGES_PER_BLOCK = 250  # a block fits the processor cache


class Glyphs:
    """Distorted letters and digits, ``(28, 28)``; the density is unknown.

    Arguments:
        bend: The standard deviation of the elastic deformation, in pixels.
        turn: The standard deviation of rotation and slant, in radians.
        grow: The standard deviation of the logarithm of the size.
        move: The standard deviation of the position, in pixels.

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
        size = MAX_IMAGES_PER_BLOCK
        blocks = [self._sample(min(size, n - start), rng) for start in range(0, n, size)]
        return np.concatenate(blocks) if blocks else np.zeros((0, SIDE, SIDE), np.float32)

    def _sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        glyphs = atlas()
        index = rng.integers(len(glyphs), size=n)
        points = self._points(n, rng) * np.float32(SCALE) + np.float32((RENDER_SIDE - 1) / 2)
        brightness = rng.uniform(1.05, 1.35, (n, 1)).astype(np.float32)  # above 1: strokes are saturated
        grey = np.clip(brightness * _interpolate(glyphs, index, points) - np.float32(0.03), 0, 1)
        image: np.ndarray = np.rint(255 * grey) / np.float32(255)
        return image.reshape(n, SIDE, SIDE)

    def _points(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """The point of the glyph that each pixel shows, ``(n, 2, 784)``, in pixels from the centre."""
        angle, slant = rng.normal(0, self.turn, (2, n))
        size = np.exp(rng.normal(0, self.grow, (n, 2)))
        rotation = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]).transpose(2, 0, 1)
        shear = np.broadcast_to(np.eye(2), (n, 2, 2)).copy()
        shear[:, 1, 0] = slant  # columns shift with their row
        grid, basis = _pixels()
        affine = (rotation @ shear / size[:, :, None]).astype(np.float32) @ grid
        elastic = rng.normal(0, self.bend, (n, 2, len(basis))).astype(np.float32) @ basis
        points: np.ndarray = affine + elastic + rng.normal(0, self.move, (n, 2, 1)).astype(np.float32)
        return points


def _interpolate(glyphs: np.ndarray, index: np.ndarray, points: np.ndarray) -> np.ndarray:
    """The glyphs ``(k, 64, 64)`` at points ``(n, 2, p)``, interpolated bilinearly, ``(n, p)``; zero outside."""
    np.clip(points, 0, RENDER_SIDE - 1.001, out=points)  # the border of every glyph is empty
    corner = points.astype(np.int32)
    down, right = (points - corner.astype(np.float32)).transpose(1, 0, 2)
    first = (index[:, None] * RENDER_SIDE + corner[:, 0]) * RENDER_SIDE + corner[:, 1]
    flat = glyphs.reshape(-1)
    above = flat[first] * (1 - right) + flat[first + 1] * right
    below = flat[first + RENDER_SIDE] * (1 - right) + flat[first + RENDER_SIDE + 1] * right
    values: np.ndarray = above * (1 - down) + below * down
    return values


@cache
def _pixels() -> tuple[np.ndarray, np.ndarray]:
    """The coordinates ``(2, 784)`` of the pixels, and the elastic basis ``(16, 784)``, whose sum has unit variance."""
    axis = np.arange(SIDE) - (SIDE - 1) / 2
    grid = np.stack([part.ravel() for part in np.meshgrid(axis, axis, indexing="ij")])
    knots = np.linspace(axis[0], axis[-1], KNOTS)
    centres = np.stack([part.ravel() for part in np.meshgrid(knots, knots, indexing="ij")], 1)
    distance = ((grid[None] - centres[:, :, None]) ** 2).sum(1)
    basis = np.exp(-distance / (2 * (SIDE / KNOTS) ** 2))
    return grid.astype(np.float32), (basis / np.sqrt((basis**2).sum(0))).astype(np.float32)


@cache
def atlas() -> np.ndarray:
    """Every glyph in every font and stroke width, ``(k, 64, 64)``, slightly blurred, with an empty border."""
    from PIL import Image, ImageDraw, ImageFilter, ImageFont

    images = []
    for name in FONTS:
        for stroke in STROKES:
            for character in CHARACTERS:
                font = _sized_font(ImageFont, name, character)
                box = font.getbbox(character, stroke_width=stroke)
                image = Image.new("L", (RENDER_SIDE, RENDER_SIDE))
                origin = ((RENDER_SIDE - box[0] - box[2]) / 2, (RENDER_SIDE - box[1] - box[3]) / 2)
                ImageDraw.Draw(image).text(origin, character, fill=255, font=font, stroke_width=stroke, stroke_fill=255)
                # A pixel of the final image covers more than two pixels of the rendered one.
                images.append(np.asarray(image.filter(ImageFilter.GaussianBlur(0.5 * SCALE))))
    glyphs = np.stack(images).astype(np.float32) / 255
    glyphs[:, [0, -1]] = 0
    glyphs[:, :, [0, -1]] = 0
    return glyphs


def _sized_font(fonts: ModuleType, name: str, character: str) -> Any:
    """The font in the size in which the longer side of this character has the common length."""
    spec = find_spec("matplotlib")
    if spec is None or not spec.submodule_search_locations:
        raise InputError("The glyphs need the fonts of matplotlib, which is not installed.")
    path = Path(spec.submodule_search_locations[0]) / "mpl-data" / "fonts" / "ttf" / f"{name}.ttf"
    if not path.is_file():
        raise InputError(f"The font '{path}' is missing: install matplotlib again.")
    left, top, right, bottom = fonts.truetype(path, 100).getbbox(character)
    return fonts.truetype(path, 100 * GLYPH_SIDE / max(right - left, bottom - top))
