from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import numpy_helper
from small_nets import Net, difference, peaks, reasons, spread, weight_of

from seqto.errors import ConfigError
from seqto.model import files as model_files
from seqto.model.layers import list_layers
from seqto.transforms.equalize import Equalize

MAP = (3, 6, 6)


def pair(seed: int = 0, activation: str = "Relu", **attributes):
    # x → a(Conv) → activation → b(Conv)
    net = Net(seed)
    y = net.op(activation, [net.conv("x", "a", 3, 8)], "act", **attributes)
    return net.prepare(net.conv(y, "b", 8, 4), MAP)


def worst(prepared, proto, first: str, second: str) -> float:
    ahead = spread(weight_of(prepared, proto, first), axis=0)
    return max(ahead, spread(weight_of(prepared, proto, second), axis=1))


@pytest.mark.parametrize(
    ("activation", "attributes"), [("Relu", {}), ("LeakyRelu", {"alpha": 0.3}), ("Identity", {})]
)
def test_a_pair_keeps_its_answers_and_gets_even_ranges(activation, attributes) -> None:
    prepared = pair(activation=activation, **attributes)
    applied = Equalize().apply(prepared, {})
    assert applied.exact
    assert applied.touched == ("a", "b")
    assert difference(prepared, applied.proto) < 1e-5
    assert worst(prepared, applied.proto, "a", "b") < 0.5 * worst(
        prepared, prepared.proto, "a", "b"
    )


def test_both_ranges_of_a_channel_become_one_and_the_same_up_to_a_common_factor() -> None:
    prepared = pair()
    proto = Equalize(rounds=1).apply(prepared, {}).proto
    first = np.abs(weight_of(prepared, proto, "a")).max(axis=(1, 2, 3))
    second = np.abs(weight_of(prepared, proto, "b")).max(axis=(0, 2, 3))
    np.testing.assert_allclose(first / second, (first / second)[0], rtol=1e-5)


def test_a_slope_per_channel_lets_scales_pass() -> None:
    # x → a(Conv) → PRelu → b(Conv)
    net = Net()
    slope = net.constant("slope", np.linspace(0.1, 0.9, 8, dtype=np.float32).reshape(8, 1, 1))
    y = net.op("PRelu", [net.conv("x", "a", 3, 8), slope], "act")
    prepared = net.prepare(net.conv(y, "b", 8, 4), MAP)
    applied = Equalize().apply(prepared, peaks(prepared))
    assert applied.touched == ("a", "b")
    assert difference(prepared, applied.proto) < 1e-5


@pytest.mark.parametrize("trans", [0, 1])
def test_dense_layers_are_scaled_along_the_right_axis(trans: int) -> None:
    # x → a(Gemm) → Relu → b(Gemm)
    net = Net()
    y = net.op("Relu", [net.gemm("x", "a", 5, 8, trans=trans)], "act")
    prepared = net.prepare(net.gemm(y, "b", 8, 3, trans=trans), (5,))
    applied = Equalize().apply(prepared, peaks(prepared))
    assert applied.touched == ("a", "b")
    assert difference(prepared, applied.proto) < 1e-5
    outputs, inputs = (0, 1) if trans else (1, 0)
    for layer, axis in (("a", outputs), ("b", inputs)):
        assert spread(weight_of(prepared, applied.proto, layer), axis=axis) < 40


def test_matmul_takes_the_bias_that_is_added_behind_it() -> None:
    # x[n,4,5] → a(MatMul) → Add → Relu → b(MatMul)
    net = Net()
    first = net.random.normal(size=(5, 8)) * net.uneven(8)
    y = net.op("MatMul", ["x", net.constant("aw", first.astype(np.float32))], "a")
    y = net.op("Add", [net.constant("ab", np.ones(8, np.float32)), y], "plus")
    second = net.constant("bw", net.random.normal(size=(8, 3)).astype(np.float32))
    prepared = net.prepare(net.op("MatMul", [net.op("Relu", [y], "act"), second], "b"), (4, 5))
    applied = Equalize().apply(prepared, peaks(prepared))
    assert applied.touched == ("a", "b")
    assert difference(prepared, applied.proto) < 1e-5


