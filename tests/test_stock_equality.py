"""What we assemble is bit for bit what onnxruntime.quantization writes, where it can write it.

We differ on purpose in six things:
- a channel without any weight gets the zero point of all others: stock gives unsigned weights a 0
  there beside 128 elsewhere, and ORT then runs the whole layer in float;
- names are short;
- zero points that are 0 are left out where ORT fuses its integer kernel without them (weights of
  Conv, all biases);
- a float layer reads the untouched float tensor of another float layer, where the stock quantizer
  lets it read the rounded one once a static layer reads it too;
- a plan is taken at its word, where the stock quantizer leaves pools and data-moving nodes float
  behind a float layer, whatever is asked: the plans below leave them float too;
- a layer that a plan keeps float runs in float, where ONNX Runtime quantizes the weights of what
  the stock quantizer leaves float between quantized neighbours: what stock writes is run without
  that optimizer below, what we write is not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

import nets
import stock
from seqto.assembly.assembler import Assembler
from seqto.assembly.plan import Plan
from seqto.calibration.collect import calibrate
from seqto.model.files import load
from seqto.model.layers import OUTPUT_OP
from seqto.model.prepare import Prepared, prepare
from seqto.records import Layer
from seqto.schemes.types import INT_TYPES, U8
from seqto.search.choices import default_schemes

Feeds = list[dict[str, NDArray[Any]]]

NETS = {
    "residual": nets.residual,
    "branches": nets.branches,
    "dense": nets.dense,
    "two_inputs": nets.two_inputs,
    "reshaped": nets.reshaped,
    "transposed": nets.transposed,
}
SETTINGS = [  # weight, activation, per channel
    ("s8", "s8", False),
    ("s8", "u8", True),
    ("u8", "u8", False),
    ("u8", "u8", True),
    ("s7", "u8", True),
    ("s7", "s8", False),
]
FOLLOWS_PRODUCER = ("MaxPool", "AveragePool", "Transpose", "Slice", "Resize", "Reshape")
ZOO = Path(__file__).resolve().parents[2] / "shared" / "zoo"
PICTURE_NETS = ("efficientnet-lite0", "mobilenetv1", "mobilenetv2", "squeezenet1.1")


def samples_for(prepared: Prepared, count: int, *, seed: int = 0) -> Feeds:
    rng = np.random.default_rng(seed)
    return [
        {
            spec.name: rng.standard_normal([1, *(d or 1 for d in spec.shape[1:])]).astype("f4")
            for spec in prepared.inputs
        }
        for _ in range(count)
    ]


def assembled(prepared: Prepared, feeds: Feeds, plan: Plan) -> Any:
    assembler = Assembler(prepared, calibrate(prepared, lambda: feeds).statistics)
    return onnx.load_from_string(assembler.assemble(plan).data)


def uniform(
    layers: Sequence[Layer], setting: tuple[str, str, bool], *, exclude: Sequence[str] = ()
) -> Plan:
    weight, activation, per_channel = setting
    schemes = default_schemes(
        layers,
        mode="static",
        weight=INT_TYPES[weight],
        activation=INT_TYPES[activation],
        per_channel=per_channel,
    )
    gone = set(exclude)
    made_float = {layer.output for layer in layers if layer.name in gone}
    for layer in layers:
        if layer.op_type in (*FOLLOWS_PRODUCER, OUTPUT_OP) and layer.inputs[0] in made_float:
            gone.add(layer.name)
            made_float.add(layer.output)
    return Plan.of({k: v for k, v in schemes.items() if k not in gone})


def stock_model(
    prepared: Prepared,
    folder: Path,
    feeds: Feeds,
    setting: tuple[str, str, bool],
    *,
    exclude: Sequence[str] = (),
) -> Any:
    weight, activation, per_channel = setting
    nodes = [n for x in prepared.layers if x.name in exclude for n in x.nodes]
    return stock.static(
        prepared.proto,
        folder,
        feeds,
        weight=weight,
        activation=activation,
        per_channel=per_channel,
        exclude=nodes,
    )


def seen(graph: stock.Graph, name: str) -> dict[str, NDArray[Any]] | None:
    node = graph.producer.get(name)
    if node is not None and node.input[0] in graph.constants:
        return graph.dequantized(name)
    return graph.read_through(name)


def without_dead_channels(
    mine: dict[str, NDArray[Any]], other: dict[str, NDArray[Any]]
) -> tuple[dict[str, NDArray[Any]], dict[str, NDArray[Any]]]:
    """Return convolution weights without the channels that hold nothing in both models."""
    if "data" not in mine or mine["zero"].size < 2 or mine["data"].ndim < 3:
        return mine, other
    live = mine["zero"] == other["zero"]
    if live.all():
        return mine, other
    for side in (mine, other):
        rest = side["data"][~live].astype(np.int64)
        assert (rest == side["zero"][~live].reshape(-1, 1, 1, 1)).all(), "not an empty channel"
    return tuple({k: v[live] for k, v in side.items()} for side in (mine, other))  # type: ignore[return-value]


def assert_same_constants(ours: Any, theirs: Any, layers: Sequence[Layer]) -> None:
    """Every input of every static layer's own node: same integers, scale, zero point."""
    a, b = stock.Graph(ours), stock.Graph(theirs)
    compared = 0
    for layer in layers:
        for x, y in zip(a.node[layer.nodes[0]].input, b.node[layer.nodes[0]].input, strict=True):
            mine, other = seen(a, x), seen(b, y)
            assert (mine is None) == (other is None), f"{layer.name}: {x} against {y}"
            if mine is not None and other is not None:
                mine, other = without_dead_channels(mine, other)
            for key in mine or {}:
                assert mine is not None
                assert other is not None
                assert mine[key].dtype == other[key].dtype
                np.testing.assert_array_equal(
                    mine[key].reshape(-1),
                    other[key].reshape(-1) if other[key].size > 1 else other[key],
                    err_msg=f"{layer.name} {key}",
                )
                compared += 1
    assert compared >= 2 * len(layers)


