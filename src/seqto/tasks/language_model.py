"""Next-token distributions: top tokens that change, KL divergence, perplexity.

An output of stories of 256 tokens over 32,000 words is 33 MB, so it is read in the worker, run by
run, and dropped. What is kept of a position: the top token and the loss of the token that follows
(of both models), and of float's distribution the KEPT most likely tokens with the share of the
rest. KL between float's and a candidate's distribution is that of these KEPT + 1 groups. Grouping
can only lower it (the log sum inequality); what is lost is at most the divergence within the rest
times the rest's share.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from seqto.errors import ConfigError
from seqto.model.batch import Batch
from seqto.records import Json, ScoreKind
from seqto.tasks.example import MOST_PLACES, next_example
from seqto.tasks.settings import check_choice
from seqto.tasks.task import Answers
from seqto.tasks.tokens import PROGRAM, next_word, open_table, text_of

TOKEN, LOSS, KL, UNIFORM, TOP, LOGS = "token", "loss", "kl", "uniform", "top", "logs"
NEXT = "next"  # the token that the text goes on with; of float's answers, for examples
PERPLEXITY = "perplexity"
KEPT = 32  # tokens of float's distribution that are kept a position: 256 bytes
BLOCK = 1 << 22  # numbers of an output that are worked on at a time
MOST_LOSS = 80.0  # of one token: a probability of 1e-35, so that perplexity stays finite
SMALLEST = 1e-12  # share below which a probability is taken as this

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class LanguageModel:
    """An answer is the most likely next token at each position that has a next token.

    Position i of the output predicts token i + 1. Loss is the share of all positions whose token
    is another than float's; damage is the mean KL divergence from float's distribution over that
    of a uniform one, which is also where it is clipped. Perplexity is over all predicted tokens of
    a split and needs no labels.
    """

    one_output: ClassVar[bool] = True
    needs_labels: ClassVar[bool] = False
    changed: ClassVar[str] = "top tokens"
    signal_bytes: ClassVar[int] = 8
    score_kinds: ClassVar[Mapping[str, ScoreKind]] = {
        PERPLEXITY: ScoreKind(lower_is_better=True, share=False)
    }
    output: str | None = None
    score: str = PERPLEXITY
    tokenizer: dict[str, Any] = field(default_factory=dict, metadata=PROGRAM)

    def __post_init__(self) -> None:
        check_choice("score", self.score, (PERPLEXITY,))

    def for_tokenizer(self, table: Mapping[str, Any]) -> LanguageModel:
        """Return the task with the tokenizer that its examples are written with."""
        return dataclasses.replace(self, tokenizer=dict(table))

    def check(self, outputs: Sequence[Any], *, name: str) -> str | None:
        shape = np.shape(outputs[0])
        if len(shape) != 3:
            raise ConfigError(
                f"output {name!r} has {len(shape)} axes: a language model's is samples × tokens × "
                "vocabulary; choose another with task.output"
            )
        return None

    def decode(self, outputs: Sequence[Any]) -> Answers:
        raise ConfigError(
            "a language model is judged on the tokens that it was fed: give data.texts and a "
            "tokenizer"
        )

    def signal(self, outputs: Sequence[Any]) -> NDArray[Any]:
        raise ConfigError("a language model needs the tokens that it was fed: give data.texts")

    def read(
        self, outputs: Sequence[Any], batch: Batch, reference: Answers | None
    ) -> tuple[Answers, NDArray[Any]]:
        """Return tokens and losses by position; the KL where float's answers are given."""
        logits = np.asarray(outputs[0])
        if batch.lengths is None:
            self.decode(outputs)
        assert batch.lengths is not None
        ids = np.asarray(batch[batch.ids]).astype(np.int64)
        counts = np.maximum(batch.lengths - 1, 0)
        parts: list[dict[str, NDArray[Any]]] = []
        start = 0
        for row, count in enumerate(counts):
            expected = None
            if reference is not None:
                items = slice(start, start + int(count))
                expected = (reference.values[TOP][items], reference.values[LOGS][items])
            start += int(count)
            parts += _positions(logits[row, :count], ids[row, 1 : count + 1], expected)
        values = {name: np.concatenate([p[name] for p in parts]) for name in parts[0]}
        return Answers(values, counts), np.zeros((len(counts), 1))

    def distance(self, reference: Answers, answers: Answers) -> Floats:
        """Return the share of a text's positions whose top token is another."""
        changed = reference.values[TOKEN] != answers.values[TOKEN]
        return sums_by_text(changed, reference) / np.maximum(self.weights(reference, answers), 1)

    def example(self, reference: Answers, answers: Answers) -> Json:
        """Return the places of one text where the most likely next tokens differ."""
        want, got = (a.values[TOKEN] for a in (reference, answers))
        fed = reference.values[NEXT]
        known = open_table(self.tokenizer)
        changed = np.flatnonzero(want != got)
        places = []
        for position in changed[:MOST_PLACES].tolist():
            read = fed[:position].tolist()
            words = {"text": fed[position], "float": want[position], "candidate": got[position]}
            added = {name: next_word(known, read, int(token)) for name, token in words.items()}
            places.append({"before": text_of(known, read), **added})
        return next_example(places, changed=len(changed))

    def weights(self, reference: Answers, answers: Answers) -> Floats:
        """Count a text by its positions."""
        assert reference.lengths is not None
        return reference.lengths.astype(np.float64)

    def gaps(self, reference: Answers, answers: Answers) -> Floats:
        """Return the KL divergence from float's distributions, summed over a text's positions."""
        return sums_by_text(answers.values[KL], reference)

    def spread(self, reference: Answers) -> float:
        """Return the mean gap of a model that says nothing: every token is as likely."""
        return float(sums_by_text(reference.values[UNIFORM], reference).mean()) or 1.0

    def figures(self, reference: Answers, answers: Answers) -> Mapping[str, Floats]:
        positions = np.maximum(self.weights(reference, answers), 1)
        return {"kl": self.gaps(reference, answers) / positions}

    def scores(self, answers: Answers, labels: Any) -> Mapping[str, float]:
        """Return the perplexity over all predicted tokens."""
        losses = answers.values[LOSS].astype(np.float64)
        if not len(losses):
            return {}
        with np.errstate(over="ignore"):
            return {PERPLEXITY: float(np.exp(losses.mean()))}


