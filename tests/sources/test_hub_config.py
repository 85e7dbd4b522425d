from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seqto.model.sources.hub.config import read_preprocess, translate

IMAGENET = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}
IN_OURS = {"mean": [123.675, 116.28, 103.53], "std": [58.395, 57.12, 57.375]}
HALVES = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}


def test_vit_stretches_to_a_square() -> None:
    config = {**HALVES, "do_resize": True, "size": {"height": 224, "width": 224}, "resample": 2}
    assert translate(config) == {
        "channels": "RGB",
        "layout": "NCHW",
        "mean": [127.5] * 3,
        "std": [127.5] * 3,
        "resize": [224, 224],
        "interpolation": "bilinear",
    }


def test_mobilenet_takes_the_short_side_and_the_centre() -> None:
    size = {"size": {"shortest_edge": 256}, "crop_size": {"height": 224, "width": 224}}
    found = translate({**IMAGENET, **size, "do_center_crop": True, "resample": 3})
    assert found is not None
    assert (found["resize"], found["crop"], found["interpolation"]) == (256, 224, "bicubic")
    assert {key: found[key] for key in IN_OURS} == IN_OURS


def test_old_configs_with_a_plain_number() -> None:
    cropped = translate({**HALVES, "size": 256, "crop_size": 224, "do_center_crop": True})
    stretched = translate({**HALVES, "size": 224})
    assert cropped is not None
    assert stretched is not None
    assert (cropped["resize"], cropped["crop"]) == (256, 224)
    assert (stretched["resize"], stretched.get("crop")) == ([224, 224], None)


@pytest.mark.parametrize(("side", "resize", "crop"), [(224, 256, 224), (384, [384, 384], None)])
def test_convnext_crops_by_a_share_below_384(side: int, resize: Any, crop: Any) -> None:
    kind = {"image_processor_type": "ConvNextImageProcessor", "size": {"shortest_edge": side}}
    found = translate({**IMAGENET, **kind, "crop_pct": 0.875})
    assert found is not None
    assert (found["resize"], found.get("crop")) == (resize, crop)


def test_flags_switch_steps_off() -> None:
    found = translate({**IMAGENET, "do_resize": False, "size": 224, "do_normalize": False})
    assert found is not None
    assert (found["mean"], found["std"]) == ([0.0] * 3, [255.0] * 3)
    assert "resize" not in found
    assert "crop" not in found
    raw = translate({**IMAGENET, "do_rescale": False, "do_normalize": False})
    assert raw is not None
    assert (raw["mean"], raw["std"]) == ([0.0] * 3, [1.0] * 3)


def test_rescale_with_offset_moves_the_mean() -> None:
    config = {"do_rescale": True, "rescale_factor": 1 / 127.5, "rescale_offset": True}
    found = translate({**config, "do_normalize": False})
    assert found is not None
    assert (found["mean"], found["std"]) == ([127.5] * 3, [127.5] * 3)


def test_flipped_channels_are_bgr() -> None:
    found = translate({"do_flip_channel_order": True, "do_rescale": True, "do_normalize": False})
    assert found is not None
    assert found["channels"] == "BGR"


TIMM = {
    "input_size": [3, 224, 224],
    "interpolation": "bicubic",
    "crop_pct": 0.875,
    "mean": IMAGENET["image_mean"],
    "std": IMAGENET["image_std"],
}


def test_timm_resizes_by_the_share_that_it_crops() -> None:
    found = translate({"architecture": "x", "pretrained_cfg": TIMM})
    assert found == {
        **IN_OURS,
        "channels": "RGB",
        "layout": "NCHW",
        "resize": 256,
        "crop": 224,
        "interpolation": "bicubic",
    }
    assert translate(TIMM) == found


def test_timm_squash_stretches() -> None:
    found = translate({**TIMM, "crop_mode": "squash", "crop_pct": 1.0})
    assert found is not None
    assert (found["resize"], found["crop"]) == ([224, 224], 224)


@pytest.mark.parametrize(
    "config",
    [
        {},
        [],
        None,
        {"model_type": "bert", "hidden_size": 128},
        {**TIMM, "crop_mode": "border"},
        {**TIMM, "input_size": [1, 28, 28]},
        {**TIMM, "input_size": [3, 224, 320]},
        {**TIMM, "std": [0, 0, 0]},
        {**TIMM, "crop_pct": "0.9"},
        {**HALVES, "size": {"longest_edge": 800, "shortest_edge": 600}},
        {**HALVES, "size": 224, "do_pad": True},
        {**HALVES, "size": -1},
        {"do_normalize": True, "size": 224},
        {"image_mean": [0.5], "image_std": [0.5], "size": 28},
        {**HALVES, "rescale_factor": float("inf")},
    ],
)
def test_what_is_not_understood_gives_none(config: Any) -> None:
    assert translate(config) is None


KEYS = sorted(
    {*TIMM, *HALVES, "size", "crop_size", "do_center_crop", "do_rescale", "rescale_factor"}
    | {"resample", "crop_mode", "image_processor_type"}
)
NUMBERS = st.integers() | st.floats() | st.sampled_from([0.5, 1, 224, 1e-300, 10**400])
LEAVES = NUMBERS | st.none() | st.booleans() | st.sampled_from(["bicubic", "ConvNext", "Levit"])
SIDES = st.sampled_from(["height", "width", "shortest_edge"])
VALUES = LEAVES | st.lists(NUMBERS, max_size=3) | st.dictionaries(SIDES, LEAVES, max_size=2)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=8), st.booleans())
def test_no_config_brings_it_down(changes: dict[str, Any], timm: bool) -> None:
    found = translate({**(TIMM if timm else HALVES), **changes})
    if found is not None:
        assert {"mean", "std", "channels", "layout"} <= set(found)
        assert all(math.isfinite(x) for x in found["mean"] + found["std"])


@pytest.mark.parametrize("data", [b"", b"{", b"\xff\xfe", b"[" * 100_000, b" " * (1 << 21) + b"{}"])
def test_a_broken_config_file_gives_none(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(data)
    assert read_preprocess(path) is None


def test_a_config_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(TIMM))
    assert read_preprocess(path) == translate(TIMM)
