"""Text of `seqto check`: the figures of a model file beside its float model."""

from __future__ import annotations

from seqto.records import Json
from seqto.report import wording
from seqto.selection.goal import FIGURES, Bound
from seqto.selection.speed import speed_of
from seqto.study.check import Checked
from seqto.text import percent, size, times


def checked_json(checked: Checked) -> Json:
    """Return the figures as JSON, with the fields of a trial in report.json."""
    latency = checked.latency.to_json()
    loss = {k: v for k, v in checked.measurement.loss.to_json().items() if k != "agreement"}
    return {
        "loss": loss,
        "scores": dict(checked.measurement.scores),
        "baseline_scores": dict(checked.measurement.baseline_scores),
        "figures": dict(checked.measurement.figures),
        "size_bytes": checked.size_bytes,
        "float_bytes": checked.float_bytes,
        "latency_ms": latency,
        "speed": {"verdict": speed_of(latency).value, "text": wording.speed(latency)},
        "output": checked.output,
        "missed": list(checked.missed),
    }


def checked_lines(checked: Checked) -> list[str]:
    """Return a line for each figure, then one for each bound that is not kept."""
    report = {"output": checked.output}
    latency = checked.latency.to_json()
    factor = checked.float_bytes / max(1, checked.size_bytes)
    samples = f"{checked.measurement.loss.samples:,} samples"
    lines = [
        f"{wording.change(checked.measurement.loss.to_json(), report)} ({samples})",
        f"{size(checked.size_bytes)}, float {size(checked.float_bytes)}: {times(factor)} smaller",
        f"{wording.speed(latency)}: {wording.both_ms(latency)}",
    ]
    scores = checked.measurement.scores
    before = checked.measurement.baseline_scores
    for name in scores:
        if name in before:
            is_share = checked.measurement.kind_of_score(name).share
            texts = [percent(x) if is_share else f"{x:.4g}" for x in (before[name], scores[name])]
            lines.append(f"{name.replace('_', ' ')} {texts[0]} → {texts[1]}")
    for miss in checked.missed:
        figure = FIGURES[miss["setting"]]
        value = "not measured" if miss["value"] is None else figure.text(miss["value"])
        label = wording.changed_noun(report)
        lines.append(f"missed: {Bound(miss['setting'], miss['limit']).text(label)}, but {value}")
    return lines
