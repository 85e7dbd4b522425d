"""The [data.preprocess] table of a config to begin with: what fits the input, said with its doubt.

A file seldom says how its pictures were made. The sizes are known, or those that the exporter has
noted; the normalisation is that of the family whose outputs the model has.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from seqto.tasks.task_guess import CLASSIFICATION, DETECTION, MULTI_LABEL, TaskGuess, Tensors

Json = dict[str, Any]
Size = tuple[int, int]

SMALLEST_IMAGENET = 96  # smaller pictures are of CIFAR's or MNIST's kind
OPEN_SIDES = {DETECTION: 640, CLASSIFICATION: 224, MULTI_LABEL: 224}
OPEN_SIDE = 320  # of maps; a multiple of 32, which nets that halve five times take
CROP_SHARE = 224 / 256  # of the short side, as classifiers are evaluated
NOTE = (
    "The file does not say how pictures were normalised: compare with the code that the model came",
    "with. mean and std are on 0-255 values, in the order of channels.",
)
# decoder → what its family feeds: YOLOX and FastestDet from OpenCV's BGR, SCRFD by InsightFace
FAMILIES: Mapping[str, Json] = {
    "yolox": {"channels": "BGR", "std": [1.0]},
    "fastestdet": {"channels": "BGR", "std": [255.0]},
    "levels": {"mean": [127.5], "std": [128.0]},
}
STRETCHED = ("fastestdet", "queries")  # decoders of families that do not keep the aspect


def preprocess_table(
    inputs: Tensors, guess: TaskGuess | None, noted: Mapping[str, str]
) -> tuple[Json, list[str]] | None:
    """Return the settings and the lines of comment about them; None without one picture input.

    `noted` are the metadata of the file.
    """
    pictures = [t for t in inputs.values() if len(t.shape) == 4]
    if len(pictures) != 1:
        return None
    (tensor,) = pictures
    last = tensor.shape[1] not in (1, 3)
    channels = tensor.shape[3] if last else tensor.shape[1]
    if channels not in (1, 3):
        return None
    sides = tensor.shape[1:3] if last else tensor.shape[2:4]
    kind = guess.kind if guess is not None else CLASSIFICATION
    size = _noted_size(sides, noted) or _usual_size(sides, kind)
    decoder = str(guess.settings.get("decode", "")) if guess is not None else ""
    table = _fit(size, kind, decoder) | _numbers(tensor.dtype, channels, size, kind, decoder)
    if last:
        table["layout"] = "NHWC"
    shown = " × ".join("?" if side is None else str(side) for side in sides)
    lines = [f"The model takes pictures of {shown} (height × width).", *NOTE]
    if None in sides:
        lines[0] += f" {_shown(size)} is taken: choose another size if you serve another."
    return table, lines


def _noted_size(sides: tuple[int | None, ...], noted: Mapping[str, str]) -> Size | None:
    """Return the size that an exporter has noted as `imgsz`, where the file leaves it open."""
    try:
        size = json.loads(noted.get("imgsz", "")) if None in sides else None
    except ValueError:
        return None
    if isinstance(size, int):
        size = [size, size]
    if not isinstance(size, list) or len(size) != 2:
        return None
    if not all(isinstance(side, int) and 0 < side <= 1 << 14 for side in size):
        return None
    return size[0], size[1]


def _usual_size(sides: tuple[int | None, ...], kind: str) -> Size:
    usual = OPEN_SIDES.get(kind, OPEN_SIDE)
    height, width = (side or usual for side in sides)
    return height, width


def _fit(size: Size, kind: str, decoder: str) -> Json:
    """Return settings by which a picture of any size becomes the input's size."""
    sides = size[0] if size[0] == size[1] else list(size)
    if kind == DETECTION and decoder not in STRETCHED:
        return {"letterbox": sides, "fill": 114, "interpolation": "bilinear"}
    square = size[0] == size[1]
    if kind in (CLASSIFICATION, MULTI_LABEL) and square and size[0] >= SMALLEST_IMAGENET:
        return {"resize": round(size[0] / CROP_SHARE), "crop": size[0]}
    return {"stretch": sides, "interpolation": "bilinear"}


def _numbers(dtype: str, channels: int, size: Size, kind: str, decoder: str) -> Json:
    """Return settings by which pixels become numbers."""
    if not dtype.startswith("float"):
        return {"channels": "RGB" if channels == 3 else "GRAY"}
    if channels == 1:
        return {"channels": "GRAY", "mean": [127.5], "std": [127.5]}
    if kind == DETECTION:
        return {"channels": "RGB", "mean": [0.0], "std": [255.0]} | FAMILIES.get(decoder, {})
    if min(size) < SMALLEST_IMAGENET:
        return {"channels": "RGB", "mean": [0.0], "std": [255.0]}
    return {
        "channels": "RGB",
        "mean": [123.675, 116.28, 103.53],
        "std": [58.395, 57.12, 57.375],
    }


def _shown(size: Size) -> str:
    return f"{size[0]} × {size[1]}"
