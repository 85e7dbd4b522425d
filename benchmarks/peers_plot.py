"""Draw every file of peers.json on our fronts.

python benchmarks/peers_plot.py     # writes docs/images/peers.png
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import zoo
from pages.common import TITLES
from pages.peers import FILE, models_of, rows_with_ours
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
COLUMNS = 3


def main() -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    rows = rows_with_ours(FILE)
    models = models_of(rows)
    lines = math.ceil((len(models) + 1) / COLUMNS)  # the last cell has the legend
    figure, axes = plt.subplots(lines, COLUMNS, figsize=(8.4, 2.9 * lines), squeeze=False)
    cells = list(axes.flat)
    handles: dict[str, Any] = {}
    for axis, model in zip(cells, models, strict=False):
        handles |= draw(axis, [row for row in rows if row["model"] == model])
        axis.set_title(TITLES.get(model, model), fontsize=10)
    for line in axes:
        line[0].set_ylabel("changed answers")
    for axis in cells[len(models) :]:
        axis.axis("off")
    cells[len(models)].legend(handles.values(), handles.keys(), loc="center", fontsize=10)
    zoo.save(figure, Path(zoo.ROOT) / "docs" / "images" / "peers.png")


def draw(axis: Any, rows: list[Json]) -> dict[str, Any]:
    """Draw one model; return the marks by tool."""
    handles: dict[str, Any] = {}
    for row in rows:
        if row["tool"] == "seqto":
            front = _front([(t["size_bytes"] / 1e6, t["loss"]["value"]) for t in row["trials"]])
            shown = [max(loss, LEAST) for _, loss in front]
            style = {"color": "tab:blue", "ms": 4, "zorder": 3}
            handles["seqto"] = axis.plot([x for x, _ in front], shown, "o-", **style)[0]
        elif "loss" in row:
            tool = TOOLS[row["tool"]]
            loss = max(row["loss"]["value"], LEAST)
            style = {"color": COLOURS[tool.peer], "ms": 6, "alpha": 0.8}
            mark = axis.plot(row["size_bytes"] / 1e6, loss, MARKS[tool.peer], **style)[0]
            handles[tool.title.split(",")[0]] = mark
    axis.set_yscale("log")
    axis.set_ylim(LEAST / 1.4, 1.3)
    axis.set_yticks([LEAST, 0.001, 0.01, 0.1, 1.0], ["0", "0.1 %", "1 %", "10 %", "100 %"])
    axis.minorticks_off()
    axis.set_xlabel("MB")
    axis.grid(alpha=0.3)
    return handles


def _front(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return those that no smaller file beats in loss, by size."""
    found: list[tuple[float, float]] = []
    for size, loss in sorted(points):
        if not found or loss < found[-1][1]:
            found.append((size, loss))
    return found


if __name__ == "__main__":
    main()
