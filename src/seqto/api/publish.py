"""Public functions: a trial's model with its card, to a file or to a repository of the hub."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from seqto.api.folders import state_of
from seqto.api.saved_model import SavedModel
from seqto.errors import ConfigError
from seqto.files import given_path, write_file
from seqto.publish.hub import check_repository, upload
from seqto.publish.package import (
    card_beside,
    card_with_figure,
    check_card,
    labelled_model,
    make_package,
    public_report,
    refuse_old_card,
    refuse_one_name,
)
from seqto.record.replay import RunState
from seqto.record.trial import Trial
from seqto.records import Json
from seqto.report import portability
from seqto.report.view import build_report
from seqto.selection.recommend import pick_named, recommend
from seqto.study.export_path import check_output
from seqto.text import utf8


@dataclass(frozen=True, slots=True)
class Pushed:
    """The files that were uploaded, or would be: `url` is None for a dry run."""

    repo: str
    trial: int
    files: tuple[Json, ...]  # {name, size_bytes, sha256}
    url: str | None = None


def export_with_card(
    folder: str | Path,
    output: str | Path,
    *,
    card: str | Path | None = None,
    trial: int | None = None,
    pick: str | None = None,
) -> tuple[SavedModel, Path]:
    """Write a trial's model with metadata of where it comes from, and its card beside it.

    The card is `output` with the ending .md unless `card` names it. Without the metadata the file
    is, byte for byte, the one that was measured.
    """
    source, path = Path(folder), given_path(output, "output")
    check_output(path, source)
    beside = card_beside(path) if card is None else given_path(card, "--card")
    refuse_one_name(beside, [path])
    check_card(beside)
    if beside.absolute() != card_beside(path).absolute():
        refuse_old_card(path)
    state = state_of(source)
    chosen = _trial(state, source, trial=trial, pick=pick)
    report = build_report(state)
    named = labelled_model(source, chosen, report, name=path.name)
    files = {path.with_name(name): content for name, content in named.items()}
    for file in files:
        check_output(file, source)
    refuse_one_name(beside, files)
    text = card_with_figure(public_report(report), chosen.number, files=named)
    for file, content in files.items():
        write_file(file, content, error=ConfigError)
    write_file(beside, utf8(text), error=ConfigError)
    first, content = next(iter(files.items()))
    components = {f.stem.removeprefix(f"{path.stem}-"): str(f) for f in files if f != path}
    saved = SavedModel(
        str(first),
        sum(map(len, files.values())),
        hashlib.sha256(content).hexdigest(),
        len(chosen.plan.schemes),
        chosen.number,
        components,
        portability.holds(chosen.may_saturate),
        sum(map(len, files.values())) - chosen.size_bytes,
    )
    return saved, beside


def push(
    folder: str | Path,
    repo: str,
    *,
    trial: int | None = None,
    pick: str | None = None,
    public: bool = False,
    replace_card: bool = False,
    dry_run: bool = False,
) -> Pushed:
    """Upload a trial's model, its card, the report page and a figure to a repository of the hub.

    A new repository is private unless `public` is set. Samples of the data and paths of this
    machine stay here. With `dry_run` nothing is sent, and no token is needed.
    """
    check_repository(repo)
    source = Path(folder)
    state = state_of(source)
    chosen = _trial(state, source, trial=trial, pick=pick)
    package = make_package(source, chosen, build_report(state))
    files = tuple(package.listing())
    if dry_run:
        return Pushed(repo, chosen.number, files)
    url = upload(package, repo, public=public, replace_card=replace_card)
    return Pushed(repo, chosen.number, files, url)


def _trial(state: RunState, folder: Path, *, trial: int | None, pick: str | None) -> Trial:
    """Return the trial that is meant: by number, by pick, else the goal's or the balanced one."""
    number = trial
    if number is None:
        picks = recommend(state).picks
        number = picks[pick_named(pick, picks)]
    if number not in state.trials:
        there = f"it has 0 to {max(state.trials)}" if state.trials else "it has none yet"
        raise ConfigError(f"no trial {number} in {folder}: {there}")
    return state.trials[number]
