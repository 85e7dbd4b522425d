"""NNCF's accuracy control on one model; runs in its own environment, started by peers.py.

    python peer_nncf.py SPEC.json

The metric is agreement with the float model's own answers, so that `max_drop` is our loss.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import nncf
import numpy as np
import onnx

from peer_answers import answers, session_of


def main() -> None:
    spec = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    began = time.perf_counter()
    model = onnx.load(spec["model"])
    samples = np.load(spec["samples"], allow_pickle=False)
    name = spec["input"]
    calibration = nncf.Dataset(list(samples["calibration"]), lambda row: {name: row[None]})
    pictures = samples["evaluation"]
    wanted = answers(session_of(model.SerializeToString()), pictures, name)
    counts = {"evaluations": 0}

    def validate(candidate: Any, rows: Iterable[Any]) -> tuple[float, list[float]]:
        counts["evaluations"] += 1
        chosen = [int(i) for i in rows]
        got = answers(session_of(candidate.SerializeToString()), pictures[chosen], name)
        agreed = (got == wanted[chosen]).astype(float)
        return float(agreed.mean()), [float(a) for a in agreed]

    made = nncf.quantize_with_accuracy_control(
        model,
        calibration,
        nncf.Dataset(list(range(len(pictures))), lambda row: row),
        validate,
        max_drop=spec["max_drop"],
        drop_type=nncf.DropType.ABSOLUTE,
        subset_size=len(samples["calibration"]),
    )
    onnx.save(made, spec["result"])
    told = {
        "seconds": time.perf_counter() - began,
        "version": nncf.__version__,
        **counts,
        "note": "accuracy control, default preset",
    }
    Path(spec["answer"]).write_text(json.dumps(told), encoding="utf-8")


if __name__ == "__main__":
    main()
