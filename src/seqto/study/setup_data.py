"""The data that settings name: the samples, how they are prepared, and the labelled set."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from seqto import config, plugins
from seqto.config import Settings
from seqto.data.arrays import Arrays
from seqto.data.coco import Coco
from seqto.data.data import Data
from seqto.data.iterable import FromIterable
from seqto.data.labelled import ARRAYS, OBJECT_MASK, Labelled, LabelledArrays, LabelledSet
from seqto.data.masks import Masks
from seqto.data.pictures import NO_LABELS, Pictures
from seqto.data.preprocess import Preprocess
from seqto.data.presets import from_settings
from seqto.data.states import with_states
from seqto.errors import ConfigError, nearest
from seqto.execution.local.first_run import refuse_endless_step
from seqto.model.sources.source import Fetched
from seqto.records import InputSpec, Json
from seqto.study.build_plugins import refuse_unused, typed_field, with_fields
from seqto.study.bundles import sample_inputs
from seqto.tasks.task import LabelledTask, Task

OURS = ("specs", "classes")  # fields of data sources that follow from the model and the task


def preprocess_of(settings: Settings, fetched: Fetched) -> Preprocess | None:
    if settings.data.preprocess:
        return from_settings(settings.data.preprocess)
    if fetched.preprocess:
        return Preprocess.from_json(fetched.preprocess)
    return None


def data_kinds(settings: Settings) -> dict[str, Any]:
    """Return the data sources of settings: [data] images = "folder" → {"images": "folder"}."""
    data = settings.data
    chosen: dict[str, Any] = {}
    for kind in plugins.kinds(plugins.DATA):
        value = data.settings.get(kind, getattr(data, kind, None))
        if value is not None:
            chosen[kind] = value
    return chosen


def labelled_set(
    settings: Settings, task: Task, preprocess: Preprocess | None
) -> LabelledSet | None:
    """Return the labelled set that [data.labelled] names, in the form that the task takes."""
    table = settings.data.labelled
    if not table:
        return None
    name = settings.task.kind
    if not isinstance(task, LabelledTask):
        raise ConfigError(
            f"data.labelled is not taken by task {name!r}: it is for detection, segmentation, "
            "multi-label and dense"
        )
    own = list(inspect.signature(task.for_labels).parameters)
    known = [*config.LABELLED_PATHS, *own]
    for key, value in table.items():
        if key not in known:
            raise ConfigError(f"unknown setting 'data.labelled.{key}'{nearest(key, known)}")
        listed = value if isinstance(value, list) else [value]
        if key not in own and not (listed and all(isinstance(item, str) for item in listed)):
            raise ConfigError(f"data.labelled.{key} = {value!r} is no path and no list of paths")
    task.for_labels(**label_settings(settings))  # wrong values must not wait until the end
    if task.label_form == ARRAYS:
        if not isinstance(table.get("arrays"), str):
            raise ConfigError(f"data.labelled needs arrays, an .npz with labels, for task {name!r}")
        return LabelledArrays(Arrays(table["arrays"]))
    if "images" not in table or ("annotations" in table) == ("masks" in table):
        raise ConfigError("data.labelled needs images and either annotations or masks")
    if preprocess is None:
        raise ConfigError("data.labelled needs data.preprocess with letterbox or stretch")
    if "annotations" in table:
        return Labelled(Coco(table["images"], table["annotations"]), preprocess, task.label_form)
    for key in ("images", "masks"):
        if not isinstance(table[key], str):
            raise ConfigError(f"data.labelled.{key} must be one folder where masks are given")
    source = Masks(table["images"], table["masks"], binary=task.label_form == OBJECT_MASK)
    return Labelled(source, preprocess, task.label_form)


def label_settings(settings: Settings) -> Json:
    """Return the keys of [data.labelled] that are settings of the task's `for_labels`."""
    return {k: v for k, v in settings.data.labelled.items() if k not in config.LABELLED_PATHS}


