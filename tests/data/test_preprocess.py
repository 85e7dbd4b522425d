"""Presets, and the tables of the zoo's TOML files."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from seqto.data.preprocess import Preprocess
from seqto.data.presets import PRESETS, from_settings, preset
from seqto.errors import ConfigError

ZOO = Path(__file__).parents[3] / "shared" / "zoo"


def test_a_preset_has_a_name() -> None:
    assert preset("imagenet-caffe").channels == "BGR"
    assert preset("fashion-mnist") == Preprocess(channels="GRAY", mean=(127.5,), std=(127.5,))


@pytest.mark.parametrize(
    ("name", "message"), [("imagenet_torch", "did you mean 'imagenet-torch'"), ("?", "there are")]
)
def test_an_unknown_preset_shows_the_nearest(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        preset(name)


@pytest.mark.parametrize("name", list(PRESETS))
def test_keys_beside_a_preset_win(name: str) -> None:
    made = from_settings({"preset": name, "layout": "NHWC"})
    assert made.layout == "NHWC"
    assert made.mean == PRESETS[name].mean


@pytest.mark.zoo
@pytest.mark.skipif(not ZOO.exists(), reason="the zoo is not here")
def test_the_tables_of_the_zoo_are_accepted() -> None:
    for path in sorted(ZOO.glob("*.toml")):
        table = tomllib.loads(path.read_text())["data"]["preprocess"]
        made = from_settings(table)
        assert all(made.to_json()[key] == value for key, value in table.items())
