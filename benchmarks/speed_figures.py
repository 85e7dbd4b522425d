"""Tables and the picture of benchmarks/speed.py."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import zoo
from measure import Box

Json = dict[str, Any]
KINDS = ("published", "ours", "racing", "frontier")


def curve(row: Json, box: Box) -> list[tuple[float, float]]:
    """Return (seconds, hypervolume) after every candidate that saw all pictures."""
    points: list[tuple[float, float]] = []
    found = []
    for event in sorted(row["events"], key=lambda e: e["at_s"]):
        if event["stopped_early"]:
            continue
        points.append((event["loss"], float(event["size_bytes"])))
        found.append((event["at_s"], box.share(points) or 0.0))
    return found


def figures(row: Json) -> Json:
    """Return the columns of one contender."""
    loop = row["loop"]
    wall = loop["end_s"] - loop["begin_s"]
    run_s = sum(s["run"] for s in row["seconds"])
    made_s = sum(s["assemble"] + s["load"] for s in row["seconds"])
    workers = 1 if row["kind"] == "published" else _workers()
    return {
        "total_s": loop["end_s"],
        "loop_s": wall,
        "cpu_s": loop["end_cpu_s"],
        "peak_rss_bytes": row["metered"]["peak_rss_bytes"],
        "per_minute": 60 * len(row["events"]) / wall,
        "inference": run_s / (wall * workers),
        "making": made_s / max(1e-9, sum(s["total"] for s in row["seconds"])),
    }


def _workers() -> int:
    import os

    return os.cpu_count() or 1


def by_repeat(rows: Mapping[str, Json]) -> dict[tuple[str, int], dict[int, dict[str, Json]]]:
    found: dict[tuple[str, int], dict[int, dict[str, Json]]] = {}
    for key, row in rows.items():
        if key.startswith("sweep/"):
            place = found.setdefault((row["model"], row["seed"]), {})
            place.setdefault(row["repeat"], {})[row["kind"]] = row
    return found


def tables(rows: Mapping[str, Json]) -> str:
    parts = []
    for (model, seed), repeats in by_repeat(rows).items():
        head = ("", "candidates", "wall s", "loop s", "CPU s", "peak MB", "candidates/min")
        lines = [
            _contender_line(kind, [r[kind] for r in repeats.values() if kind in r])
            for kind in KINDS
            if any(kind in r for r in repeats.values())
        ]
        more = ("pure inference", "assemble + load")
        parts.append(f"### {model}, seed {seed}, medians of {len(repeats)} repeats\n")
        parts.append(zoo.table((*head, *more), lines))
        whole = [r for r in repeats.values() if len(r) == len(KINDS)]
        if whole:
            parts.append(_targets(whole))
    memory = [r for k, r in rows.items() if k.startswith("memory/")]
    if memory:
        parts.append("### Memory of a worker above an idle one\n")
        names = ("float_bytes", "candidates_bytes")
        shown = [
            (
                r["model"],
                *(f"{r[n] / 1e6:.0f}" for n in names),
                f"{r['ratio']:.2f}",
                _or_dash(r["ratio_without_libraries"]),
            )
            for r in memory
        ]
        columns = ("model", "float session MB", "candidates MB")
        more = ("ratio (≤ 1.5)", "ratio without what imports take")
        parts.append(zoo.table((*columns, *more), shown))
    if "start" in rows:
        s = rows["start"]
        parts.append(
            f"`import seqto` {s['import_s']:.3f} s (≤ 0.15), `seqto --help` {s['help_s']:.3f} s "
            f"(≤ 0.3); an empty Python takes {s['empty_s']:.3f} s.\n"
        )
    return "\n".join(parts)


def _or_dash(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _contender_line(kind: str, found: Sequence[Json]) -> tuple[str, ...]:
    middle = {k: statistics.median(figures(r)[k] for r in found) for k in figures(found[0])}
    return (
        kind,
        str(len(found[0]["events"])),
        f"{middle['total_s']:.1f}",
        f"{middle['loop_s']:.1f}",
        f"{middle['cpu_s']:.1f}",
        f"{middle['peak_rss_bytes'] / 1e6:.0f}",
        f"{middle['per_minute']:.1f}",
        f"{middle['inference']:.0%}",
        f"{middle['making']:.1%}",
    )


def _targets(repeats: Sequence[Mapping[str, Json]]) -> str:
    """Return ratios within each repeat, and their median."""
    tests: dict[str, list[float]] = {}
    fronts_equal = []
    for found in repeats:
        box = box_of(found)
        seconds = {kind: figures(row)["total_s"] for kind, row in found.items()}
        loops = {kind: figures(row)["loop_s"] for kind, row in found.items()}
        curves = {kind: curve(row, box) for kind, row in found.items()}
        last = {kind: c[-1][1] if c else 0.0 for kind, c in curves.items()}
        ours = curves["frontier"]
        beaten = next((at for at, v in ours if v > last["published"]), float("inf"))
        nearly = next((at for at, v in ours if v >= 0.99 * last["frontier"]), float("inf"))
        values = {
            "all pictures: times faster (≥ 2.5)": seconds["published"] / seconds["ours"],
            "… the loop alone": loops["published"] / loops["ours"],
            "racing: times faster (≥ 5)": seconds["published"] / seconds["racing"],
            "… the loop alone ": loops["published"] / loops["racing"],
            "pure inference, all pictures (≥ 0.85)": figures(found["ours"])["inference"],
            "assemble + load (≤ 0.10)": figures(found["ours"])["making"],
            "frontier beats published's final hypervolume after (≤ 0.1 of its time)": beaten
            / seconds["published"],
            "frontier has 99 % of its own after (≤ 0.1)": nearly / seconds["published"],
            "hypervolume: published": last["published"],
            "hypervolume: ours, same list": last["ours"],
            "hypervolume: frontier": last["frontier"],
        }
        for name, value in values.items():
            tests.setdefault(name, []).append(value)
        fronts_equal.append(front_of(found["ours"]) == front_of(found["racing"]))
    lines = [
        (name.strip(), f"{statistics.median(v):.3f}", " / ".join(f"{x:.3f}" for x in v))
        for name, v in tests.items()
    ]
    same = f"{sum(fronts_equal)} of {len(fronts_equal)}"
    lines.append(("racing gives the same front", same, ""))
    return zoo.table(("ratio", "median", "each repeat"), lines)


def box_of(found: Mapping[str, Json]) -> Box:
    """Return the reference: the published procedure's first candidate, fully quantized."""
    return Box.of(found["published"]["events"][0]["loss"], found["published"]["float_bytes"])


