"""Geometry of pictures in a model's input, and of boxes from one to the other.

x_input = x_picture · scale_x + left, y_input = y_picture · scale_y + top
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from seqto.errors import ConfigError, DataError
from seqto.records import Json

if TYPE_CHECKING:
    from numpy.typing import NDArray

INTERPOLATIONS = ("nearest", "bilinear", "bicubic", "lanczos")
MAX_PIXELS = 2**27  # a strip of 1 × 10⁶ pixels would grow beyond memory when it is resized

Sides = int | tuple[int, int]  # one number: a square; a pair: height, width


@dataclass(frozen=True, slots=True)
class Fit:
    """The place of a picture in an input of `height` × `width` pixels."""

    scale_x: float
    scale_y: float
    left: int
    top: int
    height: int
    width: int

    def to_json(self) -> Json:
        return {
            "scale_x": self.scale_x,
            "scale_y": self.scale_y,
            "left": self.left,
            "top": self.top,
            "height": self.height,
            "width": self.width,
        }

    @classmethod
    def from_json(cls, data: Json) -> Fit:
        return cls(**data)

    def to_input(self, boxes: NDArray[Any]) -> NDArray[np.float64]:
        """Return boxes x1, y1, x2, y2 of the picture in input pixels."""
        return np.asarray(boxes, np.float64).reshape(-1, 4) * self._scales + self._offsets

    def to_picture(self, boxes: NDArray[Any]) -> NDArray[np.float64]:
        """Return boxes x1, y1, x2, y2 of the input in picture pixels."""
        return (np.asarray(boxes, np.float64).reshape(-1, 4) - self._offsets) / self._scales

    @property
    def _scales(self) -> NDArray[np.float64]:
        return np.array([self.scale_x, self.scale_y, self.scale_x, self.scale_y])

    @property
    def _offsets(self) -> NDArray[np.float64]:
        return np.array([self.left, self.top, self.left, self.top], dtype=np.float64)


def letterbox_fit(height: int, width: int, *, sides: Sides) -> Fit:
    """Return how a picture fits into `sides` with its aspect kept, centred."""
    high, wide = pair(sides)
    ratio = min(wide / width, high / height)
    # a strip of 1 × 10,000 pixels still has one pixel of width
    inner_h, inner_w = max(round(height * ratio), 1), max(round(width * ratio), 1)
    left, top = (wide - inner_w) // 2, (high - inner_h) // 2
    return Fit(inner_w / width, inner_h / height, left, top, high, wide)


def stretch_fit(height: int, width: int, *, sides: Sides) -> Fit:
    """Return how a picture fills `sides`, its aspect not kept."""
    high, wide = pair(sides)
    return Fit(wide / width, high / height, 0, 0, high, wide)


def letterbox(
    pixels: NDArray[np.uint8], *, sides: Sides, fill: int = 114, interpolation: str = "bilinear"
) -> tuple[NDArray[np.uint8], Fit]:
    """Return the picture (H×W or H×W×C) in a canvas of `sides` filled with `fill`, and its fit."""
    if not 0 <= fill <= 255:
        raise ConfigError(f"preprocess.fill = {fill} must be between 0 and 255")
    fit = letterbox_fit(*_size(pixels), sides=sides)
    return place(pixels, fit, fill=fill, interpolation=interpolation), fit


def stretch(
    pixels: NDArray[np.uint8], *, sides: Sides, interpolation: str = "bilinear"
) -> tuple[NDArray[np.uint8], Fit]:
    """Return the picture (H×W or H×W×C) resized to exactly `sides`, and its fit."""
    fit = stretch_fit(*_size(pixels), sides=sides)
    return place(pixels, fit, interpolation=interpolation), fit


def place(
    pixels: NDArray[np.uint8], fit: Fit, *, fill: int = 0, interpolation: str = "bilinear"
) -> NDArray[np.uint8]:
    """Return the picture resized and pasted as `fit` says; masks take interpolation "nearest"."""
    from PIL import Image

    if interpolation not in INTERPOLATIONS:
        known = ", ".join(INTERPOLATIONS)
        raise ConfigError(f"preprocess.interpolation = {interpolation!r} is none of {known}")
    height, width = _size(pixels)
    inner = round(height * fit.scale_y), round(width * fit.scale_x)
    resized = np.asarray(pixels)
    if inner != (height, width):
        image = Image.fromarray(np.ascontiguousarray(pixels))
        resized = np.asarray(image.resize(inner[::-1], Image.Resampling[interpolation.upper()]))
    if inner == (fit.height, fit.width):
        return np.array(resized, dtype=np.uint8)
    canvas = np.full((fit.height, fit.width, *resized.shape[2:]), fill, dtype=np.uint8)
    canvas[fit.top : fit.top + inner[0], fit.left : fit.left + inner[1]] = resized
    return canvas


def pair(sides: Sides) -> tuple[int, int]:
    """Return height and width, checked."""
    high, wide = sides if isinstance(sides, tuple) else (sides, sides)
    if min(high, wide) < 1 or high * wide > MAX_PIXELS:
        raise ConfigError(
            f"an input of {high}×{wide} pixels cannot be made: preprocess.letterbox and "
            f"preprocess.stretch take sides from 1 to {MAX_PIXELS} pixels in all"
        )
    return high, wide


def _size(pixels: NDArray[np.uint8]) -> tuple[int, int]:
    if pixels.ndim not in (2, 3) or 0 in pixels.shape:
        shape = "×".join(map(str, pixels.shape)) or "scalar"
        raise DataError(f"a picture has shape {shape}; H×W or H×W×C is needed")
    return pixels.shape[0], pixels.shape[1]
