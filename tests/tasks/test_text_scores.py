"""Scores of texts: against sacrebleu, and by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqto.errors import ConfigError
from seqto.tasks import text_scores
from seqto.tasks.edit_distance import edit_distance

TEXTS = [
    "the cat sat on the mat",
    "a quick brown fox jumps over the lazy dog .",
    "he did not come",
    "",
    "Hello, world!",
]
REFERENCES = [
    ["the cat sat on a mat", "a cat was on the mat"],
    ["the quick brown fox jumps over the lazy dog."],
    ["he didn't come", "he did not come", "he never came"],
    ["nothing"],
    ["Hello world!"],
]


def naive(a: str, b: str) -> int:
    table = [[i + j for j in range(len(b) + 1)] for i in range(len(a) + 1)]
    for i in range(1, len(a) + 1):
        for j in range(1, len(b) + 1):
            table[i][j] = min(
                table[i - 1][j] + 1,
                table[i][j - 1] + 1,
                table[i - 1][j - 1] + (a[i - 1] != b[j - 1]),
            )
    return table[-1][-1]


@given(st.text("abc", max_size=12), st.text("abc", max_size=12))
def test_the_edit_distance_is_that_of_the_whole_table(a: str, b: str) -> None:
    assert edit_distance(a, b) == naive(a, b)


def test_words_have_a_distance_too() -> None:
    assert edit_distance(["a", "b", "c"], ["a", "x", "c", "d"]) == 2
    assert edit_distance([], [1, 2, 3]) == 3


@pytest.mark.parametrize("name", ["BLEU", "chrF"])
def test_scores_are_those_of_sacrebleu(name: str) -> None:
    sacrebleu = pytest.importorskip("sacrebleu")
    most = max(map(len, REFERENCES))
    streams = [[r[i] if i < len(r) else None for r in REFERENCES] for i in range(most)]
    official = {"BLEU": sacrebleu.corpus_bleu, "chrF": sacrebleu.corpus_chrf}[name]
    scores = text_scores.scorer([name], TEXTS, REFERENCES)
    assert scores(None)[name] == pytest.approx(official(TEXTS, streams).score, abs=1e-12)
    # some rows, one of them twice, as a bootstrap asks for them
    rows = [1, 2, 2, 4]
    some = official([TEXTS[i] for i in rows], [[s[i] for i in rows] for s in streams])
    assert scores(np.array(rows))[name] == pytest.approx(some.score, abs=1e-12)


def test_exact_and_error_rates_by_hand() -> None:
    texts = ["abc", "ab cd", "x"]
    references = [["abd", "abc"], ["ab ce"], ["xy", "long one"]]
    scores = text_scores.scorer(["exact", "CER", "WER"], texts, references)
    # characters: 0 of 3, 1 of 5, 1 of 2; words: 0 of 1, 1 of 2, 1 of 1
    assert scores(None) == pytest.approx({"exact": 1 / 3, "CER": 2 / 10, "WER": 2 / 4})
    assert scores(np.array([1, 1])) == pytest.approx({"exact": 0, "CER": 2 / 10, "WER": 2 / 4})


def test_an_empty_reference() -> None:
    scores = text_scores.scorer(["CER"], ["", "a"], [[""], [""]])
    assert scores(np.array([0])) == {"CER": 0.0}
    assert scores(np.array([1])) == {"CER": 1.0}


def test_letters_of_a_group_are_one() -> None:
    folded = ["أا", "إا", "xyz"]
    assert text_scores.fold_letters("أإا", folded) == "ااا"
    assert text_scores.fold_letters("xay", folded) == "zaz"


def test_error_rates_are_better_when_lower() -> None:
    kinds = text_scores.SCORE_KINDS
    assert kinds["CER"].drop(0.1, 0.3) == pytest.approx(0.2)
    assert not kinds["BLEU"].lower_is_better
    assert not kinds["BLEU"].share


def test_without_sacrebleu_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "sacrebleu.metrics", None)
    with pytest.raises(ConfigError, match=r"pip install 'seqto\[text\]'"):
        text_scores.open_metric("BLEU")