def front_of(row: Json) -> list[tuple[int, float]]:
    from seqto.selection.pareto import front

    whole = [e for e in row["events"] if not e["stopped_early"]]
    points = [(e["loss"], float(e["size_bytes"])) for e in whole]
    return sorted((int(points[i][1]), points[i][0]) for i in front(points))


def plot(rows: Mapping[str, Json], path: Path) -> None:
    """Hypervolume against time, one panel a model; every repeat is a line."""
    found = {k: [r for r in v.values() if len(r) == len(KINDS)] for k, v in by_repeat(rows).items()}
    found = {k: v for k, v in found.items() if v}
    if not found:
        return
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(found), figsize=(6 * len(found), 4), squeeze=False)
    for axis, ((model, _seed), repeats) in zip(axes[0], found.items(), strict=True):
        for number, kinds in enumerate(repeats):
            box = box_of(kinds)
            for i, kind in enumerate(KINDS):
                points = curve(kinds[kind], box)
                x, y = [p[0] for p in points], [p[1] for p in points]
                label = kind if number == 0 else None
                axis.step(x, y, where="post", color=f"C{i}", label=label, alpha=0.8)
        axis.set(title=model, xlabel="seconds since the process began", xscale="log")
        axis.set_ylabel("hypervolume (loss, size)")
        axis.grid(alpha=0.3)
        axis.legend()
    zoo.save(figure, path)
