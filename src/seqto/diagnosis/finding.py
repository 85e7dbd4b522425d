"""The event that a diagnosis ends with: a cause, the layers that it concerns, its figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from seqto.records import Json

KIND = "diagnosis"


def finding(cause: str, message: str, layers: Sequence[str], figures: Mapping[str, Any]) -> Json:
    """Return the event of one cause."""
    return {
        "event": "finding",
        "kind": KIND,
        "message": message,
        "layers": list(layers),
        "figures": {"cause": cause, **figures},
    }
