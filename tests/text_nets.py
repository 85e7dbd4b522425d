"""Small transformers of tokens, built in code.

encoder      ids ─ Gather ─ attention(mask) ─ Add ─ MatMul ─ Relu ─ MatMul ─ Add ─ hidden
tagger       the same, then ─ MatMul ─ logits, classes of each token
classifier   the same, then ─ mean(mask) ─ Gemm ─ logits
causal       tokens ─ Gather ─ attention(causal) ─ Add ─ MatMul ─ Relu ─ MatMul ─ Add ─ MatMul ─
             logits
             cached: k and v of earlier tokens are inputs, those of all tokens outputs

The mask of `classifier` and `encoder` is an input; what it hides gets −3.4e38 before Softmax.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from net_builder import Net
from text_files import VOCABULARY

WIDTH = 16
HIDDEN = 32
LOWEST = np.array(np.finfo(np.float32).min, dtype=np.float32)


class _Transformer(Net):
    def projected(self, x: str, sizes: tuple[int, int]) -> str:
        fan_in, fan_out = sizes
        values = self.rng.standard_normal((fan_in, fan_out)) / np.sqrt(fan_in)
        weight = self.constant(values.astype(np.float32))
        bias = self.constant((self.rng.standard_normal(fan_out) * 0.1).astype(np.float32))
        return self.add("Add", [self.add("MatMul", [x, weight]), bias])

    def embedded(self, ids: str) -> str:
        table = self.rng.standard_normal((len(VOCABULARY), WIDTH)) * 1.5
        return self.add("Gather", [self.constant(table.astype(np.float32)), ids])

    def attention(
        self, x: str, hidden: str, *, cached: bool = False, lowest: float | None = None
    ) -> str:
        """Return the block's output; `hidden`: true where a token may not be looked at (N×T×T).

        lowest: a mask of 0 and this number is added, as torch writes it; None: LOWEST is chosen.
        """
        q, k, v = (self.projected(x, (WIDTH, WIDTH)) for _ in range(3))
        if cached:
            k, v = (
                self.add("Concat", [f"past_key_values.0.{n}", x], output=f"present.0.{n}", axis=1)
                for n, x in (("key", k), ("value", v))
            )
        turned = self.add("Transpose", [k], perm=[0, 2, 1])
        scale = self.constant(np.array(WIDTH**-0.5, dtype=np.float32))
        scores = self.add("Mul", [self.add("MatMul", [q, turned]), scale])
        if lowest is None:
            masked = self.add("Where", [hidden, self.constant(LOWEST), scores])
        else:
            both = (self.constant(np.array(x, dtype=np.float32)) for x in (lowest, 0.0))
            masked = self.add("Add", [scores, self.add("Where", [hidden, *both])])
        mixed = self.add("MatMul", [self.add("Softmax", [masked], axis=-1), v])
        return self.add("Add", [x, self.projected(mixed, (WIDTH, WIDTH))])

    def feed_forward(self, x: str) -> str:
        inner = self.add("Relu", [self.projected(x, (WIDTH, HIDDEN))])
        return self.add("Add", [x, self.projected(inner, (HIDDEN, WIDTH))])

    def axes(self, *numbers: int) -> str:
        return self.constant(np.array(numbers, dtype=np.int64))

    def finished(self, inputs: dict[str, list[Any]], outputs: dict[str, list[Any]]) -> Any:
        value = helper.make_tensor_value_info
        graph = helper.make_graph(
            self.nodes,
            "net",
            [
                value(n, TensorProto.INT64 if len(s) == 2 else TensorProto.FLOAT, s)
                for n, s in inputs.items()
            ],
            [value(n, TensorProto.FLOAT, s) for n, s in outputs.items()],
            self.weights,
        )
        proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
        proto.ir_version = 7
        onnx.checker.check_model(proto, full_check=True)
        return proto


def encoder(*, length: int | str = "tokens", batch: int | str = "N", seed: int = 0) -> Any:
    net = _Transformer(seed=seed)
    _hidden(net, output="hidden")
    shape = [batch, length]
    return net.finished(
        {"input_ids": shape, "attention_mask": shape}, {"hidden": [batch, length, WIDTH]}
    )


def tagger(*, classes: int = 4, seed: int = 0) -> Any:
    net = _Transformer(seed=seed)
    hidden = _hidden(net)
    weight = (net.rng.standard_normal((WIDTH, classes)) / np.sqrt(WIDTH)).astype(np.float32)
    net.add("MatMul", [hidden, net.constant(weight)], output="logits")
    shape = ["N", "tokens"]
    return net.finished(
        {"input_ids": shape, "attention_mask": shape}, {"logits": [*shape, classes]}
    )


def classifier(*, classes: int = 2, length: int | str = "tokens", seed: int = 0) -> Any:
    net = _Transformer(seed=seed)
    hidden = _hidden(net)
    mask = net.add("Cast", ["attention_mask"], to=TensorProto.FLOAT)
    column = net.add("Unsqueeze", [mask, net.axes(2)])
    total = net.add("ReduceSum", [net.add("Mul", [hidden, column]), net.axes(1)], keepdims=0)
    count = net.add("ReduceSum", [column, net.axes(1)], keepdims=0)
    net.gemm(net.add("Div", [total, count]), (WIDTH, classes), output="logits")
    shape = ["N", length]
    return net.finished({"input_ids": shape, "attention_mask": shape}, {"logits": ["N", classes]})


def causal(
    *, cached: bool = False, ids: str = "tokens", lowest: float | None = None, seed: int = 0
) -> Any:
    """Return a language model without a mask: every token looks back alone.

    cached: with inputs and outputs for keys and values, as a decoder that generates has them.
    """
    net = _Transformer(seed=seed)
    x = net.embedded(ids)
    zero, one = (net.constant(np.array(number, dtype=np.int64)) for number in (0, 1))
    length = _size(net, ids)
    before = _size(net, "past_key_values.0.key") if cached else zero
    total = net.add("Add", [before, length]) if cached else length
    rows = net.add("Unsqueeze", [net.add("Range", [before, total, one]), net.axes(1)])
    columns = net.add("Unsqueeze", [net.add("Range", [zero, total, one]), net.axes(0)])
    later = net.add("Greater", [columns, rows])
    x = net.feed_forward(net.attention(x, later, cached=cached, lowest=lowest))
    words = len(VOCABULARY)
    weight = (net.rng.standard_normal((WIDTH, words)) / np.sqrt(WIDTH)).astype(np.float32)
    net.add("MatMul", [x, net.constant(weight)], output="logits")
    inputs: dict[str, list[Any]] = {ids: ["N", "tokens"]}
    outputs: dict[str, list[Any]] = {"logits": ["N", "tokens", words]}
    if cached:
        inputs |= {f"past_key_values.0.{n}": ["N", "past", WIDTH] for n in ("key", "value")}
        outputs |= {f"present.0.{n}": ["N", "total", WIDTH] for n in ("key", "value")}
    return net.finished(inputs, outputs)


def _size(net: _Transformer, name: str) -> str:
    """The second side of a tensor, as a number."""
    side = net.add("Gather", [net.add("Shape", [name]), net.axes(1)])
    return net.add("Squeeze", [side, net.axes(0)])


def _hidden(net: _Transformer, *, output: str = "") -> str:
    x = net.embedded("input_ids")
    absent = net.add("Equal", ["attention_mask", net.constant(np.array(0, dtype=np.int64))])
    x = net.attention(x, net.add("Unsqueeze", [absent, net.axes(1)]))
    inner = net.add("Relu", [net.projected(x, (WIDTH, HIDDEN))])
    return net.add("Add", [x, net.projected(inner, (HIDDEN, WIDTH))], output=output)
