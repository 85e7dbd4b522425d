"""Untrusted text made safe to print, and numbers formatted for people."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping

_OBEYED = ("Cc", "Cf", "Zl", "Zp")
_UNSEEN = (*_OBEYED, "Cs", "Co")


def plain(text: object) -> str:
    """Return untrusted text without characters that a terminal or a line of text would obey.

    Control signs move cursors and end lines, format signs turn the writing direction round.
    """
    return "".join("\ufffd" if unicodedata.category(c) in _UNSEEN else c for c in str(text))


def one_line(text: object, *, most: int = 2000) -> str:
    """Return a message as one line of at most `most` characters; its two ends say most.

    Signs that would end the line or move the cursor are written as Python writes them.
    """
    line = "".join(
        c.encode("unicode_escape").decode() if unicodedata.category(c) in _OBEYED else c
        for c in str(text)
    )
    if len(line) <= most:
        return line
    head = most // 2
    return f"{line[:head]}…{line[len(line) - (most - 1 - head) :]}"


def shorten(text: object, width: int) -> str:
    """Keep both ends of a long name: layers often differ at the end only."""
    name = plain(text)
    if len(name) <= width:
        return name
    if width <= 1:
        return "…"[:width]
    head = (width - 1) // 2
    return name[:head] + "…" + name[len(name) - (width - 1 - head) :]


def percent(share: float | None) -> str:
    """Return a share in percent, 0.0134 → '1.3 %'; two decimals below 0.1 %."""
    if share is None:
        return "–"
    value = share * 100
    digits = 2 if 0 < abs(value) < 0.1 else 1
    return f"{round(value, digits) + 0.0:.{digits}f} %"  # + 0.0: no minus in front of a zero


def size(size_bytes: float | None) -> str:
    """Return bytes as people read them, decimal units as file managers and hubs show."""
    if not size_bytes:
        return "–"
    if size_bytes < 999_500:
        return f"{size_bytes / 1e3:.1f} kB"
    if size_bytes < 999_500_000:
        return f"{size_bytes / 1e6:.2f} MB"
    return f"{size_bytes / 1e9:.2f} GB"


def milliseconds(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.3g} ms" if value < 100 else f"{value:.0f} ms"


def times(value: float | None) -> str:
    """Return a factor as text, 1.58 → '1.6 ×'.

    Near one it has a second digit, else 0.97 and 1.04 look the same.
    """
    if value is None:
        return "–"
    return f"{value:.2f} ×" if 0.8 < value < 1.25 else f"{value:.1f} ×"


_UNITS: Mapping[str, Mapping[str, float]] = {
    "share": {"%": 0.01, "": 1.0},
    "bytes": {
        "": 1.0,
        "b": 1.0,
        "kb": 1e3,
        "mb": 1e6,
        "gb": 1e9,
        "kib": 2.0**10,
        "mib": 2.0**20,
        "gib": 2.0**30,
    },
    "milliseconds": {"ms": 1.0, "us": 1e-3, "µs": 1e-3, "s": 1e3, "": 1.0},
    "factor": {"x": 1.0, "×": 1.0, "": 1.0},
}
_EXAMPLES = {"share": "1% or 0.01", "bytes": "4MB", "milliseconds": "8ms", "factor": "1.3"}
_QUANTITY = re.compile(r"\s*([0-9]*\.?[0-9]+(?:e[+-]?[0-9]+)?)\s*([a-zµ%×]*)\s*", re.IGNORECASE)


def quantity(text: str, unit: str) -> float:
    """Return the number that a text means: '4MB' in bytes is 4000000.0.

    `unit` is 'share', 'bytes', 'milliseconds' or 'factor'. A ValueError says what to write.
    """
    match = _QUANTITY.fullmatch(text)
    scale = None if match is None else _UNITS[unit].get(match[2].lower())
    bare_share = unit == "share" and match is not None and not match[2] and float(match[1]) >= 1
    if match is None or scale is None or bare_share:  # 1: is it 1 % or all?
        raise ValueError(f"write it as {_EXAMPLES[unit]}")
    return float(match[1]) * scale


def utf8(text: str) -> bytes:
    """Encode a text; lone surrogates, of a file name that is no valid Unicode, become escapes."""
    return text.encode("utf-8", "backslashreplace")
