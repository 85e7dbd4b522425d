"""The licence that a model states: in its file, or in the card of its repository."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seqto.text import plain

KEYS = ("license", "licence")
LARGEST_CARD_BYTES = 1 << 20
_LONGEST = 200  # characters; exporters write a word or a line with an address


def license_of(proto: Any, origin: Mapping[str, Any]) -> str | None:
    """Return the licence that the repository's card or the model file itself states."""
    stated = origin.get("license")
    own = {p.key.lower(): p.value for p in proto.metadata_props}
    license_text = stated or next((own[key] for key in KEYS if own.get(key)), None)
    text = " ".join(plain(license_text).split())[:_LONGEST] if isinstance(license_text, str) else ""
    return text or None


def license_of_card(path: Path) -> str | None:
    """Return `license:` of a card's YAML head; None where it has none or cannot be read."""
    try:
        if path.stat().st_size > LARGEST_CARD_BYTES:
            return None
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    head = re.match(r"---\s*\n(.*?)\n---\s*(\n|$)", text, re.DOTALL)
    match = head and re.search(r"^license:[ \t]*[\"']?([\w.+-]+)[\"']?[ \t]*$", head[1], re.M)
    return match[1].lower() if match else None
