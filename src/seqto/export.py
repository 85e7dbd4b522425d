"""Rebuild any trial's model from a run folder, bit for bit the one that was measured."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from seqto.contracts import Json, Plan
from seqto.errors import ConfigError, JournalError, PlanError
from seqto.files import shown
from seqto.own_files import ForeignFileError, OwnFiles, run_of
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


def trials_of(events: Sequence[Json]) -> dict[int, Json]:
    """The journal's trials by number, which is checked: it becomes the name of a file."""
    found: dict[int, Json] = {}
    for event in events:
        if event.get("event") != "trial":
            continue
        trial = event.get("trial")
        number = trial.get("number") if isinstance(trial, dict) else None
        if type(number) is not int or number < 0:
            raise JournalError(
                f"the journal has a trial of the number {number!r:.60}, which is no count: the "
                "file was changed by something else; restore it, or start a run in a new folder"
            )
        found[number] = event["trial"]
    return found


def save_recommended(
    own: OwnFiles, events: Sequence[Json], report: Json
) -> tuple[list[str], list[str]]:
    """models/trial-N.onnx for every recommended trial.

    Returns sentences: files that are not ours and were left, models that cannot be rebuilt.
    """
    trials = trials_of(events)
    wanted = {_name(n): n for n in sorted(set(report["recommended"].values()))}
    left: list[str] = []
    missing: list[str] = []
    for number in trials:
        if _name(number) not in wanted:
            own.remove(_name(number), known=str(trials[number].get("sha256")))
    for name in [n for n in own.files if _MODEL.fullmatch(n) and n not in wanted]:
        own.remove(name)
    for name, number in wanted.items():
        if own.sha256(name) == trials[number]["sha256"]:
            continue
        try:
            data = rebuild(own.folder, trials[number])
        except (JournalError, PlanError) as error:
            missing.append(f"the recommended models cannot be rebuilt: {error}")
            break  # the others miss the same files
        try:
            own.write(own.folder / name, data, repair=True)
        except ForeignFileError as error:
            left.append(str(error))
    return left, missing


def _name(number: int) -> str:
    return f"models/trial-{number}.onnx"


_MODEL = re.compile(r"models/trial-\d+\.onnx")


def check_output(output: Path, source: Path) -> None:
    """Raise unless a model may be exported to this place: a new name, or an earlier export."""
    try:
        owner = run_of(output)
        if owner is not None:
            raise ConfigError(
                f"{shown(output)} belongs to the run in {shown(owner)}: export to a place outside "
                f"of it, or to another name in {shown(owner)} itself"
            )
        if not os.path.lexists(output):
            return
        if source.is_file() and output.exists() and output.samefile(source):
            raise ConfigError(f"{shown(output)} would be exported over itself: choose another name")
        what = _not_an_export(output)
    except OSError as error:
        raise ConfigError(
            f"cannot write {shown(output)}: {error.strerror or error}; choose another place"
        ) from error
    if what:
        raise ConfigError(
            f"{shown(output)} is {what}, not an earlier export, and is left as it is: delete it "
            "first, or choose another name"
        )


def _not_an_export(path: Path) -> str:
    """What a path is, if it is no model that seqto has quantized; empty if it is one."""
    import onnx
    from google.protobuf.message import DecodeError

    if path.is_symlink():
        return "a link"
    if path.is_dir():
        return "a folder"
    if not path.is_file():
        return "no regular file"
    try:
        proto = onnx.load(str(path), load_external_data=False)
    except (DecodeError, ValueError):
        return "a file of another kind"
    return "" if any(p.key == "seqto" for p in proto.metadata_props) else "a file of another kind"


def pick(report: Json, choice: str) -> int:
    """The trial number behind `balanced`, `loss`, `size`, …"""
    recommended = report["recommended"]
    if choice not in recommended:
        known = ", ".join(recommended) or "none: no trial succeeded"
        raise PlanError(f"no recommendation {choice!r} in this run (there is {known})")
    return int(recommended[choice])
