"""Tables about detectors and segmentation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pages.common import Json, bounded, cpu_kind, megabytes, named, origin, percent, read, table

FILE = "pictures"
MODELS = ("yolov8n", "fastestdet", "u2netp")
HEADLINE = ("fast", "drop_in", "small")
EARLIER = "earlier call"  # recommended before the run was continued with another tolerance


@dataclass(frozen=True, slots=True)
class Target:
    """Bounds that one recommended trial is to keep: changed share, bytes, time over float's."""

    model: str
    changed: float
    size_mb: float
    ratio: float


TARGETS = (
    Target("yolov8n", 0.05, 3.7, 0.75),
    Target("yolov8n", 0.02, 4.6, 1.0),
    Target("fastestdet", 0.10, 0.40, 1.0),
    Target("u2netp", 0.03, 1.31, 1.0),  # the bytes of the stock file; mean IoU 0.97
)


@named("headline pictures")
def headline() -> str:
    """Return float, the stock models and three picks of each net, one line a net and file."""
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


@named("pictures targets")
def targets() -> str:
    """Return the best recommended trial for each target, and whether it keeps all bounds."""
    rows = read(FILE)["rows"]
    lines: list[Sequence[Any]] = []
    for target in TARGETS:
        found = min(rows[target.model]["recommended"], key=lambda row: _excess(row, target))
        met = "yes" if _excess(found, target)[0] == 0 else "no"
        high = found["latency"][2]
        if met == "yes" and high is not None and high > target.ratio:
            met = "yes, but the interval of the time reaches beyond"
        if EARLIER in found["model"]:
            met += "; recommended by the first of two calls"
        wanted = (
            f"at most {percent(target.changed)} at {target.size_mb:.2f} MB, "
            f"{target.ratio:.2f} of float's time"
        )
        measured = (
            f"{percent(found['loss']['value'])} at {megabytes(found['size_bytes'])} MB, "
            f"{_interval(found)}"
        )
        lines.append((target.model, wanted, measured, _number(found["model"]), met))
    return table(("model", "wanted", "measured", "trial", "met"), lines)


def _excess(row: Json, target: Target) -> tuple[float, float]:
    """Return how far a trial is beyond the bounds, then its loss."""
    loss, ratio = row["loss"], row["latency"][0]
    if loss is None or ratio is None:
        return float("inf"), 1.0
    parts = (
        loss["value"] / target.changed,
        row["size_bytes"] / (1e6 * target.size_mb),
        ratio / target.ratio,
    )
    return sum(max(0.0, part - 1.0) for part in parts), loss["value"]


def _number(title: str) -> str:
    return title.rpartition("(trial ")[2].removesuffix(")")


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