def _positions(
    logits: NDArray[Any],
    next_ids: NDArray[np.int64],
    expected: tuple[NDArray[Any], NDArray[Any]] | None,
) -> list[dict[str, NDArray[Any]]]:
    """Read the positions of one text, some at a time, so that copies stay small."""
    step = max(1, BLOCK // max(1, logits.shape[-1]))
    parts = []
    for start in range(0, max(1, len(logits)), step):
        rows = slice(start, start + step)
        want = None if expected is None else (expected[0][rows], expected[1][rows])
        parts.append(_some_positions(logits[rows], next_ids[rows], want))
    return parts


def _some_positions(
    logits: NDArray[Any],
    next_ids: NDArray[np.int64],
    expected: tuple[NDArray[Any], NDArray[Any]] | None,
) -> dict[str, NDArray[Any]]:
    count, words = logits.shape
    rows = np.arange(count)
    values = np.nan_to_num(logits.astype(np.float32), nan=0.0, posinf=1e30, neginf=-1e30)
    tokens = values.argmax(axis=1)
    highest = values[rows, tokens][:, None]
    weights = np.exp(values - highest)
    total = weights.sum(axis=1, dtype=np.float64)
    logs = highest[:, 0].astype(np.float64) + np.log(total)
    by_figure: dict[str, NDArray[Any]] = {
        TOKEN: tokens.astype(np.int32),
        LOSS: np.minimum(logs - values[rows, next_ids], MOST_LOSS).astype(np.float32),
    }
    if expected is None:
        top_count = min(KEPT, words)
        top = np.argpartition(-values, top_count - 1, axis=1)[:, :top_count]
        own = np.take_along_axis(values, top, axis=1) - logs[:, None]
        mean = (weights * (values - highest)).sum(axis=1, dtype=np.float64) / total
        entropy = np.log(total) - mean
        by_figure |= {
            TOP: top.astype(np.int32),
            LOGS: own.astype(np.float32),
            UNIFORM: (np.log(words) - entropy).astype(np.float32),
            NEXT: next_ids.astype(np.int32),
        }
    else:
        own = np.take_along_axis(values, expected[0].astype(np.int64), axis=1) - logs[:, None]
        by_figure[KL] = divergence(expected[1], own, most=float(np.log(words))).astype(np.float32)
    return by_figure


def divergence(want: NDArray[Any], got: NDArray[Any], *, most: float) -> Floats:
    """Return KL of grouped distributions: kept tokens, given as logs, and all others as one."""
    p, q = (np.exp(np.minimum(x.astype(np.float64), 0.0)) for x in (want, got))
    rest_p, rest_q = (np.clip(1 - x.sum(axis=1), 0, 1) for x in (p, q))
    q, rest_q = np.maximum(q, SMALLEST), np.maximum(rest_q, SMALLEST)
    inside = np.where(p > 0, p * (np.log(np.maximum(p, SMALLEST)) - np.log(q)), 0).sum(axis=1)
    outside = rest_p * (np.log(np.maximum(rest_p, SMALLEST)) - np.log(rest_q))
    clipped: Floats = np.clip(inside + outside, 0.0, most)
    return clipped


def sums_by_text(values: NDArray[Any], answers: Answers) -> Floats:
    """Return the sums over each text's positions."""
    assert answers.lengths is not None
    ends = np.cumsum(answers.lengths)
    whole = np.concatenate([[0.0], np.cumsum(values, dtype=np.float64)])
    sums: Floats = whole[ends] - whole[ends - answers.lengths]
    return sums
