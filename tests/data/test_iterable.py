"""Any Python iterable."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seqto.data.iterable import FromIterable
from seqto.data.store import SampleStore
from seqto.errors import DataError
from seqto.records import InputSpec


class Lazy:
    """A dataset that counts what is read from it; row 3 fails."""

    def __init__(self, count: int) -> None:
        self.count, self.reads = count, 0

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        self.reads += 1
        if index == 3:
            raise RuntimeError("no such cloud")
        return np.full((2,), index, np.float32), index


@pytest.mark.parametrize(
    "item", [[1.0, 2.0], ([1.0, 2.0], 7), {"x": [1.0, 2.0]}, ({"x": [1.0, 2.0]}, np.int64(7))]
)
def test_items_are_arrays_or_dicts_with_or_without_label(tmp_path: Path, item: Any) -> None:
    data = FromIterable(iter([item, item]))
    store = SampleStore.build(
        data, tmp_path, splits={"evaluation": [0, 1]}, inputs=[InputSpec("x", (None, 2))]
    )
    assert store.batch("evaluation", 0, 9)["x"].tolist() == [[1.0, 2.0]] * 2
    labels = store.labels("evaluation")
    assert (None if labels is None else labels.tolist()) == (
        [7, 7] if isinstance(item, tuple) else None
    )


def test_what_can_be_indexed_is_read_when_needed() -> None:
    source = Lazy(1000)
    data = FromIterable(source)
    assert (len(data), source.reads) == (1000, 0)
    assert data.read(5).label == 5
    data.identity()
    assert source.reads < 20


def test_an_item_that_raises_is_an_unreadable_sample(tmp_path: Path) -> None:
    store = SampleStore.build(
        FromIterable(Lazy(30)),
        tmp_path,
        splits={"evaluation": list(range(30))},
        inputs=[InputSpec("x", (None, 2))],
    )
    assert store.unreadable == ("item-3",)
    with pytest.raises(DataError, match="RuntimeError: no such cloud"):
        FromIterable(Lazy(30)).read(3)


def test_a_generator_that_raises_is_a_data_error() -> None:
    def failing() -> Iterator[Any]:
        yield [1.0]
        raise ValueError("stream ended")

    with pytest.raises(DataError, match="ValueError: stream ended"):
        FromIterable(failing())


@pytest.mark.parametrize("items", [[], "text", {"x": 1}])
def test_what_holds_no_samples_is_refused(items: Any) -> None:
    with pytest.raises(DataError):
        FromIterable(items)


def test_identity_changes_with_the_items() -> None:
    seen = [FromIterable([[float(i)], [2.0]]).identity()["digest"] for i in (0, 1, 0)]
    assert seen[0] == seen[2] != seen[1]


def test_labels_are_kept_as_they_come(tmp_path: Path) -> None:
    x = np.zeros((3, 2), np.float32)

    def labels(given: list[Any]) -> Any:
        data = FromIterable(list(zip(x, given, strict=True)))
        spec = InputSpec("x", (None, 2))
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        store = SampleStore.build(data, folder, splits={"evaluation": [0, 1, 2]}, inputs=[spec])
        return store.labels("evaluation")

    assert labels([3, 1, 2]).dtype == np.int64
    masks = labels([np.eye(2) * i for i in range(3)])
    np.testing.assert_array_equal(masks[2], np.eye(2) * 2)
    ragged = labels([[1, 2], [3], np.zeros((0,))])
    assert [row.tolist() for row in ragged] == [[1, 2], [3], []]
    assert labels([[1, 2], None, [3]]) is None
