"""Intel's neural-compressor on one model; runs in its own environment.

    python peer_inc.py SPEC.json

Mode "tune" gives operations back to float until agreement with the float model's answers is within
`max_drop`, or ten trials are over; mode "static" takes the first model.
"""

from __future__ import annotations

import time
from typing import Any

import neural_compressor
from neural_compressor import PostTrainingQuantConfig
from neural_compressor.config import AccuracyCriterion, TuningCriterion
from neural_compressor.quantization import fit
from peer_answers import Task, answers, session_of


class Loader:
    """Calibration samples with a batch size, as neural-compressor wants them."""

    batch_size = 1

    def __init__(self, task: Task) -> None:
        self._task = task

    def __iter__(self) -> Any:
        for row in self._task.calibration:
            yield row[None], 0

    def __len__(self) -> int:
        return len(self._task.calibration)


def main() -> None:
    task = Task.from_arguments()
    began = time.perf_counter()
    counts = {"evaluations": 0}
    with open(task.model, "rb") as file:
        wanted = answers(session_of(file.read()), task.evaluation, task.input)

    def agreement(model: Any) -> float:
        counts["evaluations"] += 1
        got = answers(session_of(model.SerializeToString()), task.evaluation, task.input)
        return float((got == wanted).mean())

    config = PostTrainingQuantConfig(
        approach="static",
        quant_format="QDQ",
        calibration_sampling_size=[len(task.calibration)],
        accuracy_criterion=AccuracyCriterion(criterion="absolute", tolerable_loss=task.max_drop),
        tuning_criterion=TuningCriterion(timeout=0, max_trials=10),
    )
    tuned = agreement if task.mode == "tune" else None
    made = fit(task.model, config, calib_dataloader=Loader(task), eval_func=tuned)
    if made is None:
        raise SystemExit(
            f"no model within {task.max_drop:.0%} after {counts['evaluations']} trials"
        )
    made.save(task.result)
    version = neural_compressor.__version__
    task.tell(seconds=time.perf_counter() - began, version=version, **counts)


if __name__ == "__main__":
    main()
