"""TOML and command-line overrides → settings. An unknown key is an error that names the nearest."""

from __future__ import annotations

import codecs
import dataclasses
import tomllib
import typing
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from seqto.config.checks import check, cut, measured, typed
from seqto.config.settings import SECTIONS, DeviceSettings, Settings, flagged
from seqto.errors import ConfigError, nearest
from seqto.files import open_regular, read_path, shown
from seqto.records import Json
from seqto.selection.goal import Goal

LABELLED_PATHS = ("images", "annotations", "masks", "arrays")  # keys of [data.labelled]
PATHS_IN_DATA = {"labelled": LABELLED_PATHS, "tokenizer": ("file", "vocab", "merges")}
NO_PATHS = ("folders", "none")  # values of data.labels that name no file


def read_toml(path: str | Path) -> Json:
    """Read a config file as nested tables; relative paths are made absolute."""
    path = read_path(path, "config file")
    try:
        with open_regular(path) as stream:
            text = stream.read().removeprefix(codecs.BOM_UTF8).decode()
        tables = tomllib.loads(text)
    except FileNotFoundError as error:
        raise ConfigError(f"config file {shown(path)} does not exist") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not valid TOML: it is not UTF-8 text ({error})") from error
    except (ValueError, RecursionError) as error:  # tomllib's own, too many digits, too deep
        raise ConfigError(f"{path}: not valid TOML: {_toml_problem(error)}") from error
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    folder = path.parent.resolve()  # of the path that was typed, also where it is a link
    for dotted in flagged("path"):
        section, key = dotted.split(".")
        value = tables.get(section, {}).get(key) if isinstance(tables.get(section), dict) else None
        if isinstance(value, str) and not value.startswith("hub:") and value not in NO_PATHS:
            tables[section][key] = _absolute(value, folder)
    for device in _listed(tables.get("device")):
        command = device.get("launcher")
        if isinstance(command, list) and command and "/" in str(command[0]):
            device["launcher"] = [_absolute(command[0], folder), *command[1:]]
    bundle = tables["model"].get("bundle") if isinstance(tables.get("model"), dict) else None
    if isinstance(bundle, dict):
        files = {k: v for k, v in bundle.items() if not str(v).startswith("hub:")}
        bundle |= {part: _absolute(path, folder) for part, path in files.items()}
    data = tables.get("data")
    for name, keys in PATHS_IN_DATA.items():
        table = data.get(name) if isinstance(data, dict) else None
        if isinstance(table, dict):
            table |= {key: _absolute(table[key], folder) for key in keys if key in table}
    return tables


def _listed(value: Any) -> list[Json]:
    """Return the tables of [device] or [[device]]."""
    return [v for v in (value if isinstance(value, list) else [value]) if isinstance(v, dict)]


def _absolute(value: Any, folder: Path) -> Any:
    """Return a path or several, relative to a folder.

    What is no path stays for the check of types.
    """
    if isinstance(value, list):
        return [_absolute(item, folder) for item in value]
    if not isinstance(value, str):
        return value
    path = read_path(folder / value, "path")
    # a link keeps its name: in a cache of downloads the file behind it is called by its hash
    return str(path.parent.resolve() / path.name)


def _toml_problem(error: Exception) -> str:
    """Return what is wrong with a TOML text, in one line."""
    if isinstance(error, tomllib.TOMLDecodeError):
        return str(error)
    if isinstance(error, RecursionError):
        return "its lists or tables are nested too deeply"
    return "it holds a number with too many digits"


def make(tables: Mapping[str, Any], overrides: Mapping[str, Any] | None = None) -> Settings:
    """Make settings from nested tables and dotted overrides ({"search.seed": 3})."""
    merged: dict[str, dict[str, Any]] = {}
    overrides = dict(overrides or {})
    tables, others = _several_devices({**tables, **_device_tables(overrides)})
    for section, values in tables.items():
        if not isinstance(values, Mapping):
            raise ConfigError(
                f"unknown key {section!r} outside of a table{nearest(section, SECTIONS)}"
            )
        merged[section] = dict(values)
    for dotted, value in overrides.items():
        section, _, key = dotted.partition(".")
        target = merged.setdefault(section, {})
        *tables_in, last = key.split(".")
        for name in tables_in:
            held = target.get(name, {})
            if not isinstance(held, Mapping):
                raise ConfigError(
                    f"unknown setting {cut(dotted)}: {section}.{name} is a value, not a table"
                )
            inner = dict(held)
            target[name] = inner
            target = inner
        if not last:
            raise ConfigError(f"setting {dotted!r} has no key: write section.key=value")
        target[last] = value
    settings: Settings = _record(Settings, merged, where="")
    given = frozenset(f"{section}.{key}" for section in merged for key in merged[section])
    return dataclasses.replace(_with_tolerance(settings, given), given=given, devices=others)


