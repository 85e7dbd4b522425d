"""The code of a scheme: its words, and what two values with one code have in common.

A code is the scheme's name on disk and in tables: the kind, the types, then words for what differs
from the usual, such as `static-s8-u8-channel-bias-float-percentile-round-output`. A value has one
code, and a code that is read may also spell out what is usual (`minmax`, `bias-s32`).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from seqto.errors import PlanError
from seqto.schemes.types import BLOCKS, INT_TYPES, LEVELS, RANGES, IntType, Rounding


class Coded:
    """Equality, hash and text of a value by its code, which is made once.

    Strategies look up (layer, scheme) millions of times: the hash of a text is kept by Python.
    """

    __slots__ = ()
    code: Any  # a field of the kinds

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Coded) and bool(self.code == other.code))

    def __hash__(self) -> int:
        return hash(self.code)

    def __str__(self) -> str:
        return str(self.code)

    def __repr__(self) -> str:
        return f"Scheme.parse({self.code!r})"


@dataclass(frozen=True, slots=True)
class Words:
    """The words behind a code's kind; None where the code says nothing."""

    types: tuple[IntType, ...] = ()
    per_channel: bool | None = None
    float_bias: bool | None = None
    ranges: str | None = None
    rounding: Rounding | None = None
    block: int | None = None
    level: int | None = None
    read8: bool | None = None


_PAIRS: dict[tuple[str, str], tuple[str, Any]] = {
    ("bias", "s32"): ("float_bias", False),
    ("bias", "float"): ("float_bias", True),
    ("round", "nearest"): ("rounding", Rounding.NEAREST),
    ("round", "output"): ("rounding", Rounding.OUTPUT),
}


_SINGLE: dict[str, tuple[str, Any]] = {
    "channel": ("per_channel", True),
    "tensor": ("per_channel", False),
    "read8": ("read8", True),
    **{name: ("ranges", name) for name in RANGES},
    **{f"block{size}": ("block", size) for size in BLOCKS},
    **{f"level{number}": ("level", number) for number in LEVELS},
}


def read_words(code: str, *, fields: Collection[str], types: int = 0) -> Words:
    """Return a code's words; those that the kind has no field for are refused.

    `types` is the largest number of integer types that the kind has.
    """
    kind, *words = code.split("-")
    type_words: list[IntType] = []
    values: dict[str, Any] = {}
    while words:
        word = words.pop(0)
        if word in INT_TYPES and len(type_words) < types:
            type_words.append(INT_TYPES[word])
            continue
        field, value = _SINGLE.get(word, ("", None))
        if word in ("bias", "round"):
            option = words.pop(0) if words else ""
            field, value = _PAIRS.get((word, option), ("", None))
            word = f"{word}-{option}"
        if field not in fields:
            raise PlanError(f"unknown scheme {code!r}: {word!r} is no part of a {kind} scheme")
        if field in values:
            raise PlanError(f"unknown scheme {code!r}: {word!r} says again what has been said")
        values[field] = value
    return Words(tuple(type_words), **values)
