"""An answer of your own, in a few lines: how far is the largest of five readings off?

    python examples/own_task.py [RUN_FOLDER]

The methods get whole batches. This class is in a script, so it stays in this process and may hold
anything: a database, a lambda, a second model. A frozen dataclass in a module of its own, with JSON
fields, is made again in the workers, which is faster.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import seqto
from seqto.tasks.task import Answers
from seqto.testing import check_task, small_feeds, small_model


class PeakReading:
    """The distance of two answers is the relative error of the largest output, at most 1."""

    signal_bytes = 4096

    def decode(self, outputs):
        return Answers({"peak": outputs[0].max(axis=1)})

    def distance(self, reference, answers):
        want, got = reference.values["peak"], answers.values["peak"]
        return np.minimum(np.abs(got - want) / np.maximum(np.abs(want), 1e-6), 1.0)

    def signal(self, outputs):
        return outputs[0]

    def scores(self, answers, labels):
        return {"accuracy": float(np.mean(np.round(answers.values["peak"]) == labels))}


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
