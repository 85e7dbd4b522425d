"""Which task a model is for, told by the shapes of its inputs and outputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from seqto.tasks.decoders import Size
from seqto.tasks.guess_decoder import Sides, guess_decoder

CLASSIFICATION, MULTI_LABEL, DETECTION = "classification", "multi-label", "detection"
SEGMENTATION, DENSE = "segmentation", "dense"
TEXT_CLASSIFICATION, EMBEDDING = "text-classification", "embedding"
LANGUAGE_MODEL = "language-model"
LEAST_WORDS = 256  # of a vocabulary; fewer scores a token are classes of tokens
COARSEST = 16  # a map with fewer than 1/16 of the input's rows is no mask


@dataclass(frozen=True, slots=True)
class Tensor:
    """One input or output: first axis samples, None for a size that is left open."""

    shape: Sides
    dtype: str = "float32"
    made_by: str = ""  # the op type that makes it, "" where not known

    @property
    def floats(self) -> bool:
        return self.dtype.startswith("float")


Tensors = Mapping[str, Tensor]


@dataclass(frozen=True, slots=True)
class TaskGuess:
    """A kind of task with settings, and one sentence about it for people."""

    kind: str
    sentence: str
    settings: Mapping[str, Any] = field(default_factory=dict)


def guess_task(inputs: Tensors, outputs: Tensors) -> TaskGuess:
    """Return the task that fits; `dense` where nothing does. The sentence says what was seen."""
    for rule in RULES:
        found = rule(inputs, outputs)
        if found is not None:
            return found
    name, first = next(iter(outputs.items()))
    return TaskGuess(
        DENSE,
        f"no known kind of task fits output {name!r} ({_sizes(first.shape)}): taken for dense, "
        "the relative error of its numbers counts",
    )


def picture_size(inputs: Tensors) -> Size | None:
    """Return height and width of the only picture that goes in; 0 where left open."""
    pictures = [t.shape for t in inputs.values() if len(t.shape) == 4]
    if len(pictures) != 1:
        return None
    (shape,) = pictures
    if shape[1] in (1, 3):
        return shape[2] or 0, shape[3] or 0
    return (shape[1] or 0, shape[2] or 0) if shape[3] in (1, 3) else None


def _detection(inputs: Tensors, outputs: Tensors) -> TaskGuess | None:
    size = picture_size(inputs)
    if size is None:
        return None
    shapes = {name: tensor.shape for name, tensor in outputs.items()}
    known = size if all(size) else None
    found = guess_decoder(shapes, size=known)
    if found is None:
        return None
    settings: dict[str, Any] = {"decode": found.decoder}
    for key in ("classes", "box_format", "activation", "normalised"):
        if getattr(found, key):
            settings[key] = getattr(found, key)
    if known:
        settings["size"] = known
    return TaskGuess(DETECTION, found.sentence, settings)


def _segmentation(inputs: Tensors, outputs: Tensors) -> TaskGuess | None:
    """A map over the picture: one soft channel by Sigmoid, class numbers, or classes × H × W."""
    size = picture_size(inputs)
    name, first = next(iter(outputs.items()))
    maps = None if size is None else _map(first, size)
    if maps is None:
        return None
    channels, layout = maps
    settings: dict[str, Any] = {"output": name}
    if layout != "NCHW":
        settings["layout"] = layout
    if not first.floats and channels == 1:
        words = f"class numbers in {name!r} ({_sizes(first.shape)})"
        settings["decode"] = "classes"
        return TaskGuess(SEGMENTATION, f"taken for segmentation: {words}", settings)
    if first.floats and channels == 1 and first.made_by == "Sigmoid":
        words = f"a soft mask in {name!r} ({_sizes(first.shape)})"
        settings["decode"] = "mask"
        return TaskGuess(SEGMENTATION, f"taken for segmentation: {words}", settings)
    # 3 channels are a picture again, 1 without Sigmoid is a depth map
    if first.floats and channels not in (1, 3):
        words = f"{channels} classes in {name!r} ({_sizes(first.shape)})"
        settings["decode"] = "classes"
        return TaskGuess(SEGMENTATION, f"taken for segmentation: {words}", settings)
    return None


def _scores(_inputs: Tensors, outputs: Tensors) -> TaskGuess | None:
    """One axis of scores: labels apart from each other by Sigmoid, else one class of them."""
    name, first = next(iter(outputs.items()))
    if not first.floats:
        return TaskGuess(CLASSIFICATION, f"taken for a classifier: integers in {name!r}")
    sides = [side for side in first.shape[1:] if side != 1]
    if len(sides) != 1 or sides[0] is None:
        return None
    if first.made_by == "Sigmoid":
        return TaskGuess(
            MULTI_LABEL,
            f"taken for a multi-label classifier: {sides[0]} scores by Sigmoid in {name!r}",
        )
    return TaskGuess(CLASSIFICATION, f"taken for a classifier: {sides[0]} scores in {name!r}")


def _map(tensor: Tensor, size: Size) -> tuple[int, str] | None:
    """Channels and layout of a map over the picture, None where it is none."""
    shape = tensor.shape
    options: list[tuple[Sides, int | None, str]] = []
    if len(shape) == 3:
        options = [(shape[1:], 1, "NCHW")]
    elif len(shape) == 4:
        options = [(shape[2:], shape[1], "NCHW"), (shape[1:3], shape[3], "NHWC")]
    for sides, channels, layout in options:
        if channels is not None and all(
            _covers(side, whole) for side, whole in zip(sides, size, strict=True)
        ):
            return channels, layout
    return None


def _covers(side: int | None, whole: int) -> bool:
    """Whether a map's side is the input's or a whole part of it."""
    if side is None or not whole:
        return side is None and not whole
    return side <= whole and whole % side == 0 and whole // side <= COARSEST


def _sizes(shape: Sides) -> str:
    return " × ".join("?" if side is None else str(side) for side in shape[1:]) or "one number"


def guess_text_task(inputs: Tensors, outputs: Tensors) -> TaskGuess | None:
    """Return the task of a model that is fed with texts; None where the outputs leave doubt."""
    for name, found in outputs.items():
        if not found.floats or len(found.shape) not in (2, 3):
            continue
        words, width = name.lower(), found.shape[-1]
        vector = any(word in words for word in ("hidden", "embed", "pool"))
        if len(found.shape) == 3 and not vector and (width or 0) >= LEAST_WORDS:
            seen = f"{width} scores a token in {name!r}"
            return TaskGuess(
                LANGUAGE_MODEL, f"taken for a language model: {seen}", {"output": name}
            )
        if vector:
            seen = f"vectors of {width or '?'} numbers in {name!r}"
            if len(found.shape) == 3:
                seen += ", their mean over a text's tokens"
            return TaskGuess(EMBEDDING, f"taken for an embedding: {seen}", {"output": name})
        if len(found.shape) == 2 and (width or 0) > 1:
            seen = f"{width} scores a text in {name!r}"
            return TaskGuess(
                TEXT_CLASSIFICATION, f"taken for a text classifier: {seen}", {"output": name}
            )
    return None


# the first rule that fits decides; a rule sees all inputs and outputs
RULES: tuple[Callable[[Tensors, Tensors], TaskGuess | None], ...] = (
    _detection,
    _segmentation,
    _scores,
)
