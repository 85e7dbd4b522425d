"""Generated sequences: token error rate against float's; exact match, CER, WER, BLEU, chrF."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from seqto.data.tokenizer import LARGEST_TOKEN, Tokenizer
from seqto.errors import ConfigError, nearest
from seqto.model.generation import softmax
from seqto.model.wiring import Wiring
from seqto.records import Json, ScoreKind
from seqto.tasks import text_scores
from seqto.tasks.answers import spans
from seqto.tasks.edit_distance import edit_distance
from seqto.tasks.example import text_example
from seqto.tasks.settings import check_choice, check_count
from seqto.tasks.sketch import count_sketch
from seqto.tasks.task import Answers
from seqto.tasks.tokens import PROGRAM, open_table, text_of
from seqto.text import shorten

TOKENS, CHOICES = "tokens", "choices"
SIGNAL_VALUES = 8192  # numbers of a sample's signal: 32 KiB

Token = str | int


@dataclass(frozen=True, slots=True)
class Seq2Seq:
    """An answer is the whole sequence that a bundle generates, greedily.

    start, stop   tokens, by name or number; several may end a sequence; without `start` the
                  decoder goes on behind the source
    score         the score that stands first: exact, CER, WER, BLEU or chrF; several may be named
    fold          groups of letters that are taken as equal in scores (not between two models)
    encoder       input → what it is fed; see model/wiring.py
    decoder       the same, and `output.logits`: the name of the output
    """

    changed: ClassVar[str] = "tokens"  # what loss is a share of
    signal_bytes: ClassVar[int] = 4 * SIGNAL_VALUES
    score_kinds: ClassVar[Mapping[str, ScoreKind]] = text_scores.SCORE_KINDS

    decoder: dict[str, Any] = field(default_factory=dict)
    encoder: dict[str, str] = field(default_factory=dict)
    start: Token | None = None
    stop: Token | tuple[Token, ...] = ()
    min_length: int = 0
    max_length: int = 64
    search: str = "greedy"
    score: str | tuple[str, ...] = text_scores.EXACT
    fold: tuple[str, ...] = ()
    tokenizer: dict[str, Any] = field(default_factory=dict, metadata=PROGRAM)

    def __post_init__(self) -> None:
        check_count("max_length", self.max_length)
        check_choice("search", self.search, ("greedy",))
        if not 0 <= self.min_length <= self.max_length:
            raise ConfigError(
                f"task.min_length = {self.min_length} must be between 0 and max_length, "
                f"{self.max_length}"
            )
        if not self.stop:
            raise ConfigError("task.stop is missing: name the token that ends a sequence")
        _check_tables(self.encoder, self.decoder)
        for name in self.score_names:
            if name in (text_scores.BLEU, text_scores.CHRF):
                text_scores.open_metric(name)

    # ----------------------------------------------------------------------------------- set-up

    def for_tokenizer(self, table: Mapping[str, Any]) -> Seq2Seq:
        """Return the task with the tokenizer that texts are decoded with ([data.tokenizer])."""
        return dataclasses.replace(self, tokenizer=dict(table))

    def make_wiring(self) -> Wiring:
        """Return the wiring of the bundle's components, with tokens by number."""
        words = {name: word for name, word in self.decoder.items() if name != "output"}
        return Wiring(
            words,
            self.decoder["output"]["logits"],
            tuple(self._number("stop", token) for token in _listed(self.stop)),
            dict(self.encoder),
            None if self.start is None else self._number("start", self.start),
            self.min_length,
            self.max_length,
        )

    def _number(self, key: str, token: Token) -> int:
        if isinstance(token, int):
            if not 0 <= token <= LARGEST_TOKEN:
                raise ConfigError(
                    f"task.{key} = {shorten(token, 40)} is no number of a token, from 0 to "
                    f"{LARGEST_TOKEN}"
                )
            return token
        known = self._tokenizer()
        if known is None:
            raise ConfigError(
                f"task.{key} = {token!r}: without data.tokenizer give the token's number"
            )
        number = known.number(token)
        if number is None:
            raise ConfigError(f"task.{key} = {token!r} is no token of {known.name}")
        return number

    def _tokenizer(self) -> Tokenizer | None:
        return open_table(self.tokenizer)

    @property
    def score_names(self) -> tuple[str, ...]:
        """Scores that are asked for, then those that cost nothing."""
        asked = [_score_name(name) for name in _listed(self.score)]
        return tuple(dict.fromkeys((*asked, *text_scores.CHEAP)))

    # ---------------------------------------------------------------------------------- answers

    def decode(self, outputs: Sequence[Any]) -> Answers:
        tokens, choices = (np.asarray(x) for x in outputs[:2])
        stop = self.make_wiring().stop
        is_text = (tokens >= 0) & ~np.isin(tokens, stop)
        lengths = is_text.sum(axis=1).astype(np.int64)
        return Answers({TOKENS: tokens[is_text]}, lengths, {CHOICES: choices})

    def signal(self, outputs: Sequence[Any]) -> NDArray[Any]:
        """Return square roots of the next tokens' probabilities along float's sequence.

        Their squared distance is the Hellinger distance, which near 0 is proportional to the
        Kullback–Leibler divergence and, unlike it, bounded.
        """
        roots = np.asarray(outputs[2], np.float32)
        return roots.reshape(len(roots), -1)

    def distance(self, reference: Answers, answers: Answers) -> NDArray[np.float64]:
        """Return the token error rate, at most 1."""
        return np.array([_error_rate(a, b) for a, b in _pairs(reference, answers)], np.float64)

    def figures(self, reference: Answers, answers: Answers) -> Mapping[str, NDArray[np.float64]]:
        """Return which sequences changed, and which next tokens along float's own sequence."""
        other = [float(not np.array_equal(a, b)) for a, b in _pairs(reference, answers)]
        want, got = (a.details[CHOICES] for a in (reference, answers))
        in_sequence = want >= 0
        share = ((want != got) & in_sequence).sum(axis=1) / np.maximum(in_sequence.sum(axis=1), 1)
        return {"sequences_changed": np.array(other), "next_tokens_changed": share}

    # ----------------------------------------------------------------------------------- scores

    def texts(self, answers: Answers) -> list[str]:
        """Return the generated texts; numbers of tokens where there is no tokenizer."""
        tokens = answers.values[TOKENS]
        return [self.text_of(tokens[span]) for span in spans(_lengths(answers))]

    def text_of(self, tokens: NDArray[Any]) -> str:
        return text_of(self._tokenizer(), tokens.tolist())

    def example(self, reference: Answers, answers: Answers) -> Json:
        return text_example(self.texts(reference)[0], self.texts(answers)[0])

    def scores(self, answers: Answers, labels: Any) -> Mapping[str, float]:
        return self.scorer(answers, labels)(None) if len(answers) else {}

    def scorer(
        self, answers: Answers, labels: Any
    ) -> Callable[[NDArray[np.int64] | None], Mapping[str, float]]:
        texts = [text_scores.fold_letters(text, self.fold) for text in self.texts(answers)]
        references = [
            [text_scores.fold_letters(str(x), self.fold) for x in np.atleast_1d(row)]
            for row in labels
        ]
        return text_scores.scorer(self.score_names, texts, references)


