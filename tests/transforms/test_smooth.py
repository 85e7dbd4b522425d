from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import numpy_helper
from small_nets import Net, difference, peaks, reasons, weight_of

from seqto.errors import ConfigError
from seqto.model import files as model_files
from seqto.model import prepare as model_prepare
from seqto.model.layers import list_layers
from seqto.transforms.smooth import Smooth

MAP = (3, 6, 6)


def pair(seed: int = 0, kind: str = "Relu"):
    # x → a(Conv) → activation → b(Conv)
    net = Net(seed)
    y = net.op(kind, [net.conv("x", "a", 3, 8)], "act")
    return net.prepare(net.conv(y, "b", 8, 4), MAP)


def excite(kind: str, *, seed: int = 0):
    # x → a(Conv) → activation ─┬─────────────────────────────────────────── Mul → b(Conv)
    #                           └ pool → s(Conv) → Relu → e(Conv) → HardSigmoid ┘
    net = Net(seed)
    y = net.op(kind, [net.conv("x", "a", 3, 8)], "act")
    g = net.op("GlobalAveragePool", [y], "pool")
    g = net.op("Relu", [net.conv(g, "s", 8, 4, kernel=1)], "inner")
    g = net.op("HardSigmoid", [net.conv(g, "e", 4, 8, kernel=1)], "gate", alpha=1 / 6, beta=0.5)
    y = net.op("Mul", [y, g], "product")
    return net.prepare(net.conv(y, "b", 8, 4, kernel=1), MAP)


def input_peak_spread(prepared, proto, layer: str) -> float:
    changed = model_prepare.Prepared(
        proto,
        tuple(list_layers(proto)),
        prepared.inputs,
        prepared.outputs,
        prepared.opset,
        "",
    )
    found = peaks(changed)[changed.layer(layer).inputs[0]]
    return float(found.max() / found.min())


def test_alpha_one_makes_activations_even_and_keeps_answers() -> None:
    prepared = pair()
    applied = Smooth(alpha=1.0).apply(prepared, peaks(prepared))
    assert applied.exact
    assert applied.touched == ("a", "b")
    assert difference(prepared, applied.proto) < 1e-5
    assert input_peak_spread(prepared, prepared.proto, "b") > 5
    assert input_peak_spread(prepared, applied.proto, "b") < 1.001


def test_alpha_zero_makes_the_weights_even() -> None:
    prepared = pair()
    applied = Smooth(alpha=0.0).apply(prepared, peaks(prepared))
    ranges = np.abs(weight_of(prepared, applied.proto, "b")).max(axis=(0, 2, 3))
    np.testing.assert_allclose(ranges, ranges[0], rtol=1e-5)
    assert difference(prepared, applied.proto) < 1e-5


def test_the_default_meets_in_the_middle() -> None:
    prepared = pair()
    found = peaks(prepared)
    applied = Smooth().apply(prepared, found)
    tensor = prepared.layer("b").inputs[0]
    w0, w1 = (
        np.abs(weight_of(prepared, p, "b")).max(axis=(0, 2, 3))
        for p in (prepared.proto, applied.proto)
    )
    wanted = np.sqrt(found[tensor] / w0)  # s_j = max|X_j|^0.5 / max|W_j|^0.5
    np.testing.assert_allclose(w1 / w0 / wanted, (w1 / w0 / wanted)[0], rtol=1e-4)


def test_a_squeeze_and_excite_block_behind_relu_is_folded_into_its_convolutions() -> None:
    prepared = excite("Relu")
    applied = Smooth().apply(prepared, peaks(prepared))
    assert "a" in applied.touched
    assert "b" in applied.touched
    assert len(applied.proto.graph.node) == len(prepared.proto.graph.node)
    assert difference(prepared, applied.proto) < 1e-5
    before, after = (weight_of(prepared, p, "s") for p in (prepared.proto, applied.proto))
    assert not np.array_equal(before, after)  # the branch undoes what the product must not


def test_hard_swish_stops_folding_and_says_so() -> None:
    prepared = excite("HardSwish")
    applied = Smooth().apply(prepared, peaks(prepared))
    # preparation spells HardSwish out as x · HardSigmoid(x)
    assert "(HardSigmoid)" in reasons(applied.skipped)["a"]
    assert "gate (HardSigmoid)" in reasons(applied.skipped)["e"]
    assert "a" not in applied.touched


