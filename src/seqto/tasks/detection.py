"""Detection: boxes, classes and scores after suppression; how many boxes change; COCO mAP."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from seqto.errors import ConfigError
from seqto.records import Json
from seqto.tasks import box_signal
from seqto.tasks.answers import Floats, Named, Outputs, Values, named, spans
from seqto.tasks.boxes import Boxes, areas, by_score, changed, match_boxes, nms, pooled
from seqto.tasks.candidates import ACTIVATIONS, BOX_FORMATS, Candidates, DecoderSettings
from seqto.tasks.coco_map import CocoScorer, coco_scores
from seqto.tasks.decoders import find_decoder
from seqto.tasks.example import box_example
from seqto.tasks.guess_decoder import guess_decoder
from seqto.tasks.outputs import choose_output
from seqto.tasks.settings import check_choice, check_count, check_share, keyed
from seqto.tasks.sketch import count_sketch, sketch_of_rows
from seqto.tasks.task import CHUNK_ROWS, Answers

SKETCH = 1024  # sums that `signal` keeps of a picture: 8 KiB; damage within 4.4 % a picture
USUAL_SIDE = 640  # stands for the input's side where it is not known: it only weighs boxes
LABEL_SCORE = 0.001  # mAP needs the weak boxes too
OUTSIDE = 10  # times the input's side: boxes that reach so far were decoded twice or not at all
LEAST_WEIGHT = 0.01  # boxes of weaker cells do not count in the signal
CANDIDATES = 30_000  # the strongest of a picture that suppression looks at
GRID = 16  # places along each axis in the signal of boxes that the model has suppressed itself


@dataclass(frozen=True, slots=True)
class Detection:
    """Answers are the boxes with a score of `score` or more that suppression leaves.

    Boxes and labels are in input pixels. mAP is the same there as in picture pixels, because
    IoU does not change when the axes are scaled.
    """

    one_output: ClassVar[bool] = False
    label_form: ClassVar[str] = "boxes"
    chunk_rows: ClassVar[int] = CHUNK_ROWS
    probe_rows: ClassVar[int] = 8  # pictures that tell a layer's damage: each has many boxes
    changed: ClassVar[str] = "boxes"  # what loss is a share of, for reports
    signal_bytes: ClassVar[int] = 8 * SKETCH
    decoder: str | None = keyed("decode")  # name or package.module:function; None: by the shapes
    classes: int | None = None
    score: float = 0.25  # a box counts from this score on
    nms: float = 0.45  # of two boxes of a class that overlap more (IoU), the weaker goes
    match: float = 0.5  # two boxes of a class with this IoU or more are the same box
    max_boxes: int = 300
    output: str | None = None
    size: tuple[int, int] | None = None  # height, width of the input
    box_format: str = "xyxy"
    activation: str = "none"
    normalised: bool = False
    background: int | None = None  # the class that is no object; -1: the last
    # of the outputs, where these come without names: the model's, not the user's
    names: tuple[str, ...] = dataclasses.field(default=(), metadata={"setting": False})

    def __post_init__(self) -> None:
        for name in ("score", "nms", "match"):
            check_share(name, getattr(self, name))
        check_count("max_boxes", self.max_boxes)
        for name in ("size", "names"):  # JSON has lists
            if isinstance(getattr(self, name), list):
                object.__setattr__(self, name, tuple(getattr(self, name)))
        if self.classes is not None:
            check_count("classes", self.classes)
        check_choice("box_format", self.box_format, BOX_FORMATS)
        check_choice("activation", self.activation, ACTIVATIONS)
        if self.size is not None:
            if len(self.size) != 2:
                raise ConfigError(f"task.size = {list(self.size)} must be [height, width]")
            for side in self.size:
                check_count("size", side)
        if self.decoder is not None:
            find_decoder(self.decoder)

    def for_model(self, *, outputs: Sequence[str], size: tuple[int, int] | None) -> Detection:
        """Return the task with the names of its outputs, and the input's size if none is set."""
        return dataclasses.replace(self, names=tuple(outputs), size=self.size or size)

    def for_labels(self, *, score: float = LABEL_SCORE, nms: float | None = None) -> Detection:
        """Return the task with the thresholds that mAP is measured with."""
        return dataclasses.replace(self, score=score, nms=self.nms if nms is None else nms)

    def check(self, outputs: Outputs, *, name: str | None = None) -> str | None:
        """Return a caution where scores are no shares or boxes have no area."""
        del name  # boxes and scores may be in several outputs
        candidates = self._candidates(outputs)
        scores = np.asarray(candidates.scores)
        low, high = float(np.nanmin(scores, initial=0)), float(np.nanmax(scores, initial=0))
        if low < -1e-3 or high > 1 + 1e-3:
            return (
                f"The detector's scores reach from {low:.3g} to {high:.3g}, not from 0 to 1: "
                "set task.decode, task.classes or task.activation."
            )
        strongest = scores if candidates.classes is not None else scores.max(axis=2, initial=0)
        strong = candidates.boxes[strongest >= self.score]
        empty = (strong[:, 2:] <= strong[:, :2]).any(axis=1)
        if len(strong) and self.size and not self.normalised and np.abs(strong).max() <= 2:
            return (
                f"All strong boxes lie within 2 pixels of an input of {self.size[0]} × "
                f"{self.size[1]}: if they are shares of it, set task.normalised = true."
            )
        if len(strong) and self.size and not (np.abs(strong) <= OUTSIDE * max(self.size)).all():
            return (
                f"Strong boxes reach {OUTSIDE} times the input's size of {self.size[0]} × "
                f"{self.size[1]} or are not finite: set task.decode to the decoder that fits."
            )
        if len(strong) and empty.mean() > 0.5:
            return (
                f"{empty.sum()} of {len(strong)} strong boxes have no area: set task.decode or "
                f"task.box_format ({', '.join(BOX_FORMATS)})."
            )
        return self._check_background(scores) if candidates.classes is None else None

    def _check_background(self, scores: Floats) -> str | None:
        """Return a caution where one class at either end is strong in most cells: no object."""
        if self.background is not None or not scores.size or scores.shape[2] < 3:
            return None
        strongest = np.where(scores.max(axis=2) >= self.score, scores.argmax(axis=2), -1)
        for number, background in ((0, 0), (scores.shape[2] - 1, -1)):
            share = float((strongest == number).mean())
            if share > 0.5:
                return (
                    f"Class {number} is the strongest in {share:.0%} of the cells: if it means "
                    f"that there is no object, as in DETR and YOLOS, set task.background = "
                    f'{background} and, for logits, task.activation = "softmax".'
                )
        return None

    def check_answers(self, answers: Answers) -> str | None:
        """Return a caution where the float model finds nothing, so that nothing can change."""
        pictures = len(answers.lengths) if answers.lengths is not None else 0
        if not pictures or len(answers.values["boxes"]):
            return None
        return (
            f"The float model finds no box with a score of {self.score:g} or more in {pictures} "
            "pictures, so that no loss can be measured: give pictures with what it detects, check "
            "data.preprocess, or lower task.score."
        )

    def decode(self, outputs: Outputs) -> Answers:
        """Return boxes, scores and classes of each picture, strongest first."""
        candidates = self._candidates(outputs)
        boxes_by_sample = [self._answer(candidates, k) for k in range(len(candidates.boxes))]
        empty = Boxes(np.zeros((0, 4)), np.zeros(0), np.zeros(0))  # no pictures: still arrays
        return Answers(
            {
                "boxes": np.concatenate([b.boxes for b in [empty, *boxes_by_sample]]).astype(
                    np.float32
                ),
                "scores": np.concatenate([b.scores for b in [empty, *boxes_by_sample]]).astype(
                    np.float32
                ),
                "classes": np.concatenate([b.classes for b in [empty, *boxes_by_sample]]).astype(
                    np.int32
                ),
            },
            np.array([len(b) for b in boxes_by_sample], dtype=np.int64),
        )

    def signal(self, outputs: Outputs) -> Floats:
        """Return at most 1,024 numbers a picture that change as scores and boxes do.

        Cells lie at the same place in all candidates: scores and boxes (by box_signal.py, weighted
        by the cell's best score, so that the background does not count) go into a count sketch.
        Boxes that the model has suppressed itself have no place of their own: their scores are
        added up by class and by the places of both corners.
        """
        candidates = self._candidates(outputs)
        if candidates.classes is not None:
            return self._corner_maps(candidates)
        rows = []
        for boxes, scores in zip(candidates.boxes, candidates.scores, strict=True):
            best = np.nan_to_num(scores).max(axis=1, initial=0.0)
            cells = np.nonzero(best >= LEAST_WEIGHT)[0]
            numbers = best[cells, None] * box_signal.box_numbers(self._shares(boxes[cells]))
            placed = sketch_of_rows(numbers, cells, count=len(boxes), width=SKETCH)
            rows.append(_sums_of(scores) + placed)
        return np.stack(rows) if rows else np.zeros((0, SKETCH))

    def distance(self, reference: Answers, answers: Answers) -> Floats:
        """Return 1 − 2 · matched / boxes per picture; 0 where neither model found a box."""
        return changed(*self._matched(reference, answers))

    def weights(self, reference: Answers, answers: Answers) -> Floats:
        """Return what each picture counts when distances are pooled: its boxes in both models."""
        assert reference.lengths is not None
        assert answers.lengths is not None
        return np.asarray(reference.lengths + answers.lengths, dtype=np.float64)

    def pooled(self, reference: Answers, answers: Answers) -> float:
        """Return the share of changed boxes over all pictures."""
        return pooled(*self._matched(reference, answers))

    def scores(self, answers: Answers, labels: Any) -> Mapping[str, float]:
        """Return COCO's mAP and AP50; labels are boxes in input pixels, classes and crowd.

        They come as answers do, or as one table of `box_labels` a picture. One class a picture, as
        folders of pictures have, says nothing about boxes: then there is no score.
        """
        truth = _given_boxes(labels)
        return {} if truth is None else coco_scores(answers, truth)

    def scorer(
        self, answers: Answers, labels: Any
    ) -> Callable[[Values | None], Mapping[str, float]]:
        """Return a function that gives the scores of some pictures; for bootstraps."""
        truth = _given_boxes(labels)
        if truth is None:
            return lambda _rows: {}
        return CocoScorer(answers, truth).scores

    def example(self, reference: Answers, answers: Answers) -> Json:
        """Return the boxes of both models in one picture."""
        size = self.size or (USUAL_SIDE, USUAL_SIDE)
        if self.normalised and self.size is None:
            size = (1, 1)
        return box_example(size, dict(reference.values), dict(answers.values))

    def _candidates(self, outputs: Outputs) -> Candidates:
        chosen: Named = named(outputs, self.names)
        if self.output is not None:
            chosen = dict([choose_output(chosen, self.output)])
        settings = DecoderSettings(
            self.classes,
            self.size,
            self.box_format,
            self.activation,
            normalised=self.normalised,
            background=self.background,
        )
        decoder = self.decoder
        if decoder is None:
            shapes = {name: value.shape for name, value in chosen.items()}
            guess = guess_decoder(shapes, size=self.size)
            if guess is None:
                listed = ", ".join(f"{name!r} {list(shape)}" for name, shape in shapes.items())
                raise ConfigError(
                    f"no decoder fits the outputs {listed}: set task.decode to one of those in "
                    "docs/tasks.md or to package.module:function"
                )
            decoder, settings = guess.decoder, guess.complete(settings)
        return find_decoder(decoder)(chosen, settings)

    def _answer(self, candidates: Candidates, sample: int) -> Boxes:
        boxes, scores = np.asarray(candidates.boxes[sample]), np.asarray(candidates.scores[sample])
        if candidates.classes is None:
            cells, classes = np.nonzero(scores >= self.score)
            picked = Boxes(boxes[cells], scores[cells, classes], classes)
        else:
            rows = np.nonzero(scores >= self.score)[0]
            picked = Boxes(boxes[rows], scores[rows], candidates.classes[sample][rows])
        # a box without an area would not even match itself
        usable = np.isfinite(picked.boxes).all(axis=1) & (areas(picked.boxes) > 0)
        picked = picked.take(np.nonzero(usable)[0])
        if len(picked) > CANDIDATES:
            picked = picked.take(by_score(picked.scores)[:CANDIDATES])
        if candidates.classes is None:
            return nms(picked, overlap=self.nms, most=self.max_boxes)
        return picked.take(by_score(picked.scores)[: self.max_boxes])

    def _matched(self, reference: Answers, answers: Answers) -> tuple[Floats, Floats]:
        pairs = list(zip(_pictures(reference), _pictures(answers), strict=True))
        matched = [len(match_boxes(a, b, match=self.match)) for a, b in pairs]
        total = [len(a) + len(b) for a, b in pairs]
        return np.array(matched, dtype=np.float64), np.array(total, dtype=np.float64)

    def _shares(self, boxes: Values) -> Values:
        """Return boxes in shares of the input, also those of a broken candidate near 0 to 1."""
        height, width = self.size or (USUAL_SIDE, USUAL_SIDE)
        if self.normalised and self.size is None:
            height = width = 1
        sides = np.array([width, height, width, height], dtype=np.float64)
        return np.asarray(np.clip(np.nan_to_num(boxes / sides), -1.0, 2.0))

    def _corner_maps(self, candidates: Candidates) -> Floats:
        assert candidates.classes is not None
        rows = []
        for boxes, scores, classes in zip(
            candidates.boxes, candidates.scores, candidates.classes, strict=True
        ):
            weights = np.nan_to_num(np.asarray(scores, dtype=np.float64))
            corners = np.clip(self._shares(boxes), 0.0, 1.0) * (GRID - 1)
            maps = [_splat(corners[:, k : k + 2], weights, classes) for k in (0, 2)]
            rows.append(np.concatenate(maps))
        return np.stack(rows) if rows else np.zeros((0, 2 * GRID * GRID))


