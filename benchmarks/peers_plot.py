"""Draw every file of peers.json on our fronts.

python benchmarks/peers_plot.py     # writes docs/images/peers.png
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import zoo
from pages.peers import rows_with_ours
from peer_tools import TOOLS

Json = dict[str, Any]
MARKS = {"nncf": "s", "aimet": "D", "inc": "v", "olive": "^", "quark": "P", "stock": "x"}
COLOURS = {
    "nncf": "tab:red",
    "aimet": "tab:purple",
    "inc": "tab:brown",
    "olive": "tab:green",
    "quark": "tab:orange",
    "stock": "0.3",
}
LEAST = 5e-4  # what loses nothing is drawn here


def main() -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    rows = rows_with_ours("peers")
    models = list(dict.fromkeys(row["model"] for row in rows))
    figure, axes = plt.subplots(1, len(models), figsize=(3.6 * len(models), 3.6), squeeze=False)
    for axis, model in zip(axes[0], models, strict=True):
        draw(axis, [row for row in rows if row["model"] == model])
        axis.set_title(model, fontsize=9)
    axes[0][0].set_ylabel("changed answers, report split")
    axes[0][0].legend(fontsize=7)
    zoo.save(figure, Path(zoo.ROOT) / "docs" / "images" / "peers.png")


def draw(axis: Any, rows: list[Json]) -> None:
    seen: set[str] = set()
    for row in rows:
        if row["tool"] == "seqto":
            front = _front([(t["size_bytes"] / 1e6, t["loss"]["value"]) for t in row["trials"]])
            shown = [max(loss, LEAST) for _, loss in front]
            axis.plot([x for x, _ in front], shown, "o-", color="tab:blue", ms=4, label="seqto")
        elif "loss" in row:
            peer = TOOLS[row["tool"]].peer
            label = TOOLS[row["tool"]].title.split(",")[0]
            loss = max(row["loss"]["value"], LEAST)
            told = {} if label in seen else {"label": label}
            axis.plot(row["size_bytes"] / 1e6, loss, MARKS[peer], color=COLOURS[peer], ms=6, **told)
            seen.add(label)
    axis.set_yscale("log")
    axis.set_xlabel("MB")


def _front(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Those that no smaller file beats in loss, by size."""
    found: list[tuple[float, float]] = []
    for size, loss in sorted(points):
        if not found or loss < found[-1][1]:
            found.append((size, loss))
    return found


if __name__ == "__main__":
    main()
