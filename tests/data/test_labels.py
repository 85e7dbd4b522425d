"""Labels as the data give them: numbers, arrays of one shape, arrays of different shapes, texts."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from seqto.data.iterable import FromIterable
from seqto.data.labels import as_label, joined, pack, unpack
from seqto.data.store import SampleStore
from seqto.errors import DataError
from seqto.records import InputSpec


@pytest.mark.parametrize(
    ("value", "label"), [(3, 3), (np.int64(4), 4), (np.array(5), 5), (2.0, 2), ("7", 7), (True, 1)]
)
def test_one_whole_number_is_a_class_number(value: Any, label: int) -> None:
    assert as_label(value) == label
    assert isinstance(as_label(value), int)


@pytest.mark.parametrize(
    "value",
    [0.5, "a text", [1, 2], np.zeros((2, 4)), np.nan, 1e30, "9" * 30, np.uint64(2**64 - 1)],
)
def test_anything_else_is_an_array(value: Any) -> None:
    assert isinstance(as_label(value), np.ndarray)


def test_an_object_is_no_label() -> None:
    with pytest.raises(DataError, match="dict"):
        as_label({"boxes": 3})


@pytest.mark.parametrize("value", [2**63, -(2**63), 10**400])
def test_a_number_beyond_64_bits_is_no_class(value: int) -> None:
    with pytest.raises(DataError, match=r"the label .{,41} is too large"):
        as_label(value)


@given(
    st.lists(
        st.none()
        | arrays.arrays(
            np.float32,
            arrays.array_shapes(max_dims=3, max_side=3),
            elements=st.floats(-9, 9, width=32),
        ),
        min_size=1,
    )
)
def test_packed_labels_are_unpacked_as_they_were(labels: list[Any]) -> None:
    shapes, content = pack(labels)
    if content is None:
        assert shapes == labels
        return
    back = unpack(shapes, np.load(io.BytesIO(content), allow_pickle=False))
    for want, got in zip(labels, back, strict=True):
        assert (want is None) == (got is None)
        if want is not None:
            np.testing.assert_array_equal(want, got)


def test_labels_of_one_shape_are_one_array() -> None:
    found = joined([np.zeros((2, 4)), np.ones((2, 4))])
    assert found is not None
    assert found.shape == (2, 2, 4)


def test_rows_can_be_chosen_from_labels_of_different_shapes() -> None:
    found = joined([np.zeros((1, 4)), np.ones((3, 4)), np.ones((0, 4))])
    assert found is not None
    assert [x.shape for x in found[np.array([2, 0])]] == [(0, 4), (1, 4)]


def test_a_store_keeps_labels_of_any_shape(tmp_path: Path) -> None:
    boxes = [np.full((i + 1, 4), i, np.float32) for i in range(6)]
    data = FromIterable([(np.zeros(3, np.float32), boxes[i]) for i in range(6)])
    store = SampleStore.build(
        data,
        tmp_path,
        splits={"calibration": [5, 1], "evaluation": [0, 2, 4]},
        inputs=[InputSpec("x", (None, 3), "float32")],
    )
    for opened in (store, SampleStore.open(tmp_path)):
        labels = opened.labels("evaluation")
        assert labels is not None
        for want, got in zip((0, 2, 4), labels, strict=True):
            np.testing.assert_array_equal(got, boxes[want])


def test_other_labels_make_another_store(tmp_path: Path) -> None:
    def build(scale: float) -> str:
        items = [(np.zeros(3, np.float32), np.full(2000, scale * i)) for i in range(4)]
        splits = {"calibration": [0, 1, 2, 3]}
        inputs = [InputSpec("x", (None, 3), "float32")]
        return SampleStore.build(
            FromIterable(items), tmp_path, splits=splits, inputs=inputs
        ).identity

    assert build(0.5) != build(0.25)
