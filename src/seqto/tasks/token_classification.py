"""The class of each token of a text: names of things, parts of speech.

Of a token its class is kept, and of float's answers the logarithms of the classes' shares, so that
the KL divergence can tell how near an answer is to another one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from seqto.errors import ConfigError
from seqto.model.batch import Batch
from seqto.records import Json
from seqto.tasks.answers import Floats
from seqto.tasks.example import text_example
from seqto.tasks.language_model import divergence, sums_by_text
from seqto.tasks.task import Answers

CLASS, LOGS, KL, UNIFORM = "class", "logs", "kl", "uniform"
MOST_CLASSES = 1024  # a token's classes are all kept: 4 KiB


@dataclass(frozen=True, slots=True)
class TokenClassification:
    """The class with the highest score of each token, in one output (samples × tokens × classes).

    Loss is the share of all tokens, special ones among them, whose class is another than float's;
    damage is the mean KL divergence from float's shares over that of a uniform distribution.

    labels   names of the classes, in the order of their numbers
    """

    one_output: ClassVar[bool] = True
    changed: ClassVar[str] = "token classes"  # what loss is a share of, for reports
    signal_bytes: ClassVar[int] = 8
    output: str | None = None
    labels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if len(set(self.labels)) != len(self.labels):
            raise ConfigError("task.labels names a class twice")

    def check(self, outputs: Sequence[Any], *, name: str) -> str | None:
        """Refuse an output that is no scores of a token's classes, or not of the labels' number."""
        shape = np.shape(outputs[0])
        if len(shape) != 3 or not 2 <= shape[2] <= MOST_CLASSES:
            raise ConfigError(
                f"output {name!r} has shape {list(shape[1:])} a text: token-classification needs "
                f"tokens × classes, 2 to {MOST_CLASSES} of them; choose another with task.output"
            )
        if self.labels and shape[2] != len(self.labels):
            raise ConfigError(
                f"output {name!r} has {shape[2]} scores a token, task.labels names "
                f"{len(self.labels)} classes"
            )
        return None

    def decode(self, outputs: Sequence[Any]) -> Answers:
        raise ConfigError(
            "token-classification is judged on the tokens of texts: give data.texts and a tokenizer"
        )

    def signal(self, outputs: Sequence[Any]) -> NDArray[Any]:
        raise ConfigError("token-classification needs the tokens of texts: give data.texts")

    def read(
        self, outputs: Sequence[Any], batch: Batch, reference: Answers | None
    ) -> tuple[Answers, NDArray[Any]]:
        """Return the classes of all tokens without padding; KL where float's answers are given."""
        if batch.lengths is None:
            self.decode(outputs)
        assert batch.lengths is not None
        scores = np.asarray(outputs[0])
        rows = [scores[row, :length] for row, length in enumerate(batch.lengths)]
        values = np.nan_to_num(
            np.concatenate(rows).astype(np.float64), nan=0.0, posinf=1e30, neginf=-1e30
        )
        highest = values.max(axis=1, keepdims=True)
        logs = values - highest - np.log(np.exp(values - highest).sum(axis=1, keepdims=True))
        most = float(np.log(values.shape[1]))
        kept: dict[str, NDArray[Any]] = {CLASS: values.argmax(axis=1).astype(np.int32)}
        if reference is None:
            entropy = -(np.exp(logs) * logs).sum(axis=1)
            kept |= {
                LOGS: logs.astype(np.float32),
                UNIFORM: (most - entropy).astype(np.float32),
            }
        else:
            gap = divergence(reference.values[LOGS], logs, most=most)
            kept[KL] = gap.astype(np.float32)
        lengths = np.asarray(batch.lengths, dtype=np.int64)
        return Answers(kept, lengths), np.zeros((len(lengths), 1))

    def distance(self, reference: Answers, answers: Answers) -> Floats:
        """Return the share of a text's tokens whose class is another."""
        changed = reference.values[CLASS] != answers.values[CLASS]
        return sums_by_text(changed, reference) / np.maximum(self.weights(reference, answers), 1)

    def weights(self, reference: Answers, answers: Answers) -> Floats:
        """Count a text by its tokens."""
        assert reference.lengths is not None
        return reference.lengths.astype(np.float64)

    def gaps(self, reference: Answers, answers: Answers) -> Floats:
        """Return the KL divergence from float's shares, summed over a text's tokens."""
        return sums_by_text(answers.values[KL], reference)

    def spread(self, reference: Answers) -> float:
        """Return the mean gap of a model that says nothing: every class is as likely."""
        return float(sums_by_text(reference.values[UNIFORM], reference).mean()) or 1.0

    def example(self, reference: Answers, answers: Answers) -> Json:
        """Return the classes of one text's tokens by both models."""
        both = (a.values[CLASS].tolist() for a in (reference, answers))
        return text_example(*(" ".join(map(self._name, numbers)) for numbers in both))

    def _name(self, number: int) -> str:
        return self.labels[number] if number < len(self.labels) else str(number)

    def scores(self, answers: Answers, labels: Any) -> Mapping[str, float]:
        """Return none: files of texts have one label a row, not one a token."""
        del answers, labels
        return {}
