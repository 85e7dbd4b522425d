"""The kind of task where nobody names one: taken from the model's inputs and outputs, and said."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from seqto import plugins
from seqto.config import AUTO, Settings
from seqto.model import files as model_files
from seqto.model.layers import WEIGHTED_OPS, inferred_values
from seqto.model.sources.source import Fetched
from seqto.tasks.guess import (
    CLASSIFICATION,
    TaskGuess,
    Tensor,
    Tensors,
    guess_task,
    guess_text_task,
)

CLASSIFIER_KEYS = ("task.label_offset", "task.top_k")  # who sets them means a classifier


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
    own = {**guess.settings, **settings.task.settings}
    output = settings.task.output or own.pop("output", None)
    task = dataclasses.replace(settings.task, kind=guess.kind, output=output, settings=own)
    return dataclasses.replace(settings, task=task), guess


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
    own = {key: tuple(v) if isinstance(v, list) else v for key, v in task.items() if key in known}
    files = ", ".join(f"{what} from {file}" for what, file in text["taken"].items())
    repo = fetched.origin.get("repo", "the repository")
    return TaskGuess(kind, f"taken for {kind}, as {repo} says: {files}", own)


def _guess(settings: Settings, path: str | Path) -> TaskGuess:
    if settings.data.labels or any(key in settings.given for key in CLASSIFIER_KEYS):
        return TaskGuess(CLASSIFICATION, "taken for a classifier: its settings are given")
    inputs, outputs = signature(model_files.load(path))
    wanted = settings.task.output
    if wanted is not None and wanted in outputs:
        outputs = {wanted: outputs[wanted]}
    if not inputs or not outputs:  # what follows says what is wrong with such a model
        return TaskGuess(CLASSIFICATION, "taken for a classifier")
    text = guess_text_task(inputs, outputs) if _is_text(settings) else None
    guess = text or guess_task(inputs, outputs)
    known = plugins.keys_of(plugins.find(plugins.TASKS, guess.kind))
    return dataclasses.replace(
        guess, settings={k: v for k, v in guess.settings.items() if k in known}
    )


def signature(proto: Any) -> tuple[Tensors, Tensors]:
    """Return shapes, types and makers of the tensors that go in and come out as numbers."""
    import onnx

    constants = {t.name for t in proto.graph.initializer}  # old files list them among the inputs
    makers = {name: node.op_type for node in proto.graph.node for name in node.output}
    known = {value.name: value for value in inferred_values(proto)}

    def tensor(value: Any) -> Tensor | None:
        kind = known.get(value.name, value).type
        if (
            not kind.HasField("tensor_type")
            or kind.tensor_type.elem_type == onnx.TensorProto.STRING
        ):
            return None
        shape = tuple(
            int(d.dim_value) if d.HasField("dim_value") else None
            for d in kind.tensor_type.shape.dim
        )
        element = kind.tensor_type.elem_type or onnx.TensorProto.FLOAT
        dtype = str(onnx.helper.tensor_dtype_to_np_dtype(element))
        return Tensor(shape, dtype, makers.get(value.name, ""))

    def tensors(values: Any) -> Tensors:
        made = {v.name: tensor(v) for v in values if v.name not in constants}
        return {name: found for name, found in made.items() if found is not None}

    learnt = _behind_weights(proto)
    outputs = tensors(proto.graph.output)
    judged = {name: found for name, found in outputs.items() if name in learnt}
    return tensors(proto.graph.input), judged or outputs


def _behind_weights(proto: Any) -> set[str]:
    """Return the tensors that depend on a layer with weights: others need no judging."""
    found: set[str] = set()
    for node in proto.graph.node:  # in the order of execution
        inner = [a for a in node.attribute if a.HasField("g")]
        if node.op_type in WEIGHTED_OPS or inner or any(x in found for x in node.input):
            found.update(node.output)
    return found
