"""Samples from Python: anything with `__len__` and `__getitem__`, a list, or a generator.

    python examples/iterable_data.py [RUN_FOLDER]

An item is an array, a dict from input name to array, or a tuple of one of these and a label.
A dataset class is read item by item when samples are prepared, once. A generator is gone through
once and kept in memory, so give large data the first way. An item that raises is an unreadable
sample: it is left out and named in the report.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import seqto
from seqto.testing import small_model


class Recordings:
    """What a torch or a Hugging Face dataset looks like from here."""

    def __len__(self):
        return 150

    def __getitem__(self, index):
        rng = np.random.default_rng(index)
        if index == 7:
            raise OSError("this one is broken")
        return rng.standard_normal((3, 4, 4)).astype(np.float32), int(rng.integers(5))


def main(folder: Path) -> seqto.Result:
    folder.mkdir(parents=True, exist_ok=True)
    model = folder / "small.onnx"
    model.write_bytes(small_model())
    return seqto.tune(
        model,
        out=folder / "run",
        data=Recordings(),
        data__calibration=20,
        data__evaluation=60,
        data__max_bad_share=0.1,
        search__max_trials=8,
        device__latency_s=0.02,
    )


if __name__ == "__main__":
    result = main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/iterable-data"))
    print("unreadable:", result.report["data"]["unreadable"])
    print("splits:", result.report["data"]["splits"])
