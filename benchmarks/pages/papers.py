"""Tables about the papers' procedure, rankings and the practitioners' chain of cures."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

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

RANKINGS = ("qdq_err", "xmodel_err", "both", "damage")
MEASURES = ("qdq_err", "xmodel_err", "both", "added", "damage")


@named("papers quoted")
def quoted() -> str:
    """Return the papers' own tables."""
    content = read("papers")
    lines = [
        (
            row["model"],
            f"{row['loss_quantized']} %",
            f"{row['loss_selected']} %",
            row["mb_float"],
            row["mb_quantized"],
            row["mb_selected"],
        )
        for row in content["rows"]
    ]
    head = (
        "model",
        "loss, all int8",
        "loss, selected",
        "MB, float",
        "MB, all int8",
        "MB, selected",
    )
    return table(head, lines) + f"\n{content['source']}\n"


@named("stepwise vnni")
def stepwise() -> str:
    """Return where `stepwise` halves the loss and where it is within 2.5 %, by the order."""
    content = read("stepwise-vnni")
    lines = []
    for model in ("efficientnet-lite0", "mobilenetv1", "mobilenetv2"):
        for order, title in (("errors", "papers'"), ("damage", "by damage")):
            row = content["rows"][f"{model}/{order}"]
            first = row["trials"][0]
            shown = f"{percent(first['evaluation_loss'])}, {megabytes(first['size_bytes'])} MB"
            half = _first(row, first["evaluation_loss"] / 2)
            within = _first(row, 0.025)
            name = TITLES[model] if order == "errors" else ""
            lines.append((name, shown if order == "errors" else "", title, half, within))
    head = ("model", "fully quantized", "order", "half of the loss gone", "loss within 2.5 %")
    command = content["command"].replace("|", "or")
    told = f"\n{content['cpu']}: `{command}`, `benchmarks/results/stepwise-vnni.json`\n"
    return table(head, lines) + told


def _first(row: Json, limit: float) -> str:
    """Return the first step that loses no more, in the order of float layers."""
    steps = sorted(row["trials"], key=lambda t: t["float_layers"])
    found = next((t for t in steps if t["evaluation_loss"] <= limit), None)
    if found is None:
        return "never"
    return (
        f"after {found['float_layers']} layers, {megabytes(found['size_bytes'])} MB "
        f"({percent(found['evaluation_loss'])})"
    )


@named("rankings fronts")
def ranking_fronts() -> str:
    """Return hypervolume of stepwise's front by ranking."""
    rows = _part("fronts")
    lines = []
    for row in rows:
        volumes = [row["rankings"][name]["hypervolume"] for name in RANKINGS]
        best = max(volumes)
        cells = [f"**{v:.3f}**" if v == best else f"{v:.3f}" for v in volumes]
        lines.append((TITLES[row["model"]], percent(row["fq_loss"]), *cells))
    head = ("model", "FQ's loss", "qdq_err", "xmodel_err", "both", "damage at the output")
    return table(head, lines) + origin("rankings")


@named("rankings prediction")
def ranking_prediction() -> str:
    """Return Spearman of each measure with what happens."""
    lines = []
    for row in _part("prediction"):
        for measure in MEASURES:
            found = row["spearman"][measure]
            cells = [
                _signed(found[k])
                for k in ("loss_gone", "damage_gone", "damage_alone", "loss_alone")
            ]
            name = TITLES[row["model"]] if measure == MEASURES[0] else ""
            lines.append((name, measure, *cells))
    head = (
        "model",
        "measure",
        "loss gone when excluded",
        "damage gone",
        "damage when alone",
        "loss when alone",
    )
    return table(head, lines)


@named("rankings calibration")
def ranking_calibration() -> str:
    """Return how much a ranking and a loss depend on the calibration pictures."""
    lines = []
    for row in _part("calibration"):
        for count, draws in row["draws"].items():
            losses = [draw["loss"] for draw in draws]
            among = _mean_spearman(itertools.combinations([d["error"] for d in draws], 2))
            name = TITLES[row["model"]] if count == next(iter(row["draws"])) else ""
            spread = f"{percent(min(losses))} – {percent(max(losses))}"
            lines.append((name, count, f"{among:.3f}", spread))
    head = ("model", "samples", "Spearman of the ranking between draws", "FQ's loss")
    return table(head, lines)


def _mean_spearman(pairs: Any) -> float:
    from scipy.stats import spearmanr

    values = [spearmanr([a[k] for k in a], [b[k] for k in a]).statistic for a, b in pairs]
    return float(sum(values) / len(values))


def _part(name: str) -> list[Json]:
    rows: Mapping[str, Json] = read("rankings")["rows"]
    return [row for key, row in rows.items() if key.startswith(f"{name}/")]


def _signed(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}".replace("-", "−")


# --------------------------------------------------------------------- the practitioners' chain


@named("chain fashion")
def chain_fashion() -> str:
    return _chain("fashion-mobilenetv3/0", ratios=False)


@named("chain mobilenetv2")
def chain_mobilenetv2() -> str:
    return _chain("mobilenetv2/0", ratios=True) + origin("blog")


def _chain(key: str, *, ratios: bool) -> str:
    """Return each step of the chain; the sweeps over α are in the plot."""
    row = read("blog")["rows"][key]
    lines: list[Sequence[Any]] = []
    size = megabytes(row["float_bytes"])
    last = ("1",) if ratios else ()
    lines.append(("float", "", percent(row["float_accuracy"]), size, *last))
    for name, found in row["links"].items():
        if ", smooth " in name:  # the sweep over α; it is drawn
            continue
        time = (ratio(found.get("ratio")),) if ratios else ()
        accuracy = percent(found["loss"].get("accuracy"))
        lines.append(
            (name, bounded(found["loss"]), accuracy, megabytes(found["size_bytes"]), *time)
        )
    head = ("", "loss", "top-1", "MB", *(("time / float",) if ratios else ()))
    return table(head, lines)
