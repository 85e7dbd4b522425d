"""A model file that seqto has written for the user, and how it is written."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from seqto.assembly.node_notes import with_node_notes
from seqto.assembly.rebuild import rebuild
from seqto.errors import ConfigError
from seqto.files import given_path, sweep, write_file
from seqto.model.bundle import files_of, split_bytes
from seqto.publish.package import refuse_old_card
from seqto.record.trial import Trial
from seqto.records import Layer
from seqto.report import portability
from seqto.study.export_path import check_output


@dataclass(frozen=True, slots=True)
class SavedModel:
    """A model that `quantize` or `export` has written.

    `path` is its file, or, of a bundle, that of its first component; `components` has all of them.
    """

    path: str
    size_bytes: int
    sha256: str
    layers: int  # that are not float32
    trial: int | None = None  # None: quantized without a run
    components: Mapping[str, str] = field(default_factory=dict)  # of a bundle: name → file
    holds: str = ""  # on which kinds of CPU its answers hold; empty: not known
    notes_bytes: int = 0  # of size_bytes: notes for viewers, which the measured file does not have


def export_trial(
    folder: Path, output: str | Path, trial: Trial, *, noted: Sequence[Layer] = ()
) -> SavedModel:
    """Rebuild the model of a trial from its run folder and write it.

    `noted`: layers whose nodes get a note with their scheme, which Netron shows.
    """
    path = given_path(output, "output")
    check_output(path, folder)
    refuse_old_card(path, remedy="write it anew with --card, delete it")
    measured = data = rebuild(folder, trial.to_json())
    if noted:
        data = with_node_notes(data, trial.plan, noted)
    saved = save_model(path, data, [folder], layers=len(trial.plan.schemes), trial=trial.number)
    return dataclasses.replace(
        saved,
        holds=portability.holds(trial.may_saturate),
        notes_bytes=len(data) - len(measured),
    )


def save_model(
    output: Path, data: bytes, sources: Sequence[Path], *, layers: int, trial: int | None = None
) -> SavedModel:
    """Write a model to its file, or to one file a component; nothing of the user's is lost."""
    files = files_of(output, data)
    for path in files:
        for source in sources:
            check_output(path, source)
        sweep(path.parent)
    for path, content in files.items():
        write_file(path, content, error=ConfigError)
    components = dict(zip(split_bytes(data), map(str, files), strict=False))
    size = sum(map(len, files.values()))
    digest = hashlib.sha256(data).hexdigest()
    return SavedModel(str(next(iter(files))), size, digest, layers, trial, components)