def _device_tables(overrides: dict[str, Any]) -> dict[str, Any]:
    """Take "device", a list of tables, out of the overrides: it replaces the file's."""
    return {"device": overrides.pop("device")} if isinstance(overrides.get("device"), list) else {}


def _several_devices(
    tables: Mapping[str, Any],
) -> tuple[dict[str, Any], tuple[DeviceSettings, ...]]:
    """Return [[device]] tables: the first one as [device], and the others."""
    tables, listed = dict(tables), tables.get("device")
    recorded = tables.pop("devices", None)
    if recorded is not None:  # as a run's header has them
        listed = [listed or {}, *(recorded.values() if isinstance(recorded, dict) else ())]
    if not isinstance(listed, list):
        return tables, ()
    if not listed or not all(isinstance(table, Mapping) for table in listed):
        raise ConfigError("device is a list without tables: write [[device]] for each")
    others = tuple(_record(DeviceSettings, table, where="device.") for table in listed[1:])
    return {**tables, "device": listed[0]}, others


def _with_tolerance(settings: Settings, given: Collection[str]) -> Settings:
    """Return settings in which a bound of the loss is the tolerated loss too, unless that is given.

    So is a bound of the score's drop, which is no larger than the loss. A bound or a wish whose
    figure the search does not look at is refused, and a bound that nothing can keep.
    """
    search = settings.search
    goal = Goal.of(dataclasses.asdict(search))
    if goal is None:
        return settings
    for name in goal.objectives:
        if name == "latency" and name not in search.objectives:
            raise ConfigError(
                f"the goal ({goal.text()}) needs latency, which is not among search.objectives "
                f"({', '.join(search.objectives)}): add it"
            )
    for bound in goal.bounds:
        if bound.limit <= 0 and bound.setting not in ("max_loss", "max_score_drop"):
            raise ConfigError(
                f"search.{bound.setting} = {bound.limit:g} can be kept by no model: give a bound "
                "above 0"
            )
    tolerated = search.max_score_drop if search.max_loss is None else search.max_loss
    if tolerated is None or "search.tolerance" in given:
        return settings
    return dataclasses.replace(settings, search=dataclasses.replace(search, tolerance=tolerated))


def parse_assignment(text: str) -> tuple[str, Any]:
    """Return ("search.seed", 3) of `search.seed=3`: values are TOML, bare words are strings."""
    dotted, sign, value = text.partition("=")
    if not sign or not dotted.strip():
        raise ConfigError(f"--set {text!r}: write it as section.key=value")
    try:
        read = tomllib.loads(f"v = {value}")
    except tomllib.TOMLDecodeError:
        read = {"v": value}
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"--set {cut(text)}: {_toml_problem(error)}") from error
    parsed = read.pop("v")
    if read:
        raise ConfigError(
            f"--set {cut(text)}: one value is wanted, {next(iter(read))!r} follows it"
        )
    return dotted.strip(), parsed


def _record(record: Any, values: Mapping[str, Any], *, where: str) -> Any:
    known = {f.name: f for f in dataclasses.fields(record) if f.name not in ("given", "devices")}
    hints = typing.get_type_hints(record)
    fields: dict[str, Any] = {}
    for key, value in values.items():
        dotted = f"{where}{key}"
        if key not in known:
            if "settings" in known:  # the plug-in's own: build_plugins.py refuses what it lacks
                fields["settings"] = {**fields.get("settings", {}), key: value}
                continue
            raise ConfigError(f"unknown setting {dotted!r}{nearest(key, list(known))}")
        hint = hints[key]
        if dataclasses.is_dataclass(hint):
            if not isinstance(value, Mapping):
                raise ConfigError(f"{dotted} is a table, not {value!r}")
            fields[key] = _record(hint, value, where=f"{dotted}.")
        else:
            fields[key] = typed(measured(known[key], value, dotted), hint, dotted=dotted)
            check(dotted, fields[key])
            if known[key].metadata.get("path") and isinstance(fields[key], str):
                read_path(fields[key], dotted)
    return record(**fields)