@pytest.mark.parametrize("pool", ["GlobalAveragePool", "AveragePool", "MaxPool"])
@pytest.mark.parametrize("reshape", ["Flatten", "Reshape"])
def test_pools_and_flattening_between_let_scales_pass(pool: str, reshape: str) -> None:
    # x → a(Conv) → Relu → pool → Flatten → b(Gemm): a channel is a run of the Gemm's columns
    net = Net()
    kernel = {} if pool.startswith("Global") else {"kernel_shape": [2, 2], "strides": [2, 2]}
    y = net.op(pool, [net.op("Relu", [net.conv("x", "a", 3, 8)], "act")], "pool", **kernel)
    inputs = [y] if reshape == "Flatten" else [y, net.constant("to", np.array([0, -1]))]
    y = net.op(reshape, inputs, "flat")
    prepared = net.prepare(net.gemm(y, "b", 8 if not kernel else 72, 4), MAP)
    applied = Equalize().apply(prepared, peaks(prepared))
    assert applied.touched == ("a", "b")
    assert difference(prepared, applied.proto) < 1e-5


def mobile(*, high: float = 6.0, bias: float = 0.0, seed: int = 0):
    # x → a(Conv) → Clip → d(depthwise) → Clip → b(Conv 1×1)
    net = Net(seed)
    y = net.clip(net.conv("x", "a", 3, 8), "clip1", high=high)
    net.weights["a_b"] = net.weights["a_b"] + np.float32(bias)
    y = net.clip(net.conv(y, "d", 8, 8, group=8), "clip2", high=high)
    return net.prepare(net.conv(y, "b", 8, 4, kernel=1), MAP)


def test_depthwise_chains_are_equalized_where_no_channel_can_reach_the_clip() -> None:
    prepared = mobile(high=1e4)
    applied = Equalize().apply(prepared, peaks(prepared))
    assert applied.exact
    assert applied.touched == ("a", "d", "b")
    assert difference(prepared, applied.proto) < 1e-5
    assert worst(prepared, applied.proto, "d", "b") <= worst(prepared, prepared.proto, "d", "b")


def test_depthwise_with_several_outputs_a_channel_keeps_its_answers() -> None:
    # x → a(Conv 4) → Relu → d(depthwise, 4 → 8) → Relu → b(Conv)
    net = Net()
    y = net.op("Relu", [net.conv("x", "a", 3, 4)], "r1")
    y = net.op("Relu", [net.conv(y, "d", 4, 8, group=4)], "r2")
    prepared = net.prepare(net.conv(y, "b", 8, 4), MAP)
    applied = Equalize().apply(prepared, peaks(prepared))
    assert applied.touched == ("a", "d", "b")
    assert difference(prepared, applied.proto) < 1e-5


@given(seed=st.integers(0, 1000), high=st.sampled_from([0.5, 2.0, 6.0, 20.0]))
@settings(max_examples=25, deadline=None)
def test_a_clip_never_makes_answers_move(seed: int, high: float) -> None:
    prepared = mobile(high=high, seed=seed)
    applied = Equalize().apply(prepared, peaks(prepared))
    assert applied.exact
    assert difference(prepared, applied.proto) < 1e-4


def test_channels_that_reach_the_clip_keep_their_scale() -> None:
    net = Net()
    y = net.clip(net.conv("x", "a", 3, 4), "clip1")
    net.weights["a_w"][1] *= 0.01
    net.weights["a_b"] = np.float32([5.0, 0.01, 0.2, 7.0])  # 0 and 3 may be clipped
    net.weights["a_w"][[0, 3]] *= 3 / np.abs(net.weights["a_w"][[0, 3]]).max()
    prepared = net.prepare(net.conv(y, "b", 4, 4, kernel=1), MAP)
    applied = Equalize().apply(prepared, peaks(prepared))
    before, after = (weight_of(prepared, p, "a") for p in (prepared.proto, applied.proto))
    assert applied.touched == ("a", "b")
    np.testing.assert_array_equal(before[[0, 3]], after[[0, 3]])
    assert not np.array_equal(before[1], after[1])
    assert difference(prepared, applied.proto) < 1e-5


