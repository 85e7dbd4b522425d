"""What `seqto check` prints: the figures of a model file beside its float model."""

from __future__ import annotations

from seqto.records import Json
from seqto.report import wording
from seqto.selection.goal import FIGURES, Bound
from seqto.selection.speed import speed_of
from seqto.study.check import Checked
from seqto.text import percent, size, times


def checked_json(found: Checked) -> Json:
    """Return the figures as JSON, with the fields of a trial in report.json."""
    latency = found.latency.to_json()
    loss = {k: v for k, v in found.measurement.loss.to_json().items() if k != "agreement"}
    return {
        "loss": loss,
        "scores": dict(found.measurement.scores),
        "baseline_scores": dict(found.measurement.baseline_scores),
        "figures": dict(found.measurement.figures),
        "size_bytes": found.size_bytes,
        "float_bytes": found.float_bytes,
        "latency_ms": latency,
        "speed": {"verdict": speed_of(latency).value, "text": wording.speed(latency)},
        "output": found.output,
        "missed": list(found.missed),
    }


def checked_lines(found: Checked) -> list[str]:
    """Return a line for each figure, then one for each bound that is not kept."""
    report = {"output": found.output}
    latency = found.latency.to_json()
    factor = found.float_bytes / max(1, found.size_bytes)
    samples = f"{found.measurement.loss.samples:,} samples"
    lines = [
        f"{wording.change(found.measurement.loss.to_json(), report)} ({samples})",
        f"{size(found.size_bytes)}, float {size(found.float_bytes)}: {times(factor)} smaller",
        f"{wording.speed(latency)}: {wording.both_ms(latency)}",
    ]
    scores = found.measurement.scores
    before = found.measurement.baseline_scores
    for name in scores:
        if name in before:
            is_share = found.measurement.kind_of_score(name).share
            texts = [percent(x) if is_share else f"{x:.4g}" for x in (before[name], scores[name])]
            lines.append(f"{name.replace('_', ' ')} {texts[0]} → {texts[1]}")
    for miss in found.missed:
        figure = FIGURES[miss["setting"]]
        value = "not measured" if miss["value"] is None else figure.text(miss["value"])
        label = wording.changed_noun(report)
        lines.append(f"missed: {Bound(miss['setting'], miss['limit']).text(label)}, but {value}")
    return lines
