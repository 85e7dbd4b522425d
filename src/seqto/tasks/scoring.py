"""Outputs → answers → figures: distance to the float model, scores, damage.

The same functions run in the workers and, for tasks that stay there, in the main process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqto.errors import ConfigError
from seqto.model import outputs as model_outputs
from seqto.model.batch import Batch
from seqto.records import ExpectedLoss, Json, Loss, Measurement
from seqto.tasks import change_risk
from seqto.tasks.array_file import read_arrays, write_arrays
from seqto.tasks.intervals import bootstrap_differences, mean_interval, weighted_interval
from seqto.tasks.task import (
    AnswerCheckedTask,
    Answers,
    CheckedTask,
    CorpusExampleTask,
    ExampleTask,
    FigureTask,
    LeadTask,
    ResampledTask,
    SequenceTask,
    SmoothTask,
    Task,
    WeightedTask,
    judges_one_output,
    kinds_of_scores,
    needs_all_samples,
    scored_labels,
    word_for_loss,
)

DIGITS = 6  # of a sum of distances, so that equal sums are equal in any order of adding


@dataclass(frozen=True, slots=True)
class Decoded:
    """Answers and signal of some samples: all that is kept of their outputs."""

    answers: Answers
    signal: NDArray[Any]


def decode(
    task: Task,
    outputs: Sequence[NDArray[Any]],
    *,
    batch: Batch | None = None,
    reference: Answers | None = None,
) -> Decoded:
    """Return the answers and the signal of a chunk, or of one run of sequences (`batch`)."""
    if batch is not None and isinstance(task, SequenceTask):
        answers, signal = task.read(outputs, batch, reference)
    else:
        answers, signal = task.decode(outputs), np.asarray(task.signal(outputs))
    signal = signal.reshape(len(signal), -1)
    if len(signal) and signal[0].nbytes > task.signal_bytes:
        raise ValueError(
            f"{type(task).__name__}.signal keeps {signal[0].nbytes} bytes of a sample, more than "
            f"its signal_bytes = {task.signal_bytes}"
        )
    return Decoded(answers, signal)


def joined(parts: Sequence[Decoded]) -> Decoded:
    """Return what is kept of several chunks as one; answers of one size a sample are needed."""
    sizes = sorted({p.signal.shape[1] for p in parts})
    if len(sizes) > 1:
        raise ConfigError(
            f"the output that is judged has another size for other samples ({sizes[0]} to "
            f"{sizes[-1]} numbers are kept): this kind of task needs one size. For texts set "
            "task.kind to embedding, token-classification or language-model, or choose an output "
            "of one size with task.output; for other data give samples of one size"
        )
    return Decoded(
        Answers.joined([p.answers for p in parts]), np.concatenate([p.signal for p in parts])
    )


def beside(parts: Sequence[Decoded]) -> Decoded:
    """Return what is kept of several sequences of each sample as one."""
    if len(parts) == 1:
        return parts[0]
    return Decoded(
        Answers.beside([p.answers for p in parts]),
        np.concatenate([p.signal for p in parts], axis=1),
    )


def take(decoded: Decoded, rows: NDArray[np.int64]) -> Decoded:
    return Decoded(decoded.answers.take(rows), decoded.signal[rows])


# ------------------------------------------------------------------------------------- float model


@dataclass(frozen=True, slots=True)
class Reference:
    """The float model's answers and signal on one split, mapped from a file."""

    split: str
    decoded: Decoded
    variance: float  # of the signal
    scores: Mapping[str, float]  # of all rows, where there are labels
    output: Json  # the judged output: shape for one sample, judged_by, changed
    caution: str | None = None  # what is doubtful about the outputs

    @property
    def rows(self) -> int:
        return len(self.decoded.signal)

    def save(self, path: Path) -> None:
        record = {
            "split": self.split,
            "variance": self.variance,
            "scores": dict(self.scores),
            "output": self.output,
            "caution": self.caution,
        }
        write_arrays(path, _arrays_of(self.decoded), record)

    @classmethod
    def load(cls, path: Path) -> Reference:
        arrays, record = read_arrays(path)
        return cls(
            record["split"],
            _decoded_of(arrays),
            record["variance"],
            record["scores"],
            record["output"],
            record["caution"],
        )


