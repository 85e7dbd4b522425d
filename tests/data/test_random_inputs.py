"""The data-free mode."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from seqto.data.data import Data
from seqto.data.random_inputs import RandomInputs
from seqto.data.store import SampleStore
from seqto.errors import DataError
from seqto.records import InputSpec

SPECS = (
    InputSpec("x", (None, 3, None, 16)),
    InputSpec("ids", (None, None), "int64"),
    InputSpec("half", (1, 2), "float16"),
    InputSpec("pixels", (1, 500), "uint8"),
)


def test_random_inputs_fit_the_model_and_are_marked(tmp_path: Path) -> None:
    data = RandomInputs(4, 0, SPECS)
    assert isinstance(data, Data)
    assert data.identity()["kind"] == "random"
    store = SampleStore.build(data, tmp_path, splits={"evaluation": [2, 0]}, inputs=SPECS)
    batch = store.batch("evaluation", 0, 2)
    assert [batch[s.name].shape for s in SPECS] == [(2, 3, 224, 16), (2, 32), (2, 2), (2, 500)]
    assert [str(batch[s.name].dtype) for s in SPECS] == [s.dtype for s in SPECS]
    assert set(np.unique(batch["ids"])) == {0, 1}
    assert batch["pixels"].max() > 1
    assert abs(float(batch["x"].std()) - 1) < 0.05


def test_a_sample_depends_on_seed_and_index_alone() -> None:
    one, other = RandomInputs(9, 5, SPECS), RandomInputs(3, 5, SPECS)
    one.read(0)
    np.testing.assert_array_equal(one.read(2).inputs["x"], other.read(2).inputs["x"])
    assert not np.array_equal(one.read(2).inputs["x"], one.read(3).inputs["x"])
    assert not np.array_equal(
        one.read(2).inputs["x"], RandomInputs(9, 6, SPECS).read(2).inputs["x"]
    )


def test_open_axes_can_be_set() -> None:
    assert RandomInputs(1, 0, SPECS, 8).read(0).inputs["x"].shape == (3, 8, 16)


def test_what_cannot_be_drawn_is_refused() -> None:
    with pytest.raises(DataError, match="at least 1"):
        RandomInputs(0, 0, SPECS)
    with pytest.raises(DataError, match="give real data"):
        RandomInputs(1, 0, (InputSpec("text", (None, 1), "U8"),)).read(0)


def test_more_samples_than_a_length_can_say_are_refused() -> None:
    with pytest.raises(DataError, match="random samples"):
        RandomInputs(99999999999999999999, 0, ())


@pytest.mark.parametrize("sides", [(2**62,), (10**18,), (2**31, 2**31), (10**6, 10**6, 10)])
@pytest.mark.parametrize("dtype", ["float32", "int64", "uint8"])
def test_an_input_that_no_memory_holds_is_refused(sides: tuple[int, ...], dtype: str) -> None:
    data = RandomInputs(1, 0, (InputSpec("x", (None, *sides), dtype),))
    with pytest.raises(DataError, match=r"input 'x' .* more than this machine's memory"):
        data.read(0)
