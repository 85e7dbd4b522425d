"""Save the models of the recommended trials in the run folder."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Mapping

from seqto.assembly.rebuild import rebuild
from seqto.errors import JournalError, PlanError
from seqto.model.bundle import files_of
from seqto.record.own_files import ForeignFileError, OwnFiles
from seqto.record.trial import Trial


def save_recommended(
    own: OwnFiles, trials: Mapping[int, Trial], picks: Iterable[int]
) -> tuple[list[str], list[str]]:
    """Write models/trial-N.onnx for every recommended trial; remove those of other trials.

    The components of a bundle are files of their own: models/trial-N-encoder.onnx.
    Returns sentences: files that are not ours and were left, models that cannot be rebuilt.
    """
    chosen = {_name(n): trials[n] for n in sorted(set(picks))}
    left: list[str] = []
    missing: list[str] = []
    for name, number in _saved(own):
        if _name(number) not in chosen:
            trial = trials.get(number) if name == _name(number) else None
            own.remove(name, known=trial.sha256 if trial else "")
    for name, trial in chosen.items():
        if own.sha256(name) == trial.sha256:
            continue
        try:
            data = rebuild(own.folder, trial.to_json())
        except (JournalError, PlanError) as error:
            missing.append(f"the recommended models cannot be rebuilt: {error}")
            break  # the others miss the same files
        for path, content in files_of(own.folder / name, data).items():
            try:
                own.write(path, content, repair=True)
            except ForeignFileError as error:
                left.append(str(error))
    return left, missing


def _saved(own: OwnFiles) -> list[tuple[str, int]]:
    """Return the models in a run folder, each with the number of its trial."""
    entries: list[str] = []
    with contextlib.suppress(OSError):  # no model was saved yet
        entries = sorted(os.listdir(own.folder / "models"))
    matches = [_MODEL.fullmatch(f"models/{entry}") for entry in entries]
    return [(match[0], int(match[1])) for match in matches if match]


def _name(number: int) -> str:
    return f"models/trial-{number}.onnx"


_MODEL = re.compile(r"models/trial-(\d+)(?:-[\w.-]+)?\.onnx")