def _sums_of(scores: Values) -> Floats:
    """Return a sketch of the scores; few of them stay as they are, filled up with zeros."""
    sums = count_sketch(scores[None], width=SKETCH)[0]
    return np.pad(sums, (0, SKETCH - len(sums)))


def _given_boxes(labels: Any) -> Answers | None:
    """Return labels that are boxes; None where a label is a class of the whole picture."""
    if isinstance(labels, Answers):
        return labels
    return None if any(np.ndim(table) == 0 for table in labels) else box_labels(labels)


def box_labels(tables: Sequence[Values]) -> Answers:
    """Return labels of pictures: each a table with rows x1, y1, x2, y2, class, crowd (0 or 1)."""
    rows = [np.asarray(table, dtype=np.float64).reshape(-1, 6) for table in tables]
    joined = np.concatenate([np.zeros((0, 6)), *rows])
    return Answers(
        {
            "boxes": joined[:, :4],
            "classes": joined[:, 4].astype(np.int64),
            "crowd": joined[:, 5] > 0,
        },
        np.array([len(table) for table in rows], dtype=np.int64),
    )


def _splat(points: Values, weights: Floats, classes: Values) -> Floats:
    """Add weights to the four places around each point, with a sign and a shift by class."""
    low = np.minimum(points.astype(np.int64), GRID - 2)
    part = points - low
    # an odd multiplier spreads classes over places and signs; equal ones stay together
    code = np.asarray(classes, dtype=np.int64) * 40503 + 12829
    sign, shift = 1.0 - 2.0 * ((code >> 7) & 1), code % (GRID * GRID)
    total = np.zeros(GRID * GRID)
    for dx in (0, 1):
        for dy in (0, 1):
            share = (part[:, 0] if dx else 1 - part[:, 0]) * (part[:, 1] if dy else 1 - part[:, 1])
            cell = ((low[:, 1] + dy) * GRID + low[:, 0] + dx + shift) % (GRID * GRID)
            total += np.bincount(cell, sign * weights * share, minlength=GRID * GRID)
    return total


def _pictures(answers: Answers) -> list[Boxes]:
    assert answers.lengths is not None
    boxes, scores, classes = (answers.values[key] for key in ("boxes", "scores", "classes"))
    return [Boxes(boxes[s], scores[s], classes[s]) for s in spans(answers.lengths)]
