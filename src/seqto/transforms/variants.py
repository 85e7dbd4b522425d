"""The float models of a run folder, prepared and transformed, and which of them a plan is built on.

variants/base/model.onnx        the prepared float model
variants/base/statistics.npz    ranges and means of its tensors
variants/base/rounded.json      weights rounded for the output, once needed
variants/smooth-0.5/…           the same after a transform
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from seqto.errors import PlanError
from seqto.transforms.transform import BIAS_CORRECTION

BASE = "base"
MODEL_FILE, STATISTICS_FILE = "model.onnx", "statistics.npz"


_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.=-]*")


def variant_of(transforms: Sequence[str]) -> str:
    """Return the name of the float model that a plan with these transforms is built on."""
    for name in transforms:  # they come from journals, and become the name of a folder
        if not isinstance(name, str) or not _PLAIN.fullmatch(name):
            raise PlanError(f"transform {name!r} is no plain name, such as smooth-0.5")
    graph_transforms = [t for t in transforms if t != BIAS_CORRECTION]
    return "+".join(graph_transforms) if graph_transforms else BASE


def variant_folder(folder: Path, transforms: Sequence[str] = ()) -> Path:
    return folder / "variants" / variant_of(transforms)


def is_complete(folder: Path) -> bool:
    return (folder / MODEL_FILE).is_file() and (folder / STATISTICS_FILE).is_file()
