"""A run's plan on another checkpoint of the same graph: settings of the run, ranges made anew."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from seqto import plugins
from seqto.assembly.plan import Plan
from seqto.config import Settings, make
from seqto.errors import JournalError, ModelError
from seqto.record.replay import RunState
from seqto.records import Layer
from seqto.text import shorten

COMPARED = ("op_type", "nodes", "inputs", "output", "parameters", "depthwise")
NAMED = 3  # differences that a message lists


def settings_for(
    state: RunState, plan: Plan, *, model: str, overrides: Mapping[str, Any]
) -> Settings:
    """Return the settings of a run for one plan on another model; overrides win."""
    if state.header is None:
        raise JournalError("the run has no header: nothing is known of its model and data")
    tables = _changed_settings(state.settings)
    sources = [k for k in plugins.kinds(plugins.DATA) if f"data.{k}" in overrides]
    if sources:  # the run's own data are replaced, not added to
        data = tables.get("data", {})
        gone = {*plugins.kinds(plugins.DATA), "labels"}
        tables["data"] = {k: v for k, v in data.items() if k not in gone}
    search = {
        k: v
        for k, v in tables.get("search", {}).items()
        if k in ("objectives", "tolerance", "jobs", "seed")
    }
    quantize = tables.get("quantize", {})
    tables["search"] = {
        **search,
        "menu": sorted({str(scheme) for _, scheme in plan.schemes}),
        "treatments": [],
    }
    tables["quantize"] = {**quantize, "transforms": list(plan.transform_codes)}
    tables["analysis"] = {"diagnose": False}
    tables["model"] = {"path": model}
    return make(tables, overrides)


def _changed_settings(recorded: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a journal that are not the defaults.

    What this version lacks is left out.
    """
    defaults = Settings()
    tables: dict[str, dict[str, Any]] = {}
    for section, values in recorded.items():
        record = getattr(defaults, section, None)
        if section == "devices" or record is None:
            continue
        known = {f.name: getattr(record, f.name) for f in dataclasses.fields(record)}
        tables[section] = {
            key: value
            for key, value in values.items()
            if key in known and value != _plain(known[key])
        }
        own = tables[section].pop("settings", {})
        tables[section] |= own
    others = {
        number: {
            **row["settings"],
            **{k: v for k, v in row.items() if k != "settings" and v is not None},
        }
        for number, row in recorded.get("devices", {}).items()
    }
    return {**tables, "devices": others} if others else tables


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def refuse_other_graph(before: Sequence[Layer], after: Sequence[Layer]) -> None:
    """Raise unless two models have the same layers; the message lists what differs."""
    old, new = ({layer.name: layer for layer in layers} for layers in (before, after))
    said = [f"it lacks layer {_name(n)}" for n in old if n not in new]
    said += [f"it has layer {_name(n)}, which the run's model lacks" for n in new if n not in old]
    for name in (n for n in old if n in new):
        for field in COMPARED:
            was, now = getattr(old[name], field), getattr(new[name], field)
            if was != now:
                change = f"{shorten(was, 30)} → {shorten(now, 30)}"
                said.append(f"{field} of layer {_name(name)}: {change}")
    if said:
        more = f"; {len(said) - NAMED} more differences" if len(said) > NAMED else ""
        raise ModelError(
            f"the model has another graph than the run's: {'; '.join(said[:NAMED])}{more}; "
            "tune it instead"
        )


def _name(name: str) -> str:
    return repr(shorten(name, 60))