def test_behind_hard_swish_a_mul_is_inserted_when_asked_for() -> None:
    prepared = pair(kind="HardSwish")
    applied = Smooth(alpha=1.0, insert=True, insert_above=1.5).apply(prepared, peaks(prepared))
    names = [n.name for n in applied.proto.graph.node]
    assert [n.op_type for n in applied.proto.graph.node] == [
        *("Conv", "HardSigmoid", "Mul", "Mul", "Conv")
    ]
    assert names.index("b/smooth") == 2  # in front of the product, which becomes smooth too
    assert applied.touched == ("b",)
    assert applied.notes == ("1 Mul inserted: b",)
    assert difference(prepared, applied.proto) < 1e-5
    assert input_peak_spread(prepared, applied.proto, "b") < 1.001
    assert [x.name for x in list_layers(applied.proto)] == [x.name for x in prepared.layers]
    made = next(n for n in applied.proto.graph.node if n.name == "b/smooth")
    factors = next(t for t in applied.proto.graph.initializer if t.name == made.input[1])
    assert list(factors.dims) == [1, 8, 1, 1]


def test_at_a_gate_the_mul_stands_on_the_gate_where_it_is_cheap() -> None:
    prepared = excite("HardSwish")
    applied = Smooth(insert=True, insert_above=1.5).apply(prepared, peaks(prepared))
    nodes = {n.name: n for n in applied.proto.graph.node}
    assert nodes["b/smooth"].input[0] == nodes["gate"].output[0]
    assert nodes["product"].input[1] == nodes["b/smooth"].output[0]
    assert difference(prepared, applied.proto) < 1e-5


def test_no_mul_is_inserted_where_channels_are_alike() -> None:
    prepared = pair(kind="HardSwish")
    applied = Smooth(insert=True, insert_above=1e6).apply(prepared, peaks(prepared))
    assert applied.touched == ()
    assert model_files.to_bytes(applied.proto) == model_files.to_bytes(prepared.proto)


def test_an_inserted_mul_serves_its_own_layer_only() -> None:
    # x → a(Conv) → HardSwish → b(Conv), and → c(Conv), and → output: two Muls
    net = Net()
    y = net.op("HardSwish", [net.conv("x", "a", 3, 8)], "act")
    prepared = net.prepare([net.conv(y, "b", 8, 4), net.conv(y, "c", 8, 4), y], MAP)
    applied = Smooth(insert=True, insert_above=1.5).apply(prepared, peaks(prepared))
    assert set(applied.touched) == {"b", "c"}
    assert difference(prepared, applied.proto) < 1e-5


def test_applied_twice_the_names_stay_apart() -> None:
    prepared = pair(kind="HardSwish")
    smooth = Smooth(alpha=0.5, insert=True, insert_above=1.0)
    once = smooth.apply(prepared, peaks(prepared)).proto
    again = model_prepare.Prepared(
        once,
        tuple(list_layers(once)),
        prepared.inputs,
        prepared.outputs,
        prepared.opset,
        "",
    )
    twice = smooth.apply(again, peaks(again)).proto
    names = [n.name for n in twice.graph.node]
    assert len(set(names)) == len(names)
    assert {"b/smooth", "b/smooth_"} <= set(names)
    assert difference(prepared, twice) < 1e-5


def test_several_readers_share_one_scale() -> None:
    # x → a(Conv) → Relu → b(Conv), and Relu → c(Conv): as in a fire module
    net = Net()
    y = net.op("Relu", [net.conv("x", "a", 3, 8)], "act")
    prepared = net.prepare([net.conv(y, "b", 8, 4), net.conv(y, "c", 8, 4, kernel=1)], MAP)
    applied = Smooth().apply(prepared, peaks(prepared))
    assert set(applied.touched) == {"a", "b", "c"}
    assert difference(prepared, applied.proto) < 1e-5


def test_residuals_are_left_alone() -> None:
    net = Net()
    y = net.op("Relu", [net.conv("x", "a", 3, 8)], "act")
    y = net.op("Add", [net.conv(y, "b", 8, 8), y], "sum")
    prepared = net.prepare(net.conv(y, "c", 8, 4), MAP)
    applied = Smooth().apply(prepared, peaks(prepared))
    assert applied.touched == ()
    assert "sum (Add)" in reasons(applied.skipped)["a"]


