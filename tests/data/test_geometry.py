"""Letterbox and stretch: where a picture lies in the input, and the way back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqto.data.geometry import Fit, letterbox, letterbox_fit, place, stretch, stretch_fit
from seqto.errors import ConfigError, DataError

SIDES = st.integers(1, 3000)


def picture(height: int, width: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)


def test_a_wide_picture_is_centred_between_filled_rows() -> None:
    found, fit = letterbox(np.full((240, 480, 3), 9, np.uint8), sides=640, fill=114)
    assert found.shape == (640, 640, 3)
    assert fit == Fit(640 / 480, 320 / 240, 0, 160, 640, 640)
    assert (found[:160] == 114).all()
    assert (found[480:] == 114).all()
    assert (found[160:480] == 9).all()


def test_a_high_picture_is_centred_between_filled_columns() -> None:
    found, fit = letterbox(np.full((100, 50, 3), 9, np.uint8), sides=(200, 300), fill=0)
    assert (fit.left, fit.top) == (100, 0)
    assert (found[:, :100] == 0).all()
    assert (found[:, 100:200] == 9).all()
    assert (found[:, 200:] == 0).all()


def test_a_picture_of_the_right_size_is_left_alone() -> None:
    pixels = picture(64, 64)
    for found, fit in (letterbox(pixels, sides=64), stretch(pixels, sides=64)):
        assert np.array_equal(found, pixels)
        assert (fit.scale_x, fit.scale_y, fit.left, fit.top) == (1, 1, 0, 0)


def test_stretch_is_pillows_bilinear_resize() -> None:
    from PIL import Image

    pixels = picture(30, 50)
    found, fit = stretch(pixels, sides=(20, 70))
    wanted = Image.fromarray(pixels).resize((70, 20), Image.Resampling.BILINEAR)
    assert np.array_equal(found, np.asarray(wanted))
    assert (fit.scale_x, fit.scale_y) == (70 / 50, 20 / 30)


def test_a_mask_goes_the_way_of_its_picture_and_keeps_its_classes() -> None:
    mask = np.zeros((40, 80), np.uint8)
    mask[:, 40:] = 7
    found = place(mask, letterbox_fit(40, 80, sides=64), fill=255, interpolation="nearest")
    assert set(np.unique(found)) == {0, 7, 255}
    assert (found[16:48, 32:] == 7).all()
    assert (found[:16] == 255).all()


@given(height=SIDES, width=SIDES, sides=st.tuples(SIDES, SIDES))
def test_boxes_come_back_and_stay_inside(height: int, width: int, sides: tuple[int, int]) -> None:
    boxes = np.array([[0, 0, width, height], [width / 4, height / 3, width / 2, height / 1.5]])
    for fit in (letterbox_fit(height, width, sides=sides), stretch_fit(height, width, sides=sides)):
        inside = fit.to_input(boxes)
        np.testing.assert_allclose(fit.to_picture(inside), boxes, rtol=1e-9, atol=1e-6)
        assert inside.min() >= -1e-6
        assert (inside[:, [0, 2]] <= sides[1] + 1e-6).all()
        assert (inside[:, [1, 3]] <= sides[0] + 1e-6).all()
        assert Fit.from_json(fit.to_json()) == fit


@given(height=st.integers(1, 60), width=st.integers(1, 60), side=st.integers(1, 60))
def test_every_picture_fills_its_canvas(height: int, width: int, side: int) -> None:
    found, fit = letterbox(np.full((height, width), 1, np.uint8), sides=side, fill=0)
    assert found.shape == (side, side)
    inner = round(height * fit.scale_y) * round(width * fit.scale_x)
    assert int(found.sum()) == inner


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"sides": 0}, "letterbox"),
        ({"sides": 640, "fill": 300}, "fill = 300"),
        ({"sides": 640, "interpolation": "cubic"}, "interpolation = 'cubic'"),
    ],
)
def test_wrong_settings_are_refused(settings: dict, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        letterbox(picture(4, 6), **settings)


def test_what_is_no_picture_is_refused() -> None:
    with pytest.raises(DataError, match="shape 5"):
        stretch(np.zeros(5, np.uint8), sides=4)
