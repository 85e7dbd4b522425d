"""The event that a diagnosis ends with: a cause, the layers that it concerns, its figures.

Also the wording that all causes share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from seqto.records import Json
from seqto.text import shorten

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


def count_layers(rows: Sequence[Json]) -> str:
    return number_of_layers(len(rows))


def number_of_layers(count: int) -> str:
    return "1 layer" if count == 1 else f"{count} layers"


def layer_name(row: Json) -> str:
    return shorten(row["layer"], 60)  # a stranger's text


def picked(row: Json, keys: str) -> Json:
    return {k: row[k] for k in keys.split() if k in row}


def share_of_damage(names: Sequence[str], damage: Mapping[str, float]) -> float | None:
    total = sum(damage.values())
    return sum(damage.get(n, 0.0) for n in names) / total if total else None


def of_damage(figures: Json) -> str:
    share = figures["share_of_damage"]
    return "" if share is None else f" with {share * 100:.0f} % of the damage at the output"
