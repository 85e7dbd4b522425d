"""Tables about the same files on two kinds of kernels (benchmarks/fleet.py).

A model's rows are pooled over the seeds of its data splits.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pages.common import (
    TITLES,
    Json,
    bounded,
    cpu_kind,
    megabytes,
    named,
    origin,
    percent,
    ratio,
    read,
    table,
)
from seqto.selection.recommend import title_of

KINDS = ("native", "avx2")
STOCK = {
    "papers": "papers' setting: stock, per tensor, s8 × s8",
    "stock u8 s8": "stock, per channel, u8 × s8",
    "stock u8 s7": "stock, per channel, u8 × s8 of 7 bits",
    "stock u8 u8": "stock, per channel, u8 × u8",
    "stock s8 s8": "stock, per channel, s8 × s8",
}
PICKS = ("portable", "balanced", "drop_in", "fast", "small", "latency")
FEW = 2  # answers of a report split that may differ between the kinds
BYTES_OF_STOCK, TIME_OF_STOCK = 0.95, 1.05


@dataclass(frozen=True, slots=True)
class File:
    """One kind of file of a model, over all seeds that have it."""

    losses: dict[str, Json]  # by kind of kernels: value, low, high
    differing: int  # answers that differ between the kinds, in the worst seed
    size: float  # bytes, in the mean
    times: dict[str, float | None]  # by kind of kernels: of float's, in the mean


@named("fleet")
def fleet() -> str:
    """Return every file on both kinds: changed answers, answers that differ, MB, time."""
    lines = []
    for model, rows in _models():
        title = f"{TITLES[model]}, {len(rows)} split{'s' if len(rows) > 1 else ''}"
        for what, file in _files(rows).items():
            losses = [bounded(file.losses[kind]) for kind in KINDS]
            times = [ratio(file.times[kind]) for kind in KINDS]
            shown = STOCK.get(what, f"seqto, *{title_of(what)}*")
            lines.append((title, shown, *losses, str(file.differing), megabytes(file.size), *times))
            title = ""
    head = ("model", "file", "changed, VNNI", "changed, AVX2", "answers that differ", "MB")
    return table((*head, "time, VNNI", "time, AVX2"), lines) + origin("fleet")


@named("readme")
def readme() -> str:
    """Return the README's rows: stock's best on VNNI and the portable file, on both kinds."""
    lines = []
    for model, rows in _models():
        files = _files(rows)
        cells = [_both_kinds(files[name]) for name in ("stock u8 s8", "portable")]
        lines.append((f"{TITLES[model]}, {megabytes(rows[0]['float_bytes'])} MB", *cells))
    kind = cpu_kind(read("fleet")["environment"])
    return (
        table(("", "stock int8, per channel", "seqto, *portable*"), lines)
        + f"\nCPU: {kind}; AVX2: the same CPU with the kernels of one without VNNI.\n"
    )


def _both_kinds(file: File) -> str:
    losses = " / ".join(percent(file.losses[kind]["value"]) for kind in KINDS)
    times = " / ".join(ratio(file.times[kind]) for kind in KINDS)
    return f"{losses}, {megabytes(file.size)} MB, {times}"


@named("fleet targets")
def targets() -> str:
    """Return the portable file against its targets, the others against stock's best on VNNI."""
    lines: list[tuple[str, ...]] = []
    for model, rows in _models():
        files = _files(rows)
        lines += [
            (TITLES[model] if i == 0 else "", *line)
            for i, line in enumerate([*_portable(files), _beside_stock(files)])
        ]
    return table(("model", "target", "wanted", "measured", "met"), lines)


def _models() -> list[tuple[str, list[Json]]]:
    models: dict[str, list[Json]] = {}
    for key, row in read("fleet")["rows"].items():
        models.setdefault(key.split()[0], []).append(row)
    return list(models.items())


