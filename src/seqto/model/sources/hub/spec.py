"""The text hub:OWNER/NAME[/file][@revision], and the files of a repository that it means."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

from seqto.errors import ModelError, nearest

DEFAULT_OWNER = "onnxmodelzoo"
DEFAULT_REVISION = "main"
SHOWN_NAMES = 8
GLOB_SIGNS = frozenset("*?[")


@dataclass(frozen=True, slots=True)
class HubSpec:
    """A spec, taken apart; `file` is empty when none was chosen."""

    owner: str
    name: str
    file: str
    revision: str

    @property
    def many_repositories(self) -> bool:
        return bool(GLOB_SIGNS & set(self.name))

    @property
    def many_files(self) -> bool:
        return bool(GLOB_SIGNS & set(self.file))


@dataclass(frozen=True, slots=True)
class Listing:
    """The files of one repository at one commit (offline: those that are cached)."""

    repo: str
    commit: str
    files: tuple[str, ...]


def parse_spec(spec: str) -> HubSpec:
    """Take a spec apart; raises ModelError when it cannot name anything."""
    body = spec.removeprefix("hub:")
    body, sign, revision = body.rpartition("@") if "@" in body else (body, "", DEFAULT_REVISION)
    parts = body.split("/")
    owner, name, *path = [DEFAULT_OWNER, *parts] if len(parts) == 1 else parts
    shape = "write hub:OWNER/NAME[/file.onnx][@revision]"
    if sign and not _is_revision(revision):
        raise ModelError(f"model {spec!r}: {revision!r} is no revision; {shape}")
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]*", owner, re.ASCII):
        raise ModelError(f"model {spec!r}: {owner!r} is no owner of the hub; {shape}")
    if not re.fullmatch(r"[\w.\-*?\[\]!]+", name, re.ASCII) or ".." in name or "--" in name:
        raise ModelError(f"model {spec!r}: {name!r} is no repository of the hub; {shape}")
    file = "/".join(path)
    if path and not is_safe_name(file):
        raise ModelError(f"model {spec!r}: {file!r} is no file of a repository; {shape}")
    return HubSpec(owner, name, file, revision)


def _is_revision(text: str) -> bool:
    return bool(re.fullmatch(r"\w[\w./+-]*", text)) and ".." not in text and "//" not in text


def is_safe_name(name: str) -> bool:
    """Return whether a file's name from the hub stays inside the folder that it is put into."""
    parts = name.split("/")
    return "\\" not in name and "\0" not in name and not any(p in ("", ".", "..") for p in parts)


def choose_files(listing: Listing, parsed: HubSpec, *, spec: str) -> list[str]:
    """Choose the .onnx files that a spec means; raises when there is none, or several fit."""
    models = sorted(file for file in listing.files if file.lower().endswith(".onnx"))
    if parsed.file and not parsed.many_files:
        if parsed.file not in listing.files:
            hint = nearest(parsed.file, models) or f"; its models are {_shown(models)}"
            raise ModelError(f"model {spec!r}: {listing.repo} holds no {parsed.file!r}{hint}")
        chosen = [parsed.file]
    elif parsed.file:
        chosen = [file for file in models if fnmatchcase(file, parsed.file)]
        if not chosen:
            raise ModelError(
                f"model {spec!r}: no model of {listing.repo} matches {parsed.file!r}; "
                f"it holds {_shown(models)}"
            )
    elif not models:
        raise ModelError(
            f"model {spec!r}: {listing.repo} holds no .onnx file (it holds "
            f"{_shown(listing.files)}); choose another repository"
        )
    elif len(models) > 1:
        raise ModelError(
            f"model {spec!r}: {listing.repo} holds {len(models)} models, choose one by adding its "
            f"name, or all with /*.onnx: {_shown(models)}"
        )
    else:
        chosen = models
    for file in chosen:
        if not is_safe_name(file):
            raise ModelError(
                f"model {spec!r}: {listing.repo} names a file {file!r} that would leave the cache; "
                "do not trust this repository"
            )
    return chosen


def _shown(names: Sequence[str]) -> str:
    """Return file names for a message.

    Quoted by repr, so control characters cannot reach a terminal.
    """
    text = ", ".join(repr(name) for name in names[:SHOWN_NAMES]) or "nothing"
    hidden = len(names) - SHOWN_NAMES
    return text + (f" and {hidden} more" if hidden > 0 else "")


def name_model(repo: str, file: str) -> str:
    """Name a model for tables and folders: the repository, and what the file adds to it."""
    name = repo.split("/")[1]
    *folders, last = PurePosixPath(file).parts
    parts = [part for part in folders if part != "onnx"]
    stem = PurePosixPath(last).stem
    if stem not in ("model", name):
        parts.append(stem)
    return re.sub(r"[^\w.-]+", "-", "-".join([name, *parts]))
