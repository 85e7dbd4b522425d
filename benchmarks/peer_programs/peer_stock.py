"""onnxruntime.quantization with one of its settings; started by peers.py.

    python peer_stock.py SPEC.json

The mode is a name of STOCK_MODES. Static models are made from the pre-processed one, as its
documentation advises.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import onnxruntime
from onnxruntime import quantization as stock
from onnxruntime.quantization.shape_inference import quant_pre_process
from peer_answers import Reader, Task
from peer_settings import STOCK_MODES


def main() -> None:
    task = Task.from_arguments()
    began = time.perf_counter()
    settings = STOCK_MODES[task.mode]
    with tempfile.TemporaryDirectory(prefix="stock-") as folder:
        prepared = str(Path(folder) / "prepared.onnx")
        quant_pre_process(task.model, prepared, skip_symbolic_shape=True)
        if task.mode.startswith("dynamic"):
            kind = stock.QuantType.QUInt8
            stock.quantize_dynamic(prepared, task.result, weight_type=kind)
        else:
            stock.quantize_static(
                prepared,
                task.result,
                Reader(task),
                quant_format=stock.QuantFormat.QDQ,
                per_channel=settings.get("per_channel", False),
                reduce_range=settings.get("reduce_range", False),
                activation_type=stock.QuantType[settings.get("activation", "QUInt8")],
                weight_type=stock.QuantType[settings.get("weight", "QInt8")],
                calibrate_method=stock.CalibrationMethod[settings.get("calibrate", "MinMax")],
            )
    task.tell(seconds=time.perf_counter() - began, version=onnxruntime.__version__)


if __name__ == "__main__":
    main()
