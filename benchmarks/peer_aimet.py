"""AIMET-ONNX's automatic mixed precision on one model; runs in its own environment.

    python peer_aimet.py SPEC.json

Candidates are 8-bit weights with 8- or 16-bit activations and 16-bit floats; the first phase
looks at a quarter of the pictures, as its manual advises. The result is written as QDQ, so that
ONNX Runtime runs it.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import aimet_onnx
import numpy as np
import onnx
from aimet_onnx.common.defs import CallbackFunc, QuantizationDataType
from aimet_onnx.mixed_precision import choose_mixed_precision
from aimet_onnx.quantsim import QuantizationSimModel

from peer_answers import answers, session_of

INT, FLOAT = QuantizationDataType.int, QuantizationDataType.float
CANDIDATES = [((8, INT), (8, INT)), ((16, INT), (8, INT)), ((16, FLOAT), (16, FLOAT))]


def main() -> None:
    spec = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    began = time.perf_counter()
    model = onnx.load(spec["model"])
    samples = np.load(spec["samples"], allow_pickle=False)
    name, pictures = spec["input"], samples["evaluation"]
    wanted = answers(session_of(model.SerializeToString()), pictures, name)
    counts = {"evaluations": 0}

    def calibrate(session: Any, _unused: Any = None) -> None:
        for row in samples["calibration"]:
            session.run(None, {name: row[None]})

    def agreement(session: Any, rows: int) -> float:
        counts["evaluations"] += 1
        got = answers(session, pictures[:rows], name)
        return float((got == wanted[:rows]).mean())

    sim = QuantizationSimModel(model, dummy_input={name: pictures[:1]}, quant_scheme="min_max")
    sim.compute_encodings([{name: row[None]} for row in samples["calibration"]])
    with tempfile.TemporaryDirectory(prefix="aimet-") as folder:
        choose_mixed_precision(
            sim,
            CANDIDATES,
            CallbackFunc(agreement, max(1, len(pictures) // 4)),
            CallbackFunc(agreement, len(pictures)),
            spec["max_drop"],
            folder,
            True,
            CallbackFunc(calibrate, None),
            use_all_amp_candidates=True,
        )
    made = sim.to_onnx_qdq(prequantize_constants=True, export_int32_bias=True)
    onnx.save(made, spec["result"])
    told = {
        "seconds": time.perf_counter() - began,
        "version": aimet_onnx.__version__,
        **counts,
        "note": "AMP over W8A8, W8A16, fp16",
    }
    Path(spec["answer"]).write_text(json.dumps(told), encoding="utf-8")


if __name__ == "__main__":
    main()
