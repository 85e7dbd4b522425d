"""Portability of a trial: its answers hold on every CPU, or on the kind it was measured on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from seqto.records import Json
from seqto.report import wording
from seqto.report.columns import layers_text
from seqto.selection.recommend import title_of
from seqto.selection.speed import ends
from seqto.text import percent, shorten, size

Report = Mapping[str, Any]

EVERYWHERE = "same answers on AVX2, VNNI and ARM kernels"
MOST_LAYERS = 3  # that a sentence names


def holds(layers: Sequence[str] | None) -> str:
    """Return where answers hold, by the layers that may saturate; empty where that is not known."""
    if layers is None:
        return ""
    return f"made for this CPU: {of_layers(layers)}" if layers else EVERYWHERE


def of_layers(layers: Sequence[str]) -> str:
    """Return '14 layers may saturate on CPUs without VNNI (conv1, conv2, …)'."""
    if not layers:
        return EVERYWHERE
    count = layers_text(layers)
    named = ", ".join(shorten(name, 40) for name in layers[:MOST_LAYERS])
    more = ", …" if len(layers) > MOST_LAYERS else ""
    return f"{count} may saturate on CPUs without VNNI ({named}{more})"


def pick_lines(report: Report) -> list[tuple[str, str]]:
    """Return (picks, where they hold): the shown picks, those of one sentence together."""
    titles: dict[str, list[str]] = {}
    for row in report["picks"]:
        if row["shown"] and row["holds"]:
            titles.setdefault(row["holds"], []).append(row["title"])
    return [(", ".join(names), sentence) for sentence, names in titles.items()]


def cost(report: Report) -> str:
    """Compare the portable pick with the best of the others; '' where it costs nothing.

    'portable beside balanced: 0.6 % changed answers instead of 0.3 %, …'
    """
    number = report["recommended"].get("portable")
    portable = None if number is None else wording.trial_of(report, number)
    rival, title = _rival(report, number)
    if portable is None or rival is None:
        return ""
    parts = []
    ours, theirs = wording.held_out(portable), wording.held_out(rival)
    pair = (ours[0], theirs[0]) if ours[1] and theirs[1] else (portable["loss"], rival["loss"])
    if pair[0] is not None and pair[1] is not None:
        noun = wording.changed_noun(report)
        parts.append(f"{percent(pair[0]['value'])} {noun} instead of {percent(pair[1]['value'])}")
    parts.append(f"{size(portable['size_bytes'])} instead of {size(rival['size_bytes'])}")
    parts += _times(portable["latency_ms"], rival["latency_ms"])
    return f"portable beside {title}: {', '.join(parts)}"


def _times(ours: Json | None, theirs: Json | None) -> list[str]:
    """Compare two times; where their intervals overlap, the clock cannot tell them apart."""
    if not ours or not theirs:
        return []
    (low, high), (other_low, other_high) = ends(ours), ends(theirs)
    if low <= other_high and other_low <= high:
        return ["no certain difference in time"]
    return [f"{ours['ratio']:.2f} of float's time instead of {theirs['ratio']:.2f}"]


def _rival(report: Report, portable: int | None) -> tuple[Any, str]:
    """Return the trial that would be recommended if nothing had to be portable, and its name."""
    best = wording.best_pick(report)
    number = report["unconstrained"]
    title = f"trial {number}, the best that may saturate elsewhere"
    if number is None and best is not None:
        number, title = report["recommended"][best], title_of(best)
    if number is None or number == portable:
        return None, ""
    return wording.trial_of(report, number), title
