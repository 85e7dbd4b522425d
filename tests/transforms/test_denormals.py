from __future__ import annotations

import numpy as np
import pytest
from small_nets import Net, difference, weight_of

from seqto.errors import ConfigError
from seqto.model import files as model_files
from seqto.transforms.denormals import Denormals


def vanishing():
    # x → a(Conv: channel 2 near 1e-9) → b(Conv: one weight of 1e-9) → c(Conv: all near 1e-9)
    net = Net()
    y = net.conv(net.conv(net.conv("x", "a", 3, 4), "b", 4, 4), "c", 4, 2)
    net.weights["a_w"][2] *= 1e-9 / np.abs(net.weights["a_w"][2]).max()
    net.weights["b_w"][0, 0, 0, 0] = 1e-9
    net.weights["c_w"] *= 1e-9 / np.abs(net.weights["c_w"]).max()
    return net.prepare(y, (3, 6, 6))


def test_channels_that_vanished_become_zero_and_are_counted() -> None:
    prepared = vanishing()
    applied = Denormals().apply(prepared, {})
    assert applied.touched == ("a", "c")
    assert not applied.exact
    a = weight_of(prepared, applied.proto, "a")
    assert not a[2].any()
    np.testing.assert_array_equal(a[:2], weight_of(prepared, prepared.proto, "a")[:2])
    assert applied.notes == (
        "a: 27 weights of 1 channels set to zero",
        "c: 72 weights of 2 channels set to zero",
        "99 weights below 1e-07 set to zero in all",
    )
    assert difference(prepared, applied.proto) < 1e-5


def test_a_small_weight_in_a_healthy_channel_stays() -> None:
    prepared = vanishing()
    applied = Denormals().apply(prepared, {})
    before, after = (weight_of(prepared, p, "b") for p in (prepared.proto, applied.proto))
    np.testing.assert_array_equal(before, after)


def test_a_model_without_such_channels_stays_bit_for_bit() -> None:
    net = Net()
    prepared = net.prepare(net.gemm("x", "a", 5, 4, trans=0), (5,))
    before = model_files.to_bytes(prepared.proto)
    applied = Denormals().apply(prepared, {})
    assert applied.touched == ()
    assert model_files.to_bytes(applied.proto) == before == model_files.to_bytes(prepared.proto)


def test_a_dense_layer_is_judged_by_its_output_channels() -> None:
    net = Net()
    y = net.gemm("x", "a", 5, 4, trans=0)
    net.weights["a_w"][:, 1] = 1e-10
    prepared = net.prepare(y, (5,))
    applied = Denormals().apply(prepared, {})
    after = weight_of(prepared, applied.proto, "a")
    assert not after[:, 1].any()
    assert after[:, [0, 2, 3]].all()


@pytest.mark.parametrize("below", [0.0, -1.0, float("nan"), float("inf")])
def test_impossible_thresholds_are_refused(below: float) -> None:
    with pytest.raises(ConfigError, match="denormals"):
        Denormals(below)
