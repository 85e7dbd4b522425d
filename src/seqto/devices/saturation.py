"""A test whether a device adds 8-bit products exactly or in 16 bits.

x86 kernels without VNNI add two products of u8 activations and s8 weights in 16 bits, and two
times 255 · 127 do not fit. What the CPU's flags say is not enough: the device chooses the kernels.
So one MatMul and one Conv, in which all products are 255 · 127, run on the device itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from seqto.devices.device import Device
from seqto.records import Json

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

EXACT, SATURATES, UNKNOWN = "exact", "saturates", "unknown"


ACTIVATION, WEIGHT = 255, 127  # the largest u8 and s8


LARGEST_SUM = 2**15 - 1  # in 16 bits
DEPTH = 64  # products in a sum: as many as packed kernels take at once, and more
ROWS, COLUMNS, SIDE = 8, 32, 4


RESULT = 200  # the exact answer in steps of the output; two saturated products give 101
OPERATORS = ("MatMul", "Conv")


def probe(device: Device) -> Json:
    """Return {result: exact | saturates | unknown, operators: {MatMul: …, Conv: …}, reason}.

    A device that cannot run the model gives `unknown` with its reason.
    """
    try:
        session = device.open(model(), threads=1)
        outputs = session.run(feeds())
        session.close()
    except Exception as error:  # a device that fails here may still serve the user's model
        return unknown(str(error) or type(error).__name__)
    return judge(outputs)


def unknown(reason: str) -> Json:
    return {"result": UNKNOWN, "operators": dict.fromkeys(OPERATORS, UNKNOWN), "reason": reason}


def judge(outputs: Sequence[NDArray[Any]]) -> Json:
    """Return the result that the outputs of `model` stand for; pure."""
    if len(outputs) != len(OPERATORS):
        return unknown(f"{len(outputs)} outputs instead of {len(OPERATORS)}")
    verdicts = {name: _verdict(y) for name, y in zip(OPERATORS, outputs, strict=True)}
    for result in (SATURATES, UNKNOWN, EXACT):  # the worst of them
        if result in verdicts.values():
            break
    odd = "the results are neither exact nor those of 16-bit sums"
    return {"result": result, "operators": verdicts, "reason": odd if result == UNKNOWN else None}


def _verdict(output: NDArray[Any]) -> str:
    import numpy as np

    steps = np.asarray(output, np.float64) / _output_scale()
    if np.all(np.abs(steps - RESULT) <= 1.0):  # one step: rounding
        return EXACT
    least = LARGEST_SUM / _output_scale() - 1.0  # all products in one 16-bit sum
    return SATURATES if np.all((steps >= least) & (steps <= RESULT + 1.0)) else UNKNOWN


def feeds() -> dict[str, NDArray[np.float32]]:
    import numpy as np

    shapes = {"rows": (ROWS, DEPTH), "picture": (1, DEPTH, SIDE, SIDE)}
    return {name: np.full(shape, ACTIVATION, np.float32) for name, shape in shapes.items()}


def model() -> bytes:
    """Return a model of two products, u8 × s8, static, with scales of 1.

    rows (8×64) ─ MatMul ─ y0,  picture (1×64×4×4) ─ Conv ─ y1
    """
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper

    shapes = {"rows": (ROWS, DEPTH), "picture": (1, DEPTH, SIDE, SIDE)}
    outputs = {"y0": (ROWS, COLUMNS), "y1": (1, COLUMNS, SIDE, SIDE)}
    weights = {"w0": (DEPTH, COLUMNS), "w1": (COLUMNS, DEPTH, 1, 1)}
    constants = {
        "one": np.float32(1.0),
        "step": np.float32(_output_scale()),
        "zero": np.uint8(0),
        "zero_s8": np.int8(0),
        **{name: np.full(shape, WEIGHT, np.int8) for name, shape in weights.items()},
    }
    nodes = []
    for op_type, x, w, y in zip(OPERATORS, shapes, weights, outputs, strict=True):
        nodes += [
            helper.make_node("QuantizeLinear", [x, "one", "zero"], [f"{x}_q"]),
            helper.make_node("DequantizeLinear", [f"{x}_q", "one", "zero"], [f"{x}_d"]),
            helper.make_node("DequantizeLinear", [w, "one", "zero_s8"], [f"{w}_d"]),
            helper.make_node(op_type, [f"{x}_d", f"{w}_d"], [f"{y}_f"], op_type),
            helper.make_node("QuantizeLinear", [f"{y}_f", "step", "zero"], [f"{y}_q"]),
            helper.make_node("DequantizeLinear", [f"{y}_q", "step", "zero"], [y]),
        ]
    floats = TensorProto.FLOAT
    graph = helper.make_graph(
        nodes,
        "saturation",
        [helper.make_tensor_value_info(n, floats, s) for n, s in shapes.items()],
        [helper.make_tensor_value_info(n, floats, s) for n, s in outputs.items()],
        [numpy_helper.from_array(np.asarray(v), n) for n, v in constants.items()],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    proto.ir_version = 8
    data: bytes = proto.SerializeToString()
    return data


def _output_scale() -> float:
    return ACTIVATION * WEIGHT * DEPTH / RESULT
