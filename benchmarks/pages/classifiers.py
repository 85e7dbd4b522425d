"""Tables about the five picture classifiers, their fronts and the targets of `fronts.py`."""

from __future__ import annotations

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
from seqto.tasks.intervals import wilson

VNNI, AVX2 = "fronts-vnni", "fronts"
PICKS = ("drop_in", "fast", "balanced", "small")
ORDER = ("drop-in", "fast", "accurate", "small", "front")


@named("headline classifiers")
def headline() -> str:
    """Return plain int8 beside three picks; changed answers, MB, time relative to float."""
    content = read(VNNI)
    head = ("model", "float MB", "plain int8", "drop-in", "fast", "small")
    lines = []
    for row in _rows(content["rows"], seed=0):
        cells = [_short(row["fq"])]
        cells += [_short(_pick(row, name)) for name in ("drop_in", "fast", "small")]
        lines.append((TITLES[row["model"]], megabytes(row["float_bytes"]), *cells))
    return table(head, lines) + f"\nCPU: {cpu_kind(content['environment'])}.\n"


@named("fronts vnni")
def picks() -> str:
    """Return every pick of every model with its interval."""
    content = read(VNNI)
    lines = []
    for row in _rows(content["rows"], seed=0):
        name = TITLES[row["model"]]
        lines.append((name, "float", "", megabytes(row["float_bytes"]), "1", ""))
        lines.append(("", "papers' setting", *_cells(row["fq"]), ""))
        for pick in PICKS:
            trial = _pick(row, pick)
            if trial is not None:
                minutes = f"{row['seconds']['frontier'] / 60:.1f}" if pick == PICKS[0] else ""
                lines.append(("", pick.replace("_", "-"), *_cells(trial), minutes))
    head = ("model", "", "loss, report split", "MB", "time / float", "minutes")
    return table(head, lines) + origin(VNNI)


@named("fronts targets vnni")
def targets_vnni() -> str:
    return _targets(VNNI) + origin(VNNI)


@named("fronts targets avx2")
def targets_avx2() -> str:
    return _targets(AVX2) + origin(AVX2)


def _targets(name: str) -> str:
    """Return one line a model and target, one column a seed; what misses is bold."""
    rows = read(name)["rows"].values()
    seeds = sorted({row["seed"] for row in rows})
    lines = []
    for model in TITLES:
        of_model = {row["seed"]: row for row in rows if row["model"] == model}
        if not of_model:
            continue
        shown = [_fq(of_model[s]) if s in of_model else "" for s in seeds]
        lines.append((model, "FQ", *shown, ""))
        for target in ORDER:
            found = {
                seed: row["targets"][target]
                for seed, row in of_model.items()
                if target in row["targets"]
            }
            if not found:
                continue
            shown = [_verdict(found[s], of_model[s]) if s in found else "" for s in seeds]
            passed = sum(bool(t["pass"]) for t in found.values())
            lines.append(("", target, *shown, f"{passed}/{len(found)}"))
    return table(("model", "", *(f"seed {s}" for s in seeds), "met"), lines)


def _fq(row: Json) -> str:
    return (
        f"{bounded(row['fq']['loss'])}, {megabytes(row['fq']['size_bytes'])} MB, {_time(row['fq'])}"
    )


def _verdict(target: Json, row: Json) -> str:
    if "closed" in target:
        shown = f"{target['frontier']:.3f} against {target['stepwise']:.3f}: {target['closed']:.0%}"
    elif target.get("trial") is None:
        shown = str(target.get("why", "none"))
    else:
        trial = target["trial"]
        share = trial["size_bytes"] / row["fq"]["size_bytes"]
        shown = f"{bounded(trial['loss'])}, {share:.3f}, {_time(trial)}"
    return shown if target["pass"] else f"**{shown}**"


def _rows(rows: Json, *, seed: int) -> list[Json]:
    of_seed = {row["model"]: row for row in rows.values() if row["seed"] == seed}
    return [of_seed[model] for model in TITLES if model in of_seed]


def _pick(row: Json, name: str) -> Json | None:
    found: Json | None = next((t for t in row["trials"] if name in t["picks"]), None)
    return found


def _cells(found: Json) -> tuple[str, str, str]:
    return bounded(found["loss"]), megabytes(found["size_bytes"]), _time(found)


def _short(found: Json | None) -> str:
    if found is None:
        return "–"
    return f"{percent(found['loss']['value'])}, {megabytes(found['size_bytes'])} MB, {_time(found)}"


def _time(found: Json) -> str:
    latency = found["latency"]
    return ratio(latency["ratio"] if latency else found.get("run_ratio"))


@named("small files")
def small_files() -> str:
    """Return the pick `small` on each split, and its loss on all of them."""
    content: Json = read("small_files")
    lines = []
    for model, seeds in content.items():
        rows = [row for _, row in sorted(seeds.items())]
        cells = [
            f"{percent(r['loss']['value'])}, {r['size_bytes'] / r['fully_quantized_bytes']:.3f}"
            for r in rows
        ]
        samples = [r["loss"]["samples"] for r in rows]
        changed = sum(round(r["loss"]["value"] * n) for r, n in zip(rows, samples, strict=True))
        low, high = wilson(changed, sum(samples))
        pooled = {"value": changed / sum(samples), "low": low, "high": high}
        share = sum(r["size_bytes"] / r["fully_quantized_bytes"] for r in rows) / len(rows)
        lines.append((TITLES[model], *cells, bounded(pooled), f"{share:.2f}"))
    seed_names = [f"seed {seed}" for seed in sorted(next(iter(content.values())))]
    head = ("model", *seed_names, "changed, all splits", "of FQ's bytes")
    environment = next(iter(content.values()))["0"]["environment"]
    return table(head, lines) + f"\nCPU: {cpu_kind(environment)}.\n"
