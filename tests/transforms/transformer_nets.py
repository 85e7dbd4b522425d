"""Small transformer blocks in code, as exporters write them, for the transforms' tests.

x [n, 5, 16] ─ norm ─┬ q ─ heads ─┐
             │       ├ k ─ heads ─ QKᵀ/√d ─ Softmax ─ · ─ joined ─ o ─ + x
             │       └ v ─ heads ────────────────────┘
             └ residual
pre:  norm in front of attention and MLP; post: behind the residuals (BERT)
"""

from __future__ import annotations

from typing import Any

import numpy as np
from small_nets import Net

from seqto.model.prepare import Prepared

WIDTH, HEADS, INNER, LENGTH = 16, 2, 32, 5


class Blocks(Net):
    """Adds the parts of transformer blocks."""

    def dense(self, x: str, name: str, sizes: tuple[int, int], *, bias: bool = True) -> str:
        scale = self.uneven(sizes[0], spread=4.0).reshape(-1, 1)
        weight = (self.random.normal(size=sizes) * scale / np.sqrt(sizes[0])).astype(np.float32)
        y = self.op("MatMul", [x, self.constant(f"{name}_w", weight)], name)
        if not bias:
            return y
        shift = self.random.normal(size=sizes[1]).astype(np.float32) * 0.1
        return self.op("Add", [self.constant(f"{name}_b", shift), y], f"{name}_add")

    def norm(self, x: str, name: str, *, style: str) -> str:
        """style: op (LayerNormalization), torch (LayerNorm taken apart), rms (RMSNorm)."""
        loud = np.where(np.arange(WIDTH) == 3, 20.0, 1.0)
        scale = self.constant(
            f"{name}_g", (loud * self.uneven(WIDTH, spread=2.0)).astype(np.float32)
        )
        shift = self.constant(f"{name}_s", self.random.normal(size=WIDTH).astype(np.float32))
        if style == "op":
            return self.op("LayerNormalization", [x, scale, shift], name, axis=-1)
        two = self.constant(f"{name}_2", np.float32(2.0))
        eps = self.constant(f"{name}_e", np.float32(1e-5))
        if style == "torch":
            mean = self.op("ReduceMean", [x], f"{name}_mean", axes=[-1])
            x = self.op("Sub", [x, mean], f"{name}_sub")
        square = self.op("Pow", [x, two], f"{name}_pow")
        mean = self.op("ReduceMean", [square], f"{name}_var", axes=[-1])
        root = self.op("Sqrt", [self.op("Add", [mean, eps], f"{name}_eps")], f"{name}_root")
        y = self.op("Mul", [self.op("Div", [x, root], f"{name}_div"), scale], f"{name}_mul")
        return y if style == "rms" else self.op("Add", [y, shift], name)

    def heads(self, x: str, name: str, *, traced: bool, perm: tuple[int, ...]) -> str:
        """traced: the target of Reshape is computed from the shape, as torch.onnx traces it."""
        size = WIDTH // HEADS
        if traced:
            shape = self.op("Shape", [x], f"{name}_shape")
            start, stop = (self.constant(f"{name}_{i}", np.array([i])) for i in (0, 2))
            front = self.op("Slice", [shape, start, stop], f"{name}_front")
            back = self.constant(f"{name}_back", np.array([HEADS, size]))
            target = self.op("Concat", [front, back], f"{name}_target", axis=0)
        else:
            target = self.constant(f"{name}_target", np.array([0, 0, HEADS, size]))
        y = self.op("Reshape", [x, target], f"{name}_split")
        return self.op("Transpose", [y], f"{name}_heads", perm=list(perm))

    def attention(self, x: str, name: str, *, traced: bool, bias: bool) -> str:
        size = (WIDTH, WIDTH)
        q, k, v = (self.dense(x, f"{name}_{c}", size, bias=bias) for c in "qkv")
        q = self.heads(q, f"{name}_qh", traced=traced, perm=(0, 2, 1, 3))
        k = self.heads(k, f"{name}_kh", traced=traced, perm=(0, 2, 3, 1))
        v = self.heads(v, f"{name}_vh", traced=traced, perm=(0, 2, 1, 3))
        scores = self.op("MatMul", [q, k], f"{name}_scores")
        scores = self.op("Div", [scores, self.constant(f"{name}_d", np.float32(2.8))], f"{name}_s")
        weights = self.op("Softmax", [scores], f"{name}_softmax", axis=-1)
        y = self.op("MatMul", [weights, v], f"{name}_context")
        y = self.op("Transpose", [y], f"{name}_merge", perm=[0, 2, 1, 3])
        target = self.constant(f"{name}_joined", np.array([0, 0, WIDTH]))
        y = self.op("Reshape", [y, target], f"{name}_merged")
        return self.dense(y, f"{name}_o", size, bias=bias)

    def gelu(self, x: str, name: str) -> str:
        root, one, half = (
            self.constant(f"{name}_{i}", np.float32(c)) for i, c in enumerate((2**0.5, 1.0, 0.5))
        )
        y = self.op("Erf", [self.op("Div", [x, root], f"{name}_div")], f"{name}_erf")
        y = self.op("Mul", [x, self.op("Add", [y, one], f"{name}_add")], f"{name}_mul")
        return self.op("Mul", [y, half], name)

    def mlp(self, x: str, name: str, *, kind: str) -> str:
        up = self.dense(x, f"{name}_up", (WIDTH, INNER), bias=kind != "gated")
        if kind == "gated":
            gate = self.dense(x, f"{name}_gate", (WIDTH, INNER), bias=False)
            silu = self.op("Mul", [gate, self.op("Sigmoid", [gate], f"{name}_sig")], f"{name}_silu")
            up = self.op("Mul", [silu, up], f"{name}_gated")
        else:
            up = self.op("Relu", [up], f"{name}_relu") if kind == "relu" else self.gelu(up, name)
        return self.dense(up, f"{name}_down", (INNER, WIDTH), bias=kind != "gated")


def pre_norm(
    *, style: str = "op", kind: str = "relu", traced: bool = False, seed: int = 0
) -> Prepared:
    """As GPT-2 (op, gelu), OPT (relu) and Llama (rms, gated) are: norms feed layers alone."""
    net = Blocks(seed)
    bias = style != "rms"
    y = net.attention(net.norm("x", "n1", style=style), "a", traced=traced, bias=bias)
    x = net.op("Add", ["x", y], "r1")
    y = net.mlp(net.norm(x, "n2", style=style), "m", kind=kind)
    x = net.op("Add", [x, y], "r2")
    return _prepared(net, net.dense(net.norm(x, "n3", style=style), "head", (WIDTH, 8)))


def post_norm(*, traced: bool = False, seed: int = 0) -> Prepared:
    """As BERT is: residuals read the norms too."""
    net = Blocks(seed)
    x = net.norm("x", "n0", style="torch")
    x = net.op("Add", [x, net.attention(x, "a", traced=traced, bias=True)], "r1")
    x = net.norm(x, "n1", style="torch")
    x = net.op("Add", [x, net.mlp(x, "m", kind="gelu")], "r2")
    return _prepared(net, net.norm(x, "n2", style="torch"))


def _prepared(net: Any, output: str) -> Prepared:
    return net.prepare(output, [LENGTH, WIDTH])
