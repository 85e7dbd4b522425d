"""Ragged answers: rows of samples are taken with all their items."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from seqto.tasks.answers import spans
from seqto.tasks.task import Answers


@given(st.lists(st.integers(0, 4), min_size=1, max_size=6), st.data())
def test_taken_samples_keep_their_items(lengths: list[int], data: st.DataObject) -> None:
    owners = np.repeat(np.arange(len(lengths)), lengths)
    items = np.arange(len(owners))
    found = Answers({"owner": owners, "item": items}, np.array(lengths))
    rows = data.draw(st.lists(st.integers(0, len(lengths) - 1), max_size=8))
    taken = found.take(np.array(rows, dtype=int))
    parts = spans(np.array(lengths))
    wanted = np.concatenate([items[:0], *(items[parts[row]] for row in rows)])
    assert taken.values["item"].tolist() == wanted.tolist()
    assert taken.lengths.tolist() == [lengths[row] for row in rows]


def test_plain_answers_are_taken_by_row() -> None:
    found = Answers({"mask": np.arange(12).reshape(3, 2, 2)}).take(np.array([2, 0]))
    assert found.values["mask"][:, 0, 0].tolist() == [8, 0]
    assert found.lengths is None
