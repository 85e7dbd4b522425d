"""Small transformers as exporters write them, and a recurrent net.

encoder   opset 11, TorchScript style: norms and Gelu taken apart, mask of -3.4e38, shapes computed

    ids ── Gather(table) ─┐
    Slice(positions) ─────┴ Add ─ norm ─┬─ block ─ hidden
    mask ─ Cast ─ 1 - x ─ Mul(-3.4e38) ─┘

decoder   opset 18, dynamo style: LayerNormalization as an op, one causal Where, a tied table

    ids ── Gather(table) ─ Add(positions) ─ block ─ LayerNormalization ─ MatMul(tableᵀ) ─ logits

block     x ─┬─ q ─┐
             ├─ k ─┴ MatMul ─ Div ─ + mask ─ Softmax ─┐
             ├─ v ────────────────────────────────────┴ MatMul ─ o ─┐
             └──────────────────────────────────────────────────────┴ Add ─ norm ─ mlp
mlp       x ─┬─ up ─ Gelu ─ down ─┬ Add
             └────────────────────┘

recurrent ids ─ Gather(table) ─ Transpose ─ GRU(W, R, B) ─ Squeeze ─ MatMul ─ y
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

VOCABULARY, WIDTH, HEADS, INNER, LENGTH = 160, 64, 2, 128, 32
MASKED = -3.4e38


class _Graph:
    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def weight(self, *shape: int, scale: float = 1.0) -> str:
        values = self.rng.standard_normal(shape) * scale / np.sqrt(shape[0])
        return self.constant(values.astype(np.float32))

    def constant(self, values: NDArray[Any]) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def number(self, value: float) -> str:
        return self.constant(np.array(value, np.float32))

    def ints(self, *values: int) -> str:
        return self.constant(np.array(values, np.int64))

    def add(self, op: str, *inputs: str, output: str = "", name: str = "", **more: Any) -> str:
        made = output or f"n{len(self.nodes)}"
        name = name or f"/{op}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [made], name=name, **more))
        return made

    def dense(self, x: str, rows: int, columns: int, *, name: str) -> str:
        product = self.add("MatMul", x, self.weight(rows, columns), name=f"/{name}/MatMul")
        return self.add("Add", product, self.weight(columns, scale=0.1), name=f"/{name}/Add")

    def norm(self, x: str, *, apart: bool) -> str:
        scale = self.constant((1 + 0.1 * self.rng.standard_normal(WIDTH)).astype(np.float32))
        shift = self.constant((0.1 * self.rng.standard_normal(WIDTH)).astype(np.float32))
        if not apart:
            return self.add("LayerNormalization", x, scale, shift, axis=-1)
        centred = self.add("Sub", x, self.add("ReduceMean", x, axes=[-1]))
        square = self.add("Pow", centred, self.number(2.0))
        spread = self.add("Add", self.add("ReduceMean", square, axes=[-1]), self.number(1e-5))
        unit = self.add("Div", centred, self.add("Sqrt", spread))
        return self.add("Add", self.add("Mul", unit, scale), shift)

    def heads(self, x: str, perm: list[int]) -> str:
        shape = self.ints(0, 0, HEADS, WIDTH // HEADS)
        return self.add("Transpose", self.add("Reshape", x, shape), perm=perm)

    def block(self, x: str, mask: str, *, apart: bool) -> str:
        q = self.heads(self.dense(x, WIDTH, WIDTH, name="q"), [0, 2, 1, 3])
        k = self.heads(self.dense(x, WIDTH, WIDTH, name="k"), [0, 2, 3, 1])
        v = self.heads(self.dense(x, WIDTH, WIDTH, name="v"), [0, 2, 1, 3])
        scores = self.add("Div", self.add("MatMul", q, k), self.number((WIDTH / HEADS) ** 0.5))
        weights = self.add("Softmax", self.add("Add", scores, mask), axis=-1)
        mixed = self.add("Transpose", self.add("MatMul", weights, v), perm=[0, 2, 1, 3])
        flat = self.add("Reshape", mixed, self.ints(0, 0, WIDTH))
        x = self.norm(self.add("Add", self.dense(flat, WIDTH, WIDTH, name="o"), x), apart=apart)
        up = self.dense(x, WIDTH, INNER, name="up")
        bent = self.add("Erf", self.add("Div", up, self.number(2**0.5)))
        gelu = self.add(
            "Mul", self.add("Mul", up, self.add("Add", bent, self.number(1.0))), self.number(0.5)
        )
        return self.add("Add", self.dense(gelu, INNER, WIDTH, name="down"), x)

    def model(self, inputs: dict[str, list[Any]], output: str, shape: list[Any], opset: int) -> Any:
        given = [helper.make_tensor_value_info(n, TensorProto.INT64, s) for n, s in inputs.items()]
        result = helper.make_tensor_value_info(output, TensorProto.FLOAT, shape)
        graph = helper.make_graph(self.nodes, "net", given, [result], self.constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
        model.ir_version = 8
        onnx.checker.check_model(model)
        return model


def encoder(*, seed: int = 0) -> Any:
    """As torch.onnx's TorchScript exporter writes a sentence encoder."""
    net = _Graph(seed)
    words = net.add("Gather", net.weight(VOCABULARY, WIDTH), "ids", name="/words/Gather")
    length = net.add("Gather", net.add("Shape", "ids"), net.ints(1))
    places = net.add(
        "Slice", net.weight(LENGTH, WIDTH), net.ints(0), length, net.ints(0), name="/places/Slice"
    )
    x = net.norm(net.add("Add", words, places), apart=True)
    wide = net.add("Unsqueeze", net.add("Unsqueeze", "mask", axes=[1]), axes=[2])
    kept = net.add("Cast", wide, to=TensorProto.FLOAT)
    mask = net.add("Mul", net.add("Sub", net.number(1.0), kept), net.number(MASKED))
    net.add("Identity", net.block(x, mask, apart=True), output="hidden")
    shape: list[Any] = ["batch", "length"]
    return net.model({"ids": shape, "mask": shape}, "hidden", [*shape, WIDTH], 11)


