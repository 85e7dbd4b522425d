from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from seqto.errors import PlanError
from seqto.schemes.block_rounding import BlockForm, Blocks, round_blocks

FORMS = [BlockForm(4, 32), BlockForm(4, 32, zero_points=True), BlockForm(4, 64), BlockForm(8, 32)]


def inputs(seed: int, count: int, columns: int) -> NDArray[np.float64]:
    """Return correlated channels, some of them ten times as loud as the others."""
    rng = np.random.default_rng(seed)
    mixing = np.random.default_rng(7).normal(size=(columns, columns)) / np.sqrt(columns)
    loud = np.where(np.arange(columns) % 17 == 0, 10.0, 1.0)
    return np.asarray(rng.normal(size=(count, columns)) @ mixing * loud)


def halves(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.stack([x[::2].T @ x[::2], x[1::2].T @ x[1::2]])


def error(rows: NDArray[Any], blocks: Blocks, x: NDArray[np.float64]) -> float:
    return float(((x @ (rows - blocks.restore()).T) ** 2).sum())


@pytest.mark.parametrize("form", FORMS, ids=lambda f: f.name)
def test_passing_errors_on_beats_nearest_on_unseen_inputs(form: BlockForm) -> None:
    rows = np.random.default_rng(0).normal(size=(24, 96)).astype(np.float32)
    seen, unseen = inputs(1, 800, 96), inputs(2, 400, 96)
    ours = round_blocks(rows, halves(seen), form)
    plain = round_blocks(rows, None, form)
    assert error(rows, ours, unseen) < 0.7 * error(rows, plain, unseen)
    assert ours.data.min() >= form.low
    assert ours.data.max() <= form.high


def test_a_zero_point_pays_where_weights_lie_on_one_side() -> None:
    rows = np.abs(np.random.default_rng(0).normal(size=(8, 64))).astype(np.float32)
    around, with_zero = (
        round_blocks(rows, None, BlockForm(4, 32, zero_points=z)) for z in (False, True)
    )
    gaps = [np.square(rows - b.restore()).sum() for b in (around, with_zero)]
    assert gaps[1] < 0.5 * gaps[0]


def test_a_block_with_one_large_weight_is_clipped_where_its_input_is_quiet() -> None:
    rows = np.full((1, 32), 0.1, np.float32) * np.linspace(-1, 1, 32, dtype=np.float32)
    rows[0, 5] = 1.0
    x = np.random.default_rng(0).normal(size=(400, 32))
    x[:, 5] *= 0.01
    blocks = round_blocks(rows, halves(x), BlockForm(4, 32))
    assert blocks.scale[0, 0] < 1.0 / 7


@given(
    st.integers(1, 5), st.integers(1, 70), st.sampled_from(FORMS), st.floats(1e-8, 1e4), st.data()
)
@settings(max_examples=30, deadline=None)
def test_no_weight_is_off_by_more_than_its_block_allows(
    outputs: int, columns: int, form: BlockForm, size: float, data: st.DataObject
) -> None:
    """Whatever is clipped, no error exceeds the block's full range over the number of levels,
    and the share that may be clipped away."""
    seed = data.draw(st.integers(0, 1000))
    rows = (np.random.default_rng(seed).normal(size=(outputs, columns)) * size).astype(np.float32)
    blocks = round_blocks(rows, None, form)
    assert blocks.scale.shape == (outputs, -(-columns // form.size))
    assert (blocks.scale > 0).all()
    gap = np.abs(rows - blocks.restore()).max()
    full = np.abs(rows).max()
    assert gap <= 0.41 * full + 2 * full / (form.high - form.low)


def test_dead_blocks_are_zeros_with_a_harmless_scale() -> None:
    blocks = round_blocks(np.zeros((2, 40), np.float32), None, BlockForm(4, 32))
    assert not blocks.restore().any()
    assert (blocks.scale == 1).all()


def test_scales_are_kept_by_half_precision() -> None:
    rows = np.random.default_rng(0).normal(size=(4, 64)).astype(np.float32)
    scale = round_blocks(rows, None, BlockForm(4, 32)).scale
    np.testing.assert_array_equal(scale, scale.astype(np.float16).astype(np.float32))


def test_names_are_read_back() -> None:
    for form in FORMS:
        assert BlockForm.parse(form.name) == form
    assert BlockForm.parse("s8") is None
    with pytest.raises(PlanError, match="power of two"):
        BlockForm(4, 33)
