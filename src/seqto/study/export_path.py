"""Check the path that a model is exported to: nothing of the user's is replaced."""

from __future__ import annotations

import os
from pathlib import Path

from seqto.errors import ConfigError
from seqto.files import shown
from seqto.record.own_files import run_of


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
    """Describe a path that is no model quantized by seqto; empty if it is one."""
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
