"""Untrusted text made safe to print, and numbers formatted for people."""

from __future__ import annotations

import unicodedata

_UNSEEN = ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")


def plain(text: object) -> str:
    """Return untrusted text without characters that a terminal or a line of text would obey.

    Control signs move cursors and end lines, format signs turn the writing direction round.
    """
    return "".join("\ufffd" if unicodedata.category(c) in _UNSEEN else c for c in str(text))


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
    """0.0134 → '1.3 %'; small shares keep two digits that say something."""
    if share is None:
        return "–"
    value = share * 100
    digits = 2 if 0 < abs(value) < 0.1 else 1
    return f"{value:.{digits}f} %"


def size(size_bytes: float | None) -> str:
    """Bytes as people read them, decimal units as file managers and hubs show."""
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
    """1.58 → '1.6 ×'; near one a second digit, else 0.97 and 1.04 look the same."""
    if value is None:
        return "–"
    return f"{value:.2f} ×" if 0.8 < value < 1.25 else f"{value:.1f} ×"
