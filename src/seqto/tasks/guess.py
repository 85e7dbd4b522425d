"""Which task a model is for, told by the shapes of its inputs and outputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from seqto.tasks.decoders import Size
from seqto.tasks.guess_decoder import DecoderGuess, Sides, guess_decoder, is_grid
from seqto.tasks.levels import find_levels

CLASSIFICATION, MULTI_LABEL, DETECTION = "classification", "multi-label", "detection"
SEGMENTATION, DENSE, DENSE_OUTPUTS = "segmentation", "dense", "dense-outputs"
TEXT_CLASSIFICATION, EMBEDDING = "text-classification", "embedding"
LANGUAGE_MODEL = "language-model"
LEAST_WORDS = 256  # of a vocabulary; fewer scores a token are classes of tokens
COARSEST = 16  # a map with fewer than 1/16 of the input's rows is no mask
LEAST_CLASSES = 5  # of a map without other evidence: 1 to 4 may be depth, flow, colours, opacity
MOST_CLASSES = 256  # of a map; more channels are features
CLASS_MAKERS = ("Softmax", "LogSoftmax", "Resize", "Upsample")  # the last step of class maps
CLASS_WORDS = ("seg", "mask", "class", "logit", "prob", "label")
VECTOR_MAKERS = ("LpNormalization", "BatchNormalization", "LayerNormalization")
VECTOR_WORDS = ("embed", "feature", "descriptor")
NO_BOXES = ("loc", "delta", "offset", "landm", "reg")  # names of what needs anchors to be boxes
MOST_QUERIES = 1000
LEAST_BOXES = 21  # boxes and scores without a name that says so
COCO_POSE_ROWS = 56  # 4 of a box, its score, 17 key points of 3 numbers
BOX_TASKS = ("detect", "segment")  # names of tasks in an exporter's metadata that have boxes
OTHER_TASKS = ("pose", "obb", "depth", "keypoints")


@dataclass(frozen=True, slots=True)
class Tensor:
    """One input or output: first axis samples, None for a size that is left open."""

    shape: Sides
    dtype: str = "float32"
    made_by: str = ""  # the op type that makes it, "" where not known
    selected: bool = False  # its rows are what NonMaxSuppression or TopK has left
    names: tuple[str, ...] = ()  # of the axes that are left open, "" where an axis has none

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


def guess_task(inputs: Tensors, outputs: Tensors, *, said: str = "") -> TaskGuess:
    """Return the task that fits; `dense` where none or several could. The sentence says why.

    `said` is the task that the model's metadata name, "" where they name none.
    """
    name, first = next(iter(outputs.items()))
    if said in OTHER_TASKS:
        return TaskGuess(
            DENSE,
            f"the model's metadata name the task {said!r}, which has no kind here: taken for "
            f"dense, the relative error of output {name!r} counts; task.kind names another",
        )
    for rule in RULES:
        found = rule(inputs, outputs)
        if found is not None:
            return _with_others(found, outputs)
    if said in BOX_TASKS:
        found = _said_boxes(outputs, said)
        if found is not None:
            return _with_others(found, outputs)
    if len(outputs) > 1 and picture_size(inputs) is not None:  # heads that belong together
        return TaskGuess(
            DENSE_OUTPUTS,
            f"no known kind of task fits the {len(outputs)} outputs for certain: taken for "
            "dense-outputs, the relative error of each output's numbers counts; task.kind names "
            "another, task.output chooses one output",
        )
    dense = TaskGuess(
        DENSE,
        f"no known kind of task fits output {name!r} ({_sizes(first.shape)}) for certain: taken "
        "for dense, the relative error of its numbers counts; task.kind names another",
    )
    return _with_others(dense, outputs)


def _with_others(guess: TaskGuess, outputs: Tensors) -> TaskGuess:
    """Say how many outputs a task of one output leaves out."""
    others = len(outputs) - 1
    if guess.kind == DETECTION or not others:
        return guess
    what = "1 other output is" if others == 1 else f"{others} other outputs are"
    sentence = f"{guess.sentence}; {what} not judged (task.output chooses)"
    return TaskGuess(guess.kind, sentence, guess.settings)


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
    if found is None or not _is_detector(found, outputs, known):
        return None
    settings: dict[str, Any] = {"decode": found.decoder}
    for key in ("classes", "box_format", "activation", "normalised"):
        if getattr(found, key):
            settings[key] = getattr(found, key)
    settings |= _score_settings(found, outputs, known)
    if known:
        settings["size"] = known
    return TaskGuess(DETECTION, found.sentence, settings)


def _score_settings(found: DecoderGuess, outputs: Tensors, size: Size | None) -> dict[str, Any]:
    """What the makers of scores say: logits of raw heads, a Softmax that counts the background."""
    if found.decoder == "levels":
        heads = find_levels({name: tensor.shape for name, tensor in outputs.items()}, size)
        makers = {outputs[level.scores].made_by for level in heads.levels} if heads else set()
        return {"activation": "sigmoid"} if makers == {"Conv"} else {}
    if found.decoder != "boxes-scores" or found.activation:
        return {}
    scores = [t for t in outputs.values() if len(t.shape) == 3 and t.made_by == "Softmax"]
    # the shares of a cell add up to 1, so that one class says that there is nothing
    return {"background": 0} if len(scores) == 1 and (scores[0].shape[2] or 0) > 1 else {}


def _queries(inputs: Tensors, outputs: Tensors) -> TaskGuess | None:
    """One output of n × queries × (4 + classes): the best queries, chosen by TopK."""
    size = picture_size(inputs)
    name, first = next(iter(outputs.items()))
    if size is None or len(outputs) != 1 or len(first.shape) != 3 or not first.selected:
        return None
    count, width = first.shape[1] or 0, first.shape[2] or 0
    if not LEAST_BOXES <= count <= MOST_QUERIES or width < 5 or width in (6, 7):
        return None
    classes = width - 4
    settings: dict[str, Any] = {"decode": "queries", "classes": classes, "normalised": True}
    if all(size):
        settings["size"] = size
    words = f"{count} queries of 4 + {classes} numbers in {name!r}"
    return TaskGuess(DETECTION, f"taken for a detector, {words}", settings)


def _said_boxes(outputs: Tensors, said: str) -> TaskGuess | None:
    """A YOLOv8 head whose number of cells is open, as where height and width are."""
    shape, *rest = (tensor.shape for tensor in outputs.values())
    prototypes = (rest[0][1] or 0) if len(rest) == 1 and len(rest[0]) == 4 else 0
    if len(shape) != 3 or shape[1] is None or shape[2] is not None:
        return None
    classes = shape[1] - 4 - prototypes
    if classes < 1:
        return None
    reason = f"YOLOv8-shaped: {shape[1]} × any number; the model's metadata name the task {said!r}"
    found = DecoderGuess("yolov8", reason, classes)
    return TaskGuess(DETECTION, found.sentence, {"decode": found.decoder, "classes": classes})


def _is_detector(found: DecoderGuess, outputs: Tensors, size: Size | None) -> bool:
    """Return whether nothing but a detector has such outputs, as far as shapes and names say."""
    first = next(iter(outputs.values()))
    if found.decoder == "nms":
        return first.selected
    if found.decoder == "boxes-scores":
        boxes = {n: t for n, t in outputs.items() if t.shape[-1] == 4}
        named = any("box" in n.lower() for n in boxes)
        offsets = any(word in n.lower() for n in boxes for word in NO_BOXES)
        levels = {t.shape[1] for t in boxes.values()}  # several: raw heads, no boxes yet
        cells = first.shape[1] or 0
        alone = not offsets and cells >= LEAST_BOXES and len(outputs) == 2
        return len(levels) == 1 and (named or alone)
    if found.decoder == "yolov8":
        rows, cells = (side or 0 for side in first.shape[1:])
        if rows == COCO_POSE_ROWS:
            return False
        return is_grid(cells, size, one_grid=first.made_by == "Concat")
    if found.decoder == "yolov5":
        cells, rest = divmod(first.shape[1] or 0, 3)
        return rest == 0 and is_grid(cells, size)
    return True


def _segmentation(inputs: Tensors, outputs: Tensors) -> TaskGuess | None:
    """A map over the picture: one soft channel by Sigmoid, class numbers, or classes × H × W."""
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
        words = f"class numbers in {name!r} ({_sizes(first.shape)})"
        settings["decode"] = "classes"
        return TaskGuess(SEGMENTATION, f"taken for segmentation: {words}", settings)
    if first.floats and channels == 1 and first.made_by == "Sigmoid":
        words = f"a soft mask in {name!r} ({_sizes(first.shape)})"
        settings["decode"] = "mask"
        return TaskGuess(SEGMENTATION, f"taken for segmentation: {words}", settings)
    whole = _same_sides(first, inputs, layout=layout)
    if first.floats and _are_classes(name, first, channels, whole=whole):
        words = f"{channels} classes in {name!r} ({_sizes(first.shape)})"
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


def _scores(_inputs: Tensors, outputs: Tensors) -> TaskGuess | None:
    """One axis: a vector by its norm or its name, labels by Sigmoid, else scores of classes."""
    name, first = next(iter(outputs.items()))
    if not first.floats:
        return TaskGuess(CLASSIFICATION, f"taken for a classifier: integers in {name!r}")
    if "Softmax" in {t.made_by for t in outputs.values()} - {first.made_by}:
        return None  # classes are elsewhere: these numbers are a box, key points or a vector
    sides = [side for side in first.shape[1:] if side != 1]
    if len(sides) != 1 or sides[0] is None or first.made_by == "Tanh":
        return None
    if first.made_by in VECTOR_MAKERS or any(word in name.lower() for word in VECTOR_WORDS):
        seen = f"vectors of {sides[0]} numbers in {name!r}"
        return TaskGuess(EMBEDDING, f"taken for an embedding: {seen}", {"output": name})
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
    """Whether two shapes are the same as far as they are known."""
    return len(shape) == len(other) and all(
        a == b or a is None or b is None for a, b in zip(shape, other, strict=True)
    )


def _covers(side: int | None, whole: int) -> bool:
    """Return whether a map's side is the input's or a whole part of it."""
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
    _queries,
    _segmentation,
    _scores,
)
