"""A user's own decode function runs in the worker processes; one that is missing ends at once."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import nets
import picture_nets
from picture_files import write_pictures
from seqto import tune
from seqto.errors import ConfigError

SOURCE = """
def decode(outputs):
    (found,) = outputs.values()
    cells = found.transpose(0, 2, 1)
    low, size = cells[:, :, :2], cells[:, :, 2:4]
    import numpy as np

    return np.concatenate([low - size / 2, low + size / 2], axis=2), cells[:, :, 4:]
"""


def test_an_own_decoder_is_found_in_the_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pixel_decoder.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "pixel_decoder", raising=False)
    write_pictures(tmp_path / "pictures", 20)
    losses = []
    for decode in ("pixel_decoder:decode", "yolov8"):
        report = tune(
            nets.save(picture_nets.detector(batch=1), tmp_path / "net.onnx"),
            out=tmp_path / decode.partition(":")[0],
            data=tmp_path / "pictures",
            task__kind="detection",
            task__decode=decode,
            task__score=0.5,
            data__preprocess__letterbox=32,
            data__calibration=4,
            data__evaluation=10,
            data__report=0,
            search__strategy="stepwise",
            search__max_trials=1,
            search__jobs=1,
            analysis__diagnose=False,
            device__latency_s=0.01,
        ).report
        losses.append(report["trials"][0]["loss"])
    assert losses[0] == losses[1]
    assert losses[0]["value"] > 0


def test_a_decoder_that_cannot_be_imported_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"task\.decode = 'no_such:decode' cannot be imported"):
        tune(
            nets.save(picture_nets.detector(), tmp_path / "net.onnx"),
            out=tmp_path / "run",
            data=tmp_path,
            task__kind="detection",
            task__decode="no_such:decode",
        )
