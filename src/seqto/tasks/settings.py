"""Fields of tasks with a key of their own, and checks of their values."""

from __future__ import annotations

import dataclasses
from typing import Any

from seqto.errors import ConfigError, nearest


def keyed(key: str, *, default: Any = None) -> Any:
    """Return a field whose key in the settings is not its name: see `plugins.keys_of`."""
    return dataclasses.field(default=default, metadata={"key": key})


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
        suggestion = nearest(str(value), known)
        raise ConfigError(f"task.{name} = {value!r} is none of {', '.join(known)}{suggestion}")
