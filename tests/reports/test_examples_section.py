"""Examples on the page: drawn, escaped, and left out where a journal holds something else."""

from __future__ import annotations

import base64
import re
from typing import Any

import numpy as np
import pytest

from seqto.report.examples import section
from seqto.tasks.example import (
    MOST_PLACES,
    box_example,
    mask_example,
    mask_pixels,
    neighbour_example,
    next_example,
    text_example,
)

JPEG = base64.b64encode(b"\xff\xd8 no real picture").decode()


def page(*samples: dict[str, Any]) -> str:
    report = {"examples": {"trial": 3, "split": "report", "samples": list(samples)}}
    return section({**report, "output": {"changed": "boxes"}})


def boxes(*rows: tuple[float, ...]) -> dict[str, Any]:
    table = np.array(rows, float).reshape(-1, 6)
    return {"boxes": table[:, :4], "scores": table[:, 4], "classes": table[:, 5]}


def sample(shown: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"name": "a.jpg", "row": 0, "distance": 0.5, "picture": JPEG, **shown, **more}


def test_a_lost_box_is_drawn_unlike_one_that_stays() -> None:
    both = (10, 10, 40, 40, 0.9, 1)
    shown = box_example((64, 96), boxes(both, (50, 5, 60, 15, 0.3, 2)), boxes(both))
    text = page(sample(shown))
    assert text.count('<rect class="same"') == 2
    assert text.count('<rect class="other"') == 1
    assert text.count('viewBox="0 0 96 64"') == 2
    assert text.count(JPEG) == 1, "the picture is embedded once and used twice"
    assert "50.0 % boxes changed" in text.replace("50 %", "50.0 %")


def test_masks_are_kept_and_drawn() -> None:
    mask = np.zeros((300, 200), np.uint8)
    mask[100:200, 50:150] = 1
    shown = mask_example(mask, 0 * mask)
    kept = mask_pixels(shown["float"])
    assert max(kept.shape) <= 96
    assert kept.mean() == pytest.approx(mask.mean(), abs=0.02)
    assert page(sample(shown)).count("data:image/png;base64,") == 2


def test_words_that_differ_are_marked() -> None:
    text = page(sample(text_example("the cat sat", "the dog sat"), picture=None))
    assert "the <mark>cat</mark> sat" in text
    assert "the <mark>dog</mark> sat" in text


def test_of_single_words_the_letters_are_marked() -> None:
    text = page(sample(text_example("Auda", "Ouda"), picture=None))
    assert "<mark>A</mark>uda" in text
    assert "<mark>O</mark>uda" in text


@pytest.mark.parametrize("evil", ['<img src=x onerror="a()">', "</section><script>1</script>"])
def test_names_and_texts_are_escaped(evil: str) -> None:
    text = page(sample(text_example(evil, "x"), name=evil, picture='" onload="a()'))
    assert "<script" not in text
    assert not re.search(r"<img[^>]*on(error|load)", text)
    assert "&lt;" in text


@pytest.mark.parametrize(
    "broken",
    [
        {"form": "boxes", "size": [0, 10], "float": [], "candidate": []},
        {"form": "boxes", "size": [10, 10], "float": [["<b>"] * 6], "candidate": []},
        {"form": "boxes", "size": [10, 10], "float": [[1, 2]], "candidate": []},
        {"form": "mask", "float": {"size": [9, 9], "rows": "AAAA"}, "candidate": {}},
        {"form": "song", "float": "", "candidate": ""},
        {"form": "text"},
        {},
    ],
)
def test_what_cannot_be_drawn_is_left_out(broken: dict[str, Any]) -> None:
    good = sample(text_example("a", "b"))
    text = page({"name": "x", "distance": 0.1, **broken}, good)
    assert text.count("<figure") == 1
    assert page({"name": "x", "distance": 0.1, **broken}) == ""


def test_a_run_without_examples_has_no_section() -> None:
    assert section({"examples": None}) == ""
    assert section({}) == ""


def test_next_tokens_stand_behind_what_was_read() -> None:
    place = {"before": "a little ", "text": "dog", "float": "girl", "candidate": "<boy>"}
    shown = next_example([place] * 9, changed=9)
    text = page(sample(shown, picture=None, name="row-3: Once", input="Once upon <b>"))
    assert text.count('<span class="before">…a little </span><mark>girl</mark>') == MOST_PLACES
    assert "<mark>&lt;boy&gt;</mark>" in text
    assert f"and {9 - MOST_PLACES} more places" in text
    assert "Once upon &lt;b&gt;" in text
    assert "row-3 ·" in text


def test_neighbours_are_texts_with_their_cosines() -> None:
    shown = neighbour_example((4, 0.91234), (7, 0.9), side=1)
    shown["float"]["text"], shown["candidate"]["text"] = "a man plays", "<i>a dog runs"
    text = page(sample(shown, picture=None, input="somebody plays"))
    assert '<p dir="auto">a man plays</p><small>cosine 0.912</small>' in text
    assert "&lt;i&gt;a dog runs" in text
    assert "<i>a dog" not in text
    # a journal whose example has no text is left out
    assert page(sample(neighbour_example((1, 0.5), (2, 0.5), side=0), picture=None)) == ""


def test_samples_of_one_answer_have_no_share_of_changed_answers() -> None:
    one = sample(text_example("class 6", "class 4"), distance=1.0)
    found = section({"examples": {"trial": 3, "split": "report", "samples": [one]}, "output": {}})
    assert "Held-out samples whose answer changed in trial 3" in found
    assert "100.0 %" not in found
    assert "50.0 % boxes changed" in page(sample(text_example("a", "b")))
