"""Guess whether the first output is a map over the picture, from its shape, maker and name."""

from __future__ import annotations

from typing import Any

from seqto.tasks.candidates import Size
from seqto.tasks.levels import Sides
from seqto.tasks.task_guess import (
    SEGMENTATION,
    TaskGuess,
    Tensor,
    Tensors,
    picture_size,
    sizes_text,
)

COARSEST = 16  # a map with fewer than 1/16 of the input's rows is no mask
LEAST_CLASSES = 5  # of a map without other evidence: 1 to 4 may be depth, flow, colours, opacity
MOST_CLASSES = 256  # of a map; more channels are features
CLASS_MAKERS = ("Softmax", "LogSoftmax", "Resize", "Upsample")  # the last step of class maps
CLASS_WORDS = ("seg", "mask", "class", "logit", "prob", "label")


def guess_segmentation(inputs: Tensors, outputs: Tensors) -> TaskGuess | None:
    """Return a map over the picture: one channel by Sigmoid, class numbers, or classes × H × W."""
    size = picture_size(inputs)
    name, first = next(iter(outputs.items()))
    maps = None if size is None else _map(first, size)
    others = [t.shape for t in outputs.values() if len(t.shape) == 4]
    if maps is None or not all(_could_be(shape, first.shape) for shape in others):
        return None  # maps of several scales are the heads of a detector, or features
    channels, layout = maps
    settings: dict[str, Any] = {"output": name}
    if layout != "NCHW":
        settings["layout"] = layout
    if not first.floats and channels == 1:
        words = f"class numbers in {name!r} ({sizes_text(first.shape)})"
        settings["decode"] = "classes"
        return TaskGuess(SEGMENTATION, f"taken for segmentation: {words}", settings)
    if first.floats and channels == 1 and first.made_by == "Sigmoid":
        words = f"a soft mask in {name!r} ({sizes_text(first.shape)})"
        settings["decode"] = "mask"
        return TaskGuess(SEGMENTATION, f"taken for segmentation: {words}", settings)
    whole = _same_sides(first, inputs, layout=layout)
    if first.floats and _are_classes(name, first, channels, whole=whole):
        words = f"{channels} classes in {name!r} ({sizes_text(first.shape)})"
        settings["decode"] = "classes"
        return TaskGuess(SEGMENTATION, f"taken for segmentation: {words}", settings)
    return None


def _are_classes(name: str, tensor: Tensor, channels: int, *, whole: bool) -> bool:
    """Return whether a map's channels are scores of classes; `whole`: it has the picture's size.

    Three are a picture again and one is a depth map. A coarse map has key points or features as
    often as classes, so its maker or its name must say so.
    """
    if channels in (1, 3) or channels > MOST_CLASSES:
        return False
    if tensor.made_by in CLASS_MAKERS or any(word in name.lower() for word in CLASS_WORDS):
        return True
    return whole and channels >= LEAST_CLASSES


def _map(tensor: Tensor, size: Size) -> tuple[int, str] | None:
    """Return channels and layout of a map over the picture, None where it is none."""
    shape = tensor.shape
    options: list[tuple[Sides, int | None, str]] = []
    if len(shape) == 3:
        options = [(shape[1:], 1, "NCHW")]
    elif len(shape) == 4:
        options = [(shape[2:], shape[1], "NCHW"), (shape[1:3], shape[3], "NHWC")]
    for sides, channels, layout in options:
        # open though the picture's are known: sizes that are computed, as torch exports Resize
        computed = len(shape) == 4 and sides == (None, None)
        if channels is not None and (
            computed or all(_covers(side, whole) for side, whole in zip(sides, size, strict=True))
        ):
            return channels, layout
    return None


def _same_sides(tensor: Tensor, inputs: Tensors, *, layout: str) -> bool:
    """Return whether a map has the picture's height and width, as numbers or as names."""
    picture = next(t for t in inputs.values() if len(t.shape) == 4)
    return _sides(tensor, layout) == _sides(picture, _layout(picture.shape)) != (None, None)


def _sides(tensor: Tensor, layout: str) -> tuple[int | str | None, ...]:
    """Return height and width; the name of an axis where its size is left open."""
    names = tensor.names or ("",) * len(tensor.shape)
    sides = [side or name or None for side, name in zip(tensor.shape, names, strict=True)]
    return tuple(sides[-2:] if layout == "NCHW" else sides[-3:-1])


def _layout(shape: Sides) -> str:
    return "NCHW" if shape[1] in (1, 3) else "NHWC"


def _could_be(shape: Sides, other: Sides) -> bool:
    """Return whether two shapes are the same as far as they are known."""
    return len(shape) == len(other) and all(
        a == b or a is None or b is None for a, b in zip(shape, other, strict=True)
    )


def _covers(side: int | None, whole: int) -> bool:
    """Return whether a map's side is the input's or a whole part of it."""
    if side is None or not whole:
        return side is None and not whole
    return side <= whole and whole % side == 0 and whole // side <= COARSEST