def reference_from(
    task: Task, split: str, parts: Sequence[Decoded], *, labels: Any, about: Json
) -> Reference:
    """Return the reference of a split; `about` is what `describe_outputs` said of a chunk."""
    whole = joined(parts)
    labels = scored_labels(task, labels, len(whole.signal))
    scores = {} if labels is None else dict(task.scores(whole.answers, labels))
    if isinstance(task, SmoothTask):
        variance = task.spread(whole.answers)
    else:
        variance = model_outputs.spread([whole.signal])
    caution = about["caution"]
    if not caution and isinstance(task, AnswerCheckedTask):
        caution = task.check_answers(whole.answers)
    return Reference(split, whole, variance, scores, about["output"], caution)


def describe_outputs(
    task: Task, outputs: Sequence[NDArray[Any]], *, judged: int, name: str
) -> Json:
    """Return {output: {shape, judged_by, changed}, caution} of the float model's outputs."""
    value = np.asarray(outputs[judged])
    word = word_for_loss(task)
    own = word is not None or not judges_one_output(task)
    judged_by = "task" if own else model_outputs.kind_of(value)
    caution = task.check(outputs, name=name) if isinstance(task, CheckedTask) else None
    about: Json = {"shape": list(value.shape[1:]), "judged_by": judged_by}
    if word is not None:
        about["changed"] = word
    return {"output": about, "caution": caution}


def save_part(path: Path, decoded: Decoded, about: Json) -> None:
    write_arrays(path, _arrays_of(decoded), about)


def load_part(path: Path) -> tuple[Decoded, Json]:
    arrays, about = read_arrays(path)
    return _decoded_of(arrays), about


def _arrays_of(decoded: Decoded) -> dict[str, NDArray[Any]]:
    answers = decoded.answers
    arrays = {"signal": decoded.signal}
    arrays |= {f"value:{name}": np.asarray(x) for name, x in answers.values.items()}
    arrays |= {f"detail:{name}": np.asarray(x) for name, x in answers.details.items()}
    if answers.lengths is not None:
        arrays["lengths"] = answers.lengths
    return arrays


def _decoded_of(arrays: Mapping[str, NDArray[Any]]) -> Decoded:
    named: dict[str, dict[str, NDArray[Any]]] = {"value": {}, "detail": {}}
    for key, array in arrays.items():
        kind, _, name = key.partition(":")
        if kind in named:
            named[kind][name] = array
    answers = Answers(named["value"], arrays.get("lengths"), named["detail"])
    return Decoded(answers, arrays["signal"])


# -------------------------------------------------------------------------------------- candidates


