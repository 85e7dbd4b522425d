"""The protocol of a task: what an answer is, and how far two answers are apart.

A task works on batches. Its methods run in the workers, chunk by chunk, if the task can be made
there again from `module:Class` and JSON fields (`portable_form`); else in the main process.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from seqto.model.wiring import Wiring
from seqto.records import Json, ScoreKind

if TYPE_CHECKING:
    from seqto.model.batch import Batch
    from seqto.records import Array

    Outputs = Sequence[Array]
    Floats = NDArray[np.float64]

RELATIVE_ERROR = "relative error"  # a task's word for a loss that is no share of things
CHUNK_ROWS = 16  # samples that a task with large outputs decodes at a time: its `chunk_rows`


@dataclass(frozen=True, slots=True)
class Answers:
    """The decoded outputs of some samples.

    `values` hold one row a sample, or, where `lengths` are given, as many items a sample as these
    say (boxes, words). `details` hold one row a sample too; only `figures` reads them, and of a
    candidate they are dropped after each chunk.
    """

    values: Mapping[str, NDArray[Any]]
    lengths: NDArray[np.int64] | None = None
    details: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    def __len__(self) -> int:
        if self.lengths is not None:
            return len(self.lengths)
        return len(next(iter(self.values.values())))

    def take(self, rows: NDArray[np.int64]) -> Answers:
        """Return the answers of some samples, in the order given."""
        rows = np.asarray(rows, dtype=np.int64)
        items, lengths = rows, None
        if self.lengths is not None:
            lengths = self.lengths[rows]
            starts = (np.cumsum(self.lengths) - self.lengths)[rows]
            inner = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
            items = np.repeat(starts, lengths) + inner
        return Answers(
            {name: np.asarray(x)[items] for name, x in self.values.items()},
            lengths,
            {name: np.asarray(x)[rows] for name, x in self.details.items()},
        )

    def without_details(self) -> Answers:
        return Answers(self.values, self.lengths)

    @staticmethod
    def beside(parts: Sequence[Answers]) -> Answers:
        """Return the answers to several sequences of each sample as one, along a second axis."""
        if len(parts) == 1:
            return parts[0]
        if any(part.lengths is not None for part in parts):
            raise ValueError("answers of different lengths cannot stand beside each other")
        first = parts[0]
        return Answers(
            {n: np.stack([p.values[n] for p in parts], axis=1) for n in first.values},
            None,
            {n: np.stack([p.details[n] for p in parts], axis=1) for n in first.details},
        )

    @staticmethod
    def joined(parts: Sequence[Answers]) -> Answers:
        """Return the answers of several chunks as one."""
        first = parts[0]
        lengths = [p.lengths for p in parts if p.lengths is not None]
        return Answers(
            {n: np.concatenate([p.values[n] for p in parts]) for n in first.values},
            np.concatenate(lengths) if lengths else None,
            {n: np.concatenate([p.details[n] for p in parts]) for n in first.details},
        )


@runtime_checkable
class Task(Protocol):
    """Defines an answer. A frozen dataclass whose fields are JSON settings, if it can be."""

    signal_bytes: int  # the most that `signal` keeps of one sample

    def decode(self, outputs: Outputs) -> Answers:
        """Return the answers that a model's outputs hold; each sample by itself."""
        ...

    def distance(self, reference: Answers, answers: Answers) -> Floats:
        """Return, per sample, 0 for the same answer to 1 for another one; loss is the mean."""
        ...

    def signal(self, outputs: Outputs) -> NDArray[Any]:
        """Return numbers, one row a sample, whose squared error is `damage`.

        Of integers, damage is the share that differs.
        """
        ...

    def scores(self, answers: Answers, labels: Any) -> Mapping[str, float]:
        """Return figures of the whole corpus; empty where labels say nothing.

        The first stands for the task. Higher is better, except where a ScoredTask says otherwise.
        `labels` are an array with one row a sample, or a list where the rows differ in shape.
        """
        ...


@runtime_checkable
class FigureTask(Protocol):
    """A task with further figures, of which the mean over the samples is reported."""

    def figures(self, reference: Answers, answers: Answers) -> Mapping[str, Floats]: ...


