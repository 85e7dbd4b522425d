"""Weights that several layers share are stored once.

x ──▶ Conv ──▶ Relu ─┬──────────────▶ Conv(W) ──▶ Relu ──▶ Conv(V) ──▶ near
                     └─▶ MaxPool ──▶ Conv(W) ──▶ Relu ──▶ Conv(V) ──▶ far
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import nets
from net_builder import Net
from seqto import tune
from seqto.assembly.assembler import Assembler
from seqto.assembly.plan import Plan
from seqto.assembly.rounded_weights import round_layers
from seqto.calibration.collect import calibrate
from seqto.calibration.gram import columns_of
from seqto.calibration.statistics import Statistics
from seqto.model.files import save
from seqto.model.prepare import Prepared, prepare
from seqto.model.shared_weights import equal_weights, store_equal_once
from seqto.schemes.scheme import Scheme
from seqto.study.round_weights import shares

CHANNELS = 24


def two_scales() -> Any:
    net = Net()
    x = net.add("Relu", [net.conv("x", (3, CHANNELS))])
    w, v = (net.weight(n, CHANNELS, 3, 3) for n in (CHANNELS, 6))
    scales = {"near": x, "far": net.add("MaxPool", [x], kernel_shape=[2, 2], strides=[2, 2])}
    for output, source in scales.items():
        hidden = net.add("Relu", [net.add("Conv", [source, w], pads=[1] * 4)])
        net.add("Conv", [hidden, v], pads=[1] * 4, output=output)
    return net.model({"x": ["N", 3, 16, 16]}, {"near": ["N", 6, 16, 16], "far": ["N", 6, 8, 8]})


def feeds() -> list[dict[str, Any]]:
    rng = np.random.default_rng(3)
    return [{"x": rng.standard_normal((1, 3, 16, 16)).astype(np.float32)} for _ in range(6)]


def assembler_of(prepared: Prepared) -> Assembler:
    layers = [x for x in prepared.layers if columns_of(x, prepared)]
    plain = Assembler(prepared, Statistics({}, {}))
    rounded = round_layers(prepared, feeds, layers, ("s8", "s4"), constants=plain)
    return Assembler(prepared, calibrate(prepared, feeds).statistics, rounded=rounded)


def run(data: bytes) -> list[Any]:
    import onnxruntime as ort

    session = ort.InferenceSession(data, providers=["CPUExecutionProvider"])
    return list(session.run(None, feeds()[0]))


@pytest.fixture(scope="module")
def assembler() -> Assembler:
    return assembler_of(prepare(two_scales()))


CODES = ("weight-s8-channel", "weight-s4-channel-round-output", "static-u8-s8-channel", "fp16")


@pytest.mark.parametrize("code", CODES)
def test_layers_that_are_treated_alike_store_their_weights_once(
    assembler: Assembler, code: str
) -> None:
    heads = [
        n
        for group in equal_weights(assembler.prepared.proto, assembler.prepared.layers)
        for n in group
    ]
    assert len(heads) == 4
    schemes = {name: Scheme.parse(code) for name in heads}
    proto = onnx.load_from_string(assembler.assemble(Plan.of(schemes)).data)
    large = [t for t in proto.graph.initializer if int(np.prod(t.dims)) >= 6 * CHANNELS * 9]
    assert len(large) == 2
    onnx.checker.check_model(proto, full_check=True)


def test_the_float_plan_is_no_larger_than_the_model(assembler: Assembler) -> None:
    assembled = assembler.assemble(Plan.of({}))
    assert assembled.size_bytes <= two_scales().ByteSize()
    for one, other in zip(run(assembled.data), run(two_scales().SerializeToString()), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


def test_layers_that_are_treated_differently_keep_their_own(assembler: Assembler) -> None:
    (first, second), *_ = equal_weights(assembler.prepared.proto, assembler.prepared.layers)
    s8 = Scheme.parse("weight-s8-channel")
    one, both = (
        onnx.load_from_string(assembler.assemble(Plan.of(dict.fromkeys(names, s8))).data)
        for names in ((first,), (first, second))
    )
    assert one.ByteSize() > both.ByteSize()
    near, far = run(one.SerializeToString())
    near_of_both, far_of_both = run(both.SerializeToString())
    np.testing.assert_array_equal(near, near_of_both)
    assert not np.array_equal(far, far_of_both)


def test_merging_changes_no_output(assembler: Assembler, monkeypatch: pytest.MonkeyPatch) -> None:
    static = Scheme.parse("static-u8-s8-channel")
    plan = Plan.of({x.name: static for x in assembler.prepared.layers if x.weight})
    merged = assembler.assemble(plan)
    monkeypatch.setattr("seqto.assembly.assembler.store_equal_once", lambda proto: None)
    apart = assembler.assemble(plan)
    assert merged.size_bytes < 0.75 * apart.size_bytes
    for one, other in zip(run(merged.data), run(apart.data), strict=True):
        np.testing.assert_array_equal(one, other)


def test_the_bytes_of_layers_that_share_add_up_to_the_file(assembler: Assembler) -> None:
    s8 = Scheme.parse("weight-s8-channel")
    weighted = [x for x in assembler.prepared.layers if x.weight]
    priced = sum(assembler.bytes_of(x, s8) for x in weighted)
    floats = sum(assembler.bytes_of(x, Scheme.parse("fp32")) for x in weighted)
    files = [
        assembler.assemble(Plan.of(dict.fromkeys(names, s8)))
        for names in ([], [x.name for x in weighted])
    ]
    saved = files[0].size_bytes - files[1].size_bytes
    assert saved == pytest.approx(floats - priced, rel=0.05)


def test_layers_that_share_weights_are_rounded_together() -> None:
    columns = {"a": 64, "b": 64, "c": 32, "d": 16}
    assert sorted(map(sorted, shares(columns, 2, together=[("a", "b")]))) == [
        ["a", "b"],
        ["c", "d"],
    ]
    assert sorted(map(sorted, shares(columns, 2))) == [["a", "c"], ["b", "d"]]


def test_a_model_without_equal_weights_is_left_as_it_is() -> None:
    proto = prepare(nets.residual()).proto
    before = proto.SerializeToString()
    assert equal_weights(proto, prepare(nets.residual()).layers) == []
    store_equal_once(proto)
    assert proto.SerializeToString() == before


@pytest.mark.usefixtures("inline")
def test_a_search_gives_smaller_files(tmp_path: Path) -> None:
    path = tmp_path / "two_scales.onnx"
    save(two_scales(), path)
    result = tune(
        path,
        data__random=24,
        out=tmp_path / "run",
        data__calibration=8,
        data__evaluation=8,
        search__objectives=["loss", "size"],
        search__max_trials=8,
    )
    smallest = min(t.size_bytes for t in result.trials if t.error is None)
    assert smallest < 0.5 * path.stat().st_size
