"""A `[task]` table → a task. Fields are keys; a field may have another key in its metadata.

`decode` is a key of the table and a method of a task, so that the field behind the key has another
name (`decoder`) and says `key` in its metadata.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from seqto.errors import ConfigError, nearest


def keyed(key: str, *, default: Any = None) -> Any:
    """Return a field whose key in the settings is not its name."""
    return dataclasses.field(default=default, metadata={"key": key})


def keys_of(plugin: Any) -> dict[str, str]:
    """Return the settings of a task class: key → name of its field."""
    return {f.metadata.get("key", f.name): f.name for f in dataclasses.fields(plugin)}


def make_task(plugin: Any, settings: Mapping[str, Any]) -> Any:
    """Return a task from its table without `kind`; an unknown key is an error that says more."""
    keys = keys_of(plugin)
    values: dict[str, Any] = {}
    for key, value in settings.items():
        if key not in keys:
            raise ConfigError(f"unknown setting 'task.{key}'{nearest(key, list(keys))}")
        values[keys[key]] = tuple(value) if isinstance(value, list) else value
    return plugin(**values)


def check_share(name: str, value: Any) -> None:
    """Refuse a threshold that is no number of 0 to 1."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise ConfigError(f"task.{name} = {value!r} must be between 0 and 1")


def check_count(name: str, value: Any) -> None:
    """Refuse what is no whole number of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigError(f"task.{name} = {value!r} must be a whole number of at least 1")


def check_choice(name: str, value: Any, known: tuple[str, ...]) -> None:
    """Refuse a word that is not known."""
    if value not in known:
        near = nearest(str(value), known)
        raise ConfigError(f"task.{name} = {value!r} is none of {', '.join(known)}{near}")
