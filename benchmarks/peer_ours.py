"""Our run beside the other tools: its front on the report split, and what it knew when."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from measure import rebuilt

if TYPE_CHECKING:
    from seqto.study.setup import RunSetup

Json = dict[str, Any]
LOSS_FIELDS = ("value", "low", "high", "samples")
MOST_LOSS = 0.3  # front trials that lose more on the evaluation split are not shown


def run_of(job: RunSetup) -> Json:
    """Return seconds and CPU seconds of a run, and the second of every trial."""
    spent = cpu_of(job.out)
    return {
        "seconds": _seconds(job),
        "cpu_s": spent["wall_and_cpu_s"][-1][1] if spent else None,
        "run_load": spent["load"] if spent else None,
        "history": history(job, spent),
    }


def our_trials(job: RunSetup, referee: Any) -> list[Json]:
    """Return the recommended trials and the front, with their loss on the report split."""
    from seqto.api import read_report

    report = read_report(job.out)
    picks: dict[int, list[str]] = {}
    for pick, number in report["recommended"].items():
        picks.setdefault(number, []).append(pick)
    wanted = {*picks, *report["front"]}
    rows = []
    for trial in report["trials"]:
        number = trial["number"]
        if number not in wanted or trial["error"] or trial["loss"]["value"] > MOST_LOSS:
            continue
        seen = trial["report_split"]
        loss = seen["loss"] if seen else loss_of(referee.measure(model_of(job, number)))
        rows.append(
            {
                "number": number,
                "picks": picks.get(number, []),
                "size_bytes": trial["size_bytes"],
                "loss": {k: loss[k] for k in LOSS_FIELDS},
            }
        )
    return rows


def history(job: RunSetup, spent: Json | None) -> list[Json]:
    """Return trials that saw all evaluation samples and have a latency, by when both were known."""
    from seqto.record.replay import read_state
    from seqto.selection.racing import complete
    from seqto.study.run import JOURNAL

    state = read_state(job.out / JOURNAL)
    rows = []
    for trial, loss in complete(state.numbered):
        at_s = state.finished_at(trial, timed=True)
        if at_s is None:
            continue
        ratio = 1.0 if state.is_float_graph(trial) else trial.latency and trial.latency.ratio
        rows.append(
            {
                "number": trial.number,
                "at_s": round(at_s, 1),
                "at_cpu_s": _cpu_at(spent, at_s),
                "evaluation_loss": loss.value,
                "size_bytes": trial.size_bytes,
                "ratio": ratio,
            }
        )
    return sorted(rows, key=lambda row: row["at_s"])


def cpu_of(out: Path) -> Json | None:
    """Return CPU seconds of a run as `fronts.py` keeps them beside its folder, or None."""
    path = out.with_name(f"{out.name}.cpu.json")
    if not path.is_file():
        return None
    found: Json = json.loads(path.read_text(encoding="utf-8"))
    return found


def _cpu_at(spent: Json | None, at_s: float) -> float | None:
    """Return CPU seconds at the first look after a moment: looks are a second apart."""
    if spent is None:
        return None
    points = spent["wall_and_cpu_s"]
    return float(next((cpu for wall, cpu in points if wall >= at_s), points[-1][1]))


def model_of(job: RunSetup, number: int) -> bytes:
    from seqto.record.replay import read_state
    from seqto.study.run import JOURNAL

    state = read_state(job.out / JOURNAL)
    return rebuilt(job.out, next(t for t in state.numbered if t.number == number))


def loss_of(found: Any) -> Json:
    return {k: getattr(found.loss, k) for k in LOSS_FIELDS}


def _seconds(job: RunSetup) -> float:
    """Return seconds of all calls on the run folder."""
    lines = (job.out / "journal.jsonl").read_text(encoding="utf-8").splitlines()
    ends = [event for line in lines if (event := json.loads(line))["event"] == "end"]
    return float(sum(event["seconds"] for event in ends))
