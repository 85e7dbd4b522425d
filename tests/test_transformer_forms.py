"""Forms in which exporters write transformers, beside those of tests/token_nets.py.

fused     q, k, v ─▶ Attention (opset 23) or MultiHeadAttention (ONNX Runtime's) ─▶ MatMul
einsum    x ─ Einsum(bsd,dhk->bshk) ×3 ─ Einsum(bqhk,bthk->bhqt) ─ Softmax ─
          Einsum(bhqt,bthk->bqhk) ─ Einsum(bqhk,hkd->bqd)
half      weights, inputs and outputs in float16
head      x ─▶ Gemm(table, transB=1): the table that Gather(ids) reads
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from seqto.data.arrays import Arrays
from seqto.data.store import SampleStore
from seqto.errors import ModelError
from seqto.execution.local.first_run import compare_here
from seqto.model.compare import relative_difference
from seqto.model.files import load
from seqto.model.prepare import prepare
from seqto.records import CALIBRATION, Layer
from seqto.schemes.scheme import Scheme, unfit
from seqto.schemes.types import S8, U8
from seqto.search.choices import default_schemes
from seqto.search.offered import has_attention, offered
from seqto.study import workspace

WIDTH, HEADS, DEPTH, WORDS = 32, 2, 16, 48
TOKENS: list[Any] = ["batch", "length"]


class Graph:
    """Nodes and constants of one net; weights in one float type."""

    def __init__(self, dtype: Any = np.float32) -> None:
        self.rng = np.random.default_rng(4)
        self.dtype = dtype
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, values: NDArray[Any]) -> str:
        self.constants.append(numpy_helper.from_array(values, f"c{len(self.constants)}"))
        return str(self.constants[-1].name)

    def weight(self, *shape: int, scale: float = 0.3) -> str:
        return self.constant((self.rng.standard_normal(shape) * scale).astype(self.dtype))

    def ints(self, *values: int) -> str:
        return self.constant(np.array(values, np.int64))

    def add(self, op: str, *inputs: str, output: str = "", domain: str = "", **more: Any) -> str:
        made = output or f"n{len(self.nodes)}"
        name = f"{op}_{len(self.nodes)}"
        node = helper.make_node(op, list(inputs), [made], name=name, domain=domain, **more)
        self.nodes.append(node)
        return made

    def model(self, *, opset: int = 18, inputs: dict[str, Any] | None = None, width: int) -> Any:
        kind = TensorProto.FLOAT16 if self.dtype is np.float16 else TensorProto.FLOAT
        given = inputs or {"ids": (TensorProto.INT64, TOKENS)}
        value = helper.make_tensor_value_info
        graph = helper.make_graph(
            self.nodes,
            "net",
            [value(n, t, s) for n, (t, s) in given.items()],
            [value("y", kind, [*TOKENS, width])],
            self.constants,
        )
        opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
        proto = helper.make_model(graph, opset_imports=opsets)
        proto.ir_version = 10
        return proto


def fused(kind: str) -> Any:
    net = Graph()
    x = net.add("Gather", net.weight(WORDS, WIDTH, scale=1.0), "ids")
    q, k, v = (net.add("MatMul", x, net.weight(WIDTH, WIDTH)) for _ in range(3))
    if kind == "Attention":
        y = net.add(kind, q, k, v, q_num_heads=HEADS, kv_num_heads=HEADS, is_causal=1)
    else:
        y = net.add(kind, q, k, v, domain="com.microsoft", num_heads=HEADS)
    net.add("MatMul", y, net.weight(WIDTH, WIDTH), output="y")
    return net.model(opset=23 if kind == "Attention" else 18, width=WIDTH)


def einsum() -> Any:
    net = Graph()
    x = net.add("Gather", net.weight(WORDS, WIDTH, scale=1.0), "ids")
    q, k = (
        net.add("Einsum", x, net.weight(WIDTH, HEADS, DEPTH), equation="bsd,dhk->bshk")
        for _ in range(2)
    )
    # the weights first, and their letters in another order
    v = net.add("Einsum", net.weight(HEADS, WIDTH, DEPTH), x, equation="hdk, bsd -> bshk")
    scores = net.add("Einsum", q, k, equation="bqhk,bthk->bhqt")
    mixed = net.add("Einsum", net.add("Softmax", scores), v, equation="bhqt,bthk->bqhk")
    net.add("Einsum", mixed, net.weight(HEADS, DEPTH, WIDTH), equation="bqhk,hkd->bqd", output="y")
    return net.model(width=WIDTH)


def half() -> Any:
    net = Graph(np.float16)
    x = net.add("Gather", net.weight(WORDS, WIDTH, scale=1.0), "ids")
    x = net.add("Mul", x, "factor")
    x = net.add("Mul", x, net.add("Cast", net.ints(2), to=TensorProto.FLOAT16))
    net.add("MatMul", net.add("Relu", x), net.weight(WIDTH, WIDTH), output="y")
    factor = (TensorProto.FLOAT16, ["batch", 1, 1])
    return net.model(inputs={"ids": (TensorProto.INT64, TOKENS), "factor": factor}, width=WIDTH)


def head(*, bias: bool) -> Any:
    net = Graph()
    table = net.weight(WORDS, WIDTH, scale=1.0)
    x = net.add("Gather", table, "ids")
    x = net.add("MatMul", x, net.weight(WIDTH, WIDTH))
    flat = net.add("Reshape", x, net.ints(-1, WIDTH))
    y = net.add("Gemm", flat, table, *([net.weight(WORDS)] if bias else []), transB=1)
    shape = net.add("Concat", net.add("Shape", "ids"), net.ints(WORDS), axis=0)
    net.add("Reshape", y, shape, output="y")
    return net.model(width=WORDS)


def answers(proto: Any, feeds: dict[str, NDArray[Any]]) -> Any:
    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, feeds)[0]


def feeds_of(proto: Any) -> dict[str, NDArray[Any]]:
    rng = np.random.default_rng(0)
    feeds: dict[str, NDArray[Any]] = {"ids": rng.integers(0, WORDS, (2, 7))}
    if any(i.name == "factor" for i in proto.graph.input):
        feeds["factor"] = np.array([0.5, 1.5], np.float16).reshape(2, 1, 1)
    return feeds


def weighted(layers: tuple[Layer, ...]) -> list[Layer]:
    return [x for x in layers if x.weight and not x.storage]


@pytest.mark.parametrize("kind", ["Attention", "MultiHeadAttention"])
def test_attention_as_one_node_is_attention(kind: str) -> None:
    prepared = prepare(fused(kind))
    assert has_attention(prepared.layers)
    assert len(weighted(prepared.layers)) == 4
    (layer,) = [x for x in prepared.layers if x.op_type == kind]
    assert offered(layer, attention=True) == ()
    # nor where the user asks for static integers
    reason = unfit(layer, Scheme.parse("static-u8"))
    assert reason is not None
    assert kind in reason
    static = default_schemes(
        prepared.layers, mode="static", weight=S8, activation=U8, per_channel=True
    )
    assert layer.name not in static


def test_products_by_constants_are_layers_in_whichever_form() -> None:
    proto = einsum()
    prepared = prepare(proto)
    assert [x.op_type for x in weighted(prepared.layers)] == ["MatMul"] * 4
    assert {x.weight_shape for x in weighted(prepared.layers)} == {(WIDTH, WIDTH)}
    assert has_attention(prepared.layers)
    left = [n.op_type for n in prepared.proto.graph.node if n.op_type == "Einsum"]
    assert len(left) == 2
    assert relative_difference(
        answers(proto, feeds_of(proto)), answers(prepared.proto, feeds_of(proto))
    ) == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize(
    "equation", ["bsd,dd->bs", "bsd,de->sbe", "bsd,ed->esb", "bds,de->bse", "bsd,bde->bse"]
)
def test_an_einsum_of_another_kind_stays_what_it_is(equation: str) -> None:
    net = Graph()
    x = net.add("Gather", net.weight(WORDS, WIDTH, scale=1.0), "ids")
    x = net.add("MatMul", x, net.weight(WIDTH, WIDTH))
    terms = equation.replace("->", ",").split(",")[1]
    y = net.add("Einsum", x, net.weight(*[WIDTH] * len(terms)), equation=equation)
    net.add("Identity", y, output="y")
    proto = net.model(width=WIDTH)
    feeds = {"ids": np.zeros((WIDTH, WIDTH), np.int64)}
    del proto.graph.output[0].type.tensor_type.shape.dim[:]
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    prepared = prepare(proto)
    assert [x.op_type for x in weighted(prepared.layers)] == ["MatMul"]
    difference = relative_difference(answers(proto, feeds), answers(prepared.proto, feeds))
    assert difference < 1e-6


def test_a_model_in_half_precision_is_widened_and_keeps_its_types() -> None:
    proto = half()
    prepared = prepare(proto)
    assert [x.op_type for x in weighted(prepared.layers)] == ["MatMul"]
    feeds = feeds_of(proto)
    float_answers, own = answers(proto, feeds), answers(prepared.proto, feeds)
    assert own.dtype == float_answers.dtype == np.float16
    assert relative_difference(float_answers, own) < 5e-3
    dtypes = {spec.name: spec.dtype for spec in prepared.inputs}
    assert dtypes == {"ids": "int64", "factor": "float16"}


@pytest.mark.parametrize("bias", [False, True])
def test_a_head_that_reads_the_embedding_as_it_is_shares_its_table(bias: bool) -> None:
    proto = head(bias=bias)
    prepared = prepare(proto)
    (tied,) = [x for x in prepared.layers if x.table is not None]
    assert tied.weight_shape == (WIDTH, WORDS)
    feeds = feeds_of(proto)
    assert relative_difference(answers(proto, feeds), answers(prepared.proto, feeds)) < 1e-6


@pytest.mark.parametrize(("net", "moved", "taken"), [("half", 0.01, True), ("head", 0.01, False)])
def test_a_model_in_half_precision_may_move_by_its_own_steps(
    net: str, moved: float, taken: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "net.onnx"
    onnx.save(half() if net == "half" else head(bias=False), path)
    device = SimpleNamespace(timeout_s=9.0, memory_mb=None)
    setup: Any = SimpleNamespace(
        settings=SimpleNamespace(device=device),
        fetched=SimpleNamespace(files=[str(path)], name="net"),
        wiring=None,
    )
    monkeypatch.setattr(workspace, "moved_answers", lambda *_a, **_k: moved)
    store: Any = SimpleNamespace(folder=tmp_path)
    if taken:
        workspace.check_answers(setup, path, store)
        return
    with pytest.raises(ModelError, match=r"moves its outputs by 0.01"):
        workspace.check_answers(setup, path, store)


def test_an_operator_that_only_the_runtime_knows_is_no_reason_to_refuse_a_file(
    tmp_path: Path,
) -> None:
    net = Graph()
    x = net.add("Gather", net.weight(WORDS, WIDTH, scale=1.0), "ids")
    x = net.add("SimplifiedLayerNormalization", x, net.weight(WIDTH), axis=-1, epsilon=1e-5)
    net.add("MatMul", x, net.weight(WIDTH, WIDTH), output="y")
    path = tmp_path / "net.onnx"
    onnx.save(net.model(width=WIDTH), path)
    prepared = prepare(load(path))
    assert len(weighted(prepared.layers)) == 1


def test_a_prepared_model_with_its_weights_beside_it_is_compared(tmp_path: Path) -> None:
    proto = head(bias=True)
    original, prepared = tmp_path / "net.onnx", tmp_path / "prepared.onnx"
    onnx.save(proto, original)
    made = prepare(proto)
    beside = {
        "save_as_external_data": True,
        "location": "prepared.onnx.data",
        "size_threshold": 1024,
    }
    onnx.save_model(made.proto, str(prepared), **beside)
    samples = tmp_path / "samples"
    np.savez(tmp_path / "ids.npz", ids=feeds_of(proto)["ids"])
    SampleStore.build(
        Arrays(str(tmp_path / "ids.npz")),
        samples,
        splits={CALIBRATION: [0, 1]},
        inputs=made.inputs,
    )
    assert compare_here([original], prepared, samples) < 1e-6
