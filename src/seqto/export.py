"""Rebuild any trial's model from a run folder, bit for bit the one that was measured."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from seqto.contracts import Json, Plan
from seqto.errors import JournalError, PlanError
from seqto.model import write_atomically
from seqto.variants import is_complete, open_assembler, place_of


def rebuild(folder: Path, trial: Json) -> bytes:
    """The model of one entry of report.json's or the journal's trials."""
    if trial.get("error"):
        raise PlanError(f"trial {trial['number']} failed ({trial['error']['stage']}): no model")
    plan = Plan.from_json(trial["plan"])
    place = place_of(folder, plan.transforms)
    if not is_complete(place):
        raise JournalError(f"{place} is missing: the run folder is not complete")
    made = open_assembler(place).assemble(plan)
    if made.sha256 != trial["sha256"]:
        raise JournalError(
            f"trial {trial['number']} was measured as sha256 {trial['sha256'][:12]}… but rebuilds "
            f"as {made.sha256[:12]}…: {place} or a library was changed"
        )
    return made.data


def save_recommended(folder: Path, events: Sequence[Json], report: Json) -> None:
    """models/trial-N.onnx for every recommended trial."""
    trials = {e["trial"]["number"]: e["trial"] for e in events if e["event"] == "trial"}
    wanted = {f"trial-{n}.onnx": n for n in sorted(set(report["recommended"].values()))}
    models = folder / "models"
    models.mkdir(exist_ok=True)
    for old in models.glob("trial-*.onnx"):
        if old.name not in wanted:
            old.unlink()
    for name, number in wanted.items():
        if not (models / name).is_file():
            write_atomically(models / name, rebuild(folder, trials[number]))


def pick(report: Json, choice: str) -> int:
    """The trial number behind `balanced`, `loss`, `size`, …"""
    recommended = report["recommended"]
    if choice not in recommended:
        known = ", ".join(recommended) or "none: no trial succeeded"
        raise PlanError(f"no recommendation {choice!r} in this run (there is {known})")
    return int(recommended[choice])
