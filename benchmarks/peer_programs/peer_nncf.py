"""NNCF on one model; runs in its own environment, started by peers.py.

    python peer_nncf.py SPEC.json

Mode "quantize" is plain post-training quantization, mode "control" gives operations back to float
until the loss is met. Its metric is agreement with the float model's own answers, so that
`max_drop` is our loss.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import nncf
import onnx
from peer_answers import Task, answers, session_of


def main() -> None:
    task = Task.from_arguments()
    began = time.perf_counter()
    model = onnx.load(task.model)
    calibration = nncf.Dataset(list(task.calibration), lambda row: {task.input: row[None]})
    size = len(task.calibration)
    counts = {"evaluations": 0}
    if task.mode == "quantize":
        made = nncf.quantize(model, calibration, subset_size=size)
    else:
        pictures = task.evaluation
        wanted = answers(session_of(model.SerializeToString()), pictures, task.input)

        def validate(candidate: Any, rows: Iterable[Any]) -> tuple[float, list[float]]:
            counts["evaluations"] += 1
            chosen = [int(i) for i in rows]
            session = session_of(candidate.SerializeToString())
            got = answers(session, pictures[chosen], task.input)
            agreed = (got == wanted[chosen]).astype(float)
            return float(agreed.mean()), [float(a) for a in agreed]

        made = nncf.quantize_with_accuracy_control(
            model,
            calibration,
            nncf.Dataset(list(range(len(pictures))), lambda row: row),
            validate,
            max_drop=task.max_drop,
            drop_type=nncf.DropType.ABSOLUTE,
            subset_size=size,
        )
    onnx.save(made, task.result)
    task.tell(seconds=time.perf_counter() - began, version=nncf.__version__, **counts)


if __name__ == "__main__":
    main()
