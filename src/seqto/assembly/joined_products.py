"""Products with one input are written as one: Q, K and V of attention, gate and up of an MLP.

    x ─┬─ MatMul(Q) ─ Add ─▶ q
       ├─ MatMul(K) ─ Add ─▶ k      x ─ MatMul(Q | K | V) ─ Add ─ Split ─┬─▶ q
       └─ MatMul(V) ─ Add ─▶ v                                           ├─▶ k
                                                                         └─▶ v

Each column keeps its numbers, so the answers stay. With few tokens the start of a kernel takes as
long as its sums. Layers are still decided one by one: those are joined that a plan keeps in one
form, dynamic integers or n-bit integers in blocks of one size.

The name of a joined product has the names of all, so that a profile can be told by layers.
"""

from __future__ import annotations

import dataclasses
import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from seqto.schemes.part import tensor

SEPARATOR = "+"  # between the names of joined nodes
JOINED_SINCE = 2  # version of the preparation (model/prepare.py)


@dataclass(frozen=True, slots=True)
class _Form:
    """What products have in common that can be joined: their input, and how weights are kept."""

    op_type: str
    source: str
    kind: int  # of the integers, as TensorProto.DataType
    block: int = 0
    zero: bool = True


@dataclass(frozen=True, slots=True)
class _Product:
    """A product as a scheme writes it."""

    node: Any
    nodes: tuple[Any, ...]  # that a joined product stands in for, in their order
    weight: str
    scale: str
    zero: str | None
    columns: int
    output: str
    added: str | None = None  # the bias

    @property
    def constants(self) -> tuple[str, ...]:
        return tuple(name for name in (self.weight, self.scale, self.zero, self.added) if name)


def join_products(
    nodes: Sequence[Any], initializers: Mapping[str, Any], *, public: frozenset[str]
) -> tuple[list[Any], dict[str, Any]]:
    """Return nodes and constants with products of one input and one form joined."""
    graph = _Graph(nodes, initializers, public)
    groups: dict[_Form, list[_Product]] = {}
    for node in nodes:
        form_and_product = graph.product_of(node)
        if form_and_product is not None:
            form, product = form_and_product
            groups.setdefault(form, []).append(product)
    writers = [_Writer(graph, f, ps) for f, ps in groups.items() if len(ps) > 1]
    if not writers:
        return list(nodes), dict(initializers)
    removed = {id(n) for w in writers for p in w.products for n in p.nodes}
    kept = [n for n in nodes if id(n) not in removed]
    constants = {**initializers}
    for writer in writers:
        kept += writer.write(constants)
    used = {x for n in kept for x in n.input} | public
    return in_order(kept), {name: t for name, t in constants.items() if name in used}


