"""The files that are published of a trial: model, card, report page and figure."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from seqto.assembly.metadata import LICENSE, PREFIX, add_metadata
from seqto.assembly.rebuild import rebuild
from seqto.errors import ConfigError
from seqto.files import shown
from seqto.model.bundle import files_of
from seqto.record.trial import Trial
from seqto.records import Json
from seqto.report import html_page, plots, wording
from seqto.report.card import MARK, base_model, model_card, picks_of

CARD, PAGE, FIGURE = "README.md", "report.html", "front.png"


@dataclass(frozen=True, slots=True)
class Package:
    """Files by the name that they get in the repository, and the commit's message."""

    files: Mapping[str, bytes]
    message: str

    def listing(self) -> list[Json]:
        """Return name, size and sha256 of each file."""
        return [
            {"name": n, "size_bytes": len(d), "sha256": hashlib.sha256(d).hexdigest()}
            for n, d in self.files.items()
        ]


def labelled_model(folder: Path, trial: Trial, report: Json, *, name: str) -> dict[str, bytes]:
    """Return the model's file, or those of a bundle's components, with where they come from."""
    data = rebuild(folder, trial.to_json())
    files = files_of(Path(name), data)
    entries = metadata_of(report, trial)
    return {path.name: add_metadata(content, entries) for path, content in files.items()}


def metadata_of(report: Json, trial: Trial) -> dict[str, str]:
    """Return the entries of the model file: short ones, in an order that never changes."""
    model, environment = report["model"], report["environment"]
    entries = {
        f"{PREFIX}plan_key": trial.plan.key,
        f"{PREFIX}measured_sha256": trial.sha256,
        f"{PREFIX}base_sha256": model.get("sha256"),
        f"{PREFIX}base_model": base_model(report),
        f"{PREFIX}version": environment.get("seqto"),
        f"{PREFIX}onnxruntime": environment.get("onnxruntime"),
        LICENSE: model.get("license"),
    }
    return {key: str(value) for key, value in entries.items() if value}


def make_card(report: Json, number: int, *, files: Mapping[str, bytes], figure: str) -> str:
    """Return the card of a trial beside the files that it is about."""
    trial = wording.trial_of(report, number)
    assert trial is not None  # the caller has chosen it from the report
    picks = picks_of(report, number)
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    pick = picks[0] if picks else ""
    return model_card(report, trial, files=digests, figure=figure, pick=pick)


def card_with_figure(report: Json, number: int, *, files: Mapping[str, bytes]) -> str:
    """Return the card as one file that needs no other: the figure is inside."""
    drawn = plots.draw(report, "front", kind="png")
    figure = ""
    if drawn is not None:
        figure = f"data:image/png;base64,{base64.b64encode(drawn).decode('ascii')}"
    return make_card(report, number, files=files, figure=figure)


def public_report(report: Json) -> Json:
    """Return a report for strangers: without samples of the data and without paths.

    Layers' names may look like paths and stay.
    """
    sections = ("model", "prepared", "data", "device", "environment", "settings", "nodes")
    shared = {key: value for key, value in report.items() if key != "examples"}
    cleaned = {key: _without_folders(shared[key]) for key in sections if key in shared}
    cleaned["model"] = {**cleaned["model"], "layers": report["model"]["layers"]}
    cleaned["data"] = {**cleaned["data"], "unreadable": []}
    return {**shared, **cleaned}


def _without_folders(value: Any) -> Any:
    """Return a value with the last part of each absolute path alone."""
    if isinstance(value, Mapping):
        return {key: _without_folders(v) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [_without_folders(v) for v in value]
    is_path = isinstance(value, str) and (value.startswith(("/", "~")) or value[1:3] == ":\\")
    return PurePath(value).name if is_path else value


def make_package(folder: Path, trial: Trial, report: Json) -> Package:
    """Return all that is uploaded of a trial."""
    report = public_report(report)
    files = labelled_model(folder, trial, report, name="model.onnx")
    drawn = plots.draw(report, "front", kind="png")
    figure = {} if drawn is None else {FIGURE: drawn}
    card = make_card(report, trial.number, files=files, figure=FIGURE if figure else "")
    page = html_page.render(report, folder="RUN").encode("utf-8", "backslashreplace")
    name = wording.model_name(report)
    message = f"{name}: trial {trial.number} of seqto {report['environment'].get('seqto')}"
    return Package({CARD: card.encode(), **files, PAGE: page, **figure}, message)


def check_card(path: Path) -> None:
    """Raise unless a card may be written here: a new name, or an earlier card of seqto."""
    if not path.exists() and not path.is_symlink():
        return
    if path.is_symlink() or not _is_card(path):
        raise ConfigError(
            f"{shown(path)} is no card that seqto wrote, and is left as it is: name another file "
            "with --card FILE"
        )


def refuse_one_name(card: Path, models: Iterable[Path]) -> None:
    """Raise where the card would be written over a model of the same export."""
    if any(card.resolve() == model.resolve() for model in models):
        raise ConfigError(
            f"{shown(card)} would be both the model and its card: name the model .onnx, or the "
            "card with --card FILE"
        )


def refuse_old_card(output: Path, *, remedy: str = "delete it") -> None:
    """Raise where the card of an earlier export would stand beside another file than its own."""
    card = card_beside(output)
    if card.exists() and _is_card(card):
        raise ConfigError(
            f"{shown(card)} is the card of an earlier export, and would describe another file: "
            f"{remedy}, or choose another name"
        )


def card_beside(output: Path) -> Path:
    """Return where the card of a model file is written unless another name is given."""
    return output.with_suffix(".md")


def _is_card(path: Path) -> bool:
    try:
        return path.is_file() and MARK.encode() in path.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {shown(path)}: {error.strerror}") from error
