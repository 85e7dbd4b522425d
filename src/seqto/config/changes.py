"""Settings that may change when a run is resumed, and those that have changed."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any

from seqto.config.settings import flagged
from seqto.records import Json


def resume_keys(section: str = "", plugin: Any = None) -> frozenset[str]:
    """Return the settings that may change when a run is resumed.

    With a plug-in, its own as they are written.
    Objectives and tolerance are among them: they decide what is tried next and what is
    recommended, and the report follows the last call.
    """
    if plugin is None:
        return flagged("resume")
    if not dataclasses.is_dataclass(plugin):
        return frozenset()
    fields = [f for f in dataclasses.fields(plugin) if f.metadata.get("resume")]
    names = [f.metadata.get("key", f.name) for f in fields]
    return frozenset(f"{section}.settings.{name}" for name in names)


def differences(old: Json, new: Json, *, free: Collection[str] = ()) -> list[str]:
    """Return the settings that matter and have changed, as `key: was → is`."""
    changed = []
    free = {*resume_keys(), *free}
    flat_old, flat_new = flatten(old), flatten(new)
    for key in sorted({*flat_old, *flat_new}):
        if key in free or any(key.startswith(f + ".") for f in free):
            continue
        was, now = flat_old.get(key), flat_new.get(key)
        if was != now and (was, now) not in ((None, {}), ({}, None)):  # an empty table is none
            changed.append(f"{key}: {was!r} → {now!r}")
    return changed


def flatten(tables: Json, prefix: str = "") -> Json:
    flat: Json = {}
    for key, value in tables.items():
        dotted = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            flat.update(flatten(dict(value), dotted + "."))
        else:
            flat[dotted] = list(value) if isinstance(value, tuple) else value
    return flat
