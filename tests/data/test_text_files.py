"""Texts and pairs of texts as samples."""

from __future__ import annotations

import json

import numpy as np
import pytest

from seqto.data.data import SequenceData
from seqto.data.preprocess import UnreadableError
from seqto.data.texts import Pairs, Texts
from seqto.errors import ConfigError
from seqto.records import InputSpec
from text_files import VOCABULARY, tokenizer_json

pytest.importorskip("tokenizers")

SPECS = tuple(InputSpec(n, (None, None), "int64") for n in ("input_ids", "attention_mask"))


@pytest.fixture
def tokenizer(tmp_path):
    return {"file": str(tokenizer_json(tmp_path / "tokenizer.json")), "max_length": 6}


def write(folder, name, content):
    (folder / name).write_text(content)
    return folder / name


def numbers(text):
    return [VOCABULARY[word] for word in text.split()]


def test_texts_with_labels_by_number_and_by_name(tmp_path, tokenizer):
    path = write(tmp_path, "a.tsv", "good film\tpositive\nbad\t0\nthe plot\tso-so\n")
    data = Texts(path, ("text", "label"), tokenizer, specs=SPECS, classes=("negative", "positive"))
    assert isinstance(data, SequenceData)
    first, second = data.read(0), data.read(1)
    assert first.inputs["input_ids"].tolist() == numbers("[CLS] good film [SEP]")
    assert first.inputs["attention_mask"].tolist() == [1, 1, 1, 1]
    assert (first.label, second.label) == (1, 0)
    assert (first.texts, first.dropped) == (("good film",), 0)
    with pytest.raises(UnreadableError, match=r"'so-so' is no class number: none of negative"):
        data.read(2)
    assert data.sequences.masked
    assert data.sequences.pad == {"input_ids": 0, "attention_mask": 0}


@pytest.mark.parametrize("label", ["99999999999999999999", "1.5", "1e30", "1e999"])
def test_a_label_that_no_class_can_have_is_refused(tmp_path, tokenizer, label):
    data = Texts(
        write(tmp_path, "a.jsonl", f'{{"text": "bad", "label": {label}}}\n'),
        ("text", "label"),
        tokenizer,
        specs=SPECS,
    )
    with pytest.raises(UnreadableError, match="is no class number"):
        data.read(0)


def test_what_does_not_fit_is_counted(tmp_path, tokenizer):
    path = write(tmp_path, "a.txt", "a very long film was the plot\n")
    assert Texts(path, tokenizer=tokenizer, specs=SPECS[:1]).read(0).dropped == 3
    assert not Texts(path, tokenizer=tokenizer, specs=SPECS[:1]).sequences.masked


def test_two_texts_in_one_sequence(tmp_path, tokenizer):
    row = {"premise": "good film", "hypothesis": "bad", "gold": 2}
    path = write(tmp_path, "a.jsonl", json.dumps(row))
    columns = {"text": "premise", "text_pair": "hypothesis", "label": "gold"}
    sample = Texts(path, columns, tokenizer, specs=SPECS).read(0)
    assert sample.inputs["input_ids"].tolist() == numbers("[CLS] good film [SEP] bad [SEP]")
    assert (sample.label, sample.others) == (2, ())
    assert sample.texts == ("good film", "bad")


def test_pairs_are_two_sequences_and_a_score(tmp_path, tokenizer):
    path = write(tmp_path, "a.tsv", "good\tvery good\t4.5\n")
    data = Pairs(path, ("left", "right", "score"), tokenizer, specs=SPECS)
    sample = data.read(0)
    assert sample.inputs["input_ids"].tolist() == numbers("[CLS] good [SEP]")
    assert sample.others[0]["input_ids"].tolist() == numbers("[CLS] very good [SEP]")
    assert float(np.asarray(sample.label)) == 4.5
    assert data.sequences.per_sample == 2


def test_sources_with_references(tmp_path, tokenizer):
    path = write(tmp_path, "a.tsv", "good film\tein Film|der Film\n")
    data = Pairs(path, ("source", "references"), tokenizer)
    sample = data.read(0)
    assert sample.inputs["ids"].tolist() == numbers("[CLS] good film [SEP]")
    assert np.asarray(sample.label).tolist() == ["ein Film", "der Film"]
    assert data.sequences.per_sample == 1
    one = write(tmp_path, "b.tsv", "good film\tein Film|der Film\n")
    target = Pairs(one, ("source", "target"), tokenizer).read(0)
    assert np.asarray(target.label).tolist() == ["ein Film|der Film"]
    listed = write(tmp_path, "c.jsonl", '{"source": "a", "references": ["x", "y|z"]}')
    assert np.asarray(
        Pairs(listed, ("source", "references"), tokenizer).read(0).label
    ).tolist() == [
        "x",
        "y|z",
    ]


def test_the_identity_follows_text_tokenizer_and_columns(tmp_path, tokenizer):
    path = write(tmp_path, "a.tsv", "good\t1\n")
    one = Texts(path, ("text", "label"), tokenizer).identity()
    assert one == Texts(path, ("text", "label"), tokenizer).identity()
    assert one != Texts(path, ("text", "_"), tokenizer).identity()
    assert one != Texts(path, ("text", "label"), {**tokenizer, "max_length": 5}).identity()
    write(tmp_path, "a.tsv", "good\t0\n")
    assert one != Texts(path, ("text", "label"), tokenizer).identity()


@pytest.mark.parametrize(
    ("kind", "columns", "message"),
    [
        (Texts, ("label",), "lacks 'text'"),
        (Texts, ("text", "score"), "does not take"),
        (Pairs, ("left", "score"), "lacks 'right'"),
        (Pairs, ("source", "score"), "does not take"),
    ],
)
def test_columns_that_do_not_fit_the_kind_are_refused(tmp_path, tokenizer, kind, columns, message):
    path = write(tmp_path, "a.tsv", "a\tb\n")
    with pytest.raises(ConfigError, match=message):
        kind(path, columns, tokenizer)