@dataclass(frozen=True, slots=True)
class NextToken:
    """One step of a generation: an answer is the most likely next token."""

    one_output: ClassVar[bool] = True
    changed: ClassVar[str] = "next tokens"
    signal_bytes: ClassVar[int] = 4 * SIGNAL_VALUES

    def decode(self, outputs: Sequence[Any]) -> Answers:
        return Answers({TOKENS: _last(outputs[0]).argmax(axis=1)})

    def distance(self, reference: Answers, answers: Answers) -> NDArray[np.float64]:
        other: NDArray[np.bool_] = reference.values[TOKENS] != answers.values[TOKENS]
        return other.astype(np.float64)

    def signal(self, outputs: Sequence[Any]) -> NDArray[Any]:
        rows = np.stack([softmax(row) for row in _last(outputs[0])])
        return sketch_probabilities(1)(rows).astype(np.float32)

    def scores(self, answers: Answers, labels: Any) -> Mapping[str, float]:
        return {}


def _last(logits: Any) -> NDArray[Any]:
    """Return the logits of the next token: [rows, vocabulary]."""
    scores = np.asarray(logits)
    return scores if scores.ndim == 2 else scores[:, -1]


def sketch_probabilities(max_length: int) -> Callable[[NDArray[Any]], NDArray[Any]]:
    """Return what reduces the probabilities at each position, so that a signal stays small."""
    width = max(1, SIGNAL_VALUES // max_length)
    return lambda rows: count_sketch(np.sqrt(rows), width=width)


def _pairs(reference: Answers, answers: Answers) -> list[tuple[NDArray[Any], NDArray[Any]]]:
    both = [[a.values[TOKENS][span] for span in spans(_lengths(a))] for a in (reference, answers)]
    return list(zip(*both, strict=True))


def _lengths(answers: Answers) -> NDArray[np.int64]:
    assert answers.lengths is not None
    return answers.lengths


def _error_rate(want: NDArray[Any], got: NDArray[Any]) -> float:
    if np.array_equal(want, got):
        return 0.0
    if not len(want):
        return 1.0
    return min(1.0, edit_distance(want.tolist(), got.tolist()) / len(want))


def _listed(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, list | tuple) else (value,)


def _score_name(name: Any) -> str:
    """Return a score's name, however it is capitalised."""
    by_name = {known.lower(): known for known in text_scores.NAMES}
    if not isinstance(name, str) or name.lower() not in by_name:
        suggestion = nearest(str(name).lower(), list(by_name))
        raise ConfigError(
            f"task.score = {name!r} is none of {', '.join(text_scores.NAMES)}{suggestion}"
        )
    return by_name[name.lower()]


def _check_tables(encoder: Mapping[str, Any], decoder: Mapping[str, Any]) -> None:
    output = decoder.get("output")
    if not isinstance(output, Mapping) or not isinstance(output.get("logits"), str):
        raise ConfigError(
            "[task.decoder.output] needs logits: the name of the output with the next token's "
            "logits"
        )
    words = {f"encoder.{k}": v for k, v in encoder.items()}
    words |= {f"decoder.{k}": v for k, v in decoder.items() if k != "output"}
    words |= {f"decoder.output.{k}": v for k, v in output.items()}
    for name, word in words.items():
        if not isinstance(word, str):
            raise ConfigError(f"task.{name} = {word!r} is no text")
        if name.startswith("decoder.output.") and name != "decoder.output.logits":
            raise ConfigError(f"unknown setting 'task.{name}'{nearest(name, ['logits'])}")
