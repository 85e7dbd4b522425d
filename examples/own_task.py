"""A right answer of your own, in ten lines: is the largest of five readings off by more than 5 %?

    python examples/own_task.py [RUN_FOLDER]

The two methods get whole batches as lists of the model's outputs. The task stays in this process
and is never sent to a worker, so it may hold anything: a database, a lambda, a second model.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import seqto
from seqto.testing import check_task, small_feeds, small_model


class PeakReading:
    """Answers agree when the largest output is within five per cent of the float model's."""

    def agree(self, reference, outputs):
        want, got = reference[0].max(axis=1), outputs[0].max(axis=1)
        return np.abs(got - want) <= 0.05 * np.abs(want)

    def correct(self, outputs, labels):
        return np.round(outputs[0].max(axis=1)) == labels


def main(folder: Path) -> seqto.Result:
    check_task(PeakReading())  # the contract: raises AssertionError with what is wrong
    folder.mkdir(parents=True, exist_ok=True)
    model = folder / "small.onnx"
    model.write_bytes(small_model())
    return seqto.tune(
        model,
        out=folder / "run",
        data=list(small_feeds(120)["x"]),
        task=PeakReading(),
        data__calibration=20,
        data__evaluation=60,
        search__max_trials=8,
        device__latency_s=0.02,
    )


if __name__ == "__main__":
    result = main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/own-task"))
    best = result.trials[result.recommended["balanced"]]
    print(f"trial {best.number}: {best.loss.value:.1%} of readings change, {best.size_bytes} bytes")