def data_source(settings: Settings, fetched: Fetched, user_data: Any, *, task: Task) -> Data:
    chosen = data_kinds(settings)
    labels = _labels(settings, task)
    if user_data is not None:
        name = f"{type(user_data).__name__}, which is given as data"
        known = ["labels"] if isinstance(user_data, str | Path) else []
        refuse_unused(settings, plugins.DATA, "data", known=known, name=name)
        return _given_data(user_data, labels)
    if len(chosen) != 1:
        refuse_unused(settings, plugins.DATA, "data", known=["labels", *chosen], name="any source")
        what = "no data are given"
        if chosen:
            what = f"data has both {' and '.join(list(chosen)[:2])}"
        raise ConfigError(
            f"{what}: give --data, or one of the settings data.images, data.arrays, data.texts, "
            "data.pairs, data.dataset, data.random"
        )
    ((kind, value),) = chosen.items()
    plugin = plugins.find(plugins.DATA, kind)
    fields = plugins.fields_of(plugin)
    name = f"{plugins.NAMES[plugins.DATA]} {kind!r}"
    # the first field is what `data.KIND` says, and the program itself gives OURS
    taken = [kind, *(f for f in fields[1:] if f not in OURS)]
    refuse_unused(settings, plugins.DATA, "data", known=taken, name=name)
    if kind in settings.data.settings:
        value = typed_field(plugin, fields[0], value, dotted=f"data.{kind}")
    shared: Json = {"labels": labels, "seed": settings.data.seed, fields[0]: value}
    shared |= _program_fields(plugin, settings, fetched, task=task)
    own = {k: v for k, v in settings.data.settings.items() if k != kind}
    source: Data = with_fields(plugins.DATA, kind, shared, own, section="data")
    return source


def fed_data(
    source: Data, inputs: Sequence[InputSpec], *, settings: Settings, fetched: Fetched
) -> Data:
    """Return the data with the constants and states that settings name, as the model takes them."""
    own = settings.data
    path = Path(fetched.path)
    if own.states:
        refuse_endless_step(path, inputs, timeout_s=settings.device.timeout_s)
    return with_states(source, inputs, path, constants=own.constants, states=own.states)


def _program_fields(plugin: Any, settings: Settings, fetched: Fetched, *, task: Task) -> Json:
    """Return the fields of a data source that follow from the model and other settings."""
    names = {f.name for f in dataclasses.fields(plugin)} if dataclasses.is_dataclass(plugin) else ()
    values: Json = {}
    if "specs" in names:
        values["specs"] = tuple(s for s in sample_inputs(fetched) if not s.whole)
    if "classes" in names:
        values["classes"] = tuple(getattr(task, "labels", None) or ())
    if "columns" in names and settings.data.columns is not None:
        values["columns"] = settings.data.columns
    if "tokenizer" in names:
        values["tokenizer"] = tokenizer_table(settings, fetched)
    return values


def reads_texts(settings: Settings) -> bool:
    """Return whether the data source has a tokenizer."""
    kinds = (plugins.find(plugins.DATA, kind) for kind in data_kinds(settings))
    return any("tokenizer" in plugins.fields_of(kind) for kind in kinds)


def tokenizer_table(settings: Settings, fetched: Fetched) -> Json:
    """Return [data.tokenizer]; without a file, with the repository's or one beside the model."""
    table = dict(settings.data.tokenizer)
    if "file" in table or "vocab" in table:
        return table
    if fetched.text is not None:
        return {**fetched.text["tokenizer"], **table}
    model = Path(fetched.path)
    beside = [model.with_suffix(".tokenizer.json"), model.with_name("tokenizer.json")]
    if model.parent.name == "onnx":  # a repository of the hub that was copied: onnx/model.onnx
        beside.append(model.parent.with_name("tokenizer.json"))
    tokenizer_file = next((path for path in beside if path.is_file()), None)
    if tokenizer_file is None:
        raise ConfigError(
            f"texts need a tokenizer: set data.tokenizer.file, or put tokenizer.json beside "
            f"{model.name}"
        )
    return {**table, "file": str(tokenizer_file)}


def _labels(settings: Settings, task: Task) -> str | None:
    """Return data.labels; without it, no classes of sub-folders for a task of boxes or masks."""
    if not isinstance(task, LabelledTask):
        return settings.data.labels
    if settings.data.labels not in (None, NO_LABELS):
        raise ConfigError(
            f"data.labels = {settings.data.labels!r} holds class numbers, which task "
            f"{settings.task.kind!r} does not take: leave it out, and give data.labelled for scores"
        )
    return NO_LABELS


def _given_data(user_data: Any, labels: str | None) -> Data:
    if isinstance(user_data, Data):
        return user_data
    if isinstance(user_data, str | Path):
        path = Path(user_data)
        return Pictures(path, labels) if path.is_dir() else Arrays(path)
    return FromIterable(user_data)