@runtime_checkable
class ScoredTask(Protocol):
    """A task some of whose scores are errors (lower is better) or no shares: perplexity, MAE."""

    @property
    def score_kinds(self) -> Mapping[str, ScoreKind]: ...


@runtime_checkable
class ChunkedTask(Protocol):
    """A task with large outputs: a worker holds those of so many samples at a time."""

    chunk_rows: ClassVar[int]


@runtime_checkable
class ProbedTask(Protocol):
    """A task whose samples hold many values each: so many of them tell a layer's damage."""

    probe_rows: ClassVar[int]


@runtime_checkable
class CorpusTask(Protocol):
    """A task that may compare samples with each other: then distances need all of them."""

    whole_corpus: ClassVar[bool]


@runtime_checkable
class UnlabelledTask(Protocol):
    """A task that says whether its scores need labels."""

    needs_labels: ClassVar[bool]


@runtime_checkable
class OutputTask(Protocol):
    """A task that says whether the judged output is all that it reads."""

    one_output: ClassVar[bool]


@runtime_checkable
class WordedTask(Protocol):
    """A task whose loss is no share of answers: reports say what it is a share of."""

    changed: ClassVar[str]


@runtime_checkable
class WeightedTask(Protocol):
    """A task whose samples count differently: loss is the mean with these weights.

    What a sample counts depends on the candidate, so that no candidate is stopped early.
    """

    def weights(self, reference: Answers, answers: Answers) -> Floats: ...


@runtime_checkable
class SequenceTask(Protocol):
    """A task that reads the tokens that were fed, and of a candidate the float model's answers.

    `read` stands for `decode` and `signal`. It gets the outputs of one run: `batch` has the inputs
    and, in `lengths`, the tokens of each sample without padding. What a candidate's outputs say
    about float's answers can then be worked out before they are dropped.
    """

    def read(
        self, outputs: Outputs, batch: Batch, reference: Answers | None
    ) -> tuple[Answers, NDArray[Any]]: ...


@runtime_checkable
class SmoothTask(Protocol):
    """A task with a smooth measure of its own: `damage` is its mean over `spread`.

    Others have the squared error of their signal over its variance.
    """

    def gaps(self, reference: Answers, answers: Answers) -> Floats:
        """Return, per sample, how far the answers are from float's; 0: not at all."""
        ...

    def spread(self, reference: Answers) -> float:
        """Return the gap that counts as 1."""
        ...


@runtime_checkable
class LeadTask(Protocol):
    """A task whose answer is the first of several options: the next ones are its rivals."""

    def leads(self, reference: Answers, answers: Answers) -> tuple[Floats, Floats] | None:
        """Return by how much float's answers are ahead of their rivals, nearest first.

        [samples, rivals] in the float model and in the candidate (tasks/change_risk.py); None
        where the outputs are no options.
        """
        ...


@runtime_checkable
class RankedTask(Protocol):
    """A task that says which samples are close calls: these tell most about a candidate."""

    def difficulty(self, reference: Answers) -> Floats:
        """Return, per sample, how easily the float model's answer changes; higher is easier."""
        ...


@runtime_checkable
class ResampledTask(Protocol):
    """A task that gives the scores of some samples, perhaps named twice, after work done once."""

    def scorer(
        self, answers: Answers, labels: Any
    ) -> Callable[[NDArray[np.int64] | None], Mapping[str, float]]: ...


@runtime_checkable
class ExampleTask(Protocol):
    """A task that shows one sample's answers to people, in a form of tasks/example.py."""

    def example(self, reference: Answers, answers: Answers) -> Json: ...


@runtime_checkable
class CorpusExampleTask(Protocol):
    """A task that shows samples by what it finds among all of them: nearest neighbours."""

    def corpus_examples(
        self, reference: Answers, answers: Answers, rows: Sequence[int]
    ) -> list[Json]:
        """Return, for some rows of a whole split, its form of tasks/example.py."""
        ...


