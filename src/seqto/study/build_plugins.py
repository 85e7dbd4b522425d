"""Plug-ins built from their settings; a setting that the chosen one does not take is refused."""

from __future__ import annotations

import contextlib
import dataclasses
import typing
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from seqto import config, plugins
from seqto.config import Settings
from seqto.errors import ConfigError, nearest
from seqto.search.strategy import Need
from seqto.transforms.transform import BIAS_CORRECTION, parse_transform

SECTIONS: Mapping[str, tuple[str, str]] = {  # group → section of the settings, its key for the kind
    plugins.TASKS: ("task", "kind"),
    plugins.STRATEGIES: ("search", "strategy"),
}


def check_settings(settings: Settings, *, task: Any = None, strategy: Any = None) -> None:
    """Refuse a setting that was given and that the chosen plug-in does not take."""
    for group, plugin_object in ((plugins.TASKS, task), (plugins.STRATEGIES, strategy)):
        section, key = SECTIONS[group]
        kind = getattr(getattr(settings, section), key)
        if kind == config.AUTO and plugin_object is None:
            continue  # the model tells; its settings are checked then
        known = [] if plugin_object is not None else plugins.fields_of(plugins.find(group, kind))
        name = f"{plugins.NAMES[group]} {kind!r}"
        if plugin_object is not None:
            name = (
                f"{type(plugin_object).__name__}, an object whose fields are set where it is made"
            )
        refuse_unused(settings, group, section, known=known, name=name)
    for code in (*settings.quantize.transforms, *settings.search.treatments):
        if code != BIAS_CORRECTION:
            parse_transform(code)
    plugin = strategy or plugins.find(plugins.STRATEGIES, settings.search.strategy)
    needs = getattr(plugin, "needs", None)
    if needs is None:
        raise ConfigError(
            f"strategy {settings.search.strategy!r} does not say what it needs: give it a class "
            "variable `needs`, a frozenset of seqto.search.strategy.Need"
        )
    if Need.PRIOR not in needs and settings.search.warm_start is not None:
        name = settings.search.strategy if strategy is None else type(strategy).__name__
        raise ConfigError(
            f"search.warm_start (--from) is set, but strategy {name!r} takes nothing from an "
            "earlier run: leave it out, or choose frontier or evolve"
        )
    _refuse_saturating(settings, needs)
    for key in ("menu", "treatments"):
        if Need.WIDE_CHOICES not in needs and f"search.{key}" in settings.given:
            name = settings.search.strategy if strategy is None else type(strategy).__name__
            raise ConfigError(
                f"search.{key} is set, but strategy {name!r} has a menu of its own: leave it "
                "out, or choose frontier or evolve"
            )


def _refuse_saturating(settings: Settings, needs: Collection[Need]) -> None:
    """Refuse one scheme for all layers that is not portable, where portable files are asked for."""
    uniform = settings.quantize
    saturates = uniform.weight == "s8" and uniform.mode != "weight"
    if settings.constraints.portable and Need.WIDE_CHOICES not in needs and saturates:
        raise ConfigError(
            "constraints.portable is set, but s8 weights may saturate on CPUs without VNNI and the "
            "strategy quantizes all layers alike: choose quantize.weight = p8 (with per_channel = "
            "true), s7 or u8, or the strategy frontier"
        )


def refuse_unused(
    settings: Settings, group: str, section: str, *, known: Sequence[str], name: str
) -> None:
    """Refuse settings that the chosen plug-in does not take; `known`: its fields."""
    record = getattr(settings, section)
    for key in config.plugin_keys(section):
        if f"{section}.{key}" in settings.given and key not in known:
            takers = " or ".join(plugins.kinds_with(group, key))
            raise ConfigError(
                f"{section}.{key} is set, but not taken by {name}: leave it out, or choose {takers}"
            )
    for key in record.settings:
        if key not in known:
            names = dict.fromkeys([*(f.name for f in dataclasses.fields(record)), *known])
            suggestion = nearest(key, list(names))
            raise ConfigError(
                f"unknown setting '{section}.{key}'{suggestion} (not taken by {name})"
            )


def build_plugin(settings: Settings, group: str) -> Any:
    """Build the plug-in of a section: its fields get the settings of their names."""
    section, kind_key = SECTIONS[group]
    record = getattr(settings, section)
    kind = getattr(record, kind_key)
    values = {f.name: (getattr(record, f.name), f.default) for f in dataclasses.fields(record)}
    # a key that nobody has set leaves the plug-in its own default
    shared = {k: v for k, (v, default) in values.items() if v != default}
    shared |= {k: v for k, (v, _) in values.items() if f"{section}.{k}" in settings.given}
    return with_fields(group, kind, shared, record.settings, section=section)


def with_fields(
    group: str, kind: str, shared: Mapping[str, Any], own: Mapping[str, Any], *, section: str
) -> Any:
    """Build a plug-in from the shared settings that it has fields for, and from its own."""
    plugin = plugins.find(group, kind)
    known = plugins.keys_of(plugin)
    values = {**{k: v for k, v in shared.items() if k in known}, **own}
    for key, value in own.items():
        values[key] = typed_field(plugin, known.get(key, key), value, dotted=f"{section}.{key}")
    return plugins.build(group, {**values, "kind": kind})


def typed_field(plugin: Any, field: str, value: Any, *, dotted: str) -> Any:
    """Return a value in the type of a plug-in's field, or as it is where that cannot be checked."""
    # types that only the plug-in can check, and keys that are no fields
    with contextlib.suppress(NameError, TypeError, KeyError):
        return config.typed(value, typing.get_type_hints(plugin)[field], dotted=dotted)
    return value
