"""Tables about other tools on the same models."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

from pages.common import (
    TITLES,
    Json,
    best_in_bold,
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
from peer_tools import TOOLS
from zoo import MODELS

FILE = "peers"
FRONTS = "fronts-vnni"
USABLE = 0.05  # a file that changes more is left out where winners are named
COLUMNS = ("loss", "size_bytes", "ratio", "seconds", "cpu_s")
CONTROL, RUN = "nncf control", "seqto run"
NOT_KNOWN: Json = {"at_s": None, "at_cpu_s": None}
HEADLINE_PICKS = ("loss", "drop_in", "fast")
ORDER = (*MODELS[:3], "resnet20-cifar10")


@named("peers")
def every_file() -> str:
    return _tables(FILE)


@named("peers avx2")
def without_vnni() -> str:
    return _tables("peers-avx2")


def _tables(name: str) -> str:
    """Return one table a model; the lowest of each column among usable files in bold."""
    rows = rows_with_ours(name)
    parts = []
    for model in models_of(rows):
        found = sorted(
            (line for row in rows if row["model"] == model for line in _lines(row)),
            key=lambda line: (line["loss"] is None, line["loss"]),
        )
        head = (TITLES.get(model, model), "changed", "MB", "time / float", "seconds", "CPU s")
        parts.append(table(head, _bold([_cells(line) for line in found], found)))
    told = (
        "\n¹ A run of the fronts (`fronts-vnni.json`), timed with float, not beside these files.\n"
    )
    used = any(row.get("elsewhere") for row in rows)
    return "\n".join(parts) + (told if used else "") + origin(name)


@named("peers headline")
def headline() -> str:
    """Return one file a tool, the one that changes least, and ours by pick; a column a model."""
    content = read(FILE)
    rows = rows_with_ours(FILE)
    models = models_of(rows)
    tools = [t for t in dict.fromkeys(_peer_of(row) for row in rows) if t != "seqto"]
    columns = []
    for model in models:
        here = [row for row in rows if row["model"] == model]
        ours = [line for row in here if row["tool"] == "seqto" for line in _lines(row)]
        cells = [_of_pick(ours, pick) for pick in HEADLINE_PICKS]
        for tool in tools:
            found = [line for row in here if _peer_of(row) == tool for line in _lines(row)]
            cells.append(_least_changed(found))
        columns.append(_short_cells(cells))
    names = [*(f"seqto: {pick.replace('_', '-')}" for pick in HEADLINE_PICKS), *tools]
    lines = [(name, *(column[i] for column in columns)) for i, name in enumerate(names)]
    told = f"\nCPU: {cpu_kind(content['environment'])}.\n"
    return table(("", *(TITLES.get(m, m) for m in models)), lines) + told


@named("peers time")
def time_of_control() -> str:
    """Return how long NNCF's accuracy control takes, and when our run knew as good a file."""
    content = read(FILE)
    rows, cores = content["rows"], content["environment"]["cores"]
    lines = []
    for model in models_of(list(rows.values())):
        theirs, ours = rows.get(f"{model}/{CONTROL}"), rows.get(f"{model}/{RUN}")
        if theirs is None or ours is None:
            continue
        name, metered = TITLES.get(model, model), theirs["metered"]
        judged = "evaluation_loss" in theirs
        found = (judged and as_good(ours["history"], theirs)) or NOT_KNOWN
        wall = [found["at_s"], ours["seconds"]]
        cells = [_of_theirs(x, metered["wall_s"]) for x in wall]
        lines.append((f"{name}, wall seconds", f"{metered['wall_s']:.0f}", *cells))
        cpu = zip((found["at_cpu_s"], ours["cpu_s"]), wall, strict=True)
        cells = [_cpu_of_theirs(own, x, metered["cpu_s"], cores=cores) for own, x in cpu]
        lines.append((f"{name}, CPU seconds", f"{metered['cpu_s']:.0f}", *cells))
    head = ("", "NNCF, accuracy control", "ours: as good a file known", "ours: the whole run")
    return table(head, lines)


def as_good(history: Sequence[Json], theirs: Json) -> Json | None:
    """Return the first trial that is nowhere worse than a file on the samples of the search.

    Loss on the evaluation split, which both have searched on, bytes and, where the file was timed,
    time relative to float.
    """
    latency = theirs.get("latency")
    limit = latency["ratio"] if latency else float("inf")
    for trial in history:
        small = trial["size_bytes"] <= theirs["size_bytes"]
        exact = trial["evaluation_loss"] <= theirs["evaluation_loss"]
        if small and exact and trial["ratio"] <= limit:
            return trial
    return None


def _of_theirs(seconds: float | None, total: float, most: str = "") -> str:
    """Return seconds, and their share of the other tool's."""
    return "–" if seconds is None else f"{most}{seconds:.0f} ({most}{seconds / total:.2f})"


def _cpu_of_theirs(cpu: float | None, wall: float | None, total: float, *, cores: int) -> str:
    """Return CPU seconds; where nobody took them, at most all cores all the time."""
    if cpu is None and wall is not None:
        return _of_theirs(cores * wall, total, "≤ ")
    return _of_theirs(cpu, total)


