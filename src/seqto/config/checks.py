"""The type, the choices and the bounds of a setting's value."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any

from seqto.errors import ConfigError
from seqto.schemes.scheme import Scheme
from seqto.schemes.types import ACTIVATION_TYPES, RANGES, WEIGHT_TYPES
from seqto.selection.goal import WANTS
from seqto.selection.objectives import OBJECTIVES
from seqto.text import quantity, shorten

# what a setting's type does not say; plug-in names are looked up where they are needed
CHOICES: Mapping[str, Sequence[str]] = {
    "quantize.mode": ("static", "dynamic", "weight"),
    "quantize.weight": WEIGHT_TYPES,
    "quantize.activation": ACTIVATION_TYPES,
    "quantize.bias": ("s32", "float"),
    "quantize.ranges": RANGES,
    "quantize.skip": ("depthwise", "first", "last"),
    "analysis.ranking": ("errors", "damage"),
    "search.order": ("worst", "reverse", "random"),
    "search.objectives": tuple(OBJECTIVES),
    "executor.kind": ("local", "ray"),
    "executor.other_cpus": ("refuse", "loss"),
    "search.want": tuple(WANTS),
}


AT_LEAST_ONE = (
    ("data", ("random", "calibration", "evaluation", "batch")),
    ("analysis", ("samples",)),
    ("search", ("probes", "max_trials")),
    ("device", ("memory_mb", "batch")),
    ("executor", ("studies",)),
    ("constraints", ("max_opset",)),
    ("task", ("top_k",)),
)


NOT_NEGATIVE = (
    ("data", ("report", "chunk", "seed")),
    ("analysis", ("qdq_weight", "xmodel_weight")),
    ("search", ("jobs", "max_minutes", "seed", "max_size", "min_speedup", "max_latency")),
    ("search", ("max_peak_memory",)),
    ("device", ("threads", "timeout_s", "latency_s")),
)


BOUNDS: Mapping[str, tuple[float, float]] = {
    **{f"{section}.{key}": (1, math.inf) for section, keys in AT_LEAST_ONE for key in keys},
    **{f"{section}.{key}": (0, math.inf) for section, keys in NOT_NEGATIVE for key in keys},
    "device.threads": (0, 4096),  # more only waits to be started
    "search.jobs": (0, 4096),
    "data.random": (1, 1_000_000),  # more random inputs tell nothing more
    **dict.fromkeys(("data.max_bad_share", "search.max_loss", "search.tolerance"), (0, 1)),
    "search.max_score_drop": (0, 1),
}


FEWEST_BYTES = 1000  # a bound below this, without a unit, was meant in another unit


def measured(declared: dataclasses.Field[Any], value: Any, dotted: str) -> Any:
    """Return a text with a unit ("4MB") as a number; all other values as they are."""
    unit = declared.metadata.get("unit")
    if unit == "bytes":
        _refuse_bare_megabytes(value, dotted)
    if not unit or not isinstance(value, str):
        return value
    try:
        return quantity(value, unit)
    except ValueError as error:
        raise ConfigError(f"{dotted} = {value!r} is not understood: {error}") from error


def _refuse_bare_megabytes(value: Any, dotted: str) -> None:
    """Refuse a number without a unit that is too small for any model, taken as bytes."""
    number = str(value).strip()
    with contextlib.suppress(ValueError):
        if 0 < float(number) < FEWEST_BYTES and not isinstance(value, bool):
            raise ConfigError(f"{dotted} is {number} bytes; write {number}MB or {number}B")


def check(dotted: str, value: Any) -> None:
    """Check choices, bounds and scheme codes: wrong ones must not wait until they are used."""
    items = value if isinstance(value, tuple) else (value,)
    choices = CHOICES.get(dotted)
    if dotted == "search.objectives" and not items:
        raise ConfigError(f"{dotted} is empty: name at least one of {', '.join(OBJECTIVES)}")
    for item in items:
        if choices is not None and item is not None and item not in choices:
            raise ConfigError(f"{dotted} = {cut(item)} is none of {', '.join(choices)}")
        if dotted == "search.menu":
            Scheme.parse(item)
    if dotted == "executor.address" and value is not None:
        _check_address(value)
    low, high = BOUNDS.get(dotted, (-math.inf, math.inf))
    if isinstance(value, float) and math.isnan(value):
        raise ConfigError(f"{dotted} = nan is not a number: give one")
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ConfigError(f"{dotted} = {cut(value)} is too large: give a number below 2^63")
    if isinstance(value, int | float) and not low <= value <= high:
        room = f"at least {low:g}" if math.isinf(high) else f"between {low:g} and {high:g}"
        raise ConfigError(f"{dotted} = {value!r} must be {room}")


def _check_address(address: str) -> None:
    """Refuse what is no address of a Ray cluster: Ray itself would search for it for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    is_port = port.isdecimal() and 0 < int(port[:6]) < 65536
    if address != "auto" and not (is_port and host and not set(host) & set("/ \t")):
        raise ConfigError(
            f"executor.address = {cut(address)} is none of auto, host:port and ray://host:port"
        )


def cut(value: Any) -> str:
    """Format a value for a message; a very long one is shortened."""
    return shorten(repr(value), 120)


def typed(value: Any, hint: Any, *, dotted: str) -> Any:
    """Return a value in its field's type, or raise an error that names the setting."""
    options = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if value is None and type(None) in options:
        return None
    for option in options:
        origin = typing.get_origin(option)
        if option is float and isinstance(value, int) and not isinstance(value, bool):
            with contextlib.suppress(OverflowError):  # else it is a number, but for nobody
                return float(value)
        if origin is tuple:
            items = [value] if isinstance(value, str) else value
            inner = typing.get_args(option)[0]
            if isinstance(items, Sequence) and all(isinstance(x, inner) for x in items):
                return tuple(items)
        elif origin in (dict, Mapping):
            if isinstance(value, Mapping):
                return dict(value)
        elif isinstance(value, option) and not (option is int and isinstance(value, bool)):
            return value
    names = " or ".join(type_name(o) for o in options if o is not type(None))
    raise ConfigError(f"{dotted} = {cut(value)} is not {names}")


_TYPE_NAMES = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}


def type_name(hint: Any) -> str:
    """Name a type in the words of docs/config.md: `tuple[str, ...]` is a list of texts."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is tuple:
        item = _TYPE_NAMES.get(inner[0], "a value").split(" ", 1)[1] if inner else "value"
        return f"a list of {item}s"
    if origin in (dict, Mapping):
        return "a table"
    return _TYPE_NAMES.get(hint, getattr(hint, "__name__", str(hint)))