def test_a_clip_that_acts_everywhere_is_named_as_the_reason() -> None:
    prepared = mobile(high=0.01, bias=1.0)
    applied = Equalize().apply(prepared, peaks(prepared))
    assert "a" not in applied.touched
    assert "clip" in reasons(applied.skipped)["a → d"]
    before, after = (weight_of(prepared, p, "a") for p in (prepared.proto, applied.proto))
    np.testing.assert_array_equal(before, after)


def test_calibrated_evidence_scales_more_but_is_not_called_exact() -> None:
    prepared = mobile(high=6.0)
    found = peaks(prepared)
    found["x"] = np.full(3, 100.0, np.float32)  # nothing can be proven for such inputs
    proven = Equalize().apply(prepared, found)
    calibrated = Equalize(clip="calibrated").apply(prepared, found)
    assert "a" not in proven.touched
    assert "a" in calibrated.touched
    assert proven.exact
    assert not calibrated.exact
    assert difference(prepared, calibrated.proto, seed=1) < 1e-5  # on what it was calibrated on


def test_without_clips_calibrated_is_exact_too() -> None:
    assert Equalize(clip="calibrated").apply(pair(), {}).exact


def test_a_clip_without_peaks_is_left_alone() -> None:
    assert Equalize(clip="calibrated").apply(mobile(), {}).touched == ()
    # what comes out of the first clip is known without any sample
    assert Equalize().apply(mobile(), {}).touched == ("d", "b")


def test_activations_are_not_shrunk_below_an_eighth_of_the_widest() -> None:
    prepared = pair()
    found = peaks(prepared)
    tensor = prepared.layer("a").output
    applied = Equalize().apply(prepared, found)
    first = np.abs(weight_of(prepared, prepared.proto, "a")).max(axis=(1, 2, 3))
    factors = np.abs(weight_of(prepared, applied.proto, "a")).max(axis=(1, 2, 3)) / first
    peak = found[tensor] * factors
    assert (peak <= found[tensor].max() * 1.0001).all()
    shrunk = factors < 0.999
    assert (peak[shrunk] >= found[tensor].max() / 8 * 0.999).all()


def test_branches_are_left_alone() -> None:
    # x → a(Conv) → Relu → b(Conv), and Relu → c(Conv)
    net = Net()
    y = net.op("Relu", [net.conv("x", "a", 3, 8)], "act")
    prepared = net.prepare([net.conv(y, "b", 8, 4), net.conv(y, "c", 8, 4)], MAP)
    applied = Equalize().apply(prepared, peaks(prepared))
    assert applied.touched == ()
    assert "2 nodes" in reasons(applied.skipped)["a"]


def test_residuals_are_left_alone() -> None:
    # x → a(Conv) ─ Relu → b(Conv) → Add → c(Conv)
    #                 └───────────────┘
    net = Net()
    y = net.op("Relu", [net.conv("x", "a", 3, 8)], "act")
    y = net.op("Add", [net.conv(y, "b", 8, 8), y], "sum")
    prepared = net.prepare(net.conv(y, "c", 8, 4), MAP)
    applied = Equalize().apply(prepared, peaks(prepared))
    assert applied.touched == ()
    assert "sum (Add)" in reasons(applied.skipped)["b"]


def test_a_tensor_that_is_an_output_is_left_alone() -> None:
    net = Net()
    y = net.op("Relu", [net.conv("x", "a", 3, 8)], "act")
    prepared = net.prepare([net.conv(y, "b", 8, 4), y], MAP)
    applied = Equalize().apply(prepared, peaks(prepared))
    assert applied.touched == ()
    assert "output" in reasons(applied.skipped)["a"]


def test_shared_weights_are_copied_by_preparation_so_both_layers_can_be_treated() -> None:
    # x → a(Conv w) → Relu → b(Conv w): after preparation each has weights of its own
    net = Net()
    y = net.op("Relu", [net.conv("x", "a", 3, 3)], "act")
    prepared = net.prepare(net.op("Conv", [y, "a_w"], "b", pads=[1] * 4), MAP)
    first, second = (x for x in prepared.layers if x.weight)
    assert first.weight != second.weight
    applied = Equalize().apply(prepared, peaks(prepared))
    assert applied.touched == ("a", "b")


