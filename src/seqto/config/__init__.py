"""TOML and options → settings."""

from __future__ import annotations

from seqto.config.changes import differences, flatten, resume_keys
from seqto.config.checks import BOUNDS, CHOICES, type_name, typed
from seqto.config.read import LABELLED_PATHS, make, parse_assignment, read_toml
from seqto.config.settings import AUTO, SECTIONS, DeviceSettings, Settings, plugin_keys

__all__ = [
    "AUTO",
    "BOUNDS",
    "CHOICES",
    "LABELLED_PATHS",
    "SECTIONS",
    "DeviceSettings",
    "Settings",
    "differences",
    "flatten",
    "make",
    "parse_assignment",
    "plugin_keys",
    "read_toml",
    "resume_keys",
    "type_name",
    "typed",
]
