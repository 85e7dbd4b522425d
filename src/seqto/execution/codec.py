"""Jobs and results ↔ JSON, by the types of their fields: no pickle, no hand-written pairs."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from typing import Any

from seqto.records import Json


def encode(value: Any) -> Any:
    """Return plain JSON of a record, of what has `to_json`, or of containers of them."""
    if hasattr(value, "to_json"):
        return value.to_json()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: encode(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(k): encode(v) for k, v in value.items()}
    if isinstance(value, frozenset):
        return sorted(encode(v) for v in value)
    if isinstance(value, list | tuple):
        return [encode(v) for v in value]
    return value


def decode(kind: Any, data: Any) -> Any:
    """Return the value of a type from what `encode` made of it."""
    if hasattr(kind, "from_json"):
        return kind.from_json(data)
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        hints = typing.get_type_hints(kind)
        return kind(**{name: decode(hints[name], value) for name, value in data.items()})
    return _decode_container(typing.get_origin(kind), typing.get_args(kind), data)


def _decode_container(origin: Any, arguments: tuple[Any, ...], data: Any) -> Any:
    value = data
    if origin in (types.UnionType, typing.Union):  # a type or None
        value = None if data is None else decode(arguments[0], data)
    elif origin is tuple and arguments[-1] is Ellipsis:
        value = tuple(decode(arguments[0], v) for v in data)
    elif origin is tuple:
        value = tuple(decode(a, v) for a, v in zip(arguments, data, strict=True))
    elif origin is frozenset:
        value = frozenset(decode(arguments[0], v) for v in data)
    elif origin is not None and issubclass(origin, Mapping):
        value = {k: decode(arguments[1], v) for k, v in data.items()}
    return value


def tagged(value: Any) -> Json:
    """Return {kind: class name, …fields} of a record."""
    return {"kind": type(value).__name__, **encode(value)}


def untagged(data: Json, kinds: Mapping[str, Any]) -> Any:
    values = dict(data)
    return decode(kinds[values.pop("kind")], values)