def test_a_tensor_multiplied_by_itself_is_left_alone() -> None:
    # x → a(Conv) → Mul(y, y) → b(Conv): a factor would enter squared
    net = Net()
    y = net.conv("x", "a", 3, 8)
    prepared = net.prepare(net.conv(net.op("Mul", [y, y], "square"), "b", 8, 4), MAP)
    applied = Smooth().apply(prepared, peaks(prepared))
    assert applied.touched == ()


def test_both_factors_of_a_product_from_one_layer_are_left_alone() -> None:
    # x → a(Conv) → Mul(Relu(y), LeakyRelu(y)) → b(Conv)
    net = Net()
    y = net.conv("x", "a", 3, 8)
    both = [net.op("Relu", [y], "r"), net.op("LeakyRelu", [y], "l", alpha=0.1)]
    prepared = net.prepare(net.conv(net.op("Mul", both, "product"), "b", 8, 4), MAP)
    applied = Smooth().apply(prepared, peaks(prepared))
    assert applied.touched == ()
    assert "both factors" in reasons(applied.skipped)["a"]


def test_without_peaks_nothing_is_smoothed() -> None:
    applied = Smooth(insert=True).apply(pair(), {})
    assert applied.touched == ()
    assert "no peaks" in reasons(applied.skipped)["a → b"]


def test_a_channel_that_is_never_active_keeps_its_scale() -> None:
    net = Net()
    y = net.op("Relu", [net.conv("x", "a", 3, 8)], "act")
    net.weights["a_b"][5] = -1e3
    prepared = net.prepare(net.conv(y, "b", 8, 4), MAP)
    applied = Smooth().apply(prepared, peaks(prepared))
    before, after = (weight_of(prepared, p, "b") for p in (prepared.proto, applied.proto))
    np.testing.assert_array_equal(before[:, 5], after[:, 5])
    assert difference(prepared, applied.proto) < 1e-5


def test_the_argument_stays_as_it_is() -> None:
    prepared = excite("HardSwish")
    before = model_files.to_bytes(prepared.proto)
    Smooth(insert=True, insert_above=1.0).apply(prepared, peaks(prepared))
    assert model_files.to_bytes(prepared.proto) == before


@given(
    seed=st.integers(0, 1000),
    alpha=st.floats(0.0, 1.0),
    kind=st.sampled_from(["Relu", "HardSwish"]),
    insert=st.booleans(),
)
@settings(max_examples=40, deadline=None)
def test_answers_stay_for_any_weights_and_alpha(seed, alpha, kind, insert) -> None:
    prepared = excite(kind, seed=seed)
    applied = Smooth(alpha=alpha, insert=insert, insert_above=2.0).apply(prepared, peaks(prepared))
    assert difference(prepared, applied.proto) < 1e-4
    values = [numpy_helper.to_array(t) for t in applied.proto.graph.initializer]
    assert all(np.isfinite(v).all() for v in values)


@given(seed=st.integers(0, 1000), high=st.sampled_from([0.5, 2.0, 6.0, 50.0]))
@settings(max_examples=25, deadline=None)
def test_a_clip_never_makes_answers_move(seed: int, high: float) -> None:
    # x → a(Conv) → Clip → d(depthwise) → Clip → b(Conv)
    net = Net(seed)
    y = net.clip(net.conv("x", "a", 3, 8), "clip1", high=high)
    y = net.clip(net.conv(y, "d", 8, 8, group=8), "clip2", high=high)
    prepared = net.prepare(net.conv(y, "b", 8, 4, kernel=1), MAP)
    applied = Smooth(insert=True, insert_above=3.0).apply(prepared, peaks(prepared))
    assert applied.exact
    assert difference(prepared, applied.proto) < 1e-4


@pytest.mark.parametrize(
    "values", [{"alpha": -0.1}, {"alpha": 1.1}, {"alpha": float("nan")}, {"insert_above": 0.5}]
)
def test_impossible_settings_are_refused(values) -> None:
    with pytest.raises(ConfigError, match="smooth"):
        Smooth(**values)