class _Graph:
    """Look-ups in the graph of a plan."""

    def __init__(
        self, nodes: Sequence[Any], initializers: Mapping[str, Any], public: frozenset[str]
    ) -> None:
        self.constants, self.public = initializers, public
        self.makers = {o: n for n in nodes for o in n.output}
        self.readers: dict[str, list[Any]] = {}
        for node in nodes:
            for name in node.input:
                self.readers.setdefault(name, []).append(node)
        self.fixed = set(initializers)  # constants, and what is made of constants alone
        for node in nodes:
            if node.input and self.fixed.issuperset(x for x in node.input if x):
                self.fixed.update(node.output)

    def product_of(self, node: Any) -> tuple[_Form, _Product] | None:
        """Return a product in a form that can be joined, or None."""
        if not node.name or node.op_type not in ("MatMul", "MatMulInteger"):
            return None
        read = self._dynamic if node.op_type == "MatMulInteger" else self._nbit
        form_and_product = read(node)
        if form_and_product is None:
            return None
        form, product = form_and_product
        if not form.kind or not self.fixed.issuperset(product.constants):
            return None
        four_bits = form.kind in _four_bits()
        if four_bits and not {product.weight, product.zero or product.weight} <= set(
            self.constants
        ):
            return None  # ONNX Runtime does not concatenate them
        return form, self._with_bias(product)

    def _dynamic(self, node: Any) -> tuple[_Form, _Product] | None:
        """Read MatMulInteger ─ Cast ─ Mul behind DynamicQuantizeLinear, as DynamicInt writes it."""
        data, weight, zero, weight_zero = node.input
        quantized, cast = self.makers.get(data), self._only_reader(node.output[0], "Cast")
        product = self._only_reader(cast.output[0], "Mul") if cast is not None else None
        if quantized is None or quantized.op_type != "DynamicQuantizeLinear" or product is None:
            return None
        scales = self.makers.get(product.input[1])
        if scales is None or scales.op_type != "Mul" or scales.input[0] != quantized.output[1]:
            return None
        size = self._size(scales.input[1])
        if zero != quantized.output[2] or size is None or self._size(weight_zero) != size:
            return None
        form = _Form(node.op_type, data, self._kind(weight))
        nodes, output = (node, cast, scales, product), str(product.output[0])
        return form, _Product(node, nodes, weight, scales.input[1], weight_zero, size, output)

    def _nbit(self, node: Any) -> tuple[_Form, _Product] | None:
        """Read DequantizeLinear ─ MatMul of constant integers, as NBit writes it."""
        maker = self.makers.get(node.input[1])
        if maker is None or maker.op_type != "DequantizeLinear" or node.input[0] in self.fixed:
            return None
        attributes = {a.name: int(a.i) for a in maker.attribute}
        block = attributes.get("block_size", 0)
        weight, scale, *zero = maker.input
        columns = self._size(scale)
        if attributes.get("axis") != (0 if block else 1) or columns is None:
            return None
        form = _Form(node.op_type, node.input[0], self._kind(weight), block, bool(zero))
        names = (weight, scale, zero[0] if zero else None)
        return form, _Product(node, (maker, node), *names, columns, str(node.output[0]))

    def _with_bias(self, product: _Product) -> _Product:
        """Return the product with the bias that is added to it, where nothing else reads it."""
        add = self._only_reader(product.output, "Add")
        if add is None:
            return product
        others = [x for x in add.input if x != product.output]
        if len(others) != 1 or others[0] not in self.fixed:
            return product
        if self._dims(others[0]) != (product.columns,):
            return product
        output = str(add.output[0])
        nodes = (*product.nodes, add)
        return dataclasses.replace(product, nodes=nodes, output=output, added=others[0])

    def _only_reader(self, name: str, op_type: str) -> Any:
        readers = self.readers.get(name, [])
        if name in self.public or len(readers) != 1 or readers[0].op_type != op_type:
            return None
        return readers[0]

    def _size(self, name: str) -> int | None:
        """Return the length of the last axis of a constant; None for a single number."""
        dims = self._dims(name)
        return dims[-1] if dims else None

    def _dims(self, name: str) -> tuple[int, ...]:
        """Return the shape of a constant, also of one that is stored in half precision."""
        maker = self.makers.get(name)
        if name not in self.constants and maker is not None and maker.op_type == "Cast":
            name = maker.input[0]
        item = self.constants.get(name)
        return () if item is None else tuple(int(d) for d in item.dims)

    def _kind(self, name: str) -> int:
        """Return the type of a constant's numbers; 0 where it is not known."""
        if name in self.constants:
            return int(self.constants[name].data_type)
        maker = self.makers.get(name)
        if maker is None or maker.op_type != "Cast":
            return 0
        return next(int(a.i) for a in maker.attribute if a.name == "to")


