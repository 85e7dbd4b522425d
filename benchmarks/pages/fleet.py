"""Tables about the same files on two kinds of kernels (benchmarks/fleet.py)."""

from __future__ import annotations

from pages.common import (
    TITLES,
    Json,
    bounded,
    megabytes,
    named,
    origin,
    percent,
    ratio,
    read,
    table,
)

FILES = {
    "papers": "papers' setting: stock, per tensor, s8 × s8",
    "stock u8 s8": "stock, per channel, u8 × s8",
    "stock u8 s7": "stock, per channel, u8 × s8 of 7 bits",
    "stock u8 u8": "stock, per channel, u8 × u8",
    "stock s8 s8": "stock, per channel, s8 × s8",
    "recommended": "seqto, recommended (*balanced*)",
    "portable": "seqto, *portable*",
}
FEW = 2  # answers of the report split that may differ between the kinds


@named("fleet")
def fleet() -> str:
    """Every file on both kinds: changed answers, answers that differ, MB, time."""
    lines = []
    for key, row in read("fleet")["rows"].items():
        title = TITLES[key.split()[0]]
        for name, what in FILES.items():
            if name not in row["native"] or name not in row["avx2"]:
                continue
            native, avx2 = row["native"][name], row["avx2"][name]
            times = [_ratio(row, kind, name) for kind in ("native", "avx2")]
            cells = [bounded(native), bounded(avx2), str(_differing(row, name))]
            lines.append((title, what, *cells, megabytes(row["bytes"][name]), *map(ratio, times)))
            title = ""
    head = ("model", "file", "changed, VNNI", "changed, AVX2", "answers that differ", "MB")
    return table((*head, "time, VNNI", "time, AVX2"), lines) + origin("fleet")


@named("fleet targets")
def targets() -> str:
    """The portable file against its targets; the recommended one against stock's best on VNNI."""
    lines = []
    for key, row in read("fleet")["rows"].items():
        title = TITLES[key.split()[0]]
        worst = max(row[kind]["portable"]["value"] for kind in ("native", "avx2"))
        papers = max(row[kind]["papers"]["value"] for kind in ("native", "avx2"))
        allowed = max(0.025, 0.15 * papers)
        bytes_of = row["bytes"]
        times = [_ratio(row, kind, "portable") for kind in ("native", "avx2")]
        lines += [
            (title, "portable: loss on the worse kind", f"≤ {percent(allowed)}", percent(worst),
             _met(worst <= allowed)),
            ("", "portable: bytes", f"≤ {megabytes(bytes_of['papers'])} MB",
             f"{megabytes(bytes_of['portable'])} MB",
             _met(bytes_of["portable"] <= bytes_of["papers"])),
            ("", "portable: answers that differ", f"≤ {FEW}", str(_differing(row, "portable")),
             _met(_differing(row, "portable") <= FEW)),
        ]  # fmt: skip
        if None not in times:
            slowest = max(t for t in times if t is not None)
            lines.append(
                ("", "portable: time on the slower kind", "≤ 1", ratio(slowest), _met(slowest <= 1))
            )
        lines.append(("", *_beside_stock(row)))
    return table(("model", "target", "wanted", "measured", "met"), lines)


def _beside_stock(row: Json) -> tuple[str, str, str, str]:
    """Loss and bytes of the recommended file beside stock's u8 × s8 on VNNI."""
    ours, stock = row["native"]["recommended"], row["native"]["stock u8 s8"]
    limit = 0.95 * row["bytes"]["stock u8 s8"]
    size = row["bytes"]["recommended"]
    wanted = f"≤ {percent(stock['value'])}, ≤ {megabytes(limit)} MB"
    measured = f"{percent(ours['value'])}, {megabytes(size)} MB"
    return (
        "recommended beside stock u8 × s8, VNNI",
        wanted,
        measured,
        _met(ours["value"] <= stock["value"] and size <= limit),
    )


def _met(value: bool) -> str:
    return "yes" if value else "**no**"


def _differing(row: Json, name: str) -> int:
    pair = (row["native"][name]["answers"], row["avx2"][name]["answers"])
    return sum(a != b for a, b in zip(*pair, strict=True))


def _ratio(row: Json, kind: str, name: str) -> float | None:
    found = row.get(f"{kind} times", {}).get(name)
    return None if found is None else float(found["ratio"])
