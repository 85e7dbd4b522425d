"""What the programs of the peers' environments share: their task, a model's answers."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

BATCH = 8


@dataclass(frozen=True)
class Task:
    """A model, its samples and where the result belongs; written by peers.py."""

    model: str
    input: str
    mode: str
    max_drop: float
    samples: str
    result: str
    answer: str

    @classmethod
    def from_arguments(cls) -> Task:
        return cls(**json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))

    @property
    def calibration(self) -> Any:
        return np.load(self.samples, allow_pickle=False)["calibration"]

    @property
    def evaluation(self) -> Any:
        return np.load(self.samples, allow_pickle=False)["evaluation"]

    def feeds(self) -> Iterator[dict[str, Any]]:
        """Yield calibration samples one by one."""
        for row in self.calibration:
            yield {self.input: row[None]}

    def tell(self, **figures: Any) -> None:
        """Tell what peers.py puts into its results."""
        Path(self.answer).write_text(json.dumps(figures), encoding="utf-8")


class Reader:
    """Calibration samples as onnxruntime's calibrator wants them."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self.rewind()

    def rewind(self) -> None:
        self._feeds = self._task.feeds()

    def get_next(self) -> dict[str, Any] | None:
        return next(self._feeds, None)

    def reset_iter(self) -> None:
        self.rewind()

    def __iter__(self) -> Reader:
        return self

    def __next__(self) -> dict[str, Any]:
        return next(self._feeds)

    def __len__(self) -> int:
        return len(self._task.calibration)


def session_of(model: bytes) -> Any:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def answers(session: Any, pictures: Any, name: str) -> Any:
    """Return top-1 of each picture; in batches where the model's first axis is open."""
    fixed = session.get_inputs()[0].shape[0]
    step = fixed if isinstance(fixed, int) else BATCH
    parts = [
        session.run(None, {name: pictures[i : i + step]})[0] for i in range(0, len(pictures), step)
    ]
    return np.concatenate(parts).argmax(axis=1)
