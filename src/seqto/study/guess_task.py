"""The kind of task where nobody names one: taken from the model's inputs and outputs, and said."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from pathlib import Path
from typing import Any

from seqto import plugins
from seqto.config import AUTO, Settings
from seqto.data.token_inputs import USUAL_INPUTS
from seqto.data.tokenizer import IDS
from seqto.errors import ConfigError
from seqto.model import files as model_files
from seqto.model.layers import WEIGHTED_OPS, inferred_values
from seqto.model.sources.source import Fetched
from seqto.tasks.guess import guess_task, guess_text_task
from seqto.tasks.task_guess import (
    CLASSIFICATION,
    DENSE,
    DETECTION,
    MULTI_LABEL,
    SEGMENTATION,
    TaskGuess,
    Tensor,
    Tensors,
)

CLASSIFIER_KEYS = ("task.label_offset", "task.top_k")  # who sets them means a classifier
LABELLED_KINDS = (DETECTION, MULTI_LABEL, SEGMENTATION)
# they move numbers or change their type: what stands before them made the numbers
MOVING_OPS = ("Identity", "Cast", "Transpose", "Reshape", "Squeeze", "Unsqueeze", "Flatten")
SELECTING_OPS = ("NonMaxSuppression", "TopK")  # boxes behind them are the final ones
NORM = "LpNormalization"
TEXT_SOURCES = ("texts", "pairs", "dataset")  # keys of [data] whose samples are texts


def with_task(settings: Settings, fetched: Fetched) -> tuple[Settings, TaskGuess | None]:
    """Return the settings with a kind of task, and the guess that it is, if it is one.

    Settings of the task that are given win over what is guessed, and what the model's repository
    says of a text model wins over its shapes.
    """
    said = _said(settings, fetched)
    kind = settings.task.kind
    if kind != AUTO and (said is None or said.kind != kind):
        return settings, None
    guess = said or _guess(settings, fetched.path)
    if guess.kind in LABELLED_KINDS and not settings.data.labelled:
        sentence = f"{guess.sentence}; scores need data.labelled, class numbers are not used"
        guess = dataclasses.replace(guess, sentence=sentence)
    own = {**guess.settings, **settings.task.settings}
    output = settings.task.output or own.pop("output", None)
    task = dataclasses.replace(settings.task, kind=guess.kind, output=output, settings=own)
    return dataclasses.replace(settings, task=task), guess


def refuse_one_number(settings: Settings, guess: TaskGuess | None, fetched: Fetched) -> None:
    """Refuse to search where a sample has one number and nobody says what it is.

    It may be a value or a decision between two classes, whose losses are not the same. Of several
    outputs the first counts for a classifier alone: the others may be states.
    """
    kind = settings.task.kind
    doubtful = kind == CLASSIFICATION or (guess is not None and guess.kind == DENSE)
    if not doubtful or fetched.components:
        return
    inputs, outputs = signature(model_files.load(fetched.path))
    name = settings.task.output or next(iter(outputs), "")
    if name not in outputs or (kind != CLASSIFICATION and len(outputs) > 1):
        return
    batches = {tensor.shape[0] for tensor in inputs.values() if tensor.shape}
    if outputs[name].is_one_number(batches):
        raise ConfigError(
            f"output {name!r} is one number a sample, which names no class: set task.kind = "
            "dense where it is a value (its relative error counts), or multi-label where it is a "
            "decision (task.threshold or more, or less)"
        )


def _is_text(settings: Settings) -> bool:
    data = settings.data
    return any(data.settings.get(k, getattr(data, k, None)) is not None for k in TEXT_SOURCES)


def _said(settings: Settings, fetched: Fetched) -> TaskGuess | None:
    """Return the task that the repository of a text model names, in settings that it takes."""
    text = fetched.text or {}
    task = dict(text.get("task") or {})
    kind = task.pop("kind", None)
    if kind not in plugins.kinds(plugins.TASKS) or not _is_text(settings):
        return None
    known = plugins.keys_of(plugins.find(plugins.TASKS, kind))
    task |= text.get("generation") or {}  # start, stop and max_length of a generator
    own = {key: tuple(v) if isinstance(v, list) else v for key, v in task.items() if key in known}
    files = ", ".join(f"{what} from {file}" for what, file in text["taken"].items())
    repo = fetched.origin.get("repo", "the repository")
    return TaskGuess(kind, f"taken for {kind}, as {repo} says: {files}", own)


def _guess(settings: Settings, path: str | Path) -> TaskGuess:
    if settings.data.labels or any(key in settings.given for key in CLASSIFIER_KEYS):
        return TaskGuess(CLASSIFICATION, "taken for a classifier: its settings are given")
    proto = model_files.load(path)
    inputs, outputs = signature(proto)
    output_name = settings.task.output
    if output_name is not None and output_name in outputs:
        outputs = {output_name: outputs[output_name]}
    if not inputs or not outputs:  # what follows says what is wrong with such a model
        return TaskGuess(CLASSIFICATION, "taken for a classifier")
    guess = guess_kind(inputs, outputs, said=said_task(proto), texts=_is_text(settings))
    known = plugins.keys_of(plugins.find(plugins.TASKS, guess.kind))
    return dataclasses.replace(
        guess, settings={k: v for k, v in guess.settings.items() if k in known}
    )


def guess_kind(inputs: Tensors, outputs: Tensors, *, said: str, texts: bool) -> TaskGuess:
    """Return the task that fits the tensors of a model; `texts`: it is fed with texts."""
    text = guess_text_task(outputs) if texts else None
    return text or guess_task(inputs, outputs, said=said)


def takes_tokens(inputs: Tensors) -> bool:
    """Tell whether an input has the name and the form of a text's token numbers."""
    return any(
        USUAL_INPUTS.get(name) == IDS and not tensor.floats and len(tensor.shape) == 2
        for name, tensor in inputs.items()
    )


