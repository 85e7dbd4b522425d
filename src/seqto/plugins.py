"""From names and JSON to plug-ins: the built-in ones and those of other packages' entry points.

A plug-in is a frozen dataclass: its fields are its settings. It is imported only when it is asked
for, so a heavy library costs nothing until then. To add one, write its file and a line in BUILT_IN,
or register it as an entry point of another package.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import sys
from collections.abc import Mapping
from typing import Any

from seqto.errors import ConfigError, nearest

DEVICES, TASKS, STRATEGIES = "seqto.devices", "seqto.tasks", "seqto.strategies"
TRANSFORMS, DATA, SOURCES = "seqto.transforms", "seqto.data", "seqto.sources"


BUILT_IN: Mapping[str, Mapping[str, str]] = {
    DEVICES: {"ort": "seqto.devices.ort:Ort", "tvm": "seqto.devices.tvm.device:Tvm"},
    TASKS: {
        "classification": "seqto.tasks.classification:Classification",
        "multi-label": "seqto.tasks.multilabel:MultiLabel",
        "detection": "seqto.tasks.detection:Detection",
        "segmentation": "seqto.tasks.segmentation:Segmentation",
        "dense": "seqto.tasks.dense:Dense",
        "dense-outputs": "seqto.tasks.dense_outputs:DenseOutputs",
        "seq2seq": "seqto.tasks.seq2seq:Seq2Seq",
        "text-classification": "seqto.tasks.text_classification:TextClassification",
        "token-classification": "seqto.tasks.token_classification:TokenClassification",
        "embedding": "seqto.tasks.embedding:Embedding",
        "language-model": "seqto.tasks.language_model:LanguageModel",
    },
    STRATEGIES: {
        "stepwise": "seqto.search.strategies.stepwise:Stepwise",
        "frontier": "seqto.search.strategies.frontier:Frontier",
        "evolve": "seqto.search.strategies.evolve:Evolve",
    },
    TRANSFORMS: {
        "equalize": "seqto.transforms.equalize:Equalize",
        "smooth": "seqto.transforms.smooth:Smooth",
        "denormals": "seqto.transforms.denormals:Denormals",
    },
    DATA: {
        "images": "seqto.data.pictures:Pictures",
        "arrays": "seqto.data.arrays:Arrays",
        "random": "seqto.data.random_inputs:RandomInputs",
        "texts": "seqto.data.texts:Texts",
        "pairs": "seqto.data.texts:Pairs",
        "dataset": "seqto.data.dataset:HubDataset",
    },
    SOURCES: {
        "file": "seqto.model.sources.file:File",
        "folder": "seqto.model.sources.folder:Folder",
        "hub": "seqto.model.sources.hub:Hub",
    },
}


NAMES: Mapping[str, str] = {
    DEVICES: "device",
    TASKS: "task",
    STRATEGIES: "strategy",
    TRANSFORMS: "transform",
    DATA: "data source",
    SOURCES: "model source",
}


def targets(group: str) -> dict[str, str]:
    """Return kind → `module:Class`, of the built-in plug-ins and of other packages'."""
    known = dict(BUILT_IN[group])
    for name, value in _registered(group, tuple(sys.path)):
        known.setdefault(name, value)
    return known


@functools.lru_cache(maxsize=64)  # a look at every installed package; a run asks twenty times
def _registered(group: str, _path: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Return the entry points of a group, as long as packages are looked for in the same places."""
    from importlib.metadata import entry_points

    return tuple((entry.name, entry.value) for entry in entry_points(group=group))


def kinds(group: str) -> list[str]:
    """Return the kinds of a group: the built-in ones, then those of other packages."""
    return list(targets(group))


def kinds_with(group: str, setting: str) -> list[str]:
    """Return the kinds of a group whose plug-in has a field of this name; those that load here."""
    takers = []
    for kind in kinds(group):
        with contextlib.suppress(Exception):  # another package's plug-in may be broken
            if setting in fields_of(find(group, kind)):
                takers.append(kind)
    return takers


def find(group: str, kind: str) -> Any:
    """Return the class that a kind names, e.g. find("seqto.devices", "tvm")."""
    known = targets(group)
    if kind not in known:
        suggestion, names = nearest(kind, list(known)), ", ".join(known)
        raise ConfigError(f"unknown {NAMES[group]} {kind!r}{suggestion} (known: {names})")
    module, _, name = known[kind].partition(":")
    return getattr(importlib.import_module(module), name)


def keys_of(plugin: Any) -> dict[str, str]:
    """Return a plug-in's settings: key → name of its field; empty when it is no dataclass.

    A field's key is its name, unless its metadata give another one: `decode` is a method of a task
    and a key of its table. A field with `metadata={"setting": False}` has no key: the program
    sets it.
    """
    if not dataclasses.is_dataclass(plugin):
        return {}
    fields = [f for f in dataclasses.fields(plugin) if f.init and f.metadata.get("setting", True)]
    return {str(f.metadata.get("key", f.name)): f.name for f in fields}


def fields_of(plugin: Any) -> list[str]:
    """Return the keys of a plug-in's settings; empty when it is no dataclass."""
    return list(keys_of(plugin))


def build(group: str, settings: Mapping[str, Any]) -> Any:
    """Build an instance from {"kind": …, key: value}; unknown keys are errors with near names."""
    values = dict(settings)
    kind = values.pop("kind")
    plugin = find(group, kind)
    if dataclasses.is_dataclass(plugin):
        known = keys_of(plugin)
        for key in values:
            if key not in known:
                raise ConfigError(
                    f"{NAMES[group]} {kind!r} has no setting {key!r}{nearest(key, list(known))}"
                )
        values = {known[key]: value for key, value in values.items()}
    return plugin(**values)


def device_from_json(data: Mapping[str, Any]) -> Any:
    return build(DEVICES, data)