def classifier(*, seed: int = 3) -> Any:
    """Return the encoder with its block's mean and four classes behind it."""
    net = _Graph(seed)
    words = net.add("Gather", net.weight(VOCABULARY, WIDTH), "ids", name="/words/Gather")
    x = net.block(net.norm(words, apart=True), net.number(0.0), apart=True)
    mean = net.add("Squeeze", net.add("ReduceMean", x, axes=[1]), axes=[1])
    net.add("Gemm", mean, net.weight(WIDTH, 4, scale=4.0), net.weight(4), output="logits")
    return net.model({"ids": ["batch", "length"]}, "logits", ["batch", 4], 11)


def decoder(*, seed: int = 1) -> Any:
    """As torch.onnx's dynamo exporter writes a language model with a tied table."""
    net = _Graph(seed)
    table = net.weight(VOCABULARY, WIDTH)
    words = net.add("Gather", table, "ids", name="node_embedding")
    length = net.add("Gather", net.add("Shape", "ids"), net.ints(1))
    places = net.add("Slice", net.weight(LENGTH, WIDTH), net.ints(0), length, net.ints(0))
    x = net.add("Add", words, places)
    count = net.add("Squeeze", length)
    steps = net.add("Range", net.constant(np.array(0)), count, net.constant(np.array(1)))
    column = net.add("Unsqueeze", steps, net.ints(1))
    later = net.add("Less", column, steps)
    mask = net.add("Where", later, net.number(MASKED), net.number(0.0))
    x = net.add("LayerNormalization", net.block(x, mask, apart=False), net.weight(WIDTH, scale=8.0))
    net.add(
        "MatMul", x, net.add("Transpose", table, perm=[1, 0]), output="logits", name="node_head"
    )
    shape: list[Any] = ["batch", "length"]
    return net.model({"ids": shape}, "logits", [*shape, VOCABULARY], 18)


def recurrent(*, seed: int = 2) -> Any:
    """Return a GRU over embedded tokens."""
    net = _Graph(seed)
    words = net.add("Gather", net.weight(VOCABULARY, WIDTH), "ids", name="/words/Gather")
    turned = net.add("Transpose", words, perm=[1, 0, 2])
    state = INNER // 2
    weights = (
        net.weight(1, 3 * state, WIDTH, scale=0.1),
        net.weight(1, 3 * state, state, scale=0.1),
    )
    bias = net.weight(1, 6 * state, scale=0.05)
    node = helper.make_node(
        "GRU", [turned, *weights, bias], ["", "last"], name="/encoder/GRU", hidden_size=state
    )
    net.nodes.append(node)
    flat = net.add("Squeeze", "last", net.ints(0))
    net.add("MatMul", flat, net.weight(state, 12), output="y")
    return net.model({"ids": ["batch", "length"]}, "y", ["batch", 12], 17)


def tokens(
    model: Any, *, batch: int = 2, length: int = 9, seed: int = 0
) -> dict[str, NDArray[Any]]:
    """Return feeds for one of the nets: token ids, and a mask without padding."""
    rng = np.random.default_rng(seed)
    feeds = {"ids": rng.integers(0, VOCABULARY, (batch, length))}
    if any(i.name == "mask" for i in model.graph.input):
        feeds["mask"] = np.ones((batch, length), np.int64)
    return feeds
