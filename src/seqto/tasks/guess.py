"""Guess of the task that a model is for, from the shapes of its inputs and outputs."""

from __future__ import annotations

from collections.abc import Callable

from seqto.tasks.guess_detection import guess_detection, guess_open_yolov8, guess_queries
from seqto.tasks.guess_segmentation import guess_segmentation
from seqto.tasks.task_guess import (
    CLASSIFICATION,
    DENSE,
    DENSE_OUTPUTS,
    DETECTION,
    EMBEDDING,
    LANGUAGE_MODEL,
    MULTI_LABEL,
    TEXT_CLASSIFICATION,
    TOKEN_CLASSIFICATION,
    TaskGuess,
    Tensors,
    picture_size,
    sizes_text,
)

LEAST_WORDS = 256  # of a vocabulary; fewer scores a token are classes of tokens
VECTOR_MAKERS = ("LpNormalization", "BatchNormalization", "LayerNormalization")
VECTOR_WORDS = ("embed", "feature", "descriptor")
BOX_TASKS = ("detect", "segment")  # names of tasks in an exporter's metadata that have boxes
OTHER_TASKS = ("pose", "obb", "depth", "keypoints")


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
        guess = rule(inputs, outputs)
        if guess is not None:
            return _with_others(guess, outputs)
    if said in BOX_TASKS:
        guess = guess_open_yolov8(outputs, said)
        if guess is not None:
            return _with_others(guess, outputs)
    # heads that belong together, unless some of the outputs are the states of a stream
    if len(outputs) > 1 and (picture_size(inputs) is not None or not _has_state(inputs, outputs)):
        return TaskGuess(
            DENSE_OUTPUTS,
            f"no known kind of task fits the {len(outputs)} outputs for certain: taken for "
            "dense-outputs, the relative error of each output's numbers counts; task.kind names "
            "another, task.output chooses one output",
        )
    dense = TaskGuess(
        DENSE,
        f"no known kind of task fits output {name!r} ({sizes_text(first.shape)}) for certain: "
        "taken for dense, the relative error of its numbers counts; task.kind names another",
    )
    return _with_others(dense, outputs)


def _has_state(inputs: Tensors, outputs: Tensors) -> bool:
    """Tell whether an output could be fed as an input: it has the same type and sides."""
    return any(
        given.dtype == result.dtype
        and len(given.shape) == len(result.shape)
        and all(a == b or None in (a, b) for a, b in zip(given.shape, result.shape, strict=True))
        for given in inputs.values()
        for result in outputs.values()
    )


def _with_others(guess: TaskGuess, outputs: Tensors) -> TaskGuess:
    """Say how many outputs a task of one output leaves out."""
    others = len(outputs) - 1
    if guess.kind == DETECTION or not others:
        return guess
    what = "1 other output is" if others == 1 else f"{others} other outputs are"
    sentence = f"{guess.sentence}; {what} not judged (task.output chooses)"
    return TaskGuess(guess.kind, sentence, guess.settings)


def _guess_scores(_inputs: Tensors, outputs: Tensors) -> TaskGuess | None:
    """Return the task of one axis: a vector by its maker or name, labels by Sigmoid, or classes."""
    name, first = next(iter(outputs.items()))
    if not first.floats:
        return TaskGuess(CLASSIFICATION, f"taken for a classifier: integers in {name!r}")
    if "Softmax" in {t.made_by for t in outputs.values()} - {first.made_by}:
        return None  # classes are elsewhere: these numbers are a box, key points or a vector
    sides = [side for side in first.shape[1:] if side != 1]
    if len(sides) != 1 or sides[0] is None or first.made_by == "Tanh":
        return None
    if first.made_by in VECTOR_MAKERS or any(word in name.lower() for word in VECTOR_WORDS):
        evidence = f"vectors of {sides[0]} numbers in {name!r}"
        return TaskGuess(EMBEDDING, f"taken for an embedding: {evidence}", {"output": name})
    if first.made_by == "Sigmoid":
        return TaskGuess(
            MULTI_LABEL,
            f"taken for a multi-label classifier: {sides[0]} scores by Sigmoid in {name!r}",
        )
    return TaskGuess(CLASSIFICATION, f"taken for a classifier: {sides[0]} scores in {name!r}")


def guess_text_task(outputs: Tensors) -> TaskGuess | None:
    """Return the task of a model that is fed with texts; None where the outputs leave doubt."""
    for name, output in outputs.items():
        if not output.floats or len(output.shape) not in (2, 3):
            continue
        words, width = name.lower(), output.shape[-1]
        vector = any(word in words for word in ("hidden", "embed", "pool"))
        vector = vector or output.made_by in VECTOR_MAKERS  # scores are made by a product
        if len(output.shape) == 3 and not vector and (width or 0) >= LEAST_WORDS:
            evidence = f"{width} scores a token in {name!r}"
            return TaskGuess(
                LANGUAGE_MODEL, f"taken for a language model: {evidence}", {"output": name}
            )
        if vector:
            evidence = f"vectors of {width or '?'} numbers in {name!r}"
            if len(output.shape) == 3:
                evidence += ", their mean over a text's tokens"
            return TaskGuess(EMBEDDING, f"taken for an embedding: {evidence}", {"output": name})
        if len(output.shape) == 3 and (width or 0) > 1:
            evidence = f"{width} scores a token in {name!r}"
            return TaskGuess(
                TOKEN_CLASSIFICATION,
                f"taken for a classifier of tokens: {evidence}",
                {"output": name},
            )
        if len(output.shape) == 2 and (width or 0) > 1:
            evidence = f"{width} scores a text in {name!r}"
            return TaskGuess(
                TEXT_CLASSIFICATION, f"taken for a text classifier: {evidence}", {"output": name}
            )
    return None


# the first rule that fits decides; a rule sees all inputs and outputs
RULES: tuple[Callable[[Tensors, Tensors], TaskGuess | None], ...] = (
    guess_detection,
    guess_queries,
    guess_segmentation,
    _guess_scores,
)
