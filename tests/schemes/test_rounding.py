from __future__ import annotations

import numpy as np

from seqto.records import Layer
from seqto.schemes.half_precision import fits_half, with_half_scales
from seqto.schemes.integers import Quantized, quantize, rescaled, unsigned
from seqto.schemes.output_rounding import Rounder
from seqto.schemes.types import S4, S8

LAYER = Layer("l", "Conv", ("l",), ("x",), "y", 1, weight="w")


def output_error(weight: np.ndarray, q: Quantized, rows: np.ndarray) -> float:  # type: ignore[type-arg]
    gap = (weight - q.restore()).reshape(len(weight), -1)
    return float(((rows @ gap.T) ** 2).sum())


def test_rounding_for_the_output_beats_nearest_on_unseen_inputs() -> None:
    rng = np.random.default_rng(0)
    mixing = rng.normal(size=(32, 32))
    seen, unseen = (rng.normal(size=(400, 32)) @ mixing for _ in range(2))
    weight = rng.normal(size=(16, 32, 1, 1)).astype(np.float32)
    halves = np.stack([seen[::2].T @ seen[::2], seen[1::2].T @ seen[1::2]])
    ours = Rounder(LAYER, weight, halves, axis=0).round(S4)[S4]
    plain = quantize(weight, S4, axis=0)
    assert output_error(weight, ours, unseen) < 0.6 * output_error(weight, plain, unseen)
    assert np.abs(ours.data).max() <= 7


def test_unsigned_weights_are_the_signed_ones_moved_up() -> None:
    rng = np.random.default_rng(3)
    weight = rng.normal(size=(4, 9)).astype(np.float32)
    signed = Rounder(LAYER, weight, np.stack([np.eye(9), np.eye(9)]), axis=0).round(S8)[S8]
    moved = unsigned(signed)
    assert moved.data.dtype == moved.zero_point.dtype == np.uint8
    np.testing.assert_array_equal(moved.restore(), signed.restore())


def test_where_nothing_helps_the_nearest_is_taken() -> None:
    """Halves that tell opposite stories: passing errors on would only do harm."""
    rng = np.random.default_rng(4)
    weight = rng.normal(size=(8, 16)).astype(np.float32)
    one, other = (rng.normal(size=(16, 16)) for _ in range(2))
    halves = np.stack([one.T @ one, other.T @ other * 1e3])
    ours = Rounder(LAYER, weight, halves, axis=0).round(S8)[S8]
    gap = (weight - ours.restore()) / ours.scale[:, None]
    assert np.abs(gap).max() <= 0.5001


def test_few_samples_are_damped_not_trusted() -> None:
    rng = np.random.default_rng(1)
    seen, unseen = rng.normal(size=(6, 64)), rng.normal(size=(500, 64))
    weight = rng.normal(size=(8, 64)).astype(np.float32)
    halves = np.stack([seen[::2].T @ seen[::2], seen[1::2].T @ seen[1::2]])
    ours = Rounder(LAYER, weight, halves, axis=0).round(S4)[S4]
    plain = quantize(weight, S4, axis=0)
    assert output_error(weight, ours, unseen) < 1.3 * output_error(weight, plain, unseen)


def test_half_precision_scales_cost_no_accuracy_and_never_overflow() -> None:
    rng = np.random.default_rng(2)
    weight = rng.normal(size=(64, 16)).astype(np.float32)
    q = quantize(weight, S8, axis=0)
    half = with_half_scales(weight, q, S8)
    assert np.array_equal(half.scale, half.scale.astype(np.float16).astype(np.float32))
    error = [np.abs(weight - x.restore()).max() for x in (q, half)]
    assert error[1] <= 1.05 * error[0]
    assert not fits_half(np.array([1e-9, 1.0], dtype=np.float32)), "it would underflow"
    assert not fits_half(np.array([1e6], dtype=np.float32)), "it would overflow"


def test_a_tiny_bias_among_others_does_not_keep_them_all_in_single_precision() -> None:
    biases = np.array([0.5, -0.3, 1e-7, 0.2], dtype=np.float32)
    assert not fits_half(biases)
    assert fits_half(biases, added=True)
    assert not fits_half(np.array([1e-9, 2e-9], dtype=np.float32), added=True)


def test_a_dead_row_gets_a_harmless_scale() -> None:
    weight = np.zeros((2, 4), dtype=np.float32)
    weight[1] = [1.0, -0.5, 0.25, 0.1]
    q = Rounder(LAYER, weight, np.stack([np.eye(4), np.eye(4)]), axis=0).round(S8)[S8]
    assert q.scale[0] == 1.0
    assert not q.data[0].any()


def test_one_channel_with_a_coarser_scale_leaves_the_others_as_they_were_rounded() -> None:
    """A dead channel's scale is raised to hold its bias; it took the others' rounding with it."""
    rng = np.random.default_rng(5)
    weight = rng.normal(size=(3, 8)).astype(np.float32)
    q = quantize(weight, S8, axis=0)
    moved = Quantized(q.data + np.int8(1), q.scale, q.zero_point, 0)  # not the nearest
    scale = q.scale * np.array([1, 2, 1], dtype=np.float32)
    again = rescaled(weight, moved, scale, S8)
    np.testing.assert_array_equal(again.data[[0, 2]], moved.data[[0, 2]])
    np.testing.assert_allclose(again.restore()[1], weight[1], atol=float(scale[1]))
