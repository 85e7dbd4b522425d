"""The preprocessing record, and resize and crop against Pillow."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from seqto.data.preprocess import Preprocess, fit_picture
from seqto.errors import ConfigError, DataError

sides = st.none() | st.integers(1, 500) | st.tuples(st.integers(1, 500), st.integers(1, 500))


@given(
    resize=sides,
    channels=st.sampled_from(["RGB", "BGR"]),
    mean=st.tuples(*[st.floats(-300, 300)] * 3),
    scale=st.none() | st.floats(0.001, 100),
)
def test_preprocess_survives_json(
    resize: Any, channels: str, mean: tuple[float, ...], scale: float | None
) -> None:
    made = Preprocess(resize, channels=channels, mean=mean, std=(2.0,), scale=scale)
    assert Preprocess.from_json(json.loads(json.dumps(made.to_json()))) == made


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"resise": 3}, "did you mean 'resize'"),
        ({"resize": 200, "crop": 224}, "crop = 224 is larger than preprocess.resize = 200"),
        ({"resize": 0}, "at least 1 pixel"),
        ({"resize": 22.5}, "whole number"),
        ({"crop": "big"}, "cannot be used"),
        ({"crop": float("inf")}, "cannot be used"),
        ({"resize": [float("nan"), 3]}, "cannot be used"),
        ({"mean": [10**400]}, "cannot be used"),
        ({"channels": "rgb"}, "none of RGB, BGR, GRAY"),
        ({"layout": "CHW"}, "none of NCHW, NHWC"),
        ({"mean": [1.0, 2.0]}, "1 or 3 finite numbers"),
        ({"std": [1.0, 0.0, 1.0]}, "zero to divide by"),
        ({"channels": "GRAY", "mean": [1, 2, 3]}, "1 finite numbers, as channels = 'GRAY'"),
        ({"mean": [float("nan")]}, "finite"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Preprocess.from_json(settings)


def noise(height: int, width: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)


@pytest.mark.parametrize(("height", "width"), [(40, 60), (61, 33), (20, 20)])
def test_short_side_and_centre_are_taken(height: int, width: int) -> None:
    pixels = noise(height, width)
    short = min(height, width)
    size = (24 * width // short, 24 * height // short)
    whole = np.asarray(Image.fromarray(pixels).resize(size, Image.Resampling.BICUBIC))
    top, left = round((whole.shape[0] - 16) / 2), round((whole.shape[1] - 16) / 2)
    got = fit_picture(pixels, Preprocess(24, 16))
    np.testing.assert_array_equal(got, whole[top : top + 16, left : left + 16])


def test_a_pair_is_the_exact_size() -> None:
    assert fit_picture(noise(40, 60), Preprocess((10, 30))).shape == (10, 30, 3)


def test_grey_is_made_before_resizing_and_has_one_channel() -> None:
    pixels = noise(9, 9)
    got = fit_picture(pixels, Preprocess(channels="GRAY"))
    assert got.shape == (9, 9, 1)
    np.testing.assert_array_equal(got[:, :, 0], np.asarray(Image.fromarray(pixels).convert("L")))


def test_the_pixels_given_are_not_changed_nor_shared() -> None:
    pixels = noise(8, 8)
    before = pixels.copy()
    fit_picture(pixels, Preprocess())[:] = 0
    np.testing.assert_array_equal(pixels, before)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((5, 5, 3), "smaller than the crop"),
        ((1, 2_000_000, 3), "million pixels"),
        ((0, 5, 3), "empty"),
        ((5, 5, 4), "H×W×3 is needed"),
        ((5, 5), "set preprocess.channels = 'GRAY'"),
    ],
)
def test_odd_pictures_are_refused(shape: tuple[int, ...], message: str) -> None:
    how = Preprocess(crop=8) if shape == (5, 5, 3) else Preprocess(256, 224)
    with pytest.raises(DataError, match=message):
        fit_picture(np.zeros(shape, np.uint8), how)