def _files(rows: Sequence[Json]) -> dict[str, File]:
    """Return stock's settings, then the picks that every seed has."""
    found = {}
    for name in (*STOCK, *PICKS):
        stems = [_stem(row, name) for row in rows]
        if all(s is not None and s in row["native"] for s, row in zip(stems, rows, strict=True)):
            pairs = [(row, str(stem)) for row, stem in zip(rows, stems, strict=True)]
            found[name] = File(
                {kind: _pooled([row[kind][stem] for row, stem in pairs]) for kind in KINDS},
                max(row["differing"][stem] for row, stem in pairs),
                statistics.fmean(row["bytes"][stem] for row, stem in pairs),
                {kind: _time(pairs, kind) for kind in KINDS},
            )
    return found


def _stem(row: Json, name: str) -> str | None:
    """Return the file of a stock setting, or of a pick."""
    if name in STOCK:
        return name
    return next((number for number, picks in row["picks"].items() if name in picks), None)


def _pooled(losses: Sequence[Json]) -> Json:
    from seqto.tasks.intervals import wilson

    samples = sum(loss["samples"] for loss in losses)
    changed = round(sum(loss["value"] * loss["samples"] for loss in losses))
    low, high = wilson(changed, samples)
    return {"value": changed / samples, "low": low, "high": high}


def _time(pairs: Sequence[tuple[Json, str]], kind: str) -> float | None:
    times = [row.get(f"{kind} times", {}).get(stem) for row, stem in pairs]
    measured = [float(t["ratio"]) for t in times if t is not None]
    return statistics.fmean(measured) if measured else None


def _portable(files: dict[str, File]) -> list[tuple[str, ...]]:
    portable, papers = files["portable"], files["papers"]
    worst = max(portable.losses[kind]["value"] for kind in KINDS)
    allowed = max(0.025, 0.15 * max(papers.losses[kind]["value"] for kind in KINDS))
    rows = [
        _row("loss on the worse kind", allowed, worst, percent),
        _row("bytes", papers.size, portable.size, lambda n: f"{megabytes(n)} MB"),
        _row("answers that differ", FEW, portable.differing, str),
    ]
    times = [t for t in portable.times.values() if t is not None]
    if len(times) == len(KINDS):
        rows.append(_row("time on the slower kind", 1.0, max(times), ratio))
    return [(f"portable: {what}", *cells) for what, *cells in rows]


def _row(
    what: str, limit: float, measured: float, shown: Callable[[Any], str]
) -> tuple[str, str, str, str]:
    return what, f"≤ {shown(limit)}", shown(measured), _met(measured <= limit)


def _beside_stock(files: dict[str, File]) -> tuple[str, str, str, str]:
    """Return the pick nearest to beating stock's u8 × s8 on VNNI in loss, bytes and time."""
    stock = files["stock u8 s8"]
    limits = _figures(stock, BYTES_OF_STOCK, TIME_OF_STOCK)
    picks = [name for name in PICKS if name in files]

    def excess(name: str) -> float:
        pairs = zip(_figures(files[name]), limits, strict=True)
        return max((a / b if b else float(a > 0)) for a, b in pairs if a is not None)

    best = min(picks, key=excess)
    wanted = ", ".join(f"≤ {text}" for text in _texts(limits))
    return (
        f"*{title_of(best)}* beside stock u8 × s8, VNNI",
        wanted,
        ", ".join(_texts(_figures(files[best]))),
        _met(excess(best) <= 1),
    )


def _figures(
    file: File, bytes_factor: float = 1.0, time_factor: float = 1.0
) -> tuple[float, float, float | None]:
    time = file.times["native"]
    return (
        file.losses["native"]["value"],
        bytes_factor * file.size,
        None if time is None else time_factor * time,
    )


def _texts(figures: tuple[float, float, float | None]) -> list[str]:
    loss, size, time = figures
    return [percent(loss), f"{megabytes(size)} MB", *([] if time is None else [ratio(time)])]


def _met(value: bool) -> str:
    return "yes" if value else "**no**"
