"""Presets, and the tables of the zoo's TOML files."""

from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np
import pytest

from seqto.data.preprocess import Preprocess, fit_picture
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
        table = tomllib.loads(path.read_text())["data"].get("preprocess", {})
        made = from_settings(table)
        assert all(made.to_json()[key] == value for key, value in table.items())


def test_letterbox_keeps_the_aspect_and_stretch_does_not() -> None:
    picture = np.full((20, 40, 3), 200, np.uint8)
    boxed = fit_picture(picture, Preprocess(letterbox=32, fill=7, interpolation="bilinear"))
    assert boxed.shape == (32, 32, 3)
    assert (boxed[:8] == 7).all()
    assert (boxed[8:24] == 200).all()
    assert (boxed[24:] == 7).all()
    stretched = fit_picture(picture, Preprocess(stretch=(24, 16)))
    assert stretched.shape == (24, 16, 3)
    assert (stretched == 200).all()
    assert fit_picture(picture, Preprocess(letterbox=32, channels="GRAY")).shape == (32, 32, 1)


def test_letterbox_and_stretch_are_the_only_way_to_the_size() -> None:
    for extra in ({"resize": 40}, {"stretch": 32}, {"crop": 32}):
        with pytest.raises(ConfigError, match=r"preprocess\.letterbox and .* are both set"):
            from_settings({"letterbox": 32, **extra})
    for wrong in ({"letterbox": 0}, {"stretch": [3.5, 2]}, {"fill": 300}, {"fill": "black"}):
        with pytest.raises(ConfigError, match=rf"preprocess\.{next(iter(wrong))}"):
            from_settings(wrong)
    made = from_settings({"preset": "imagenet-torch", "stretch": 320})
    assert (made.resize, made.crop, made.stretch) == (None, None, 320)
    assert Preprocess.from_json(made.to_json()) == made
