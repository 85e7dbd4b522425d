"""A repository's own preprocessing, in our keys.

Two dialects are read: `preprocessor_config.json` of transformers, and `config.json` of timm (its
`pretrained_cfg`). What is not understood for certain gives None and the user's settings apply: a
guess here would be a loss that nobody finds.

The result has `channels`, `layout`, `mean` and `std` (on 0-255 values), and where they apply
`resize` (a number: short side; [height, width]: stretched to that), `crop` (a number or
[height, width]) and `interpolation`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seqto.records import Json

CONFIG_NAMES = ("preprocessor_config.json", "config.json")
LARGEST_CONFIG_BYTES = 1 << 20
PIL_RESAMPLING = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic", 4: "box", 5: "hamming"}


class _UnclearError(Exception):
    """The config says something that our preprocessing cannot do, or says it strangely."""


def read_preprocess(path: Path) -> Json | None:
    """Return preprocessing from a config file, or None when it holds none that we understand."""
    try:
        if path.stat().st_size > LARGEST_CONFIG_BYTES:
            return None
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return translate(config)


def translate(config: Any) -> Json | None:
    if not isinstance(config, Mapping):
        return None
    timm = config.get("pretrained_cfg", config)
    try:
        if isinstance(timm, Mapping) and "input_size" in timm:
            return _from_timm(timm)
        if "image_mean" in config or "do_normalize" in config or "do_rescale" in config:
            return _from_transformers(config)
    except _UnclearError:
        pass
    return None


def _from_timm(config: Mapping[str, Any]) -> Json:
    """Return evaluation as timm does it: short side to size / crop_pct, then the centre."""
    size = config["input_size"]
    if not isinstance(size, list) or len(size) != 3 or size[0] != 3:
        raise _UnclearError
    height, width = _side(size[1]), _side(size[2])
    share = _share(config.get("crop_pct") or 0.875)
    scaled = [math.floor(height / share), math.floor(width / share)]
    mode = config.get("crop_mode") or "center"
    result = _normalisation(_triple(config.get("mean")), _triple(config.get("std")), scale=1 / 255)
    if mode == "squash":
        result["resize"] = scaled
    elif mode == "center" and height == width:
        result["resize"] = scaled[0]
    else:
        # "border" pads, and a centre that is not square is resized by the ratio of its sides
        raise _UnclearError
    result["crop"] = height if height == width else [height, width]
    if config.get("interpolation") in PIL_RESAMPLING.values():
        result["interpolation"] = config["interpolation"]
    return result


def _from_transformers(config: Mapping[str, Any]) -> Json:
    kind = str(config.get("image_processor_type") or config.get("feature_extractor_type") or "")
    # include_top: EfficientNet normalises twice; do_pad, do_thumbnail and do_align_long_axis
    # change the picture's shape in ways of their own
    for odd in ("include_top", "do_pad", "do_thumbnail", "do_align_long_axis"):
        if config.get(odd):
            raise _UnclearError
    rescale = config.get("do_rescale", True)
    scale = _number(config.get("rescale_factor", 1 / 255)) if rescale else 1.0
    offset = 1.0 if rescale and config.get("rescale_offset") else 0.0
    mean, std = [0.0] * 3, [1.0] * 3
    if config.get("do_normalize", True):
        mean, std = _triple(config.get("image_mean")), _triple(config.get("image_std"))
    result = _normalisation([m + offset for m in mean], std, scale=scale)
    if config.get("do_flip_channel_order"):
        result["channels"] = "BGR"
    if config.get("do_resize", "size" in config):
        result["resize"] = _transformers_size(config)
    if config.get("do_center_crop"):
        crop = _extent(config.get("crop_size", config.get("size")), square=True)
        result["crop"] = crop[0] if crop[0] == crop[1] else crop
    if kind.startswith("ConvNext"):
        result = _like_convnext(config, result)
    elif kind.startswith("Levit") and isinstance(result.get("resize"), int):
        result["resize"] = int(result["resize"] * 256 / 224)
    elif config.get("crop_pct") and isinstance(result.get("resize"), int):
        result["resize"] = int(result["resize"] / _share(config["crop_pct"]))
    resample = config.get("resample")
    if isinstance(resample, int) and resample in PIL_RESAMPLING:
        result["interpolation"] = PIL_RESAMPLING[resample]
    return result


def _transformers_size(config: Mapping[str, Any]) -> int | list[int]:
    size = config.get("size")
    if isinstance(size, Mapping) and set(size) == {"shortest_edge"}:
        return _side(size["shortest_edge"])
    # old configs write a plain number: the short side where a crop follows, a square otherwise
    if isinstance(size, int) and config.get("do_center_crop"):
        return _side(size)
    return _extent(size, square=True)


def _like_convnext(config: Mapping[str, Any], result: Json) -> Json:
    """Apply ConvNeXt's rule: below 384 pixels crop by a share, from there on stretch."""
    side = result.get("resize")
    if isinstance(side, list) and side[0] == side[1]:
        side = side[0]
    if not isinstance(side, int):
        raise _UnclearError
    if side >= 384:
        return {**result, "resize": [side, side]}
    share = _share(config.get("crop_pct") or 224 / 256)
    return {**result, "resize": int(side / share), "crop": side}


def _normalisation(mean: list[float], std: list[float], *, scale: float) -> Json:
    """Return mean and std of (x * scale - mean) / std, written for x in 0-255."""
    if scale < 1e-6 or any(s < 1e-6 for s in std):
        raise _UnclearError
    return {
        "channels": "RGB",
        "layout": "NCHW",
        "mean": [_tidy(m / scale) for m in mean],
        "std": [_tidy(s / scale) for s in std],
    }


def _tidy(value: float) -> float:
    """Round to the digits that were meant: 0.485 * 255 is 123.675, not 123.67499999999998."""
    return round(value, 9)


def _extent(size: Any, *, square: bool) -> list[int]:
    if isinstance(size, Mapping) and set(size) == {"height", "width"}:
        return [_side(size["height"]), _side(size["width"])]
    if square and isinstance(size, Mapping) and set(size) == {"shortest_edge"}:
        return [_side(size["shortest_edge"])] * 2
    if square and isinstance(size, int):
        return [_side(size)] * 2
    raise _UnclearError


def _side(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= 1 << 14:
        raise _UnclearError
    return value


def _share(value: Any) -> float:
    share = _number(value)
    if not 0.1 <= share <= 1:  # no model crops less than a tenth; smaller ones make giant pictures
        raise _UnclearError
    return share


def _number(value: Any) -> float:
    # the bounds are far outside of what any config means and keep all arithmetic finite
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e6:
        raise _UnclearError
    return float(value)


def _triple(values: Any) -> list[float]:
    if not isinstance(values, list) or len(values) != 3:
        raise _UnclearError
    return [_number(value) for value in values]
