"""Records of a guess of the task: tensors by name go in, a kind with a sentence comes out."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from seqto.tasks.candidates import Size
from seqto.tasks.levels import Sides

CLASSIFICATION, MULTI_LABEL, DETECTION = "classification", "multi-label", "detection"
SEGMENTATION, DENSE, DENSE_OUTPUTS = "segmentation", "dense", "dense-outputs"
TEXT_CLASSIFICATION, EMBEDDING = "text-classification", "embedding"
LANGUAGE_MODEL, TOKEN_CLASSIFICATION = "language-model", "token-classification"


@dataclass(frozen=True, slots=True)
class Tensor:
    """One input or output: first axis samples, None for a size that is left open."""

    shape: Sides
    dtype: str = "float32"
    made_by: str = ""  # the op type that makes it, "" where not known
    selected: bool = False  # its rows are what NonMaxSuppression or TopK has left
    names: tuple[str, ...] = ()  # of the axes that are left open, "" where an axis has none
    has_shape: bool = True  # False: the file does not say how many axes there are

    @property
    def floats(self) -> bool:
        return self.dtype.startswith("float")

    def is_one_number(self, batches: Collection[int | None]) -> bool:
        """Tell whether a sample has one number here; `batches`: first sizes of the inputs."""
        if not self.has_shape or not self.floats:
            return False
        samples, sides = self.shape[:1], self.shape[1:]
        return all(n in (1, *batches) for n in samples) and all(side == 1 for side in sides)


Tensors = Mapping[str, Tensor]


@dataclass(frozen=True, slots=True)
class TaskGuess:
    """A kind of task with settings, and one sentence about it for people."""

    kind: str
    sentence: str
    settings: Mapping[str, Any] = field(default_factory=dict)


def picture_size(inputs: Tensors) -> Size | None:
    """Return height and width of the only picture that goes in; 0 where left open."""
    pictures = [t.shape for t in inputs.values() if len(t.shape) == 4]
    if len(pictures) != 1:
        return None
    (shape,) = pictures
    if shape[1] in (1, 3):
        return shape[2] or 0, shape[3] or 0
    return (shape[1] or 0, shape[2] or 0) if shape[3] in (1, 3) else None


def sizes_text(shape: Sides) -> str:
    return " × ".join("?" if side is None else str(side) for side in shape[1:]) or "one number"