def models_of(rows: Sequence[Json]) -> list[str]:
    """Return the models of the rows: classifiers in the order of the zoo, then the others."""
    there = dict.fromkeys(row["model"] for row in rows)
    known = [model for model in ORDER if model in there]
    return [*known, *(model for model in there if model not in ORDER)]


def rows_with_ours(name: str) -> list[Json]:
    """Return the rows of the file.

    Ours is that of the fronts where this benchmark has made no run.
    """
    rows: list[Json] = [r for r in read(name)["rows"].values() if r["tool"] != RUN]
    judged = {row["model"] for row in rows if row["tool"] != "seqto" and "loss" in row}
    rows = [row for row in rows if row["model"] in judged]  # ours alone is no comparison
    ours = {row["model"] for row in rows if row["tool"] == "seqto"}
    fronts = read(FRONTS)["rows"]
    for model in dict.fromkeys(row["model"] for row in rows):
        kept = fronts.get(f"{model}/0")
        if model not in ours and kept is not None:
            seconds = kept["seconds"]["frontier"]
            told = {"model": model, "tool": "seqto", "seconds": seconds, "trials": kept["trials"]}
            rows.append({**told, "elsewhere": True})
    return rows


def _of_pick(lines: Sequence[Json], pick: str) -> Json | None:
    return next((line for line in lines if pick in line["picks"]), None)


def _least_changed(lines: Sequence[Json]) -> Json | None:
    """Return the usable file that changes least, else one that says why there is none."""
    done = [line for line in lines if line["loss"] is not None]
    return min(done, key=lambda line: line["loss"]) if done else next(iter(lines), None)


def _short_cells(lines: Sequence[Json | None]) -> list[str]:
    """Return changed answers, bytes and time of each file.

    The lowest of the usable ones are bold.
    """
    usable = [x for x in lines if x and x["loss"] is not None and x["loss"] <= USABLE]
    shown = {"loss": percent, "size_bytes": lambda x: f"{megabytes(x)} MB", "ratio": ratio}
    # nobody wins where some files are not measured
    known = [n for n in shown if usable and all(x[n] is not None for x in usable)]
    least = {n: min(x[n] for x in usable) for n in known}
    cells = []
    for line in lines:
        if line is None or line["loss"] is None:
            cells.append("–" if line is None else line["error"].split(":")[0])
            continue
        words = []
        for name, show in shown.items():
            if line[name] is not None:
                best = line in usable and line[name] == least.get(name)
                words.append(f"**{show(line[name])}**" if best else show(line[name]))
        cells.append(", ".join(words))
    return cells


def _peer_of(row: Json) -> str:
    return row["tool"] if row["tool"] == "seqto" else TOOLS[row["tool"]].title.split(",")[0]


def _lines(row: Json) -> Iterable[Json]:
    """Yield what a row has to show: one line a file; ours one a pick."""
    if row["tool"] == "seqto":
        for trial in row["trials"]:
            if trial["picks"]:
                names = ", ".join(p.replace("_", "-") for p in trial["picks"])
                mark = " ¹" if row.get("elsewhere") else ""
                yield _line(f"**seqto**: {names}{mark}", trial, row)
        return
    title = TOOLS[row["tool"]].title
    name, _, rest = title.partition(",")
    title = f"{name} {row.get('version', '')}".strip() + (f",{rest}" if rest else "")
    if "loss" in row:
        yield _line(title, row, row)
    elif "error" in row:  # a file that is not judged yet has nothing to show
        empty = dict.fromkeys(COLUMNS)
        yield {
            "title": title,
            "error": textwrap.shorten(row["error"], 80, placeholder=" …"),
            "bounds": None,
            "picks": (),
            **empty,
        }


def _line(title: str, found: Json, run: Json) -> Json:
    """Return one file's figures, with the seconds of the run that made it."""
    latency = found.get("latency")
    return {
        "title": title,
        "picks": found.get("picks", ()),
        "bounds": found["loss"],
        "loss": found["loss"]["value"],
        "size_bytes": found["size_bytes"],
        "ratio": latency["ratio"] if latency else None,
        "seconds": run["seconds"],
        "cpu_s": run.get("cpu_s") or run.get("metered", {}).get("cpu_s"),
    }


def _cells(line: Json) -> tuple[str, ...]:
    if line["loss"] is None:
        return line["title"], line["error"].replace("|", "/"), "–", "–", "–", "–"
    return (
        line["title"],
        bounded(line["bounds"]),
        megabytes(line["size_bytes"]),
        ratio(line["ratio"]),
        f"{line['seconds']:.0f}",
        "–" if line["cpu_s"] is None else f"{line['cpu_s']:.0f}",
    )


def _bold(cells: Any, lines: Sequence[Json]) -> Any:
    usable = [line["loss"] is not None and line["loss"] <= USABLE for line in lines]
    for column, name in enumerate(COLUMNS, start=1):
        values = [x[name] if ok else None for x, ok in zip(lines, usable, strict=True)]
        if all(x[name] is not None for x, ok in zip(lines, usable, strict=True) if ok):
            cells = best_in_bold(cells, column, values)
    return cells