def assert_same_outputs(
    ours: Any, theirs: Any, feeds: Feeds, *, disabled: Sequence[str] = ()
) -> None:
    """`disabled`: optimizers that only the session of the stock quantizer's model leaves out."""
    batch = {k: np.concatenate([f[k] for f in feeds]) for k in feeds[0]}
    for exact in (True, False):  # the arithmetic, and the kernels that ORT fuses
        for mine, other in zip(
            nets.run(ours, batch, exact=exact),
            nets.run(theirs, batch, exact=exact, disabled=disabled),
            strict=True,
        ):
            np.testing.assert_array_equal(mine, other)


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda s: f"{s[0]}-{s[1]}-{s[2]}")
@pytest.mark.parametrize("net", NETS)
def test_a_uniform_static_plan_is_what_quantize_static_writes(
    net: str, setting: tuple[str, str, bool], tmp_path: Path
) -> None:
    prepared = prepare(NETS[net]())
    feeds = samples_for(prepared, 6)
    ours = assembled(prepared, feeds, uniform(prepared.layers, setting))
    theirs = stock_model(prepared, tmp_path, feeds, setting)
    assert_same_constants(ours, theirs, [x for x in prepared.layers if x.nodes])
    assert_same_outputs(ours, theirs, feeds)


def rounded_for_float_readers(prepared: Prepared, plan: Plan) -> bool:
    """The third difference above: two float layers share a tensor that a static layer reads too."""
    static = {name for name, _ in plan.schemes}
    made_float = {
        x.output for x in prepared.layers if x.name not in static and x.op_type != OUTPUT_OP
    }
    made_float |= {spec.name for spec in prepared.inputs}
    for tensor in made_float:
        readers = [x for x in prepared.layers if tensor in x.inputs and x.op_type != OUTPUT_OP]
        kinds = {x.name in static for x in readers}
        if len(kinds) == 2:
            return True
    return False


