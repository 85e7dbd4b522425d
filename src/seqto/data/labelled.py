"""The labelled set beside the data: pictures whose boxes or masks are laid into the input.

Agreement with the float model needs no labels; scores do, and small labelled sets are common.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np

from seqto.data.arrays import Arrays
from seqto.data.coco import CLASSES, UNION, Coco
from seqto.data.data import Data
from seqto.data.geometry import place
from seqto.data.masks import Masks
from seqto.data.preprocess import Preprocess, picture_fit
from seqto.errors import ConfigError
from seqto.records import Json, Sample

BOXES, OBJECT_MASK = "boxes", "mask"  # forms of labels; the third is "classes", a class a pixel
ARRAYS = "arrays"  # labels as the task understands them, a row a sample
IGNORED = 255  # label of pixels outside of the picture


@dataclass(frozen=True, slots=True)
class Labelled:
    """Pictures with labels in input pixels: a table of boxes, or a mask of the input's size."""

    source: Coco | Masks
    preprocess: Preprocess
    form: str

    def __post_init__(self) -> None:
        if picture_fit(1, 1, self.preprocess) is None:
            raise ConfigError(
                "data.labelled needs preprocess.letterbox or preprocess.stretch: with resize and "
                "crop, labels would lose what is cut off"
            )
        if self.form == BOXES and isinstance(self.source, Masks):
            raise ConfigError(
                "data.labelled.masks hold no boxes: give annotations in COCO's JSON for detection"
            )

    def __len__(self) -> int:
        return len(self.source)

    def read(self, index: int) -> Sample:
        sample = self.source.read(index)
        (pixels,) = sample.inputs.values()
        fit = picture_fit(pixels.shape[0], pixels.shape[1], self.preprocess)
        assert fit is not None
        if self.form == BOXES:
            assert isinstance(self.source, Coco)
            return dataclasses.replace(sample, label=self.source.objects(index).table(fit))
        if isinstance(self.source, Coco):
            kind = UNION if self.form == OBJECT_MASK else CLASSES
            mask = self.source.mask(index, kind=kind)
        else:
            mask = self.source.mask(index)
        laid = place(mask.astype(np.uint8), fit, fill=IGNORED, interpolation="nearest")
        return dataclasses.replace(sample, label=laid)

    def identity(self) -> Json:
        return {"form": self.form, **self.source.identity()}


@dataclass(frozen=True, slots=True)
class LabelledArrays:
    """Rows of an `.npz` with labels: a row of labels or of numbers a sample."""

    source: Arrays

    def __post_init__(self) -> None:
        if self.source.labels is None:
            raise ConfigError(
                "data.labelled.arrays has no labels: put them into the .npz as 'labels', a row a "
                "sample"
            )

    def __len__(self) -> int:
        return len(self.source)

    def read(self, index: int) -> Sample:
        return self.source.read(index)

    def identity(self) -> Json:
        return {"form": ARRAYS, **self.source.identity()}


LabelledSet = Labelled | LabelledArrays


@dataclass(frozen=True, slots=True)
class WithLabelled:
    """The rows of the data, without labels, then those of the labelled set."""

    data: Data
    labelled: LabelledSet

    def __len__(self) -> int:
        return len(self.data) + len(self.labelled)

    def read(self, index: int) -> Sample:
        if index < len(self.data):
            return dataclasses.replace(self.data.read(index), label=None)
        return self.labelled.read(index - len(self.data))

    def identity(self) -> Json:
        return {**self.data.identity(), "labelled": self.labelled.identity()}
