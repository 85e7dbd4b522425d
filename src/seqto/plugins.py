"""From names and JSON to plug-ins: the built-in ones and those of other packages' entry points.

A plug-in is imported only when it is asked for, so a heavy library costs nothing until then.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from seqto.errors import ConfigError, nearest

BUILT_IN: Mapping[str, Mapping[str, str]] = {
    "seqto.devices": {"ort": "seqto.devices.ort:Ort", "tvm": "seqto.devices.tvm.device:Tvm"},
    "seqto.tasks": {"classification": "seqto.tasks.classification:Classification"},
    "seqto.strategies": {
        "stepwise": "seqto.search.strategies.stepwise:Stepwise",
        "frontier": "seqto.search.strategies.frontier:Frontier",
        "evolve": "seqto.search.strategies.evolve:Evolve",
    },
    "seqto.transforms": {
        "equalize": "seqto.transforms.equalize:Equalize",
        "smooth": "seqto.transforms.smooth:Smooth",
        "denormals": "seqto.transforms.denormals:Denormals",
    },
}


NAMES: Mapping[str, str] = {
    "seqto.devices": "device",
    "seqto.tasks": "task",
    "seqto.strategies": "strategy",
    "seqto.transforms": "transform",
}


def _targets(group: str) -> dict[str, str]:
    """Kind → `module:Class`, of the built-in plug-ins and of other packages'."""
    from importlib.metadata import entry_points

    targets = dict(BUILT_IN[group])
    for entry in entry_points(group=group):
        targets.setdefault(entry.name, entry.value)
    return targets


def kinds(group: str) -> list[str]:
    """Kinds of a group: the built-in ones, then those of other packages."""
    return list(_targets(group))


def kinds_with(group: str, setting: str) -> list[str]:
    """Kinds of a group whose plug-in has a field of this name; those that load here."""
    import contextlib
    import dataclasses

    found = []
    for kind in _targets(group):
        with contextlib.suppress(Exception):  # another package's plug-in may be broken
            plugin = find(group, kind)
            if setting in {f.name for f in dataclasses.fields(plugin)}:
                found.append(kind)
    return found


def find(group: str, kind: str) -> Any:
    """The class that a kind names, e.g. find("seqto.devices", "tvm")."""
    targets = _targets(group)
    if kind not in targets:
        near, known = nearest(kind, list(targets)), ", ".join(targets)
        raise ConfigError(f"unknown {NAMES[group]} {kind!r}{near} (known: {known})")
    module, _, name = targets[kind].partition(":")
    return getattr(importlib.import_module(module), name)


def build(group: str, settings: Mapping[str, Any]) -> Any:
    """An instance from {"kind": …, field: value}; unknown fields are errors with near names."""
    import dataclasses

    values = dict(settings)
    kind = values.pop("kind")
    plugin = find(group, kind)
    if dataclasses.is_dataclass(plugin):
        known = [f.name for f in dataclasses.fields(plugin)]
        for key in values:
            if key not in known:
                raise ConfigError(f"{group} {kind!r} has no setting {key!r}{nearest(key, known)}")
    return plugin(**values)


def device_from_json(data: Mapping[str, Any]) -> Any:
    return build("seqto.devices", data)