@pytest.mark.parametrize("setting", [("s8", "u8", True), ("s8", "s8", False)], ids=str)
@pytest.mark.parametrize("net", NETS)
def test_every_exclusion_of_one_or_two_layers_is_what_nodes_to_exclude_writes(
    net: str, setting: tuple[str, str, bool], tmp_path: Path
) -> None:
    prepared = prepare(NETS[net]())
    feeds = samples_for(prepared, 4)
    names = [x.name for x in prepared.layers if x.nodes]
    lists = [[n] for n in names] + [names[i : i + 2] for i in range(len(names) - 1)]
    assembler = Assembler(prepared, calibrate(prepared, lambda: feeds).statistics)
    for exclude in lists:
        plan = uniform(prepared.layers, setting, exclude=exclude)
        ours = onnx.load_from_string(assembler.assemble(plan).data)
        theirs = stock_model(prepared, tmp_path, feeds, setting, exclude=exclude)
        quantized = dict(plan.schemes)
        static = [x for x in prepared.layers if x.nodes and x.name in quantized]
        if static:
            assert_same_constants(ours, theirs, static)
        if not rounded_for_float_readers(prepared, plan):
            assert_same_outputs(ours, theirs, feeds, disabled=["WeightBiasQuantization"])


# per channel the stock quantizer knows Gemm and MatMul only, and gives u8 one zero point a channel
@pytest.mark.parametrize(
    ("net", "weight", "per_channel"),
    [(net, w, False) for net in ("residual", "dense", "two_inputs") for w in ("s8", "u8")]
    + [("dense", "s8", True)],
)
def test_a_dynamic_plan_gives_the_answers_of_quantize_dynamic(
    net: str, weight: str, per_channel: bool, tmp_path: Path
) -> None:
    prepared = prepare(NETS[net]())
    feeds = samples_for(prepared, 4)
    plan = Plan.of(
        default_schemes(
            prepared.layers,
            mode="dynamic",
            weight=INT_TYPES[weight],
            activation=U8,
            per_channel=per_channel,
        )
    )
    ours = assembled(prepared, feeds, plan)
    theirs = stock.dynamic(prepared.proto, tmp_path, weight=weight, per_channel=per_channel)
    assert_same_integer_weights(ours, theirs)
    for feed in feeds:  # one by one: a batch shares one dynamic range
        mine, other = nets.run(ours, feed, exact=True), nets.run(theirs, feed, exact=True)
        np.testing.assert_array_equal(mine[0], other[0])


def assert_same_integer_weights(ours: Any, theirs: Any) -> None:
    """Weights and zero points of all integer products, in graph order."""

    def found(proto: Any) -> list[Mapping[str, Any]]:
        graph = stock.Graph(proto)
        nodes = [n for n in proto.graph.node if n.op_type in ("MatMulInteger", "ConvInteger")]
        return [
            {"weight": graph.constants[n.input[1]], "zero": graph.constants[n.input[3]]}
            for n in nodes
        ]

    mine, other = found(ours), found(theirs)
    assert len(mine) == len(other) > 0
    for a, b in zip(mine, other, strict=True):
        np.testing.assert_array_equal(a["weight"], b["weight"])
        np.testing.assert_array_equal(np.unique(a["zero"]), np.unique(b["zero"]))


@pytest.mark.zoo
@pytest.mark.parametrize("setting", [("s8", "s8", False), ("u8", "u8", True)], ids=str)
@pytest.mark.parametrize("name", [*PICTURE_NETS, "resnet20-cifar10"])
def test_zoo_models_are_written_as_the_stock_quantizer_writes_them(
    name: str, setting: tuple[str, str, bool], tmp_path: Path
) -> None:
    path = ZOO / f"{name}.onnx"
    if not path.is_file():
        pytest.skip(f"no {path.name} in ../shared/zoo")
    prepared = prepare(load(path))
    feeds = samples_for(prepared, 2)
    ours = assembled(prepared, feeds, uniform(prepared.layers, setting))
    theirs = stock_model(prepared, tmp_path, feeds, setting)
    assert_same_constants(ours, theirs, [x for x in prepared.layers if x.nodes])
    assert_same_outputs(ours, theirs, feeds[:1])