class Scorer:
    """Adds up a candidate's chunks, which come in `order` (of rows of the split)."""

    def __init__(
        self,
        task: Task,
        reference: Reference,
        *,
        device: str,
        rows: int,
        labels: Any = None,
        order: NDArray[np.int64] | None = None,
        rivals: Sequence[tuple[int, float]] = (),
        size_bytes: int = 0,
        least_rows: int = 0,
    ) -> None:
        self.task, self.reference, self.device, self.rows = task, reference, device, rows
        self.labels = scored_labels(task, labels, reference.rows)
        self.whole = needs_all_samples(task)  # distances follow when all samples are there
        self.order = np.arange(rows) if order is None else order
        self.rivals, self.size_bytes, self.least_rows = rivals, size_bytes, least_rows
        self.rows_run = 0
        self.stopped = False
        self._answers: list[Answers] = []
        self._distances: list[NDArray[np.float64]] = []
        self._weights: list[NDArray[np.float64]] = []  # empty: all samples count the same
        self._squares: list[NDArray[np.float64]] = []
        self._figures: dict[str, list[NDArray[np.float64]]] = {}
        self._leads: list[tuple[NDArray[np.float64], NDArray[np.float64]] | None] = []

    def add(self, decoded: Decoded) -> None:
        """Compare the next rows with the float model's."""
        stop = self.rows_run + len(decoded.signal)
        rows = self.order[self.rows_run : stop]
        want = self.reference.decoded
        expected = want.answers.take(rows)
        if not self.whole:
            self._add_distances(expected, decoded.answers)
        if isinstance(self.task, FigureTask):
            for name, values in self.task.figures(expected, decoded.answers).items():
                self._figures.setdefault(name, []).append(np.asarray(values, dtype=np.float64))
        if isinstance(self.task, SmoothTask):
            gaps = np.asarray(self.task.gaps(expected, decoded.answers), dtype=np.float64)
        else:
            gaps = model_outputs.squared_gaps(want.signal[rows], decoded.signal)
        self._squares.append(gaps)
        self._answers.append(decoded.answers.without_details())
        self.rows_run = stop

    def _add_distances(self, expected: Answers, answers: Answers) -> None:
        if isinstance(self.task, LeadTask):
            self._leads.append(self.task.leads(expected, answers))
        distances = np.asarray(self.task.distance(expected, answers), dtype=np.float64)
        if distances.shape != (len(expected),) or not ((distances >= 0) & (distances <= 1)).all():
            raise ValueError(
                f"{type(self.task).__name__}.distance must give one number from 0 to 1 a sample"
            )
        self._distances.append(distances)
        if isinstance(self.task, WeightedTask):
            self._weights.append(np.asarray(self.task.weights(expected, answers), np.float64))

    def _compare_whole(self) -> None:
        """Compare all samples that were run at once, for a task that needs them all."""
        if self.whole and self._answers and not self._distances:
            expected = self.reference.decoded.answers.take(self.order[: self.rows_run])
            self._add_distances(expected.without_details(), Answers.joined(self._answers))

    @property
    def summed_distance(self) -> float:
        """The distances so far: in the end their sum will be no smaller."""
        return round(float(sum(d.sum() for d in self._distances)), DIGITS)

    @property
    def complete(self) -> bool:
        return self.rows_run >= self.rows

    def is_beaten(self) -> bool:
        """Return whether a rival (bytes, summed distance) is better whatever other rows give."""
        if self._weights or self.whole or self.rows_run < self.least_rows:
            return False  # what is still to come may outweigh what there is
        own = (self.size_bytes, self.summed_distance)
        return not self.complete and any(
            size <= own[0] and total <= own[1] and (size, total) != own
            for size, total in self.rivals
        )

    def _loss(self) -> Loss:
        """Return the loss of all rows; where some are missing, its least value and bounds."""
        if self._weights:
            return self._weighted_loss()
        total = self.summed_distance
        if not self.complete:
            most = total + self.rows - self.rows_run
            return Loss(total / self.rows, total / self.rows, most / self.rows, self.rows_run)
        distances = np.empty(self.rows_run)
        distances[self.order] = np.concatenate(self._distances)
        low, high = mean_interval(distances)
        bits = np.packbits(distances == 0).tobytes().hex()
        return Loss(
            total / self.rows_run, min(low, total / self.rows_run), high, self.rows_run, bits
        )

    def _expected_loss(self) -> ExpectedLoss | None:
        """Return the loss that all rows tell of, where the task knows how narrowly they stay."""
        leads = [pair for pair in self._leads if pair is not None]
        if not self.complete or not leads or len(leads) < len(self._leads):
            return None
        want, got = (np.concatenate(x) for x in zip(*leads, strict=True))
        return change_risk.expected_loss(want, got)

    def _weighted_loss(self) -> Loss:
        """Return the weighted mean; where rows are missing, of those run, without a bound."""
        rows = self.order[: self.rows_run]
        distances, weights = np.zeros(self.rows), np.zeros(self.rows)
        distances[rows] = np.concatenate(self._distances)
        weights[rows] = np.concatenate(self._weights)
        whole = float(weights.sum())
        value = round(float((weights * distances).sum()), DIGITS) / whole if whole else 0.0
        if not self.complete:
            return Loss(value, 0.0, 1.0, self.rows_run)
        low, high = weighted_interval(distances, weights)
        bits = np.packbits(distances == 0).tobytes().hex()
        return Loss(value, min(low, value), max(high, value), self.rows_run, bits)

    def measurement(self, *, intervals: bool = False) -> Measurement:
        """Return the figures; `intervals`: of the drops of scores too, which takes a while."""
        self._compare_whole()
        scores: Mapping[str, float] = {}
        baseline: Mapping[str, float] = {}
        drops: dict[str, tuple[float, float]] = {}
        rows = self.order[: self.rows_run]
        if self.labels is not None and self._answers:
            answers = Answers.joined(self._answers)
            want = self.reference.decoded.answers.without_details()
            labels = _rows_of(self.labels, rows)
            scores = dict(self.task.scores(answers, labels))
            baseline = self.reference.scores
            if self.rows_run != self.reference.rows:
                baseline = dict(self.task.scores(want.take(rows), labels))
            if intervals:
                drops = self._drops(want.take(rows), answers, labels, scores)
        means = {name: float(np.concatenate(v).mean()) for name, v in self._figures.items()}
        return Measurement(
            split=self.reference.split,
            device=self.device,
            loss=self._loss(),
            scores=scores,
            baseline_scores=baseline,
            score_kinds={n: k for n, k in kinds_of_scores(self.task).items() if n in scores},
            score_drops=drops,
            figures=means,
            damage=float(np.concatenate(self._squares).mean()) / self.reference.variance,
            expected_loss=self._expected_loss(),
            stopped_early=self.stopped and not self.complete,
        )

    def examples(self, most: int) -> tuple[Json, ...]:
        """Return up to `most` samples with the largest distance, as the task shows them."""
        if not self._answers or most < 1:
            return ()
        self._compare_whole()
        distances, answers = np.concatenate(self._distances), Answers.joined(self._answers)
        want = self.reference.decoded.answers.without_details()
        worst = np.argsort(-distances, kind="stable")[:most]
        positions = worst[distances[worst] > 0]
        rows = self.order[positions].tolist()
        shown: list[Json] = []
        if isinstance(self.task, CorpusExampleTask) and self.complete:
            by_row = answers.take(np.argsort(self.order, kind="stable"))
            shown = self.task.corpus_examples(want, by_row, rows)
        elif isinstance(self.task, ExampleTask):
            for row, position in zip(rows, positions, strict=True):
                pair = want.take(np.array([row])), answers.take(np.array([position]))
                shown.append(self.task.example(*pair))
        return tuple(
            {"row": row, "distance": round(float(distances[position]), 4), **example}
            for row, position, example in zip(rows, positions, shown, strict=False)
        )

    def _drops(
        self, want: Answers, answers: Answers, labels: Any, names: Mapping[str, float]
    ) -> dict[str, tuple[float, float]]:
        """Return 95 % intervals of how much worse than float's the scores are, paired."""
        ends = self._differences(want, answers, labels, list(names))
        kinds = kinds_of_scores(self.task)
        errors = {n for n in ends if n in kinds and kinds[n].lower_is_better}
        return {n: (-high, -low) if n in errors else (low, high) for n, (low, high) in ends.items()}

    def _differences(
        self, want: Answers, answers: Answers, labels: Any, names: list[str]
    ) -> dict[str, tuple[float, float]]:
        """Return 95 % intervals of float's score minus the candidate's."""
        if isinstance(self.task, ResampledTask):
            first, second = (self.task.scorer(a, labels) for a in (want, answers))
            return bootstrap_differences(
                lambda rows: (first(rows), second(rows)), self.rows_run, names=names
            )

        def both(rows: NDArray[np.int64]) -> tuple[Mapping[str, float], Mapping[str, float]]:
            some = _rows_of(labels, rows)
            pair = [self.task.scores(a.take(rows), some) for a in (want, answers)]
            return pair[0], pair[1]

        return bootstrap_differences(both, self.rows_run, names=names)


def _rows_of(labels: Any, rows: NDArray[np.int64]) -> Any:
    return labels[rows] if isinstance(labels, np.ndarray) else [labels[int(r)] for r in rows]
