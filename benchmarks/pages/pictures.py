"""Tables about detectors and segmentation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pages.common import Json, bounded, cpu_kind, megabytes, named, origin, percent, read, table

FILE = "pictures"
MODELS = ("yolov8n", "fastestdet", "u2netp")
HEADLINE = ("fast", "drop_in", "small")


@named("headline pictures")
def headline() -> str:
    """Float, the stock models and three picks of each net, one line a net and file."""
    content = read(FILE)
    lines: list[Sequence[Any]] = []
    for name in MODELS:
        row = content["rows"][name]
        score = next(iter(row["float"]["scores"]))
        scores = f"{score} {row['float']['scores'][score]:.3f}"
        lines.append((name, "float", "", scores, megabytes(row["float"]["size_bytes"]), "1"))
        stock = _stock(content["rows"], name)
        wanted = HEADLINE if stock else ("papers' setting", *HEADLINE)
        ours = [r for r in row["recommended"] if _is_pick(r["model"], wanted)]
        for found in [*stock, *ours]:
            loss = "–" if found["loss"] is None else percent(found["loss"]["value"])
            lines.append(
                (
                    "",
                    _title(found["model"]),
                    loss,
                    _value(found, score),
                    megabytes(found["size_bytes"]),
                    _ratio(found),
                )
            )
    head = ("model", "", "changed", "score", "MB", "time / float")
    return table(head, lines) + f"\nCPU: {cpu_kind(content['environment'])}.\n"


def _all_of(name: str) -> str:
    content = read(FILE)
    row = content["rows"][name]
    score = next(iter(row["float"]["scores"]))
    value = f"{score} {row['float']['scores'][score]:.3f}"
    size = megabytes(row["float"]["size_bytes"])
    lines: list[Sequence[Any]] = [("float", "–", value, size, "1", "–")]
    for found in [*_stock(content["rows"], name), *row["recommended"]]:
        low, high = found.get("drops", {}).get(score, (None, None))
        drop = "" if low is None else f" ({low:+.3f} to {high:+.3f})"
        lines.append(
            (
                found["model"],
                "–" if found["loss"] is None else bounded(found["loss"]),
                f"{_value(found, score)}{drop}",
                megabytes(found["size_bytes"]),
                _interval(found),
                f"{found.get('minutes', row['minutes']):.1f}",
            )
        )
    head = (
        "file",
        "changed (95 %)",
        f"{score} (interval of the drop)",
        "MB",
        "time / float",
        "min",
    )
    return table(head, lines)


@named("pictures yolov8n")
def yolov8n() -> str:
    return _all_of("yolov8n")


@named("pictures fastestdet")
def fastestdet() -> str:
    return _all_of("fastestdet")


@named("pictures u2netp")
def u2netp() -> str:
    return _all_of("u2netp") + origin(FILE)


def _stock(rows: Json, name: str) -> list[Json]:
    return [row for key, row in rows.items() if key.startswith(f"{name}: ")]


def _is_pick(title: str, wanted: Sequence[str]) -> bool:
    names = title.removeprefix("seqto: ").split(" (")[0].split(", ")
    return title.startswith("seqto") and any(name in wanted for name in names)


def _title(title: str) -> str:
    return title.replace("drop_in", "drop-in")


def _value(found: Json, score: str) -> str:
    value = found.get("scores", {}).get(score)
    return "–" if value is None else f"{value:.3f}"


def _ratio(found: Json) -> str:
    return "–" if found["latency"][0] is None else f"{found['latency'][0]:.2f}"


def _interval(found: Json) -> str:
    middle, low, high = found["latency"]
    return "–" if middle is None else f"{middle:.2f} ({low:.2f}–{high:.2f})"
