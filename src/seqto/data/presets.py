"""Preprocessing that well-known families of models were trained with, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from seqto.data.preprocess import Preprocess
from seqto.errors import ConfigError, nearest

PRESETS: Mapping[str, Preprocess] = {
    # torchvision, and most of what was exported from PyTorch
    "imagenet-torch": Preprocess(
        256, 224, mean=(123.675, 116.28, 103.53), std=(58.395, 57.12, 57.375)
    ),
    # Keras "tf" mode: MobileNets, Inception; -1 to 1
    "imagenet-tf": Preprocess(256, 224, mean=(127.5,), std=(127.5,)),
    # EfficientNet-Lite
    "imagenet-lite": Preprocess(256, 224, mean=(127.0,), std=(128.0,)),
    # Caffe and what was ported from it: BGR, means only
    "imagenet-caffe": Preprocess(256, 224, channels="BGR", mean=(104.0, 117.0, 123.0), std=(1.0,)),
    # 0 to 1, for exports that hold their own normalisation
    "imagenet-unit": Preprocess(256, 224, std=(255.0,)),
    "cifar10": Preprocess(mean=(125.307, 122.950, 113.865), std=(62.993, 62.089, 66.705)),
    "mnist": Preprocess(channels="GRAY", mean=(33.318,), std=(78.567,)),
    "fashion-mnist": Preprocess(channels="GRAY", mean=(127.5,), std=(127.5,)),
    # 0 to 255 as they are, for inputs of uint8 or exports that do everything themselves
    "raw": Preprocess(),
}


def preset(name: str) -> Preprocess:
    """Return the preset of that name."""
    if name not in PRESETS:
        known = list(PRESETS)
        tail = nearest(name, known) or f"; there are {', '.join(known)}"
        raise ConfigError(f"unknown preprocess preset {name!r}{tail}")
    return PRESETS[name]


def from_settings(settings: Mapping[str, Any]) -> Preprocess:
    """Read a `[data.preprocess]` table: keys of Preprocess, on top of a `preset` if any."""
    own = {key: value for key, value in settings.items() if key != "preset"}
    if "preset" not in settings:
        return Preprocess.from_json(own)
    base = preset(str(settings["preset"])).to_json()
    if "letterbox" in own or "stretch" in own:  # another way to the input's size
        del base["resize"], base["crop"]
    return Preprocess.from_json({**base, **own})