class _Writer:
    """Writes one product in place of several."""

    def __init__(self, graph: _Graph, form: _Form, products: Sequence[_Product]) -> None:
        self.form, self._graph = form, graph
        # one that has no bias of its own leaves the others' where they are
        plain = any(p.added is None for p in products)
        self.products = [_without_bias(p) for p in products] if plain else list(products)
        self._nodes: list[Any] = []

    def write(self, constants: dict[str, Any]) -> list[Any]:
        """Return the nodes; put the constants that they read among the others."""
        import onnx

        make, form, products = onnx.helper.make_node, self.form, self.products
        self._nodes = []
        stem = f"{products[0].output}j"
        name = SEPARATOR.join(p.node.name for p in products)
        weight = self._joined([p.weight for p in products], stem + "q", 1, constants)
        last = 1 if form.block else 0  # axis of scales and zero points
        scale = self._joined([p.scale for p in products], stem + "s", last, constants)
        zeros = [p.zero for p in products if p.zero]
        zero = self._joined(zeros, stem + "z", last, constants) if zeros else None
        if form.op_type == "MatMulInteger":
            first = products[0].nodes
            inputs = [form.source, weight, first[0].input[2], zero]
            self._nodes += [
                make("MatMulInteger", inputs, [stem + "i"], name=name),
                make("Cast", [stem + "i"], [stem + "f"], to=onnx.TensorProto.FLOAT),
                make("Mul", [first[2].input[0], scale], [stem + "X"]),
                make("Mul", [stem + "f", stem + "X"], [stem]),
            ]
        else:
            how = {"axis": 0, "block_size": form.block} if form.block else {"axis": 1}
            inputs = [weight, scale, *([zero] if zero else [])]
            self._nodes.append(make("DequantizeLinear", inputs, [stem + "w"], **how))
            self._nodes.append(make("MatMul", [form.source, stem + "w"], [stem], name=name))
        result = stem
        biases = [p.added for p in products if p.added]
        if biases:
            bias = self._joined(biases, stem + "b", 0, constants)
            result = stem + "a"
            self._nodes.append(make("Add", [stem, bias], [result]))
        sizes = [p.columns for p in products]
        widths = "split" + "x".join(map(str, sizes))
        constants.setdefault(widths, tensor(widths, np.array(sizes, np.int64)))
        outputs = [p.output for p in products]
        self._nodes.append(make("Split", [result, widths], outputs, axis=-1))
        return self._nodes

    def _joined(self, names: Sequence[str], name: str, axis: int, constants: dict[str, Any]) -> str:
        """Return the name of constants behind one another; what is made at load is joined there."""
        import onnx

        if not all(x in constants for x in names):
            self._nodes.append(onnx.helper.make_node("Concat", list(names), [name], axis=axis))
            return name
        arrays = [onnx.numpy_helper.to_array(constants[x]) for x in names]
        bits = 4 if constants[names[0]].data_type in _four_bits() else 8
        if bits == 4:
            signed = constants[names[0]].data_type == onnx.TensorProto.INT4
            arrays = [a.astype(np.int8 if signed else np.uint8) for a in arrays]
        constants[name] = tensor(name, np.concatenate(arrays, axis=axis), bits=bits)
        return name


def _without_bias(product: _Product) -> _Product:
    """Return the product without the addition of its bias."""
    if product.added is None:
        return product
    *nodes, add = product.nodes
    output = next(str(x) for x in add.input if x != product.added)
    return dataclasses.replace(product, nodes=tuple(nodes), output=output, added=None)


def _four_bits() -> tuple[int, int]:
    import onnx

    return onnx.TensorProto.INT4, onnx.TensorProto.UINT4


def in_order(nodes: Sequence[Any]) -> list[Any]:
    """Return the nodes in an order in which each follows those that it reads, changed little."""
    makers = {o: i for i, n in enumerate(nodes) for o in n.output if o}
    waits = [{makers[x] for x in n.input if x in makers} for n in nodes]
    readers: dict[int, list[int]] = {}
    for i, sources in enumerate(waits):
        for source in sources:
            readers.setdefault(source, []).append(i)
    ready = [i for i, sources in enumerate(waits) if not sources]
    heapq.heapify(ready)
    ordered = []
    while ready:
        i = heapq.heappop(ready)
        ordered.append(nodes[i])
        for reader in readers.get(i, ()):
            waits[reader].discard(i)
            if not waits[reader]:
                heapq.heappush(ready, reader)
    return ordered
