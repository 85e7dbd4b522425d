"""Exact transforms on real networks: unseen pictures, not the ones of calibration."""

from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np
import pytest

from seqto.calibration import collect
from seqto.model import compare as model_compare
from seqto.model import files as model_files
from seqto.model import prepare as model_prepare
from seqto.transforms.equalize import Equalize
from seqto.transforms.smooth import Smooth

ZOO = Path(__file__).parents[2].parent / "shared" / "zoo"

pytestmark = [
    pytest.mark.zoo,
    pytest.mark.skipif(not ZOO.is_dir(), reason="../shared/zoo is not here"),
]


def pictures(name: str, *, first: int, count: int):
    from PIL import Image

    setting = tomllib.loads((ZOO / f"{name}.toml").read_text())["data"]["preprocess"]
    arrays = []
    for file in sorted((ZOO / "imagenet").glob("*.jpg"))[first : first + count]:
        crop = setting["crop"]
        picture = Image.open(file).convert("RGB").resize((crop, crop))
        values = np.asarray(picture, np.float32)
        values = values[..., ::-1] if setting["channels"] == "BGR" else values
        values = (values - np.float32(setting["mean"])) / np.float32(setting["std"])
        arrays.append(values.transpose(2, 0, 1))
    return np.stack(arrays)


@pytest.mark.parametrize("name", ["mobilenetv1", "mobilenetv2", "efficientnet-lite0"])
def test_real_networks_keep_their_answers_on_unseen_pictures(name: str) -> None:
    prepared = model_prepare.prepare(model_files.load(ZOO / f"{name}.onnx"), name=name)
    key = prepared.inputs[0].name
    feeds = {key: pictures(name, first=0, count=4)}
    peaks = collect.calibrate(prepared, lambda: [feeds]).peaks
    unseen = {key: pictures(name, first=100, count=8)}
    for transform in (Equalize(), Smooth()):
        applied = transform.apply(prepared, peaks)
        assert applied.exact
        assert len(applied.touched) >= 10
        moved = model_compare.same_answers(
            model_files.to_bytes(prepared.proto), model_files.to_bytes(applied.proto), unseen
        )
        assert moved < 1e-4
