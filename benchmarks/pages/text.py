"""Tables about text models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pages.common import Json, cpu_kind, megabytes, named, origin, percent, read, table


@named("treatments")
def treatments() -> str:
    rows = read("treatments")["rows"]
    lines = [
        (key.split("/")[2], megabytes(row["bytes"]), f"{row['damage']:.4f}", f"{row['cosine']:.4f}")
        for key, row in rows.items()
    ]
    return table(("plan", "MB", "damage", "cosine"), lines) + origin("treatments")


def _texts(name: str) -> str:
    """Stock settings and picks of a finished run on the same texts."""
    row = read("texts")[name]
    score = next(iter(row["rows"][0]["scores"]))
    lines: list[Sequence[Any]] = []
    for found in row["rows"]:
        loss = percent(found["loss"]["value"]) if "loss" in found else ""
        value = f"{found['scores'][score]:.4g}"
        lines.append((found["name"], megabytes(found["size_bytes"]), loss, value))
    return table((f"{name}, {row['samples']} texts", "MB", "changed", score), lines)


@named("texts minilm")
def minilm() -> str:
    return _texts("minilm")


@named("texts stories15m")
def stories15m() -> str:
    return _texts("stories15m")


@named("texts stories260k")
def stories260k() -> str:
    return _texts("stories260k")


@named("forms minilm")
def forms() -> str:
    """Uniform plans of transformer schemes beside stock dynamic quantization."""
    lines = [
        (
            row["plan"],
            megabytes(row["bytes"]),
            percent(row["changed"]),
            f"{row['cosine']:.4f}",
            f"{row['time']:.2f}",
        )
        for row in read("transformers-minilm")
    ]
    return table(("plan", "MB", "changed", "cosine", "time / float"), lines)


def _generation(name: str) -> str:
    row: Json = read("generation")[name]
    lines = []
    for found in row["rows"]:
        low, high = found["loss_interval"]
        lines.append(
            (
                found["name"].replace("drop_in", "drop-in"),
                megabytes(found["size_bytes"]),
                f"{percent(found['loss'], 2)} ({100 * low:.2f}–{100 * high:.2f})",
                percent(found["sequences_changed"]),
                f"{found['scores']['exact']:.3f}",
                f"{found['scores']['CER']:.4f}",
            )
        )
    head = (name, "MB", "tokens changed", "texts changed", "exact", "CER")
    return table(head, lines) + f"\nCPU: {cpu_kind(row['environment'])}.\n"


@named("generation aren")
def aren() -> str:
    return _generation("aren")


@named("generation arabizi")
def arabizi() -> str:
    return _generation("arabizi")
