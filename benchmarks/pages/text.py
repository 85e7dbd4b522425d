"""Tables about text models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pages.common import Json, cpu_kind, megabytes, named, origin, percent, read, table
from seqto.selection.recommend import title_of


@named("treatments")
def treatments() -> str:
    rows = read("treatments")["rows"]
    lines = [
        (key.split("/")[2], megabytes(row["bytes"]), f"{row['damage']:.4f}", f"{row['cosine']:.4f}")
        for key, row in rows.items()
    ]
    return table(("plan", "MB", "damage", "cosine"), lines) + origin("treatments")


def _texts(name: str) -> str:
    """Return stock settings and picks of a finished run on the same texts."""
    row = read("texts")[name]
    score = next(iter(row["rows"][0]["scores"]))
    lines: list[Sequence[Any]] = []
    timed = "stock" in row
    for found in row["rows"]:
        loss = percent(found["loss"]["value"]) if "loss" in found else ""
        value = f"{found['scores'][score]:.4g}"
        cells = [found["name"], megabytes(found["size_bytes"]), loss, value]
        lines.append([*cells, *(_times(found) if timed else [])])
    head = [f"{name}, {row['samples']} texts", "MB", "changed", score]
    if not timed:
        return table(head, lines)
    lengths = " and ".join(str(n) for n in row["tokens"])
    made = table([*head, f"time / float, {lengths} tokens", "time / stock"], lines)
    stock = f"Stock is “{row['stock']}”: of the stock models it changes the fewest answers"
    return f"{made}\n{stock}. 1-minute load before the timing: {row['load']}.\n"


def _times(found: Json) -> list[str]:
    """Return ratios to float and to stock, with the interval of the second, at both lengths."""
    if "ratios" not in found:
        return ["", ""]
    ratios = ", ".join(f"{r:.2f}" for r in found["ratios"])
    over = ", ".join(f"{m:.2f} ({a:.2f}–{b:.2f})" for m, a, b in found["over_stock"])
    return [f"{ratios} ms" if found["name"] == "float" else ratios, over]


@named("texts minilm")
def minilm() -> str:
    return _texts("minilm")


@named("texts stories15m")
def stories15m() -> str:
    return _texts("stories15m")


@named("texts sentiment")
def sentiment() -> str:
    return _texts("sentiment")


@named("texts stories260k")
def stories260k() -> str:
    return _texts("stories260k")


@named("texts gte-small")
def gte_small() -> str:
    return _texts("gte-small")


def _run(name: str) -> str:
    """Return the recommended trials of one finished run, as its report has them."""
    run = read("text_runs")[name]
    score = next(iter(run["rows"][0]["scores"]))
    lines: list[Sequence[Any]] = []
    for row in run["rows"]:
        loss, times = row["loss"], row["ratio"]
        low, high = (100 * loss[end] for end in ("low", "high"))
        picks = ", ".join(title_of(pick) for pick in row["picks"])
        lines.append(
            (
                f"{picks} (#{row['number']})",
                megabytes(row["size_bytes"]),
                f"{percent(loss['value'])} ({low:.1f}–{high:.1f})",
                f"{row['scores'][score]:.4g} of {row['baseline_scores'][score]:.4g}",
                f"{times[0]:.2f} ({times[1]:.2f}–{times[2]:.2f})",
            )
        )
    samples = run["rows"][0]["loss"]["samples"]
    head = (f"{name}, {samples} texts", "MB", "changed", score, "time / float")
    ended = "by itself" if run["status"] == "done" else "at its time limit"
    about = f"{run['trials']} trials in {run['seconds'] / 60:.0f} minutes, ended {ended}"
    return f"{table(head, lines)}\n{about}; {cpu_kind(run['environment'])}.\n"


@named("runs minilm")
def run_minilm() -> str:
    return _run("minilm")


@named("runs sentiment")
def run_sentiment() -> str:
    return _run("sentiment")


@named("runs arabizi")
def run_arabizi() -> str:
    return _run("arabizi")


@named("forms minilm")
def forms() -> str:
    """Return uniform plans of transformer schemes beside stock dynamic quantization."""
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
                "{:.2f} ({:.2f}–{:.2f})".format(found["ratio"], *found["ratio_interval"]),
            )
        )
    head = (name, "MB", "tokens changed", "texts changed", "exact", "CER", "time / float")
    return table(head, lines) + f"\nCPU: {cpu_kind(row['environment'])}.\n"


@named("generation aren")
def aren() -> str:
    return _generation("aren")


@named("generation arabizi")
def arabizi() -> str:
    return _generation("arabizi")
