"""Nodes that only move data, between layers that are quantized, keep the scale of what they read.

split    x ─ Conv ─ Split ─┬─ Conv ─┐
                           └────────┴─ Add ─▶ y
gather   x ─ Conv ─ Gather ─ Gather ─ Conv ─▶ y
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import nets
import seqto
from net_builder import Net
from seqto.assembly.assembler import Assembler
from seqto.assembly.plan import Plan
from seqto.calibration.collect import calibrate
from seqto.model.moved_data import reading_origins
from seqto.model.prepare import Prepared, prepare
from seqto.schemes.scheme import Scheme

WEIGHTED, WEIGHTLESS = (Scheme.parse(c) for c in ("static-s8-u8-channel", "static-u8"))


def split(*, public: bool = False) -> Any:
    net = Net(opset=17)
    sizes = net.constant(np.array([4, 4], np.int64))
    net.conv("x", (3, 8), kernel=1)
    half, other = ("half", "other")
    net.nodes.append(
        onnx.helper.make_node("Split", [net.nodes[-1].output[0], sizes], [half, other], axis=1)
    )
    net.add("Add", [net.conv(half, (4, 4)), other], output="y")
    outputs = {"y": (1, 4, 6, 6), **({"half": (1, 4, 6, 6)} if public else {})}
    return net.model({"x": (1, 3, 6, 6)}, outputs)


def gather() -> Any:
    net = Net(opset=17)
    even, first = (net.constant(np.array(i, np.int64)) for i in ([0, 2, 4, 6], [1, 2]))
    x = net.add("Gather", [net.conv("x", (3, 8), kernel=1), even], axis=1)
    net.add("Identity", [net.conv(net.add("Gather", [x, first], axis=1), (2, 4))], output="y")
    return net.model({"x": (1, 3, 6, 6)}, {"y": (1, 4, 6, 6)})


NETS = {"split": split, "gather": gather}


def feeds(seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {"x": rng.standard_normal((1, 3, 6, 6)).astype(np.float32)}


def assembler_of(proto: Any) -> Assembler:
    prepared = prepare(proto)
    return Assembler(prepared, calibrate(prepared, lambda: map(feeds, range(4))).statistics)


def plan_for(prepared: Prepared, *, but: tuple[int, ...] = ()) -> Plan:
    chosen = [x for i, x in enumerate(prepared.layers) if i not in but]
    return Plan.of({x.name: WEIGHTED if x.weight else WEIGHTLESS for x in chosen})


def scales(model: bytes, op_type: str) -> dict[str, str]:
    """Return tensor → scale of what is quantized (`in` of a node) or dequantized."""
    nodes = onnx.load_from_string(model).graph.node
    return {n.input[0]: n.input[1] for n in nodes if n.op_type == op_type}


def moving_nodes(model: bytes) -> list[Any]:
    return [n for n in onnx.load_from_string(model).graph.node if n.op_type in ("Split", "Gather")]


@pytest.mark.parametrize("net", NETS)
def test_results_have_the_scale_of_what_is_moved(net: str) -> None:
    assembler = assembler_of(NETS[net]())
    model = assembler.assemble(plan_for(assembler.prepared)).data
    made = {n.output[0]: n for n in onnx.load_from_string(model).graph.node}
    quantized = scales(model, "QuantizeLinear")
    for node in moving_nodes(model):
        scale = made[node.input[0]].input[1]
        assert [quantized[o] for o in node.output] == [scale] * len(node.output)


@pytest.mark.parametrize("net", NETS)
def test_they_run_in_integers(net: str, tmp_path: Path) -> None:
    assembler = assembler_of(NETS[net]())
    model = assembler.assemble(plan_for(assembler.prepared)).data
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.optimized_model_filepath = str(tmp_path / "loaded.onnx")
    ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    ops = [n.op_type for n in onnx.load(tmp_path / "loaded.onnx").graph.node]
    assert (ops.count("QuantizeLinear"), ops.count("DequantizeLinear")) == (1, 1)


@pytest.mark.parametrize("net", NETS)
def test_what_is_moved_is_not_rounded_again(net: str) -> None:
    """In exact arithmetic the answers are those of a model that reads what was moved as floats."""
    assembler = assembler_of(NETS[net]())
    model = onnx.load_from_string(assembler.assemble(plan_for(assembler.prepared)).data)
    plain = onnx.ModelProto()
    plain.CopyFrom(model)
    moved = {o for n in plain.graph.node if n.op_type in ("Split", "Gather") for o in n.output}
    made = {o: n for n in plain.graph.node for o in n.output}
    for node in plain.graph.node:
        for i, name in enumerate(node.input):
            pair = made.get(name)
            if pair is not None and pair.op_type == "DequantizeLinear":
                source = made.get(pair.input[0])
                if source is not None and source.input[0] in moved:
                    node.input[i] = source.input[0]
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    answers = [
        ort.InferenceSession(m.SerializeToString(), options).run(None, feeds(9))[0]
        for m in (model, plain)
    ]
    assert np.array_equal(*answers)


def test_pieces_of_a_float_tensor_are_quantized_by_their_own_ranges() -> None:
    assembler = assembler_of(split())
    model = assembler.assemble(plan_for(assembler.prepared, but=(0,))).data
    (node,) = moving_nodes(model)
    quantized = scales(model, "QuantizeLinear")
    assert len({quantized[o] for o in node.output}) == 2


def test_nothing_is_written_where_only_float_layers_read() -> None:
    assembler = assembler_of(split())
    model = assembler.assemble(plan_for(assembler.prepared, but=(1, 2))).data
    (node,) = moving_nodes(model)
    assert not set(node.output) & set(scales(model, "QuantizeLinear"))


def test_an_output_of_the_model_stays_as_it_is() -> None:
    assembler = assembler_of(split(public=True))
    model = assembler.assemble(plan_for(assembler.prepared)).data
    (node,) = moving_nodes(model)
    assert "half" in node.output


def test_a_search_sees_layers_read_what_was_moved() -> None:
    for net in (split(), gather()):
        prepared = prepare(net)
        first, *others = reading_origins(prepared.proto, prepared.layers)
        assert first.output in others[0].inputs
        assert first == prepared.layers[0]
    prepared = prepare(split())
    _, conv, add, _ = reading_origins(prepared.proto, prepared.layers)
    assert set(add.inputs) == {conv.output, prepared.layers[0].output}


@dataclasses.dataclass
class Look:
    """Asks for nothing and remembers the layers of its space."""

    needs: frozenset[seqto.Need] = frozenset()
    layers: list[seqto.Layer] = dataclasses.field(default_factory=list)

    def search(self, space: Any, *, seed: int) -> Any:
        self.layers += space.layers
        yield from ()


@pytest.mark.usefixtures("inline")
def test_a_run_gives_its_strategy_such_layers(tmp_path: Path) -> None:
    path = nets.save(gather(), tmp_path / "net.onnx")
    samples = tmp_path / "samples.npz"
    np.savez(samples, x=np.concatenate([feeds(i)["x"] for i in range(20)]))
    look = Look()
    sizes = {"data__calibration": 4, "data__evaluation": 5, "analysis__diagnose": False}
    seqto.tune(path, data=samples, out=tmp_path / "o", strategy=look, **sizes)
    assert look.layers[0].output in look.layers[1].inputs
