"""Segmentation: masks of classes or of one object; IoU with float's mask; mIoU with labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from seqto.errors import ConfigError, ModelError
from seqto.records import Json
from seqto.tasks.answers import Floats, Outputs, Values, label_values
from seqto.tasks.example import mask_example
from seqto.tasks.outputs import choose_output
from seqto.tasks.settings import check_choice, check_count, keyed
from seqto.tasks.sketch import STRIDED_VALUES, strided
from seqto.tasks.task import CHUNK_ROWS, Answers

MASK, CLASSES = "mask", "classes"
CODE = 4  # numbers that stand for a class where the output holds class numbers


@dataclass(frozen=True, slots=True)
class Segmentation:
    """Answers are masks: the class of each pixel, or 0 and 1 by a threshold on a soft map.

    A mask is kept with at most `max_pixels` bytes a sample: of a larger map every k-th row and
    column counts. `signal` keeps at most 4,096 numbers of the map (32 KiB).
    """

    one_output: ClassVar[bool] = True
    chunk_rows: ClassVar[int] = CHUNK_ROWS
    probe_rows: ClassVar[int] = 4  # pictures that tell a layer's damage: each has many pixels
    changed: ClassVar[str] = "mask area"  # what loss is a share of, for reports
    signal_bytes: ClassVar[int] = 8 * STRIDED_VALUES
    decoder: str | None = keyed("decode")  # mask or classes; None: by the output's shape
    output: str | None = None
    threshold: float = 0.5  # mask: a pixel belongs to the object from this value on
    classes: int | None = None
    layout: str = "NCHW"
    ignore: int = 255  # label of pixels that do not count
    max_pixels: int = 512 * 512

    def __post_init__(self) -> None:
        if self.decoder is not None:
            check_choice("decode", self.decoder, (MASK, CLASSES))
        check_choice("layout", self.layout, ("NCHW", "NHWC"))
        check_count("max_pixels", self.max_pixels)
        if self.classes is not None:
            check_count("classes", self.classes)
        if isinstance(self.threshold, bool) or not isinstance(self.threshold, int | float):
            raise ConfigError(f"task.threshold = {self.threshold!r} must be a number")

    @property
    def label_form(self) -> str:
        """Labels are 0 and 1 where the answer is, else a class a pixel."""
        return "mask" if self.decoder == MASK else "classes"

    def for_labels(self) -> Segmentation:
        """Return the task that scores are measured with: the same."""
        return self

    def check(self, outputs: Outputs, *, name: str | None = None) -> str | None:
        """Return a caution where a soft map never crosses its threshold."""
        output_name, value = choose_output(outputs, self.output)
        name = name or output_name
        maps = self._maps(name, value)
        if self._kind(maps) == CLASSES:
            return None
        low, high = float(np.nanmin(maps)), float(np.nanmax(maps))
        if low >= self.threshold or high < self.threshold:
            return (
                f"Output {name!r} reaches from {low:.3g} to {high:.3g}, so that task.threshold = "
                f"{self.threshold:g} puts all pixels on one side: set it, 0 for logits."
            )
        return None

    def decode(self, outputs: Outputs) -> Answers:
        """Return the masks, n × H × W."""
        maps = self._maps(*choose_output(outputs, self.output))
        thin = strided(maps, most=self.max_pixels * maps.shape[1])
        if self._kind(maps) == MASK:
            return Answers({"mask": (thin[:, 0] >= self.threshold).astype(np.uint8)})
        thin = np.nan_to_num(thin)
        numbers = thin[:, 0] if maps.shape[1] == 1 else thin.argmax(axis=1)
        few = int(numbers.max(initial=0)) < 256 and int(numbers.min(initial=0)) >= 0
        return Answers({"mask": numbers.astype(np.uint8 if few else np.int32)})

    def signal(self, outputs: Outputs) -> Floats:
        """Return every k-th value of the map; class numbers become four random signs."""
        maps = self._maps(*choose_output(outputs, self.output))
        if maps.dtype.kind in "iub":
            signs = np.random.default_rng(0).integers(0, 2, (256, CODE)) * 2.0 - 1.0
            thin = strided(maps, most=STRIDED_VALUES // CODE)
            return np.asarray(signs[thin.astype(np.int64) % 256].reshape(len(maps), -1))
        thin = strided(maps, most=max(STRIDED_VALUES, maps.shape[1]))
        return np.nan_to_num(thin.reshape(len(maps), -1).astype(np.float64))

    def distance(self, reference: Answers, answers: Answers) -> Floats:
        """Return 1 − IoU of the masks per sample; of classes, the mean over those that appear."""
        pairs = zip(reference.values["mask"], answers.values["mask"], strict=True)
        return np.array([1.0 - self._iou(a, b) for a, b in pairs], dtype=np.float64)

    def figures(self, reference: Answers, answers: Answers) -> Mapping[str, Floats]:
        """Return the share of pixels that changed, per sample."""
        changed = reference.values["mask"] != answers.values["mask"]
        return {"pixels_changed": changed.reshape(len(changed), -1).mean(axis=1)}

    def example(self, reference: Answers, answers: Answers) -> Json:
        """Return both masks of one sample."""
        return mask_example(reference.values["mask"][0], answers.values["mask"][0])

    def scores(self, answers: Answers, labels: Any) -> Mapping[str, float]:
        """Return mIoU: of an object, the mean over pictures; of classes, over the classes.

        Labels are masks n × H × W of any size: the nearest pixel of the label counts.
        """
        masks = answers.values["mask"]
        labelled = nearest(label_values(labels, "mask"), masks.shape[1:])
        if not masks.size:
            return {}
        if self._binary(masks):
            overlaps = [
                self._iou(np.where(w == self.ignore, 0, w), np.where(w == self.ignore, 0, m))
                for m, w in zip(masks, labelled, strict=True)
            ]
            return {"mIoU": float(np.mean(overlaps))}
        common, union = _areas(masks, labelled, ignore=self.ignore)
        there = union > 0
        return {"mIoU": float((common[there] / union[there]).mean())} if there.any() else {}

    def _binary(self, masks: Values) -> bool:
        return self.decoder == MASK or (self.decoder is None and int(masks.max(initial=0)) <= 1)

    def _iou(self, a: Values, b: Values) -> float:
        common, union = _areas(a, b)
        if self.decoder == MASK or (self.decoder is None and len(union) <= 2):
            # the background is no object: a mask that misses all of it must not get half
            common, union = common[1:], union[1:]
        there = union > 0
        return float((common[there] / union[there]).mean()) if there.any() else 1.0

    def _kind(self, maps: Values) -> str:
        if self.decoder is not None:
            return self.decoder
        return MASK if maps.shape[1] == 1 and maps.dtype.kind == "f" else CLASSES

    def _maps(self, name: str, value: Values) -> Values:
        """Return the output as n × channels × H × W."""
        maps = np.asarray(value)
        if maps.ndim == 3:
            return maps[:, None]
        if maps.ndim != 4:
            raise ModelError(
                f"output {name!r} has shape {list(maps.shape)}: a map n × classes × H × W, "
                "n × 1 × H × W or n × H × W is needed for segmentation: set task.output"
            )
        return maps.transpose(0, 3, 1, 2) if self.layout == "NHWC" else maps


def nearest(masks: Values, size: tuple[int, ...]) -> Values:
    """Return masks n × H × W resized to `size`: the pixel under the centre of each new one."""
    height, width = masks.shape[1:]
    rows = ((np.arange(size[0]) + 0.5) * height / size[0]).astype(np.int64)
    columns = ((np.arange(size[1]) + 0.5) * width / size[1]).astype(np.int64)
    return np.asarray(masks[:, rows][:, :, columns])


def _areas(a: Values, b: Values, *, ignore: int | None = None) -> tuple[Floats, Floats]:
    """Return the pixels of each class in both masks, and in one of them."""
    first, second = a.reshape(-1).astype(np.int64), b.reshape(-1).astype(np.int64)
    if ignore is not None:
        first, second = first[second != ignore], second[second != ignore]
    count = int(max(first.max(initial=0), second.max(initial=0))) + 1
    common = np.bincount(first[first == second], minlength=count).astype(np.float64)
    union = np.bincount(first, minlength=count) + np.bincount(second, minlength=count) - common
    return common, union
