"""Tokenizers: tokenizer.json and vocabulary files."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest

from seqto.data.token_inputs import input_arrays, input_contents, pad_values
from seqto.data.tokenizer import TokenizerSettings, open_tokenizer
from seqto.errors import ConfigError, DataError
from seqto.records import InputSpec
from text_files import VOCABULARY, tokenizer_json

pytest.importorskip("tokenizers")


def opened(path, **settings):
    return open_tokenizer(TokenizerSettings(str(path), **settings))


def numbers(text: str) -> list[int]:
    return [VOCABULARY[word] for word in text.split()]


def test_texts_become_numbers_and_texts_again(tmp_path):
    tokenizer = opened(tokenizer_json(tmp_path / "t.json"))
    found = tokenizer.encode("good film")
    assert found.ids.tolist() == numbers("[CLS] good film [SEP]")
    assert found.dropped == 0
    assert tokenizer.decode(found.ids) == "good film"
    assert tokenizer.decode(found.ids, special=True) == "[CLS] good film [SEP]"
    assert (tokenizer.number("film"), tokenizer.number("nothing")) == (VOCABULARY["film"], None)
    assert tokenizer.token(VOCABULARY["film"]) == "film"
    assert tokenizer.size == len(VOCABULARY)


def test_two_texts_are_one_sequence_with_types(tmp_path):
    tokenizer = opened(tokenizer_json(tmp_path / "t.json"))
    found = tokenizer.encode("good film", "bad")
    assert found.ids.tolist() == numbers("[CLS] good film [SEP] bad [SEP]")
    assert found.types.tolist() == [0, 0, 0, 0, 1, 1]


def test_a_text_that_is_cut_says_how_much(tmp_path):
    path = tokenizer_json(tmp_path / "t.json")
    found = opened(path, max_length=4).encode("a very long film")
    assert found.ids.tolist() == numbers("[CLS] a very [SEP]")
    assert found.dropped == 2
    assert opened(path).encode("a very long film").dropped == 0


def test_the_files_own_limit_holds_and_its_padding_does_not(tmp_path):
    path = tokenizer_json(tmp_path / "t.json", max_length=3, padding=True)
    assert opened(path).max_length == 3
    assert len(opened(path).encode("a")) == 3
    assert len(opened(path).encode("a very long film")) == 3
    assert len(opened(path, max_length=5).encode("a very long film")) == 5


def test_special_tokens_can_be_left_out(tmp_path):
    path = tokenizer_json(tmp_path / "t.json")
    assert opened(path, special=False).encode("good").ids.tolist() == numbers("good")


def test_vocabulary_files(tmp_path):
    vocab = tmp_path / "vocab.txt"
    vocab.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "good", "film", "##s"]))
    piece = open_tokenizer(TokenizerSettings(vocab=str(vocab), max_length=8))
    assert piece.encode("Good films").ids.tolist() == [2, 4, 5, 6, 3]
    assert piece.encode("Good", "films").types.tolist() == [0, 0, 0, 1, 1, 1]
    assert piece.decode([2, 4, 5, 6, 3]) == "good films"
    letters = tmp_path / "vocab.json"
    letters.write_text(json.dumps({"a": 0, "b": 1, "ab": 2, "\u0120": 3}))
    merges = tmp_path / "merges.txt"
    merges.write_text("#version: 0.2\na b\n")
    pair = open_tokenizer(TokenizerSettings(vocab=str(letters), merges=str(merges)))
    assert pair.encode("ab a").ids.tolist() == [2, 3, 0]
    assert pair.decode([2, 3, 0]) == "ab a"


def test_the_digest_follows_the_content(tmp_path):
    one = opened(tokenizer_json(tmp_path / "a.json"))
    same = opened(tokenizer_json(tmp_path / "b.json"))
    other = opened(tokenizer_json(tmp_path / "c.json", special=False))
    assert one.digest == same.digest != other.digest


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({}, "either file"),
        ({"file": "a", "vocab": "b"}, "either file"),
        ({"fil": "a"}, "did you mean 'file'"),
        ({"file": "a", "max_length": "8"}, "not a whole number"),
        ({"file": "a", "max_length": 0}, "at least 1"),
        ({"file": "a", "pad": True}, "not a whole number"),
        ({"file": 3}, "not a text"),
        ({"file": "a", "inputs": "x"}, "not a table"),
        ({"file": "a", "pad": -1}, "no number of a token"),
        ({"file": "a", "pad": 10**23}, "no number of a token"),
        ({"file": "a", "inputs": {"x": "maks"}}, "did you mean 'mask'"),
    ],
)
def test_settings_that_make_no_sense_are_refused(table, message):
    with pytest.raises(ConfigError, match=message):
        TokenizerSettings.from_table(table)


def test_files_that_are_no_tokenizers_are_refused(tmp_path):
    for content in ("{", "[]", '{"model": 3}', '{"model": {"type": "Strange"}}'):
        (tmp_path / "t.json").write_text(content)
        with pytest.raises(DataError, match=r"no tokenizer") as refused:
            opened(tmp_path / "t.json")
        assert "object has no attribute" not in str(refused.value)
    with pytest.raises(DataError, match="does not exist"):
        opened(tmp_path / "none.json")
    (tmp_path / "vocab.txt").write_text("a\nb\n")
    with pytest.raises(DataError, match=r"no token \[UNK\]"):
        open_tokenizer(TokenizerSettings(vocab=str(tmp_path / "vocab.txt")))


@pytest.mark.parametrize("truncation", [[1], "x", 3, ["Right", 8, "LongestFirst", 0]])
def test_a_truncation_that_is_no_table_is_refused(tmp_path, truncation):
    path = changed(tmp_path, truncation=truncation)
    with pytest.raises(DataError, match=r"t.json is no tokenizer .* no table"):
        opened(path)


def test_a_limit_that_the_library_cannot_take_is_refused(tmp_path):
    path = tokenizer_json(tmp_path / "t.json")
    with pytest.raises(DataError, match=r"max_length 1000000000000000000000 of t.json"):
        opened(path, max_length=10**21)


def test_a_tokenizer_whose_template_lacks_its_tokens_fails_as_others_do(tmp_path):
    # the library panics: in Python that is no Exception
    post_processor = json.loads(tokenizer_json(tmp_path / "t.json").read_text())["post_processor"]
    path = changed(tmp_path, post_processor={**post_processor, "special_tokens": {}})
    with pytest.raises(DataError, match="the tokenizer fails"):
        opened(path).encode("good")


@pytest.mark.parametrize("vocab", ['{"a": Infinity}', "[" * 100_000, '{"a": 1e999}', "null"])
def test_a_vocabulary_without_numbers_is_refused(tmp_path, vocab):
    (tmp_path / "vocab.json").write_text(vocab)
    (tmp_path / "merges.txt").write_text("a b\n")
    names = {n: str(tmp_path / f"{n}.{e}") for n, e in (("vocab", "json"), ("merges", "txt"))}
    with pytest.raises(DataError, match=r"no vocab.json"):
        open_tokenizer(TokenizerSettings(**names))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "t.json")
    with pytest.raises(DataError, match="no regular file"):
        opened(tmp_path / "t.json")


def test_a_name_that_no_file_can_have_is_refused():
    for name in ("", "a\0b", "a" * 5000):
        with pytest.raises(ConfigError, match=r"data.tokenizer"):
            open_tokenizer(TokenizerSettings(name))


def changed(folder, **values):
    """Return a tokenizer.json with other values."""
    path = tokenizer_json(folder / "t.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | values))
    return path


def specs(*names: str) -> tuple[InputSpec, ...]:
    return tuple(InputSpec(name, (None, None), "int64") for name in names)


def test_inputs_are_known_by_their_usual_names():
    settings = TokenizerSettings("t.json")
    found = input_contents(settings, specs("input_ids", "attention_mask", "token_type_ids"))
    assert found == {"input_ids": "ids", "attention_mask": "mask", "token_type_ids": "types"}
    assert input_contents(settings, specs("anything")) == {"anything": "ids"}
    assert input_contents(settings, ()) == {"ids": "ids"}
    with pytest.raises(ConfigError, match=r"input 'strange' of the model is not known"):
        input_contents(settings, specs("input_ids", "strange"))
    given = TokenizerSettings("t.json", inputs={"input": "ids"})
    with pytest.raises(ConfigError, match="did you mean 'inputs'"):
        input_contents(given, specs("inputs"))


def test_arrays_and_padding_of_each_input(tmp_path):
    contents = {n: n for n in ("ids", "mask", "padding", "types", "zeros", "ones", "positions")}
    encoded = opened(tokenizer_json(tmp_path / "t.json")).encode("good", "bad")
    arrays = input_arrays(encoded, contents, [InputSpec("mask", (None, None), "float32")])
    assert arrays["positions"].tolist() == [0, 1, 2, 3, 4]
    assert arrays["types"].tolist() == [0, 0, 0, 1, 1]
    assert arrays["mask"].dtype == np.float32
    assert not arrays["padding"].any()
    assert pad_values(contents, pad=9) == {
        "ids": 9,
        "mask": 0,
        "padding": 1,
        "types": 0,
        "zeros": 0,
        "ones": 1,
        "positions": 0,
    }
