"""Options of the command line → settings as dotted keys, which override a config file."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from seqto import plugins
from seqto.cli.option_table import OPTIONS
from seqto.config import parse_assignment
from seqto.data.tables import SUFFIXES
from seqto.errors import ConfigError


def overrides_from(options: argparse.Namespace) -> dict[str, Any]:
    """Return the settings that the command line names, as dotted keys."""
    overrides: dict[str, Any] = {}
    for option in OPTIONS:
        value = getattr(options, option.setting, None)
        if option.repeated and value is not None:
            overrides.update(_devices(value))
        elif value is not None:
            overrides[option.setting] = _split(option.setting, value) if option.many else value
    overrides.update(_within(options))
    overrides.update(_data_overrides(options))
    if getattr(options, "no_examples", False):
        overrides["analysis.examples"] = False
    overrides.update(dict(parse_assignment(text) for text in options.set))
    return overrides


def _devices(texts: list[str]) -> dict[str, Any]:
    """Return settings of `--device KIND[,key=value…]`: device.kind, or a table each."""
    if len(texts) == 1 and "," not in texts[0]:
        return {"device.kind": texts[0]}
    tables = []
    for text in texts:
        kind, *assignments = text.split(",")
        table: dict[str, Any] = {"kind": kind}
        for assignment in assignments:
            key, value = parse_assignment(assignment)
            table[key] = value.split() if key == "launcher" and isinstance(value, str) else value
        tables.append(table)
    return {"device": tables}


def _within(options: argparse.Namespace) -> dict[str, str]:
    """Return the bound: `--within 1%` is of the loss, `--within score:1%` of the score's drop."""
    text = getattr(options, "within", None)
    if text is None:
        return {}
    kind, colon, share = text.rpartition(":")
    if colon and kind not in ("score", "answers"):
        raise ConfigError(f"--within {text!r}: write 1%, or score:1% for the task's score")
    setting = "search.max_score_drop" if kind == "score" else "search.max_loss"
    other = getattr(options, setting, None)
    if other is not None and other != share:
        option = "--" + setting.removeprefix("search.").replace("_", "-")
        raise ConfigError(f"--within {text} and {option} {other} contradict: give one of them")
    return {setting: share}


def _split(setting: str, items: list[str]) -> list[str]:
    """Split items at commas, but for names of nodes, which may hold one."""
    if setting == "quantize.exclude":
        return items
    return [x for item in items for x in item.split(",") if x]


def _data_overrides(options: argparse.Namespace) -> dict[str, Any]:
    overrides: dict[str, Any] = {}
    data = getattr(options, "data", None)
    if data is not None:
        key, value = data_source(data)
        overrides[f"data.{key}"] = value
    if getattr(options, "labels", None) is not None:
        overrides["data.labels"] = options.labels
    if getattr(options, "preset", None) is not None:
        overrides["data.preprocess.preset"] = options.preset
    return overrides


def data_source(text: str) -> tuple[str, Any]:
    """Return the data source that a text means.

    `random:100`, `KIND:VALUE` of a plug-in, an array or text file, or a folder of pictures.
    """
    kind, colon, value = text.partition(":")
    if colon and kind == "random":
        try:
            return kind, int(value)
        except ValueError as error:
            raise ConfigError(f"--data {text!r}: write random:COUNT") from error
    if colon and kind in plugins.kinds(plugins.DATA) and not Path(text).exists():
        return kind, parse_assignment(f"{kind}={value}")[1]
    if text.lower().endswith(tuple(SUFFIXES)):
        return "texts", text
    return ("arrays" if text.endswith((".npz", ".npy")) else "images"), text
