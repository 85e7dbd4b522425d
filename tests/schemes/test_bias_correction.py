"""Rounded weights move a layer's mean output; bias correction takes that back, for every op."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import nets
from net_builder import Net
from seqto.assembly.assembler import Assembler
from seqto.assembly.bias_correction import corrected
from seqto.assembly.plan import Plan
from seqto.calibration.collect import calibrate
from seqto.errors import PlanError
from seqto.model.prepare import prepare

SPATIAL = {1: (30,), 2: (9, 9), 3: (6, 6, 6)}


def _values(net: Net, *shape: int) -> str:
    return net.constant(net.rng.standard_normal(shape).astype(np.float32))


def conv(rank: int, *, group: int = 1, op: str = "Conv", **attributes: Any) -> Any:
    """Return one layer of 6 input and 9 output channels."""
    net = Net(seed=rank + group)
    kernel = (3,) * rank
    shape = (9, 6 // group, *kernel) if op == "Conv" else (6, 9 // group, *kernel)
    inputs = ["x", _values(net, *shape), _values(net, 9)]
    net.add(op, inputs, output="y", group=group, kernel_shape=list(kernel), **attributes)
    space = [f"d{i}" for i in range(rank)]
    return net.model({"x": ["N", 6, *SPATIAL[rank]]}, {"y": ["N", 9, *space]}, check=False)


def gemm(*, bias: tuple[int, ...] = (9,), **attributes: Any) -> Any:
    net = Net(seed=3)
    shape = (9, 6) if attributes.get("transB") else (6, 9)
    net.add("Gemm", ["x", _values(net, *shape), _values(net, *bias)], output="y", **attributes)
    rows: list[int | str] = [6, 40] if attributes.get("transA") else ["N", 6]
    return net.model({"x": rows}, {"y": ["M", 9]}, check=False)


LAYERS: dict[str, Callable[[], Any]] = {
    "conv1d": lambda: conv(1),
    "conv1d grouped": lambda: conv(1, group=3),
    "conv2d": lambda: conv(2, strides=[2, 2]),
    "conv2d grouped": lambda: conv(2, group=3),
    "conv3d": lambda: conv(3),
    "transposed 1d": lambda: conv(1, op="ConvTranspose", pads=[1, 1]),
    "transposed 2d": lambda: conv(
        2, op="ConvTranspose", strides=[3, 3], pads=[0] * 4, dilations=[1, 1]
    ),
    "transposed grouped": lambda: conv(2, op="ConvTranspose", group=3, strides=[3, 3]),
    "gemm": gemm,
    "gemm transB": lambda: gemm(transB=1),
    "gemm transA": lambda: gemm(transA=1),
    "gemm alpha": lambda: gemm(alpha=0.25, transB=1),
    "gemm alpha and beta": lambda: gemm(alpha=0.25, beta=3.0),
    "gemm with one bias": lambda: gemm(bias=(1,)),
    "gemm with a scalar bias": lambda: gemm(bias=()),
    "gemm with a row of biases": lambda: gemm(bias=(1, 9), alpha=2.0),
}


def _feeds(model: Any) -> dict[str, NDArray[np.float32]]:
    """Return channels of different means with little noise: borders hardly matter."""
    rng = np.random.default_rng(0)
    dims = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
    shape = [d or 40 for d in dims]
    axis = 0 if shape == [6, 40] else 1
    means = np.linspace(0.5, 3.0, 6).reshape([-1 if i == axis else 1 for i in range(len(shape))])
    return {"x": (means + 0.05 * rng.standard_normal(shape)).astype(np.float32)}


def _mean(output: NDArray[Any]) -> NDArray[Any]:
    """Of every channel; borders of a convolution, where not all weights meet, are left out."""
    if output.ndim == 2:
        return output.mean(axis=0)
    inner = (slice(None), slice(None), *[slice(3, -3)] * (output.ndim - 2))
    cut = output if min(output.shape[2:]) < 8 else output[inner]
    return cut.mean(axis=(0, *range(2, output.ndim)))


@pytest.mark.parametrize("scheme", ["weight-s4-channel", "static-s4-u16-channel"])
@pytest.mark.parametrize("layer", LAYERS)
def test_the_mean_output_is_that_of_the_float_layer(layer: str, scheme: str) -> None:
    prepared = prepare(LAYERS[layer]())
    feeds = _feeds(prepared.proto)
    assembler = Assembler(prepared, calibrate(prepared, lambda: [feeds]).statistics)
    schemes = {x.name: scheme for x in prepared.layers if x.weight}
    want = _mean(nets.run(prepared.proto, feeds)[0])
    gaps = []
    for transforms in ([], ["bias-correction"]):
        made = assembler.assemble(Plan.of(schemes, transforms))
        got = _mean(nets.run(made.data, feeds, exact=True)[0])
        gaps.append(float(np.abs(got - want).max()))
    assert gaps[0] > 0.05  # four bits do hurt here
    assert gaps[1] < 0.03 * gaps[0]


@pytest.mark.parametrize("scheme", ["static-s8-u8-channel", "static-s8-u8-tensor"])
@pytest.mark.parametrize("layer", LAYERS)
def test_every_layer_keeps_its_answers_as_integers(layer: str, scheme: str) -> None:
    """Each of the biases finds its scale: those of groups, and a Gemm's of any shape."""
    prepared = prepare(LAYERS[layer]())
    feeds = _feeds(prepared.proto)
    assembler = Assembler(prepared, calibrate(prepared, lambda: [feeds]).statistics)
    plan = Plan.of({x.name: scheme for x in prepared.layers if x.weight}, ["bias-correction"])
    want = nets.run(prepared.proto, feeds)[0]
    for exact in (True, False):
        got = nets.run(assembler.assemble(plan).data, feeds, exact=exact)[0]
        assert np.abs(got - want).max() < 0.03 * np.ptp(want) + 0.05


def test_a_bias_that_counts_for_nothing_stays_as_it_is() -> None:
    node = gemm(beta=0.0).graph.node[0]
    bias, lost = np.ones(9, np.float32), np.ones((6, 9), np.float32)
    mean = np.ones(6, np.float32)
    np.testing.assert_array_equal(corrected(node, bias, lost=lost, mean=mean), bias)


def test_means_of_another_axis_are_refused() -> None:
    node = conv(1).graph.node[0]
    lost = np.zeros((9, 6, 3), np.float32)
    with pytest.raises(PlanError, match=r"6 input channels .* the means of 30"):
        corrected(node, np.zeros(9, np.float32), lost=lost, mean=np.zeros(30, np.float32))
