from __future__ import annotations

import numpy as np

from seqto.contracts import Layer, Scheme
from seqto.schemes.integers import Quantized, quantize
from seqto.schemes.parts import fits_half, with_half_scales
from seqto.schemes.rounding import round_for_output

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
    ours = round_for_output(LAYER, weight, halves, "s4", axis=0)
    plain = quantize(weight, "s4", axis=0)
    assert output_error(weight, ours, unseen) < 0.6 * output_error(weight, plain, unseen)
    assert np.abs(ours.data).max() <= 7


def test_few_samples_are_damped_not_trusted() -> None:
    rng = np.random.default_rng(1)
    seen, unseen = rng.normal(size=(6, 64)), rng.normal(size=(500, 64))
    weight = rng.normal(size=(8, 64)).astype(np.float32)
    halves = np.stack([seen[::2].T @ seen[::2], seen[1::2].T @ seen[1::2]])
    ours = round_for_output(LAYER, weight, halves, "s4", axis=0)
    plain = quantize(weight, "s4", axis=0)
    assert output_error(weight, ours, unseen) < 1.3 * output_error(weight, plain, unseen)


def test_half_precision_scales_cost_no_accuracy_and_never_overflow() -> None:
    rng = np.random.default_rng(2)
    weight = rng.normal(size=(64, 16)).astype(np.float32)
    scheme = Scheme("weight", "s8", granularity="channel")
    q = quantize(weight, "s8", axis=0)
    half = with_half_scales(weight, q, scheme)
    assert np.array_equal(half.scale, half.scale.astype(np.float16).astype(np.float32))
    error = [np.abs(weight - x.restore()).max() for x in (q, half)]
    assert error[1] <= 1.05 * error[0]
    assert not fits_half(np.array([1e-9, 1.0], dtype=np.float32)), "it would underflow"
    assert not fits_half(np.array([1e6], dtype=np.float32)), "it would overflow"
