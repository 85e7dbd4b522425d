"""Texts with labels, and pairs of texts, from files with columns.

    [data] texts = "reviews.tsv"    columns = ["text", "label"]
    [data] pairs = "stsb.tsv"       columns = ["left", "right", "score"]
    [data] pairs = "names.tsv"      columns = ["source", "references"]

A sample of `texts` is one sequence (of two texts, where there is a column `text_pair`). A sample
of `pairs` with left and right is two sequences, which are run one by one. With source and
references, or target, it is the source; the label holds the texts that are right.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from seqto.data.data import Sequences
from seqto.data.labels import is_class_number
from seqto.data.preprocess import UnreadableError
from seqto.data.tables import (
    LABEL,
    LEFT,
    REFERENCES,
    RIGHT,
    SCORE,
    SOURCE,
    TARGET,
    TEXT,
    TEXT_PAIR,
    Columns,
    Table,
    open_table,
)
from seqto.data.token_inputs import input_arrays, input_contents, pad_values
from seqto.data.tokenizer import (
    EMPTY,
    IDS,
    MASK,
    PADDING,
    Tokenizer,
    TokenizerSettings,
    open_tokenizer,
)
from seqto.errors import ConfigError, nearest
from seqto.records import InputSpec, Json, Sample
from seqto.text import shorten

if TYPE_CHECKING:
    from seqto.records import Label

SHOWN = 60  # characters of a text in the name of its sample
SEPARATOR = "|"  # of several references in one cell
# what these settings say is in the data's identity, which a resumed run compares
RESUME = {"resume": True}


@dataclass(frozen=True, slots=True)
class TextReader:
    """Rows of a table → samples: tokens by model input, and a label."""

    table: Table
    roles: tuple[str, ...]
    tokenizer: Tokenizer
    contents: Mapping[str, str]  # model input → what goes in
    pad: int
    specs: tuple[InputSpec, ...] = ()
    classes: tuple[str, ...] = ()  # names of classes, in the order of their numbers

    @classmethod
    def of(
        cls,
        table: Table,
        columns: Columns,
        tokenizer: Mapping[str, Any],
        *,
        specs: Sequence[InputSpec],
        classes: Sequence[str] = (),
    ) -> TextReader:
        settings = TokenizerSettings.from_table(tokenizer)
        opened = open_tokenizer(settings)
        contents = input_contents(settings, specs)
        pad = settings.pad or 0
        return cls(table, tuple(columns), opened, contents, pad, tuple(specs), tuple(classes))

    @property
    def text_roles(self) -> tuple[str, ...]:
        """Columns whose texts are sequences of their own."""
        return tuple(role for role in (TEXT, SOURCE, LEFT, RIGHT) if role in self.roles)

    @property
    def sequences(self) -> Sequences:
        return Sequences(
            ids=next(name for name, content in self.contents.items() if content == IDS),
            pad=pad_values(self.contents, pad=self.pad),
            masked=any(content in (MASK, PADDING) for content in self.contents.values()),
            per_sample=len(self.text_roles),
            max_length=self.tokenizer.max_length,
            empty=tuple(name for name, content in self.contents.items() if content == EMPTY),
        )

    def read(self, index: int) -> Sample:
        name = f"row-{index}"
        row = self.table.row(index)
        texts = [text_of(row, role, name=name) for role in self.text_roles]
        second = text_of(row, TEXT_PAIR, name=name) if TEXT_PAIR in row else None
        inputs, dropped = [], 0
        for text in texts:
            encoded = self.tokenizer.encode(text, second)
            if not len(encoded):
                raise UnreadableError(name, "the text has no tokens")
            dropped += encoded.dropped
            inputs.append(input_arrays(encoded, self.contents, self.specs))
        shown = (*texts, *([] if second is None else [second]))
        return Sample(
            inputs[0],
            label_of(row, self.classes, name=name),
            f"{name}: {shorten(texts[0], SHOWN)}",
            others=tuple(inputs[1:]),
            texts=shown,
            dropped=dropped,
        )

    def identity(self) -> Json:
        return {
            "count": len(self.table),
            "digest": self.table.digest,
            "columns": list(self.roles),
            "tokenizer": self.tokenizer.identity(),
            "inputs": dict(self.contents),
            "pad": self.pad,
            "classes": list(self.classes),
        }


class ReadTexts:
    """Samples of a source whose rows its `reader` turns into tokens."""

    __slots__ = ()
    reader: TextReader  # a field of the sources

    def __len__(self) -> int:
        return len(self.reader.table)

    def read(self, index: int) -> Sample:
        return self.reader.read(index)

    @property
    def sequences(self) -> Sequences:
        return self.reader.sequences


@dataclass(frozen=True, slots=True)
class Texts(ReadTexts):
    """A file of texts, one sequence a sample; columns text, text_pair, label."""

    texts: Path | str
    columns: tuple[str, ...] | dict[str, Any] = field(default=(TEXT,), metadata=RESUME)
    tokenizer: dict[str, Any] = field(default_factory=dict, metadata=RESUME)
    header: bool | None = None
    format: str | None = None
    specs: tuple[InputSpec, ...] = ()
    classes: tuple[str, ...] = ()
    reader: TextReader = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_roles(self.columns, needed=(TEXT,), taken=(TEXT, TEXT_PAIR, LABEL), kind="texts")
        table = open_table(self.texts, self.columns, header=self.header, form=self.format)
        reader = TextReader.of(
            table, self.columns, self.tokenizer, specs=self.specs, classes=self.classes
        )
        object.__setattr__(self, "reader", reader)

    def identity(self) -> Json:
        return {"kind": "texts", "file": Path(self.texts).name, **self.reader.identity()}


@dataclass(frozen=True, slots=True)
class Pairs(ReadTexts):
    """A file of pairs: left, right and a score, or a source and the texts that are right."""

    pairs: Path | str
    columns: tuple[str, ...] | dict[str, Any] = field(default=(LEFT, RIGHT), metadata=RESUME)
    tokenizer: dict[str, Any] = field(default_factory=dict, metadata=RESUME)
    header: bool | None = None
    format: str | None = None
    specs: tuple[InputSpec, ...] = ()
    reader: TextReader = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        needed = (SOURCE,) if SOURCE in self.columns else (LEFT, RIGHT)
        taken = (SOURCE, TARGET, REFERENCES) if SOURCE in self.columns else (LEFT, RIGHT, SCORE)
        check_roles(self.columns, needed=needed, taken=taken, kind="pairs")
        table = open_table(self.pairs, self.columns, header=self.header, form=self.format)
        reader = TextReader.of(table, self.columns, self.tokenizer, specs=self.specs)
        object.__setattr__(self, "reader", reader)

    def identity(self) -> Json:
        return {"kind": "pairs", "file": Path(self.pairs).name, **self.reader.identity()}


def check_roles(
    columns: Columns, *, needed: Sequence[str], taken: Sequence[str], kind: str
) -> None:
    """Refuse columns that a kind of data does not take, and the lack of those it needs."""
    for role in columns:
        if role not in (*taken, "_"):
            raise ConfigError(
                f"data.columns names {role!r}, which data.{kind} with {', '.join(needed)} does not "
                f"take{nearest(str(role), list(taken))}: it takes {', '.join(taken)}"
            )
    for role in needed:
        if role not in columns:
            raise ConfigError(f"data.columns of data.{kind} lacks {role!r}: it has {list(columns)}")


# ----------------------------------------------------------------------------------------- values


def text_of(row: Mapping[str, Any], role: str, *, name: str) -> str:
    value = row[role]
    if not isinstance(value, str):
        raise UnreadableError(name, f"{role} is {type(value).__name__}, not a text")
    return value


def label_of(row: Mapping[str, Any], classes: Sequence[str], *, name: str) -> Label | None:
    """Return the label of a row: a class number, a score, or the texts that are right."""
    if LABEL in row:
        return class_number(row[LABEL], classes, name=name)
    if SCORE in row:
        return np.array(_number(row[SCORE], SCORE, name=name))
    if REFERENCES in row:
        references = row[REFERENCES]
        listed = references.split(SEPARATOR) if isinstance(references, str) else references
        if not isinstance(listed, list | tuple) or not all(isinstance(x, str) for x in listed):
            raise UnreadableError(name, "references are no text and no list of texts")
        if not listed:
            raise UnreadableError(name, "has no reference")
        return np.array(listed, dtype=np.str_)
    if TARGET in row:
        return np.array([text_of(row, TARGET, name=name)], dtype=np.str_)
    return None


def class_number(value: Any, classes: Sequence[str], *, name: str) -> int:
    """Return the number of a class, given as that or by its name among the task's labels."""
    if isinstance(value, str) and value in classes:
        return list(classes).index(value)
    number = value
    if isinstance(value, str):
        try:
            number = int(value)
        except ValueError as error:
            hint = f"none of {', '.join(classes[:8])}" if classes else "set task.labels"
            raise UnreadableError(name, f"label {value!r} is no class number: {hint}") from error
    if isinstance(number, float) and number.is_integer():
        number = int(number)
    if isinstance(number, bool) or not isinstance(number, int) or not is_class_number(number):
        raise UnreadableError(name, f"label {value!r} is no class number")
    if classes and not 0 <= number < len(classes):
        raise UnreadableError(
            name, f"label {number} is no position in task.labels, which has {len(classes)}"
        )
    return number


def _number(value: Any, role: str, *, name: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise UnreadableError(name, f"{role} {value!r} is no number") from error
    if not math.isfinite(number):
        raise UnreadableError(name, f"{role} {value!r} is not finite")
    return number
