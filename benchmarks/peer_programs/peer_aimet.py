"""AIMET-ONNX's automatic mixed precision on one model; runs in its own environment.

    python peer_aimet.py SPEC.json

Candidates are 8-bit weights with 8- or 16-bit activations and 16-bit floats; the first phase
looks at a quarter of the pictures, as its manual advises. The result is written as QDQ, so that
ONNX Runtime runs it.
"""

from __future__ import annotations

import tempfile
import time
from typing import Any

import aimet_onnx
import onnx
from aimet_onnx.common.defs import CallbackFunc, QuantizationDataType
from aimet_onnx.mixed_precision import choose_mixed_precision
from aimet_onnx.quantsim import QuantizationSimModel
from peer_answers import Task, answers, session_of

INT, FLOAT = QuantizationDataType.int, QuantizationDataType.float
CANDIDATES = [((8, INT), (8, INT)), ((16, INT), (8, INT)), ((16, FLOAT), (16, FLOAT))]


def main() -> None:
    task = Task.from_arguments()
    began = time.perf_counter()
    model = onnx.load(task.model)
    name, pictures = task.input, task.evaluation
    wanted = answers(session_of(model.SerializeToString()), pictures, name)
    counts = {"evaluations": 0}

    def calibrate(session: Any, _unused: Any = None) -> None:
        for feed in task.feeds():
            session.run(None, feed)

    def agreement(session: Any, rows: int) -> float:
        counts["evaluations"] += 1
        got = answers(session, pictures[:rows], name)
        return float((got == wanted[:rows]).mean())

    sim = QuantizationSimModel(model, dummy_input={name: pictures[:1]}, quant_scheme="min_max")
    sim.compute_encodings(list(task.feeds()))
    with tempfile.TemporaryDirectory(prefix="aimet-") as folder:
        choose_mixed_precision(
            sim,
            CANDIDATES,
            CallbackFunc(agreement, max(1, len(pictures) // 4)),
            CallbackFunc(agreement, len(pictures)),
            task.max_drop,
            folder,
            True,
            CallbackFunc(calibrate, None),
            use_all_amp_candidates=True,
        )
    made = sim.to_onnx_qdq(prequantize_constants=True, export_int32_bias=True)
    onnx.save(made, task.result)
    seconds = time.perf_counter() - began
    task.tell(seconds=seconds, version=aimet_onnx.__version__, **counts)


if __name__ == "__main__":
    main()
