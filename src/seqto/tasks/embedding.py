"""Vectors of texts: nearest neighbours that change, cosine to float's, Spearman on pairs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from seqto.errors import ConfigError, DataError
from seqto.model.batch import Batch
from seqto.records import Json, ScoreKind
from seqto.tasks.change_risk import leads_of
from seqto.tasks.example import neighbour_example
from seqto.tasks.settings import check_choice
from seqto.tasks.task import Answers

VECTOR = "vector"
MEAN, CLS, LAST, MAX = "mean", "cls", "last", "max"
POOLINGS = (MEAN, CLS, LAST, MAX)
RIGHT, OTHERS = "right", "others"
GALLERIES = (RIGHT, OTHERS)
SPEARMAN = "spearman"
SAME_TEXT = 1e-5  # 1 − cosine of two vectors of the float model that are one text's
BLOCK = 1024  # queries that are compared with the gallery at a time

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Embedding:
    """An answer is the nearest text in a gallery: the split's own texts, run by the same model.

    pooling     of an output with one vector a token: mean over the tokens without padding, cls
                (the first), last, or max
    normalize   to length 1, so that the dot product is the cosine
    gallery     right: for each left text of the pairs, the nearest right text; others: for each
                text, the nearest other one. Absent: what the data have
    score       spearman: rank correlation of the cosine of a pair with its score
    """

    one_output: ClassVar[bool] = True
    whole_corpus: ClassVar[bool] = True  # distances need all texts
    changed: ClassVar[str] = "nearest neighbours"
    signal_bytes: ClassVar[int] = 1 << 17  # two vectors of 8,192 numbers
    score_kinds: ClassVar[Mapping[str, ScoreKind]] = {SPEARMAN: ScoreKind(share=False)}
    output: str | None = None
    pooling: str = MEAN
    normalize: bool = True
    gallery: str | None = None
    score: str = SPEARMAN

    def __post_init__(self) -> None:
        check_choice("pooling", self.pooling, POOLINGS)
        check_choice("score", self.score, (SPEARMAN,))
        if self.gallery is not None:
            check_choice("gallery", self.gallery, GALLERIES)

    def check(self, outputs: Sequence[Any], *, name: str) -> str | None:
        shape = np.shape(outputs[0])
        if len(shape) not in (2, 3):
            raise ConfigError(
                f"output {name!r} has {len(shape)} axes: an embedding is samples × numbers or "
                "samples × tokens × numbers; choose another with task.output"
            )
        return None

    def decode(self, outputs: Sequence[Any]) -> Answers:
        """Return vectors of outputs without padding."""
        values = np.asarray(outputs[0])
        rows = len(values)
        width = values.shape[1] if values.ndim == 3 else 1
        return self._answers(values, np.full(rows, width, dtype=np.int64))

    def signal(self, outputs: Sequence[Any]) -> NDArray[Any]:
        return self.decode(outputs).values[VECTOR]

    def read(
        self, outputs: Sequence[Any], batch: Batch, reference: Answers | None
    ) -> tuple[Answers, NDArray[Any]]:
        values = np.asarray(outputs[0])
        lengths = batch.lengths
        if lengths is None or values.ndim == 2:
            answers = self.decode(outputs)
        else:
            answers = self._answers(values, np.minimum(lengths, values.shape[1]))
        return answers, answers.values[VECTOR]

    def _answers(self, values: NDArray[Any], lengths: NDArray[np.int64]) -> Answers:
        vectors = values.astype(np.float32)
        if values.ndim == 3:
            vectors = pooled(vectors, lengths, how=self.pooling)
        if self.normalize:
            vectors = unit(vectors)
        return Answers({VECTOR: np.nan_to_num(vectors)})

    def distance(self, reference: Answers, answers: Answers) -> Floats:
        """Return 1 where the nearest text is another than float's; a twin of it is the same."""
        want, got = (self._neighbours(a) for a in (reference, answers))
        if not len(want):
            return np.zeros(len(reference))
        gallery = unit(self._sides(reference)[1])
        cosine = (gallery[want] * gallery[got]).sum(axis=1)
        changed = (want != got) & (1 - cosine > SAME_TEXT)
        return np.asarray(changed, dtype=np.float64)

    def leads(self, reference: Answers, answers: Answers) -> tuple[Floats, Floats] | None:
        """Return by how much the nearest text is nearer than the next ones; twins are left out."""
        gallery = unit(self._sides(reference)[1])
        if len(gallery) < 3:
            return None
        pairs = []
        both = zip(self._likeness(reference), self._likeness(answers), strict=True)
        for want, got in both:
            nearest = want.argmax(axis=1)
            apart = 1 - gallery[nearest] @ gallery.T > SAME_TEXT
            apart[np.arange(len(want)), nearest] = True
            apart &= np.isfinite(want)
            farthest = want[apart].min(initial=0.0) - 1
            pairs.append(leads_of(*(np.where(apart, x, farthest) for x in (want, got))))
        first, second = (np.concatenate(x) for x in zip(*pairs, strict=True))
        return first, second

    def corpus_examples(
        self, reference: Answers, answers: Answers, rows: Sequence[int]
    ) -> list[Json]:
        """Return the nearest texts of some rows by both models."""
        nearest = [(a, self._neighbours(a)) for a in (reference, answers)]
        side = 0 if self._sides(reference)[2] else 1  # of a pair, the gallery is the right text

        def nearest_of(row: int) -> list[tuple[int, float]]:
            ends = []
            for of, nearest_rows in nearest:
                queries, gallery, _ = self._sides(of)
                nearest_row = int(nearest_rows[row])
                ends.append((nearest_row, float(unit(queries[row]) @ unit(gallery[nearest_row]))))
            return ends

        return [neighbour_example(*nearest_of(row), side=side) for row in rows]

    def figures(self, reference: Answers, answers: Answers) -> Mapping[str, Floats]:
        """Return the mean cosine of a text's vector with float's."""
        want, got = (unit(a.values[VECTOR].astype(np.float64)) for a in (reference, answers))
        cosine = (want * got).sum(axis=-1).reshape(len(reference), -1)
        return {"cosine": cosine.mean(axis=1)}

    def scores(self, answers: Answers, labels: Any) -> Mapping[str, float]:
        """Return Spearman's rank correlation of the pairs' cosine with their scores."""
        vectors = answers.values[VECTOR]
        if vectors.ndim != 3 or vectors.shape[1] != 2:
            return {}
        labelled = np.asarray(labels, dtype=np.float64)
        if labelled.shape != (len(vectors),):
            raise DataError("embedding needs one score a pair as its label")
        left, right = unit(vectors[:, 0]), unit(vectors[:, 1])
        return {SPEARMAN: spearman((left * right).sum(axis=1), labelled)}

    def _sides(self, answers: Answers) -> tuple[NDArray[Any], NDArray[Any], bool]:
        """Return queries, gallery, and whether they are the same texts."""
        vectors = answers.values[VECTOR]
        pairs = vectors.ndim == 3
        gallery = self.gallery or (RIGHT if pairs else OTHERS)
        if gallery == RIGHT and not pairs:
            raise ConfigError("task.gallery = 'right' needs pairs of texts: set data.pairs")
        if gallery == RIGHT:
            return vectors[:, 0], vectors[:, 1], False
        own = vectors[:, 0] if pairs else vectors
        return own, own, True

    def _neighbours(self, answers: Answers) -> NDArray[np.int64]:
        """Return, for each query, the place of the nearest text of the gallery."""
        if self._sides(answers)[2] and len(answers) < 2:
            return np.zeros(0, dtype=np.int64)
        nearest = [likeness.argmax(axis=1) for likeness in self._likeness(answers)]
        return np.concatenate(nearest) if nearest else np.zeros(0, dtype=np.int64)

    def _likeness(self, answers: Answers) -> Iterator[NDArray[Any]]:
        """Yield how like some queries are to all texts of the gallery; to themselves -inf."""
        queries, gallery, same = self._sides(answers)
        for start in range(0, len(queries), BLOCK):
            likeness = queries[start : start + BLOCK] @ gallery.T
            if same:
                rows = np.arange(len(likeness))
                likeness[rows, start + rows] = -np.inf
            yield likeness


