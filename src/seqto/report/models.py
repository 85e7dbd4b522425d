"""Save the models of the recommended trials in the run folder."""

from __future__ import annotations

import re
from collections.abc import Sequence

from seqto.assembly.rebuild import rebuild
from seqto.errors import JournalError, PlanError
from seqto.record.own_files import ForeignFileError, OwnFiles
from seqto.records import Json


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


def pick(report: Json, choice: str) -> int:
    """The trial number behind `balanced`, `loss`, `size`, …"""
    recommended = report["recommended"]
    if choice not in recommended:
        known = ", ".join(recommended) or "none: no trial succeeded"
        raise PlanError(f"no recommendation {choice!r} in this run (there is {known})")
    return int(recommended[choice])
