"""Small bundles made in code: an encoder, and a decoder with or without a cache.

    encoder  ids → embedding → MatMul → Tanh → memory
    decoder  tokens → embedding → q, k, v → attention of the last token → + attention on memory
             → MatMul → Tanh → MatMul → logits, of which the stop token's grow with the length

The decoder with a cache takes the tokens that are new, and k and v of the others; it computes the
same numbers. Without memory it is a decoder that continues its source.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

VOCABULARY, WIDTH = 24, 16
PAD, START, STOP, UNKNOWN = 0, 1, 2, 3
LETTERS = "abcdefghijklmnopqrst"  # tokens 4 to 23
INT, FLOAT = TensorProto.INT64, TensorProto.FLOAT


class _Graph:
    """Nodes and weights of a graph that is being written."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.nodes: list[Any] = []
        self.weights: list[Any] = []

    def constant(self, name: str, value: Any) -> str:
        self.weights.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def matrix(self, name: str, rows: int, columns: int, *, scale: float = 1.0) -> str:
        values = self.random.normal(0, scale / np.sqrt(rows), (rows, columns))
        return self.constant(name, values.astype(np.float32))

    def node(self, op: str, inputs: list[str], output: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(op, inputs, [output], f"{op}-{output}", **attributes))
        return output

    def model(self, inputs: list[Any], outputs: list[Any], *, opset: int) -> onnx.ModelProto:
        graph = helper.make_graph(self.nodes, "g", inputs, outputs, self.weights)
        imports = [helper.make_opsetid("", opset)]
        made = helper.make_model(graph, opset_imports=imports, ir_version=8)
        onnx.checker.check_model(made, full_check=True)
        return made


def _value(name: str, kind: int, *shape: Any) -> Any:
    return helper.make_tensor_value_info(name, kind, list(shape))


def encoder(*, seed: int = 0, opset: int = 17) -> onnx.ModelProto:
    g = _Graph(seed)
    embedding = g.matrix("embedding", VOCABULARY, WIDTH, scale=5)
    x = g.node("Gather", [embedding, "ids"], "x")
    y = g.node("MatMul", [x, g.matrix("w", WIDTH, WIDTH, scale=1.5)], "y")
    z = g.node("Add", [y, g.constant("b", np.zeros(WIDTH, np.float32))], "z")
    g.node("Tanh", [z], "memory")
    ids = _value("ids", INT, "batch", "length")
    return g.model([ids], [_value("memory", FLOAT, "batch", "length", WIDTH)], opset=opset)


def decoder(
    *,
    cache: bool = False,
    memory: bool = True,
    seed: int = 1,
    opset: int = 17,
    all_positions: bool = False,
) -> onnx.ModelProto:
    """`all_positions`: logits are [batch, tokens, vocabulary], of which the last ones count."""
    g = _Graph(seed)
    x = g.node("Gather", [g.matrix("embedding", VOCABULARY, WIDTH, scale=5), "tokens"], "x")
    q, k, v = (g.node("MatMul", [x, g.matrix(f"w{n}", WIDTH, WIDTH, scale=1.5)], n) for n in "qkv")
    if cache:
        k = g.node("Concat", ["past_k", k], "present_k", axis=1)
        v = g.node("Concat", ["past_v", v], "present_v", axis=1)
    one = [
        g.constant(n, np.array([x], np.int64)) for n, x in (("m1", -1), ("end", 2**31), ("a1", 1))
    ]
    last = g.node("Slice", [q, *one], "last")
    h = _attend(g, last, k, v, "self")
    if memory:
        h = g.node("Add", [h, _attend(g, last, "memory", "memory", "cross")], "sum")
    o = g.node("MatMul", [h, g.matrix("wo", WIDTH, WIDTH, scale=2)], "o")
    bias = g.constant("bo", g.random.normal(0, 0.3, WIDTH).astype(np.float32))
    t = g.node("Tanh", [g.node("Add", [o, bias], "ob")], "t")
    raw = g.node("MatMul", [t, g.matrix("out", WIDTH, VOCABULARY, scale=4)], "raw")
    # the stop token becomes more likely with each token
    shape = g.node("Shape", [k], "shape")
    size = g.node("Gather", [shape, g.constant("one", np.int64(1))], "size")
    count = g.node("Cast", [size], "count", to=FLOAT)
    ramp = np.zeros(VOCABULARY, np.float32)
    ramp[STOP] = 0.6
    slope = g.node("Mul", [g.constant("ramp", ramp), count], "slope")
    lifted = g.node("Add", [raw, slope], "all" if not all_positions else "logits")
    if not all_positions:
        g.node("Squeeze", [lifted, "a1"], "logits")
    inputs = [_value("tokens", INT, "batch", "new")]
    outputs = [_value("logits", FLOAT, "batch", *(["one"] if all_positions else []), VOCABULARY)]
    if memory:
        inputs.append(_value("memory", FLOAT, "batch", "length", WIDTH))
    if cache:
        inputs += [_value(f"past_{n}", FLOAT, "batch", "past", WIDTH) for n in "kv"]
        outputs += [_value(f"present_{n}", FLOAT, "batch", "total", WIDTH) for n in "kv"]
    return g.model(inputs, outputs, opset=opset)


def _attend(g: _Graph, query: str, keys: str, values: str, name: str) -> str:
    turned = g.node("Transpose", [keys], f"{name}_t", perm=[0, 2, 1])
    scores = g.node("MatMul", [query, turned], f"{name}_s")
    weights = g.node("Softmax", [scores], f"{name}_w", axis=-1)
    return g.node("MatMul", [weights, values], f"{name}_o")


def wiring(*, cache: bool = False, memory: bool = True) -> dict[str, dict[str, Any]]:
    """Return the tables [task.encoder] and [task.decoder] of these components."""
    words: dict[str, Any] = {"tokens": "new" if cache else "tokens"}
    if memory:
        words["memory"] = "encoder:memory"
    if cache:
        words |= {"past_k": "carry:present_k", "past_v": "carry:present_v"}
    words["output"] = {"logits": "logits"}
    return {"encoder": {"ids": "ids"} if memory else {}, "decoder": words}


def write_bundle(folder: Path, *, cache: bool = False, memory: bool = True) -> dict[str, str]:
    """Write the files of a bundle; return [model.bundle]."""
    folder.mkdir(parents=True, exist_ok=True)
    made = {"encoder": encoder()} if memory else {}
    made["decoder"] = decoder(cache=cache, memory=memory)
    for name, proto in made.items():
        onnx.save(proto, str(folder / f"tiny-{name}.onnx"))
    return {name: str(folder / f"tiny-{name}.onnx") for name in made}


def write_tokenizer(path: Path) -> Path:
    """Return a tokenizer.json with one token a letter."""
    special = ["<pad>", "<s>", "</s>", "<unk>"]
    vocabulary = {token: number for number, token in enumerate([*special, *LETTERS])}
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    added = [{"id": i, "content": t, **flags, "special": True} for i, t in enumerate(special)]
    model = {"type": "BPE", "unk_token": "<unk>", "vocab": vocabulary, "merges": []}
    content = {"version": "1.0", "added_tokens": added, "model": model, "decoder": {"type": "Fuse"}}
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def words(count: int, *, seed: int = 0, shortest: int = 3, longest: int = 9) -> list[str]:
    """Return words of random letters."""
    random = np.random.default_rng(seed)
    lengths = random.integers(shortest, longest + 1, count)
    return ["".join(random.choice(list(LETTERS), n)) for n in lengths]


def ids(word: str) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.array([LETTERS.index(letter) + 4 for letter in word], np.int64)