def pooled(values: NDArray[Any], lengths: NDArray[np.int64], *, how: str) -> NDArray[Any]:
    """Return one vector a sample of samples × tokens × numbers; padding does not count."""
    rows = np.arange(len(values))
    if how == CLS:
        return np.asarray(values[:, 0])
    if how == LAST:
        return np.asarray(values[rows, np.maximum(lengths, 1) - 1])
    inside = np.arange(values.shape[1])[None, :, None] < lengths[:, None, None]
    if how == MAX:
        return np.asarray(np.where(inside, values, -np.inf).max(axis=1))
    total = np.where(inside, values, 0).sum(axis=1, dtype=np.float64)
    return np.asarray(total / np.maximum(lengths, 1)[:, None])


def unit(vectors: NDArray[Any]) -> NDArray[Any]:
    """Return vectors of length 1 along the last axis; zeros stay zeros."""
    size = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.asarray(vectors / np.where(size > 0, size, 1))


def spearman(first: NDArray[Any], second: NDArray[Any]) -> float:
    """Return Spearman's rank correlation; 0 where one of the lists is constant."""
    from scipy.stats import rankdata

    a, b = (rankdata(x) for x in (first, second))
    a, b = a - a.mean(), b - b.mean()
    size = np.sqrt((a * a).sum() * (b * b).sum())
    return float((a * b).sum() / size) if size > 0 else 0.0
