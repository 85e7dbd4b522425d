"""docs/tasks.md: its tables are settings of the tasks, its decoder is the built-in one."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seqto import plugins
from seqto.tasks.decoders import DECODERS, Shape, find_decoder
from seqto.tasks.dense import Dense
from seqto.tasks.detection import Detection
from seqto.tasks.multilabel import MultiLabel
from seqto.tasks.segmentation import Segmentation

PAGE = (Path(__file__).parents[2] / "docs" / "tasks.md").read_text(encoding="utf-8")
TASKS: dict[str, Any] = {
    "detection": Detection,
    "segmentation": Segmentation,
    "multi-label": MultiLabel,
    "dense": Dense,
}


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def own_decoder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The page's decoder, importable as my_decoder."""
    (source,) = blocks("python")
    (folder / "my_decoder.py").write_text(source)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "my_decoder", raising=False)
    return source


@pytest.mark.parametrize("block", blocks("toml"))
def test_a_task_of_the_page_can_be_made(
    block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_decoder(tmp_path, monkeypatch)
    table = tomllib.loads(block)["task"]
    assert isinstance(plugins.build(plugins.TASKS, table), TASKS[table["kind"]])


def test_every_task_has_a_config_and_every_decoder_a_row() -> None:
    kinds = {tomllib.loads(block)["task"]["kind"] for block in blocks("toml")}
    assert kinds == set(TASKS)
    for decoder in DECODERS:
        assert f"`{decoder}`" in PAGE


def test_the_decoder_of_the_page_is_fastestdets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = own_decoder(tmp_path, monkeypatch)
    output = np.random.default_rng(0).random((2, 12, 4, 6), np.float32)
    own, ours = (
        find_decoder(d)({"758": output}, Shape()) for d in ("my_decoder:decode", "fastestdet")
    )
    np.testing.assert_allclose(own.boxes, ours.boxes, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(own.scores, ours.scores, rtol=1e-5)
    assert len(source[source.index("def ") :].splitlines()) <= 11