@runtime_checkable
class TokenTask(Protocol):
    """A task that shows tokens as the data's tokenizer writes them ([data.tokenizer])."""

    def for_tokenizer(self, table: Mapping[str, Any]) -> Task: ...


@runtime_checkable
class CheckedTask(Protocol):
    """A task that says what is doubtful about a model's outputs."""

    def check(self, outputs: Outputs, *, name: str) -> str | None: ...


@runtime_checkable
class AnswerCheckedTask(Protocol):
    """A task that says what is doubtful about the float model's answers to a whole split."""

    def check_answers(self, answers: Answers) -> str | None: ...


@runtime_checkable
class LabelledTask(Protocol):
    """A task that is scored on the labelled set, with settings of `for_labels` (`[data.labelled]`).

    label_form   boxes; mask (1 where the object is); classes (a class a pixel); arrays (a row a
                 sample, as `scores` takes it)
    """

    @property
    def label_form(self) -> str: ...

    @property
    def for_labels(self) -> Callable[..., Task]: ...


@runtime_checkable
class ModelTask(Protocol):
    """A task that wants to know the model: the outputs it gets, and the size of its picture."""

    def for_model(self, *, outputs: Sequence[str], size: tuple[int, int] | None) -> Task: ...


@runtime_checkable
class GenerationTask(Protocol):
    """A task whose answers a bundle generates, with the tokens of a tokenizer."""

    def make_wiring(self) -> Wiring:
        """Return how the bundle's components are fed."""
        ...


def most_rows(task: Task, rows: int) -> int:
    """Return how many of some rows a worker may hold the raw outputs of, as the task says."""
    return min(rows, task.chunk_rows) if isinstance(task, ChunkedTask) else rows


def probed_rows(task: Task, asked: int) -> int:
    """Return how many samples tell a layer's damage: fewer where one answer holds many values."""
    return min(asked, task.probe_rows) if isinstance(task, ProbedTask) else asked


def kinds_of_scores(task: Task) -> Mapping[str, ScoreKind]:
    """Return how a task's scores are read; names that are missing are shares, higher is better."""
    return task.score_kinds if isinstance(task, ScoredTask) else {}


def needs_all_samples(task: Task) -> bool:
    """Return whether distances can be told only for all samples at once: nearest neighbours."""
    return isinstance(task, CorpusTask) and task.whole_corpus


def scored_labels(task: Task, labels: Any, rows: int) -> Any:
    """Return the labels; for a task that is scored without any (`needs_labels = False`), zeros."""
    if labels is None and isinstance(task, UnlabelledTask) and not task.needs_labels:
        return np.zeros(rows)
    return labels


def judges_one_output(task: Task) -> bool:
    """Return whether a task wants the judged output alone; others get all that are numbers."""
    return isinstance(task, OutputTask) and task.one_output


def word_for_loss(task: Task | None) -> str | None:
    """Return what loss is a share of, where that is not answers."""
    # a task of the user may have a method of that name
    if isinstance(task, WordedTask) and isinstance(task.changed, str):
        return task.changed
    return None


# ------------------------------------------------------------------------------- in another process


def portable_form(task: Task) -> Json | None:
    """Return {class, fields} from which `task_from_json` makes the task again; None if it cannot.

    A class of a notebook or script, and one that holds more than JSON, cannot.
    """
    kind = type(task)
    if not dataclasses.is_dataclass(task) or kind.__module__ == "__main__":
        return None
    fields = {f.name: getattr(task, f.name) for f in dataclasses.fields(task) if f.init}
    try:
        form: Json = json.loads(
            json.dumps({"class": f"{kind.__module__}:{kind.__qualname__}", "fields": fields})
        )
        return form if task_from_json(form) == task else None
    except (TypeError, ValueError, ImportError, AttributeError):
        return None


def task_from_json(form: Json) -> Any:
    module, _, name = str(form["class"]).partition(":")
    kind = getattr(importlib.import_module(module), name)
    return kind(**{key: _tupled(value) for key, value in form["fields"].items()})


def _tupled(value: Any) -> Any:
    return tuple(_tupled(v) for v in value) if isinstance(value, list) else value
