"""Reading, preparing and grouping: the prepared model gives the float model's answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import nets
from net_builder import Net
from seqto.errors import ModelError
from seqto.model import files as model_files
from seqto.model import prepare as model_prepare
from seqto.model.compare import same_answers
from seqto.model.files import load, opset_of, to_bytes
from seqto.model.inputs import input_specs
from seqto.model.layers import OUTPUT_OP, inferred_values, without_weights
from seqto.model.prepare import open_prepared, prepare


def moved(original: Any, prepared: model_prepare.Prepared, feeds: dict[str, Any]) -> float:
    return same_answers(original.SerializeToString(), to_bytes(prepared.proto), feeds)


# ------------------------------------------------------------------------------------- reading


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"nowhere\.onnx' does not exist"):
        load(tmp_path / "nowhere.onnx")


@pytest.mark.parametrize(
    "content", [b"", b"\x00" * 200, b"#!/bin/sh\necho no model\n", b"PK\x03\x04" + b"x" * 99]
)
def test_what_is_no_onnx_is_refused_with_one_line(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "odd.onnx"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=r"odd\.onnx") as caught:
        load(path)
    assert "\n" not in str(caught.value)


def test_a_model_cut_short_anywhere_is_refused(tmp_path: Path) -> None:
    whole = nets.residual().SerializeToString()
    path = tmp_path / "cut.onnx"
    for size in np.linspace(1, len(whole) - 1, 40).astype(int):
        path.write_bytes(whole[:size])
        with pytest.raises(ModelError, match=r"cut\.onnx"):
            prepare(load(path), name="cut.onnx")


def test_a_folder_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(ModelError):
        load(tmp_path)


def save_outside(path: Path) -> None:
    proto = nets.residual()
    onnx.save_model(
        proto, str(path), save_as_external_data=True, location="weights.bin", size_threshold=0
    )


def test_external_data_are_read_and_count_as_bytes(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    save_outside(path)
    prepared = prepare(load(path))
    assert moved(nets.residual(), prepared, {"x": nets.pictures(3)}) == 0.0
    inside = path.stat().st_size
    assert model_files.size_of(path) == inside + (tmp_path / "weights.bin").stat().st_size > inside


def test_missing_external_data_are_named(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    save_outside(path)
    (tmp_path / "weights.bin").unlink()
    with pytest.raises(ModelError, match=r"weights\.bin"):
        load(path)


def test_external_data_outside_of_the_models_folder_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "inner"
    folder.mkdir()
    path = folder / "m.onnx"
    save_outside(path)
    (folder / "weights.bin").rename(tmp_path / "weights.bin")
    proto = onnx.load(str(path), load_external_data=False)
    for item in proto.graph.initializer:
        for entry in item.external_data:
            if entry.key == "location":
                entry.value = "../weights.bin"
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(ModelError, match="outside"):
        load(path)


def test_a_quantized_model_is_refused() -> None:
    net = Net()
    scale, zero = net.constant(np.float32(0.1)), net.constant(np.uint8(0))
    q = net.add("QuantizeLinear", ["x", scale, zero])
    x = net.add("DequantizeLinear", [q, scale, zero])
    net.add("Relu", [net.conv(x, (3, 4))], output="y")
    shape = ["N", 3, nets.SIDE, nets.SIDE]
    proto = net.model({"x": shape}, {"y": ["N", 4, nets.SIDE, nets.SIDE]})
    with pytest.raises(ModelError, match=r"quantized already.*QuantizeLinear.*float model"):
        prepare(proto, name="it")


def test_a_model_without_weights_is_refused() -> None:
    net = Net()
    net.add("Relu", ["x"], output="y")
    proto = net.model({"x": ["N", 3]}, {"y": ["N", 3]})
    with pytest.raises(ModelError, match="nothing to do"):
        prepare(proto)


# ---------------------------------------------------------------------------------- preparation


@pytest.mark.parametrize("batch", [1, "N"])
@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("opset", [7, 8, 9, 10, 11, 12, 13, 17, 21])
def test_every_opset_is_prepared_and_keeps_its_answers(
    opset: int, named: bool, batch: int | str
) -> None:
    original = nets.residual(opset=opset, named=named, batch=batch, batch_norm=True, padded=True)
    prepared = prepare(original)
    rows = 1 if batch == 1 else 4
    assert moved(original, prepared, {"x": nets.pictures(rows)}) < 1e-5
    assert prepared.opset == max(opset, model_prepare.LOWEST_OPSET) == opset_of(prepared.proto)
    assert prepared.inputs[0].shape == (1 if batch == 1 else None, 3, nets.SIDE, nets.SIDE)


@pytest.mark.parametrize(
    "make", [nets.branches, nets.dense, nets.two_inputs, nets.reshaped, nets.transposed]
)
def test_other_nets_keep_their_answers(make: Any) -> None:
    original = make()
    prepared = prepare(original)
    rng = np.random.default_rng(0)
    feeds = {
        s.name: rng.standard_normal([3, *(d or 1 for d in s.shape[1:])]).astype(np.float32)
        for s in prepared.inputs
    }
    assert moved(original, prepared, feeds) < 1e-5


def test_a_model_with_other_answers_is_noticed() -> None:
    one, other = nets.residual(seed=0), nets.residual(seed=1)
    assert moved(one, prepare(other), {"x": nets.pictures(2)}) > 0.1


def test_batch_norm_and_pads_are_fused_into_their_conv() -> None:
    prepared = prepare(nets.residual(batch_norm=True, padded=True))
    ops = [n.op_type for n in prepared.proto.graph.node]
    assert "BatchNormalization" not in ops
    assert "Pad" not in ops
    assert all(x.bias for x in prepared.layers if x.weight)


def test_constant_nodes_become_weights() -> None:
    net = Net()
    values = numpy_helper.from_array(np.ones((4, 3, 1, 1), dtype=np.float32))
    weight = net.add("Constant", [], value=values)
    net.add("Conv", ["x", weight], output="y")
    shape = ["N", 3, nets.SIDE, nets.SIDE]
    prepared = prepare(net.model({"x": shape}, {"y": ["N", 4, nets.SIDE, nets.SIDE]}))
    assert [x.weight is not None for x in prepared.layers] == [True, False]


def test_preparing_does_not_change_its_argument() -> None:
    original = nets.residual(opset=9)
    before = original.SerializeToString(deterministic=True)
    prepare(original)
    assert original.SerializeToString(deterministic=True) == before


def test_names_and_bytes_are_the_same_every_time() -> None:
    one, two = (prepare(nets.residual(opset=10, named=False)) for _ in range(2))
    assert one.sha256 == two.sha256
    assert [x.name for x in one.layers] == [x.name for x in two.layers]
    assert all(n.name for n in one.proto.graph.node)
    assert len({n.name for n in one.proto.graph.node}) == len(one.proto.graph.node)


def test_nodes_of_the_same_name_are_told_apart() -> None:
    proto = nets.residual()
    for node in proto.graph.node:
        node.name = "twin"
    names = [n.name for n in prepare(proto).proto.graph.node]
    assert len(set(names)) == len(names)


def test_what_was_saved_is_read_back_the_same(tmp_path: Path) -> None:
    prepared = prepare(nets.branches())
    model_files.save(prepared.proto, tmp_path / "p.onnx")
    again = open_prepared(tmp_path / "p.onnx")
    assert again.sha256 == prepared.sha256
    assert again.layers == prepared.layers
    assert again.inputs == prepared.inputs


def test_max_opset_below_what_quantization_needs_is_refused() -> None:
    with pytest.raises(ModelError, match="max_opset is 11"):
        prepare(nets.residual(opset=9), max_opset=11)
    with pytest.raises(ModelError, match="max_opset is 13"):
        prepare(nets.residual(opset=17), max_opset=13)


def test_exporters_notes_are_left_out() -> None:
    proto = nets.residual()
    proto.doc_string = "made by hand"
    helper.set_model_props(proto, {"author": "someone"})
    prepared = prepare(proto)
    assert not prepared.proto.doc_string
    assert not prepared.proto.metadata_props


# ------------------------------------------------------------------------------------- layers


def by_name(prepared: model_prepare.Prepared) -> dict[str, tuple[str, ...]]:
    return {x.name: x.nodes for x in prepared.layers}


def test_a_conv_is_decided_with_its_activation() -> None:
    layers = prepare(nets.residual()).layers
    kinds = [(x.op_type, len(x.nodes)) for x in layers]
    assert kinds == [
        ("Conv", 2),  # with its Relu
        ("Conv", 2),  # with its Clip
        ("Conv", 1),
        ("Add", 1),
        ("GlobalAveragePool", 2),  # with the Flatten behind it
        ("Gemm", 1),
        (OUTPUT_OP, 0),
    ]
    assert [x.depthwise for x in layers] == [False, True, False, False, False, False, False]
    assert layers[0].parameters == 8 * 3 * 9 + 8


def test_an_activation_that_others_read_too_is_a_layer_of_its_own() -> None:
    net = Net()
    x = net.conv("x", (3, 4))
    relu = net.add("Relu", [x])
    net.add("Add", [x, relu], output="y")
    shape = ["N", 4, nets.SIDE, nets.SIDE]
    layers = prepare(net.model({"x": ["N", 3, nets.SIDE, nets.SIDE]}, {"y": shape})).layers
    assert [x.op_type for x in layers] == ["Conv", "Relu", "Add", OUTPUT_OP]


def test_every_node_belongs_to_one_layer_at_most() -> None:
    for make in (nets.residual, nets.branches, nets.dense, nets.two_inputs, nets.transposed):
        nodes = [n for x in prepare(make()).layers for n in x.nodes]
        assert len(nodes) == len(set(nodes))


def test_shape_arithmetic_is_no_layer() -> None:
    prepared = prepare(nets.reshaped())
    ops = {n.op_type for n in prepared.proto.graph.node}
    assert {"Shape", "Mul"} <= ops  # it is still there …
    assert [x.op_type for x in prepared.layers] == ["Conv", "Reshape", "MatMul", OUTPUT_OP]


def test_only_the_first_input_of_a_reshape_is_data() -> None:
    reshape = next(x for x in prepare(nets.reshaped()).layers if x.op_type == "Reshape")
    assert len(reshape.inputs) == 1


# ------------------------------------------------------------------------------------- inputs


def with_inputs(*shapes: Sequence[int | str]) -> Any:
    """x0 ─ MatMul ─ Relu ─ y, and inputs that nothing reads."""
    net = Net()
    net.add("Relu", [net.add("MatMul", ["x0", net.weight(6, 4)])], output="y")
    return net.model({f"x{i}": shape for i, shape in enumerate(shapes)}, {"y": ["m", 4]})


def test_a_batch_that_one_input_fixes_is_that_of_all() -> None:
    specs = input_specs(with_inputs(["n", 6], [1, 3], ["n", "l"]))
    assert [s.shape for s in specs] == [(1, 6), (1, 3), (1, None)]


@pytest.mark.parametrize(
    ("shapes", "words"),
    [
        (([1, 6], [2, 3]), ("'x0'", "'x1'", "first axis")),
        (([4, 6], []), ("'x1'", "no axis of samples", "batch of 1")),
    ],
)
def test_inputs_that_cannot_be_stacked_are_refused(shapes: Any, words: Sequence[str]) -> None:
    with pytest.raises(ModelError) as caught:
        input_specs(with_inputs(*shapes))
    assert all(word in str(caught.value) for word in words), caught.value


def test_weights_inside_of_branches_are_told_apart_from_none() -> None:
    net = Net()
    weight = net.weight(6, 4)
    branches = {}
    for name in ("then_branch", "else_branch"):
        node = helper.make_node("MatMul", ["x", weight], [name])
        output = helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None)
        branches[name] = helper.make_graph([node], name, [], [output])
    found = net.model({"x": ["n", 6], "flag": [1]}, {"y": ["n", 4]}, check=False)
    cast = helper.make_node("Cast", ["flag"], ["which"], to=onnx.TensorProto.BOOL)
    found.graph.node.extend([cast, helper.make_node("If", ["which"], ["y"], **branches)])
    with pytest.raises(ModelError, match=r"outside of If: .* not quantized"):
        prepare(found, name="net")


def test_a_prepared_model_is_read_back_as_it_was_saved(tmp_path: Path) -> None:
    prepared = prepare(nets.residual())
    model_files.save(prepared.proto, tmp_path / "model.onnx")
    again = open_prepared(tmp_path / "model.onnx")
    assert again.sha256 == prepared.sha256
    assert again.layers == prepared.layers


def test_shapes_are_inferred_without_a_copy_of_the_weights() -> None:
    proto = prepare(nets.residual()).proto
    before = proto.SerializeToString()
    light = without_weights(proto)
    assert proto.SerializeToString() == before
    assert [t.name for t in light.graph.initializer] == [t.name for t in proto.graph.initializer]
    assert [list(t.dims) for t in light.graph.initializer] == [
        list(t.dims) for t in proto.graph.initializer
    ]
    assert list(light.opset_import) == list(proto.opset_import)
    assert len(light.graph.node) == len(proto.graph.node)
    assert {v.name for v in inferred_values(proto)} >= {
        o for n in proto.graph.node for o in n.output
    }


def wide(*, opset: int = 13) -> Any:
    """x ─▶ Conv(3 → 64) ─▶ BatchNorm ─▶ Relu ─▶ y: constants of a kilobyte and more."""
    rng = np.random.default_rng(0)
    shapes = {"w": (64, 3, 3, 3), **dict.fromkeys(("scale", "shift", "mean", "spread"), (64,))}
    weights = [
        numpy_helper.from_array(rng.uniform(0.5, 1, shape).astype(np.float32), name)
        for name, shape in shapes.items()
    ]
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("BatchNormalization", ["c", *list(shapes)[1:]], ["n"]),
        helper.make_node("Relu", ["n"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["N", 3, 12, 12])
    y = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["N", 64, 10, 10])
    graph = helper.make_graph(nodes, "wide", [x], [y], weights)
    imports = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=imports, ir_version=7)


@pytest.mark.parametrize(
    "net",
    [
        wide,
        lambda: wide(opset=11),
        lambda: nets.residual(batch_norm=True, padded=True),
        nets.branches,
    ],
    ids=["wide", "old opset", "batch norm and pads", "branches"],
)
def test_weights_beside_the_file_that_is_folded_change_nothing(
    net: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a large model they lie there, which ONNX Runtime maps; in the file they are 3 copies."""
    model = net()
    want = prepare(model)
    monkeypatch.setattr("seqto.model.prepare.LARGE_MODEL_BYTES", 0)
    got = prepare(model)
    # nodes may stand in another order
    assert sorted(x.op_type for x in got.proto.graph.node) == sorted(
        x.op_type for x in want.proto.graph.node
    )
    assert {(x.name, x.parameters) for x in got.layers} == {
        (x.name, x.parameters) for x in want.layers
    }
    assert not any(w.HasField("data_location") for w in got.proto.graph.initializer)
    feeds = {k: v for k, v in nets.samples_for(model, 3).items() if k == "x"}
    assert moved(model, got, feeds) < 1e-6
