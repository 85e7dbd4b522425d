"""The task of generated sequences."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bundles
from seqto import plugins
from seqto.devices.bundle import NO_TOKEN
from seqto.errors import ConfigError
from seqto.tasks.seq2seq import SIGNAL_VALUES, NextToken, Seq2Seq, sketch_probabilities
from seqto.tasks.task import portable_form, task_from_json
from seqto.testing import check_task

LENGTH = 6
DECODER = {"tokens": "tokens", "output": {"logits": "logits"}}


def task(**fields: Any) -> Seq2Seq:
    settings = {"decoder": DECODER, "start": 1, "stop": 2, "max_length": LENGTH}
    return Seq2Seq(**{**settings, **fields})


def outputs(*rows: list[int], choices: list[list[int]] | None = None) -> list[Any]:
    def padded(lists: Any) -> Any:
        return np.array([[*x, *[NO_TOKEN] * (LENGTH - len(x))] for x in lists], np.int64)

    signal = np.zeros((len(rows), LENGTH, 3), np.float32)
    return [padded(rows), padded(choices or rows), signal]


def distances(want: list[list[int]], got: list[list[int]]) -> list[float]:
    one = task()
    return one.distance(one.decode(outputs(*want)), one.decode(outputs(*got))).tolist()


def test_the_distance_is_the_token_error_rate() -> None:
    assert distances([[5, 6, 7, 8, 2]], [[5, 6, 7, 8, 2]]) == [0]
    assert distances([[5, 6, 7, 8, 2]], [[5, 6, 8, 2]]) == [0.25]
    assert distances([[5, 6, 7, 8, 2]], [[5, 9, 7, 8, 9, 2]]) == [0.5]


def test_a_distance_is_at_most_one() -> None:
    assert distances([[5, 2]], [[6, 7, 8, 9, 2]]) == [1]
    assert distances([[2]], [[2]]) == [0]
    assert distances([[2]], [[5, 2]]) == [1]
    assert distances([[5, 2]], [[2]]) == [1]


def test_the_stop_token_is_no_part_of_an_answer() -> None:
    """Cut at max_length and ended there are the same text."""
    assert distances([[5] * LENGTH], [[5] * (LENGTH - 1) + [2]]) == [pytest.approx(1 / LENGTH)]
    assert distances([[5, 5, 2]], [[5, 5]]) == [0]


def test_figures_count_sequences_and_next_tokens() -> None:
    one = task()
    want = one.decode(outputs([5, 6, 2], [7, 2]))
    got = one.decode(outputs([5, 6, 2], [8, 8, 2], choices=[[5, 6, 2], [8, 2]]))
    found = {name: values.tolist() for name, values in one.figures(want, got).items()}
    assert found == {"sequences_changed": [0, 1], "next_tokens_changed": [0, 0.5]}


def test_texts_are_decoded_and_scored(tmp_path: Path) -> None:
    table = {"file": str(bundles.write_tokenizer(tmp_path / "tokenizer.json"))}
    one = task(start="<s>", stop="</s>", score="cer", fold=("ab",)).for_tokenizer(table)
    assert (one.make_wiring().start, one.make_wiring().stop) == (1, (2,))
    answers = one.decode(outputs([*bundles.ids("cab"), 2], [*bundles.ids("ef"), 2]))
    assert one.texts(answers) == ["cab", "ef"]
    shown = one.example(answers.take(np.array([0])), answers.take(np.array([1])))
    assert (shown["float"], shown["candidate"]) == ("cab", "ef")
    labels = np.empty(2, dtype=object)
    labels[:] = [np.array(["x", "caa"]), np.array(["eg"])]
    scores = one.scores(answers, labels)
    assert list(scores) == ["CER", "exact", "WER"]
    assert scores == pytest.approx({"CER": 1 / 5, "exact": 0.5, "WER": 0.5})


def test_the_suite_of_tasks_holds() -> None:
    random = np.random.default_rng(0)
    rows = [[*random.integers(3, 9, random.integers(0, 5)).tolist(), 2] for _ in range(12)]
    made = outputs(*rows)
    made[2] = random.random(made[2].shape).astype(np.float32)
    check_task(task(), outputs=made, labels=np.array([["5 6"]] * 12))


def test_the_task_can_be_made_again_in_a_worker(tmp_path: Path) -> None:
    table = {"file": str(bundles.write_tokenizer(tmp_path / "tokenizer.json"))}
    one = task(stop=("</s>", 3), fold=("ab",), score=("bleu", "exact")).for_tokenizer(table)
    form = portable_form(one)
    assert form is not None
    assert task_from_json(form) == one
    assert one.make_wiring().stop == (2, 3)


@pytest.mark.parametrize(("length", "vocabulary"), [(32, 160), (64, 32_000), (40_000, 500)])
def test_a_signal_keeps_to_its_bound(length: int, vocabulary: int) -> None:
    random = np.random.default_rng(0)
    rows = random.random((2, vocabulary))
    reduced = sketch_probabilities(length)(rows)
    assert reduced.shape[1] <= max(1, SIGNAL_VALUES // length)
    if vocabulary * length <= SIGNAL_VALUES:
        assert np.allclose(reduced, np.sqrt(rows))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"stop": ()}, "task.stop is missing"),
        ({"min_length": 9}, "task.min_length = 9 must be between 0 and max_length, 6"),
        ({"search": "beam"}, "task.search = 'beam' is none of greedy"),
        ({"score": "blue"}, r"task.score = 'blue' is none of .*did you mean 'bleu'"),
        ({"decoder": {"tokens": "tokens"}}, r"\[task.decoder.output\] needs logits"),
        ({"decoder": {"tokens": 3, "output": {"logits": "x"}}}, "task.decoder.tokens = 3"),
        (
            {"decoder": {"output": {"logits": "x", "logit": "y"}}},
            "unknown setting 'task.decoder.output.logit'",
        ),
    ],
)
def test_settings_that_make_no_sense_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        task(**fields)


def test_a_token_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"without data.tokenizer give the token's number"):
        task(stop="</s>").make_wiring()
    table = {"file": str(bundles.write_tokenizer(tmp_path / "tokenizer.json"))}
    with pytest.raises(ConfigError, match=r"task.stop = '</t>' is no token of tokenizer.json"):
        task(stop="</t>").for_tokenizer(table).make_wiring()
    for number in (-3, 10**23):
        with pytest.raises(ConfigError, match=r"task.stop = .* is no number of a token"):
            task(stop=number).make_wiring()


def test_the_kind_is_known() -> None:
    assert plugins.find(plugins.TASKS, "seq2seq") is Seq2Seq


def test_the_task_of_one_step_holds() -> None:
    random = np.random.default_rng(0)
    for shape in ((12, 30), (12, 3, 30)):
        check_task(NextToken(), outputs=[random.standard_normal(shape).astype(np.float32)])
