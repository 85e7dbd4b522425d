"""One example of a config for each task, and each is one that seqto takes."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from seqto import config, plugins
from seqto.study.setup import check_settings

FOLDER = Path(__file__).parents[1] / "examples" / "configs"
FILES = sorted(FOLDER.glob("*.toml"))


def test_every_task_has_an_example() -> None:
    assert {f.stem for f in FILES} == set(plugins.kinds(plugins.TASKS))


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.stem)
def test_an_example_is_a_config_of_its_task(file: Path) -> None:
    tables = tomllib.loads(file.read_text(encoding="utf-8"))
    assert tables["task"]["kind"] == file.stem
    check_settings(config.make(tables))
