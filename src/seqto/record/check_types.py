"""Check that values read from JSON have the types that their records declare.

The JSON may come from a file that another program changed, so nothing in it is believed: a bool is
no number, a number is finite, and text has no lone surrogates except those that stand for the
undecodable bytes of file names.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import re
import types
import typing
from collections.abc import Mapping
from typing import Any

from seqto.assembly.plan import Plan
from seqto.errors import SeqtoError
from seqto.records import Measurement
from seqto.schemes.scheme import Scheme

# U+DC80 to U+DCFF stand for undecodable bytes of file names (PEP 383): these we write ourselves
_SURROGATES = re.compile("[\ud800-\udc7f\udd00-\udfff]")


class WrongTypeError(ValueError):
    """A value is not of the declared type; the message names the field."""


def read(hint: Any, value: Any, where: str) -> Any:
    """Return the JSON value as an object of the declared type."""
    if hint in _SCALARS:
        check(hint, value, where)
        return value
    origin, arguments = _form(hint)
    if origin in _UNIONS:
        return None if value is None else read(_without_none(hint), value, where)
    if origin is tuple:
        _expect(value, list, where)
        if arguments[-1] is not Ellipsis and len(arguments) != len(value):
            raise WrongTypeError(f"{where} has {len(value)} entries instead of {len(arguments)}")
        inner = [arguments[0]] * len(value) if arguments[-1] is Ellipsis else list(arguments)
        return tuple(read(inner[i], entry, f"{where}[{i}]") for i, entry in enumerate(value))
    if origin in (dict, Mapping):
        _expect(value, dict, where)
        return {
            _text(k, where): read(arguments[1], v, f"{where}.{k:.40}") for k, v in value.items()
        }
    if dataclasses.is_dataclass(hint):
        return _record(hint, value, where)
    check(hint, value, where)
    return value


def read_fields(record: Any, data: Mapping[str, Any], *, path: str = "") -> Any:
    """Return a record whose fields are read from a JSON object; fields with a default may lack."""
    values = {}
    hints = _hints(record)
    for field in dataclasses.fields(record):
        if field.name in data:
            values[field.name] = read(hints[field.name], data[field.name], path + field.name)
        elif field.default is field.default_factory is dataclasses.MISSING:
            raise WrongTypeError(f"field {path + field.name!r} is missing")
    return record(**values)


def check(hint: Any, value: Any, where: str) -> None:
    """Raise WrongTypeError unless a value (not its JSON) is of the declared type."""
    if hint is Any:
        _check_json(value, where)
    elif hint is str:
        _text(value, where)
    elif hint is float:
        _number(value, where)
    elif hint in (int, bool):
        if type(value) is not hint or abs(value) >= 2**63:
            raise WrongTypeError(f"{where} is {_shown(value)}, not {_NAMES[hint]}")
    elif _form(hint)[0] in _UNIONS:
        if value is not None:
            check(_without_none(hint), value, where)
    elif _form(hint)[0] in (tuple, dict, Mapping):
        _check_entries(hint, value, where)
    elif dataclasses.is_dataclass(hint):
        if not isinstance(value, typing.cast(type, hint)):
            raise WrongTypeError(f"{where} is {_shown(value)}, not a {_name(hint)}")
        if hint is not Plan:  # its own constructor has checked it
            for name, inner in _hints(typing.cast(type, hint)).items():
                check(inner, getattr(value, name), f"{where}.{name}")


_SCALARS = (str, float, int, bool)
_UNIONS = (types.UnionType, typing.Union)
_NAMES = {int: "a whole number", bool: "true or false", dict: "an object", list: "a list"}


def _check_entries(hint: Any, value: Any, where: str) -> None:
    inner = typing.get_args(hint)[0 if isinstance(value, tuple) else 1]
    if not isinstance(value, tuple | Mapping):
        raise WrongTypeError(f"{where} is {_shown(value)}, not several values")
    # a figure that is not finite is written as null
    inner = inner | None if inner is float else inner
    for key, entry in value.items() if isinstance(value, Mapping) else enumerate(value):
        check(inner, entry, f"{where}[{key!r:.40}]")


def _record(hint: Any, value: Any, where: str) -> Any:
    _expect(value, dict, where)
    if hint not in (Plan, Measurement):
        return read_fields(hint, value, path=f"{where}.")
    if hint is Plan:
        _check_plan(value, where)
    try:  # these two read more than one form
        record = hint.from_json(value)
    except KeyError as error:
        raise WrongTypeError(f"{where} has no field {error}") from error
    except (TypeError, AttributeError, ValueError, SeqtoError) as error:
        raise WrongTypeError(f"{where} is no {_name(hint)} ({error})") from error
    check(hint, record, where)
    return record


def _check_plan(value: Mapping[str, Any], where: str) -> None:
    schemes: Any = value.get("schemes")
    schemes_where = f"{where}.schemes"
    _expect(schemes, dict, schemes_where)
    for text in (*schemes, *schemes.values()):
        _text(text, schemes_where)
    read(tuple[str, ...], value.get("transforms", []), f"{where}.transforms")
    for code in set(schemes.values()):
        try:
            Scheme.parse(code)
        except SeqtoError as error:
            raise WrongTypeError(f"{schemes_where}: {error}") from error


def _check_json(value: Any, where: str) -> None:
    if isinstance(value, dict):
        for key, entry in value.items():
            _text(key, where)
            _check_json(entry, f"{where}.{key:.40}")
    elif isinstance(value, list):
        for entry in value:
            _check_json(entry, where)
    elif isinstance(value, str):
        _text(value, where)
    elif isinstance(value, float):
        _number(value, where)


def _expect(value: Any, kind: type, where: str) -> None:
    if not isinstance(value, (list, tuple) if kind is list else kind):
        raise WrongTypeError(f"{where} is {_shown(value)}, not {_NAMES[kind]}")


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise WrongTypeError(f"{where} is {_shown(value)}, not text")
    if not value.isascii() and _SURROGATES.search(value):
        raise WrongTypeError(f"{where} is {_shown(value)}, which is no valid Unicode")
    return value


def _number(value: Any, where: str) -> None:
    if type(value) not in (int, float) or not _is_finite(value):
        raise WrongTypeError(f"{where} is {_shown(value)}, not a finite number")


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number that is too large for a float
        return False


def _shown(value: Any) -> str:
    return f"{value!r:.40}".encode("ascii", "backslashreplace").decode()


def _name(hint: Any) -> str:
    return str(hint.__name__).lower()


@functools.cache  # a journal of 10,000 trials asks a million times
def _form(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    """Return the origin and the arguments of a type: `tuple[int, ...]` is tuple of int and …"""
    return typing.get_origin(hint), typing.get_args(hint)


@functools.cache
def _without_none(hint: Any) -> Any:
    (inner,) = (a for a in typing.get_args(hint) if a is not type(None))
    return inner


@functools.cache
def _hints(record: Any) -> dict[str, Any]:
    names = {f.name for f in dataclasses.fields(record)}
    return {k: v for k, v in typing.get_type_hints(record).items() if k in names}