def said_task(proto: Any) -> str:
    """Return the task that an exporter has named in the file's metadata, "" where none has."""
    return metadata(proto).get("task", "")


def metadata(proto: Any) -> dict[str, str]:
    return {entry.key: entry.value for entry in proto.metadata_props}


def signature(proto: Any) -> tuple[Tensors, Tensors]:
    """Return shapes, types and makers of the tensors that go in and come out as numbers."""
    import onnx

    constants = {t.name for t in proto.graph.initializer}  # old files list them among the inputs
    makers = _makers(proto)
    selected = _behind(proto, SELECTING_OPS)
    known = {value.name: value for value in inferred_values(proto)}

    def tensor(value: Any) -> Tensor | None:
        kind = known.get(value.name, value).type
        if (
            not kind.HasField("tensor_type")
            or kind.tensor_type.elem_type == onnx.TensorProto.STRING
        ):
            return None
        shape = tuple(
            # a negative size, as some converters write it, is one that is left open
            int(d.dim_value) if d.HasField("dim_value") and d.dim_value >= 0 else None
            for d in kind.tensor_type.shape.dim
        )
        element = kind.tensor_type.elem_type or onnx.TensorProto.FLOAT
        dtype = str(onnx.helper.tensor_dtype_to_np_dtype(element))
        names = tuple(d.dim_param for d in kind.tensor_type.shape.dim)
        maker = makers.get(value.name, "")
        return Tensor(
            shape,
            dtype,
            maker,
            selected=value.name in selected,
            names=names,
            has_shape=kind.tensor_type.HasField("shape"),
        )

    def tensors(values: Any) -> Tensors:
        by_name = {v.name: tensor(v) for v in values if v.name not in constants}
        return {name: typed for name, typed in by_name.items() if typed is not None}

    learnt = _behind(proto, WEIGHTED_OPS)
    outputs = tensors(proto.graph.output)
    judged = {name: output for name, output in outputs.items() if name in learnt}
    return tensors(proto.graph.input), judged or outputs


def _behind(proto: Any, ops: Collection[str]) -> set[str]:
    """Return the tensors that depend on a node of these types, or on one with a graph inside."""
    dependent: set[str] = set()
    for node in proto.graph.node:  # in the order of execution
        inner = [a for a in node.attribute if a.HasField("g")] if ops is WEIGHTED_OPS else []
        if node.op_type in ops or inner or any(x in dependent for x in node.input):
            dependent.update(node.output)
    return dependent


def _makers(proto: Any) -> dict[str, str]:
    """Return tensor → type of the operator that made its numbers; NORM where a vector is scaled."""
    nodes = {name: node for node in proto.graph.node for name in node.output}
    makers = {}
    for value in proto.graph.output:
        node = nodes.get(value.name)
        while node is not None and node.op_type in MOVING_OPS and node.input:
            node = nodes.get(node.input[0])
        if node is None:
            continue
        makers[value.name] = node.op_type
        if node.op_type == "Div" and len(node.input) == 2:
            over, under = (nodes.get(name) for name in node.input)
            # a vector over its own length; a constant is a temperature, an Exp is half a Softmax
            if under is not None and under.op_type != "Constant":
                of_exp = over is not None and over.op_type == "Exp"
                makers[value.name] = "Softmax" if of_exp else NORM
    return makers