def test_a_shared_bias_is_copied_not_shared_on() -> None:
    # x → a(Conv, bias) → Relu → b(Conv, same bias)
    net = Net()
    y = net.op("Relu", [net.conv("x", "a", 3, 4)], "act")
    net.conv(y, "unused", 4, 4)
    net.nodes.pop()
    prepared = net.prepare(net.op("Conv", [y, "unused_w", "a_b"], "b", pads=[1] * 4), MAP)
    applied = Equalize().apply(prepared, peaks(prepared))
    assert applied.touched == ("a", "b")
    assert difference(prepared, applied.proto) < 1e-5


def test_grouped_convolutions_are_left_alone_with_the_reason() -> None:
    net = Net()
    y = net.op("Relu", [net.conv("x", "a", 3, 8)], "act")
    prepared = net.prepare(net.conv(y, "g", 8, 8, group=2), MAP)
    applied = Equalize().apply(prepared, peaks(prepared))
    assert applied.touched == ()
    assert "grouped" in reasons(applied.skipped)["a"]


def test_dead_channels_keep_their_scale() -> None:
    net = Net()
    y = net.op("Relu", [net.conv("x", "a", 3, 8)], "act")
    net.weights["a_w"][2] = 0.0
    prepared = net.prepare(net.conv(y, "b", 8, 4), MAP)
    applied = Equalize().apply(prepared, {})
    before, after = (weight_of(prepared, p, "b") for p in (prepared.proto, applied.proto))
    assert np.isfinite(after).all()
    np.testing.assert_array_equal(before[:, 2], after[:, 2])
    assert difference(prepared, applied.proto) < 1e-5


def test_the_argument_and_all_names_stay_as_they_are() -> None:
    prepared = mobile(high=1e4)
    given_peaks = peaks(prepared)
    copies = {n: p.copy() for n, p in given_peaks.items()}
    before = model_files.to_bytes(prepared.proto)
    applied = Equalize().apply(prepared, given_peaks)
    assert model_files.to_bytes(prepared.proto) == before
    assert all(np.array_equal(copies[n], given_peaks[n]) for n in copies)
    assert [n.name for n in applied.proto.graph.node] == [n.name for n in prepared.proto.graph.node]
    assert tuple(list_layers(applied.proto)) == prepared.layers
    assert {numpy_helper.to_array(t).dtype for t in applied.proto.graph.initializer} == {
        numpy_helper.to_array(t).dtype for t in prepared.proto.graph.initializer
    }


@given(
    scales=st.lists(st.floats(1e-4, 1e4), min_size=8, max_size=8),
    after=st.lists(st.floats(1e-2, 1e2), min_size=8, max_size=8),
    seed=st.integers(0, 100),
    with_peaks=st.booleans(),
)
@settings(max_examples=40, deadline=None)
def test_ranges_never_grow_apart(scales, after, seed: int, with_peaks: bool) -> None:
    net = Net(seed)
    y = net.op("Relu", [net.conv("x", "a", 3, 8)], "act")
    z = net.conv(y, "b", 8, 4)
    net.weights["a_w"] *= np.float32(scales).reshape(-1, 1, 1, 1)
    net.weights["b_w"] *= np.float32(after).reshape(1, -1, 1, 1)
    prepared = net.prepare(z, MAP)
    applied = Equalize().apply(prepared, peaks(prepared) if with_peaks else {})
    assert difference(prepared, applied.proto) < 1e-4
    before = worst(prepared, prepared.proto, "a", "b")
    assert worst(prepared, applied.proto, "a", "b") <= before * 1.0001


@pytest.mark.parametrize("values", [{"rounds": 0}, {"rounds": 1.5}, {"clip": "never"}])
def test_impossible_settings_are_refused(values) -> None:
    with pytest.raises(ConfigError, match="equalize"):
        Equalize(**values)
