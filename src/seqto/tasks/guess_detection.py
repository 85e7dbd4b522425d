"""Guess whether a model of pictures is a detector, from shapes and names of its outputs."""

from __future__ import annotations

from typing import Any

from seqto.tasks.candidates import Size
from seqto.tasks.guess_decoder import DecoderGuess, guess_decoder, is_grid
from seqto.tasks.levels import find_levels
from seqto.tasks.task_guess import DETECTION, TaskGuess, Tensors, picture_size

NO_BOXES = ("loc", "delta", "offset", "landm", "reg")  # names of what needs anchors to be boxes
MOST_QUERIES = 1000
LEAST_BOXES = 21  # boxes and scores without a name that says so
COCO_POSE_ROWS = 56  # 4 of a box, its score, 17 key points of 3 numbers


def guess_detection(inputs: Tensors, outputs: Tensors) -> TaskGuess | None:
    size = picture_size(inputs)
    if size is None:
        return None
    shapes = {name: tensor.shape for name, tensor in outputs.items()}
    known = size if all(size) else None
    guess = guess_decoder(shapes, size=known)
    if guess is None or not _is_detector(guess, outputs, known):
        return None
    settings: dict[str, Any] = {"decode": guess.decoder}
    for key in ("classes", "box_format", "activation", "normalised"):
        if getattr(guess, key):
            settings[key] = getattr(guess, key)
    settings |= _score_settings(guess, outputs, known)
    if known:
        settings["size"] = known
    return TaskGuess(DETECTION, guess.sentence, settings)


def _score_settings(guess: DecoderGuess, outputs: Tensors, size: Size | None) -> dict[str, Any]:
    """Return what the makers of scores say: logits of raw heads, a Softmax with a background."""
    if guess.decoder == "levels":
        heads = find_levels({name: tensor.shape for name, tensor in outputs.items()}, size)
        makers = {outputs[level.scores].made_by for level in heads.levels} if heads else set()
        return {"activation": "sigmoid"} if makers == {"Conv"} else {}
    if guess.decoder != "boxes-scores" or guess.activation:
        return {}
    scores = [t for t in outputs.values() if len(t.shape) == 3 and t.made_by == "Softmax"]
    # the shares of a cell add up to 1, so that one class says that there is nothing
    return {"background": 0} if len(scores) == 1 and (scores[0].shape[2] or 0) > 1 else {}


def guess_queries(inputs: Tensors, outputs: Tensors) -> TaskGuess | None:
    """Return a detector where one output has n × queries × (4 + classes), chosen by TopK."""
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


def guess_open_yolov8(outputs: Tensors, said: str) -> TaskGuess | None:
    """Return a YOLOv8 head whose number of cells is open, as where height and width are."""
    shape, *other_shapes = (tensor.shape for tensor in outputs.values())
    prototypes = (
        (other_shapes[0][1] or 0) if len(other_shapes) == 1 and len(other_shapes[0]) == 4 else 0
    )
    if len(shape) != 3 or shape[1] is None or shape[2] is not None:
        return None
    classes = shape[1] - 4 - prototypes
    if classes < 1:
        return None
    reason = f"YOLOv8-shaped: {shape[1]} × any number; the model's metadata name the task {said!r}"
    decoder = DecoderGuess("yolov8", reason, classes)
    return TaskGuess(DETECTION, decoder.sentence, {"decode": decoder.decoder, "classes": classes})


def _is_detector(guess: DecoderGuess, outputs: Tensors, size: Size | None) -> bool:
    """Return whether nothing but a detector has such outputs, as far as shapes and names say."""
    first = next(iter(outputs.values()))
    if guess.decoder == "nms":
        return first.selected
    if guess.decoder == "boxes-scores":
        boxes = {n: t for n, t in outputs.items() if t.shape[-1] == 4}
        named = any("box" in n.lower() for n in boxes)
        offsets = any(word in n.lower() for n in boxes for word in NO_BOXES)
        levels = {t.shape[1] for t in boxes.values()}  # several: raw heads, no boxes yet
        cells = first.shape[1] or 0
        alone = not offsets and cells >= LEAST_BOXES and len(outputs) == 2
        return len(levels) == 1 and (named or alone)
    if guess.decoder == "yolov8":
        rows, cells = (side or 0 for side in first.shape[1:])
        if rows == COCO_POSE_ROWS:
            return False
        return is_grid(cells, size, one_grid=first.made_by == "Concat")
    if guess.decoder == "yolov5":
        cells, remainder = divmod(first.shape[1] or 0, 3)
        return remainder == 0 and is_grid(cells, size)
    return True
