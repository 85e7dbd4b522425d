"""The float models of a run folder, prepared and treated, and which of them a plan is built on.

variants/base/model.onnx        the prepared float model
variants/base/statistics.npz    ranges and means of its tensors
variants/base/rounded.json      weights rounded for the output (rounded.py), once wanted
variants/smooth-0.5/…           the same after a treatment
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from seqto import rounded
from seqto.assemble import Assembler
from seqto.calibrate import load_statistics
from seqto.errors import PlanError
from seqto.model import open_prepared

BASE = "base"
MODEL_FILE, STATISTICS_FILE = "model.onnx", "statistics.npz"
CORRECTIONS = ("bias-correction",)  # made while assembling; other transforms make a model

_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


def variant_of(transforms: Sequence[str]) -> str:
    """The name of the float model that a plan with these transforms is built on."""
    for name in transforms:  # they come from journals, and become the name of a folder
        if not isinstance(name, str) or not _PLAIN.fullmatch(name):
            raise PlanError(f"transform {name!r} is no plain name, such as smooth-0.5")
    made = [t for t in transforms if t not in CORRECTIONS]
    return "+".join(made) if made else BASE


def place_of(folder: Path, transforms: Sequence[str] = ()) -> Path:
    return folder / "variants" / variant_of(transforms)


def is_complete(place: Path) -> bool:
    return (place / MODEL_FILE).is_file() and (place / STATISTICS_FILE).is_file()


def open_assembler(place: Path, *, max_opset: int | None = None) -> Assembler:
    """The assembler of a variant, with what has been rounded of it so far."""
    if not is_complete(place):
        raise PlanError(f"no such treatment of the float model: {place.name!r}")
    statistics = load_statistics(place / STATISTICS_FILE)
    return Assembler(
        open_prepared(place / MODEL_FILE),
        statistics,
        rounded=rounded.load(place),
        max_opset=max_opset,
    )
