"""Tables about other tools on the same models."""

from __future__ import annotations

from pages.common import Json, bounded, megabytes, named, origin, ratio, read, table


@named("peers")
def peers() -> str:
    rows = read("peers")["rows"].values()
    lines = []
    for model in dict.fromkeys(row["model"] for row in rows):
        of_model = [r for r in rows if r["model"] == model]
        for row in of_model:
            if row["tool"] == "seqto":
                lines += [_ours(t, row) for t in row["trials"] if t["picks"]]
            else:
                lines.append((row["model"], *_peer(row)))
    head = ("model", "tool", "loss, report split", "MB", "time / float", "seconds")
    return table(head, lines) + origin("peers")


def _peer(row: Json) -> tuple[str, ...]:
    name = f"{row['tool']} {row.get('version', '')}".strip()
    if "loss" not in row:
        return name, row["error"], "–", "–", "–"
    return (
        name,
        bounded(row["loss"]),
        megabytes(row["size_bytes"]),
        ratio(row["latency"]["ratio"]),
        f"{row['seconds']:.0f}",
    )


def _ours(trial: Json, row: Json) -> tuple[str, ...]:
    picks = ", ".join(p.replace("_", "-") for p in trial["picks"])
    return (
        row["model"],
        f"seqto: {picks}",
        bounded(trial["loss"]),
        megabytes(trial["size_bytes"]),
        ratio(trial["latency"]["ratio"]),
        f"{row['seconds']:.0f}",
    )


@named("peers headline")
def headline() -> str:
    return peers()
