"""Preprocessing: from one sample to the input that a model takes, in two halves.

What makes a picture smaller (resize, crop, grey) is done once, when samples are stored; what
makes it four times larger (normalising) whenever they are read.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from seqto.data.geometry import (
    INTERPOLATIONS,
    MAX_PIXELS,
    Fit,
    Sides,
    letterbox_fit,
    place,
    stretch_fit,
)
from seqto.errors import ConfigError, DataError, nearest
from seqto.records import InputSpec, Json

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from seqto.records import Array

CHANNELS = ("RGB", "BGR", "GRAY")
LAYOUTS = ("NCHW", "NHWC")
SIDES = ("resize", "crop", "letterbox", "stretch")  # settings in pixels


class InputMismatchError(DataError):
    """Data and model or settings do not fit: not the fault of one sample, so it ends a build."""


class UnreadableError(DataError):
    """One sample that cannot be read; `sample` is its name, for the list in the report."""

    def __init__(self, sample: str, reason: str) -> None:
        super().__init__(f"{sample!r}: {reason}")
        self.sample = sample


@dataclass(frozen=True, slots=True)
class Preprocess:
    """Steps from a picture to an input: resize, centre crop, (value - mean) / std * scale.

    A resize of one number is that of the short side; a pair (height, width) is the exact size.
    In place of resize and crop, `letterbox` keeps the aspect and fills the rest with `fill`, and
    `stretch` does not keep it; of both, one number is a square.
    Mean and std are on 0-255 values in the order of channels; one number serves all channels.
    """

    resize: Sides | None = None
    crop: Sides | None = None
    channels: str = "RGB"
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    layout: str = "NCHW"
    scale: float | None = None
    interpolation: str = "bicubic"
    letterbox: Sides | None = None
    fill: int = 114  # 0-255, all channels: around a letterboxed picture
    stretch: Sides | None = None

    def __post_init__(self) -> None:
        self._check_fit()
        for key, known in _CHOICES.items():
            value = getattr(self, key)
            if value not in known:
                raise ConfigError(f"preprocess.{key} = {value!r} is none of {', '.join(known)}")
        for key in SIDES:
            sides = getattr(self, key)
            if sides is not None and min(_pair(sides)) < 1:
                raise ConfigError(f"preprocess.{key} = {sides!r} must be at least 1 pixel")
        if self.resize is not None and self.crop is not None:
            smaller = zip(_pair(self.resize), _pair(self.crop), strict=True)
            if any(side < crop for side, crop in smaller):
                raise ConfigError(
                    f"preprocess.crop = {self.crop} is larger than preprocess.resize = "
                    f"{self.resize}: raise resize or lower crop"
                )
        count, counts = (1, "1") if self.channels == "GRAY" else (3, "1 or 3")
        for key in ("mean", "std"):
            values = getattr(self, key)
            if len(values) not in (1, count) or not all(map(math.isfinite, values)):
                raise ConfigError(
                    f"preprocess.{key} = {list(values)} must be {counts} finite numbers, "
                    f"as channels = {self.channels!r}"
                )
        if 0.0 in self.std:
            raise ConfigError(f"preprocess.std = {list(self.std)} has a zero to divide by")

    def _check_fit(self) -> None:
        """Check that there is one way to the input's size, and that the fill is a pixel's value."""
        ways = [key for key in ("letterbox", "stretch") if getattr(self, key) is not None]
        others = [key for key in SIDES if key not in ways[:1] and getattr(self, key) is not None]
        if ways and others:
            raise ConfigError(
                f"preprocess.{ways[0]} and preprocess.{others[0]} are both set: one of them makes "
                "the input's size, leave the other out"
            )
        if not 0 <= self.fill <= 255:
            raise ConfigError(f"preprocess.fill = {self.fill} must be between 0 and 255")

    def to_json(self) -> Json:
        """Return all settings; those of letterbox and stretch only where they are set."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        if self.letterbox is None:
            del values["letterbox"], values["fill"]
        if self.stretch is None:
            del values["stretch"]
        return {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Preprocess:
        known = [f.name for f in dataclasses.fields(cls)]
        values: dict[str, Any] = {}
        for key, value in data.items():
            if key not in known:
                raise ConfigError(f"unknown key preprocess.{key}{nearest(key, known)}")
            try:
                values[key] = _parsed(key, value)
            except (TypeError, ValueError, OverflowError) as error:
                raise ConfigError(
                    f"preprocess.{key} = {value!r} cannot be used: {error}"
                ) from error
        return cls(**values)


_CHOICES = {"channels": CHANNELS, "layout": LAYOUTS, "interpolation": INTERPOLATIONS}


def _parsed(key: str, value: Any) -> Any:
    if key in ("mean", "std"):
        return tuple(float(v) for v in (value if isinstance(value, list | tuple) else [value]))
    if key == "fill" and (isinstance(value, bool) or not isinstance(value, int)):
        raise ValueError("a whole number from 0 to 255 is needed")
    if key in SIDES and value is not None:
        numbers = list(value) if isinstance(value, list | tuple) else [value]
        if any(isinstance(v, bool) or int(v) != v for v in numbers):
            raise ValueError("a whole number of pixels is needed")
        if not isinstance(value, list | tuple):
            return int(value)
        height, width = numbers
        return (int(height), int(width))
    if key == "scale" and value is not None:
        return float(value)
    return value


def _pair(sides: Sides) -> tuple[int, int]:
    return sides if isinstance(sides, tuple) else (sides, sides)


def fit_picture(pixels: Array, preprocess: Preprocess) -> NDArray[np.uint8]:
    """Resize, crop and grey one uint8 picture (H×W or H×W×C, RGB); returns H×W×C, RGB or grey."""
    picture = pixels[:, :, 0] if pixels.ndim == 3 and pixels.shape[2] == 1 else pixels
    if picture.ndim not in (2, 3) or (picture.ndim == 3 and picture.shape[2] != 3):
        raise InputMismatchError(
            f"a picture has shape {sizes(pixels.shape)}; H×W, H×W×1 or H×W×3 is needed"
        )
    if picture.ndim == 2 and preprocess.channels != "GRAY":
        raise InputMismatchError(
            f"the pictures have one channel, preprocess.channels is {preprocess.channels!r}: "
            "set preprocess.channels = 'GRAY' or give pictures with three channels"
        )
    if 0 in picture.shape:
        raise DataError(f"a picture is empty: {sizes(pixels.shape)}")
    to_grey = picture.ndim == 3 and preprocess.channels == "GRAY"
    if preprocess.letterbox is not None or preprocess.stretch is not None:
        return _fitted(picture, preprocess, to_grey=to_grey)
    size = _resized(picture.shape[0], picture.shape[1], preprocess.resize)
    if to_grey or size != picture.shape[:2]:
        from PIL import Image

        image = Image.fromarray(np.ascontiguousarray(picture))
        image = image.convert("L") if to_grey else image
        method = Image.Resampling[preprocess.interpolation.upper()]
        picture = np.asarray(image.resize(size[::-1], method))
    cropped = _centre(picture, preprocess.crop)
    # ours alone: a view would keep the whole decoded picture alive
    return np.array(cropped if cropped.ndim == 3 else cropped[:, :, None], dtype=np.uint8)


def _fitted(picture: Array, preprocess: Preprocess, *, to_grey: bool) -> NDArray[np.uint8]:
    if to_grey:
        from PIL import Image

        picture = np.asarray(Image.fromarray(np.ascontiguousarray(picture)).convert("L"))
    fit = picture_fit(picture.shape[0], picture.shape[1], preprocess)
    assert fit is not None
    placed = place(
        picture.astype(np.uint8), fit, fill=preprocess.fill, interpolation=preprocess.interpolation
    )
    return placed if placed.ndim == 3 else placed[:, :, None]


def picture_fit(height: int, width: int, preprocess: Preprocess) -> Fit | None:
    """Return where a picture of this size lies in the input; None without letterbox or stretch."""
    if preprocess.letterbox is not None:
        return letterbox_fit(height, width, sides=preprocess.letterbox)
    if preprocess.stretch is not None:
        return stretch_fit(height, width, sides=preprocess.stretch)
    return None


def _resized(height: int, width: int, resize: Sides | None) -> tuple[int, int]:
    if resize is None or isinstance(resize, tuple):
        return resize or (height, width)
    short = min(height, width)
    size = (resize * height // short, resize * width // short)
    if size[0] * size[1] > MAX_PIXELS:
        raise DataError(
            f"picture of {height}×{width} would have {size[0] * size[1] / 1e6:.0f} million pixels "
            f"with its short side resized to {resize}"
        )
    return size


def _centre(picture: Array, crop: Sides | None) -> Array:
    if crop is None:
        return picture
    height, width = _pair(crop)
    if picture.shape[0] < height or picture.shape[1] < width:
        raise DataError(
            f"picture of {picture.shape[0]}×{picture.shape[1]} is smaller than the crop of "
            f"{height}×{width}: set preprocess.resize"
        )
    # torch rounds half to even here; the networks of the zoo were measured with that
    top, left = round((picture.shape[0] - height) / 2), round((picture.shape[1] - width) / 2)
    return picture[top : top + height, left : left + width]


def normalise(pixels: Array, preprocess: Preprocess) -> NDArray[np.float32]:
    """Return uint8 N×H×W×C (RGB or grey) as float32 in the order of channels and layout."""
    picture = pixels[..., ::-1] if preprocess.channels == "BGR" else pixels
    mean, std = (np.array(v, dtype=np.float32) for v in (preprocess.mean, preprocess.std))
    if preprocess.layout == "NCHW":
        picture = picture.transpose(0, 3, 1, 2)
        mean, std = mean[:, None, None], std[:, None, None]
    out = np.array(picture, dtype=np.float32, order="C")
    out -= mean
    out /= std
    if preprocess.scale is not None:
        out *= np.float32(preprocess.scale)
    return out


def sizes(shape: tuple[int | None, ...]) -> str:
    """Format a shape for a message: 3×224×224, with ? for open axes."""
    return "×".join("?" if side is None else str(side) for side in shape) or "scalar"


def prepare_row(
    value: Array, spec: InputSpec, preprocess: Preprocess | None
) -> tuple[NDArray[np.generic], bool]:
    """Return one row as it is stored, and whether it is a picture still to be normalised.

    Pictures are uint8 rows of two or three axes for an input of four. All else passes as it is,
    without preprocessing, in the type that the input takes.
    """
    row, dtype = np.asarray(value), np.dtype(spec.dtype)
    if row.ndim == len(spec.shape) and row.shape[0] == 1:
        row = row[0]  # a batch of one
    takes_pixels = dtype.kind == "f" or (dtype == np.uint8 and preprocess is not None)
    if row.dtype == np.uint8 and row.ndim in (2, 3) and len(spec.shape) == 4 and takes_pixels:
        if preprocess is None:
            raise InputMismatchError(
                f"input {spec.name!r} takes {spec.dtype}, the data are uint8 pictures: set "
                "preprocess (mean, std, channels, layout) or one of its presets"
            )
        if dtype == np.uint8 and ({*preprocess.mean}, {*preprocess.std}) != ({0.0}, {1.0}):
            raise InputMismatchError(
                f"input {spec.name!r} takes uint8 pixels: leave preprocess.mean and std out"
            )
        picture = fit_picture(row, preprocess)
        height, width, depth = picture.shape
        nchw = preprocess.layout == "NCHW"
        _check_shape(spec, (depth, height, width) if nchw else picture.shape, preprocess)
        return picture, True
    cast = _cast(row, dtype, spec.name)
    _check_shape(spec, cast.shape, None)
    return cast, False


def _cast(row: Array, dtype: np.dtype[np.generic], name: str) -> Array:
    if not np.can_cast(row.dtype, dtype, "same_kind"):
        raise InputMismatchError(
            f"input {name!r} takes {dtype}, the data are {row.dtype}: convert them"
        )
    cast = np.ascontiguousarray(row, dtype=dtype).reshape(row.shape)  # 0 axes stay 0
    if dtype.kind in "iu" and not np.array_equal(cast, row):
        raise DataError(f"input {name!r} has values that do not fit into {dtype}")
    if dtype.kind == "f" and np.isnan(cast).any():
        raise DataError(f"input {name!r} has values that are not a number")
    return cast


def _check_shape(spec: InputSpec, got: tuple[int, ...], preprocess: Preprocess | None) -> None:
    shape = spec.shape[1:]
    if _fits(shape, got) and spec.shape:
        return
    hint = "give arrays of that shape, without the batch axis"
    if preprocess is not None:
        hint = _way_out(shape, got, preprocess)
    raise InputMismatchError(
        f"input {spec.name!r} takes {sizes(shape)} a sample, the data give {sizes(got)}: {hint}"
    )


def _fits(shape: tuple[int | None, ...], got: tuple[int, ...]) -> bool:
    pairs = zip(shape, got, strict=False)
    return len(shape) == len(got) and all(w is None or w == g for w, g in pairs)


def _way_out(shape: tuple[int | None, ...], got: tuple[int, ...], preprocess: Preprocess) -> str:
    other = "NHWC" if preprocess.layout == "NCHW" else "NCHW"
    turned = (*got[1:], got[0]) if preprocess.layout == "NCHW" else (got[2], *got[:2])
    depths = {"NCHW": shape[0], "NHWC": shape[2]}
    depth = depths[preprocess.layout]
    if _fits(shape, turned) or (depth not in (1, 3, None) and depths[other] in (1, 3)):
        return f"set preprocess.layout = {other!r}"
    if depth not in (1, 3, None):
        return f"pictures have 1 or 3 channels, for {depth} give float arrays"
    if depth is not None and depth != (1 if preprocess.channels == "GRAY" else 3):
        return f"set preprocess.channels = {'GRAY' if depth == 1 else 'RGB'!r}"
    height, width = shape[1:] if preprocess.layout == "NCHW" else shape[:2]
    side = f"{height}" if height == width else f"[{height or '?'}, {width or '?'}]"
    if preprocess.letterbox is not None or preprocess.stretch is not None:
        return (
            f"set preprocess.{'stretch' if preprocess.letterbox is None else 'letterbox'} = {side}"
        )
    return (
        f"set preprocess.crop = {side} (and preprocess.resize to at least that), or "
        f"preprocess.letterbox = {side} (aspect kept), or preprocess.stretch = {side}"
    )
