"""Examples of what changed, as a section of the page: float's answer beside the recommended one's.

A task shows a sample in a form of tasks/example.py: boxes over the picture, a mask over the
picture, two texts, next tokens, or nearest neighbours. The section is plain HTML and SVG without a
script. Everything in it comes from a journal, which strangers may have written: texts are escaped,
numbers are numbers, and what is no base64 is left out.
"""

from __future__ import annotations

import base64
import difflib
import html
import math
import re
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqto.records import Json
from seqto.report import wording
from seqto.tasks.boxes import Boxes, match_boxes
from seqto.tasks.example import BOXES, MASK, NEIGHBOUR, NEXT, TEXT, mask_pixels
from seqto.text import percent, plain, shorten

SAME_BOX = 0.5  # IoU from which two boxes of a class are drawn as the same
MOST_LONG = 6  # samples of a form that takes much room
MOST_INPUT = 240  # characters of a text that was read
SIDES = ("float", "candidate")
TITLES = {"float": "float", "candidate": "recommended"}
# of classes 1, 2, 3, …; they are used in turn
COLOURS = ((214, 39, 40), (31, 119, 180), (44, 160, 44), (255, 127, 14), (148, 103, 189))
_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")


def section(report: Mapping[str, Any]) -> str:
    """Return the section, or nothing where the run has no examples."""
    examples = report.get("examples")
    if not isinstance(examples, Mapping) or not examples.get("samples"):
        return ""
    most = MOST_LONG if examples["samples"][0].get("form") == NEXT else len(examples["samples"])
    drawn = [figure(i, sample, report) for i, sample in enumerate(examples["samples"][:most])]
    figures = "\n".join(text for text in drawn if text)
    if not figures:
        return ""
    which = f"with the largest share of {html.escape(wording.changed(report))}"
    if _is_one_answer(report):
        which = "whose answer changed"
    return (
        '<section id="examples" aria-labelledby="h-examples">\n'
        '  <h2 id="h-examples">What changed</h2>\n'
        f'  <p class="hint">Held-out samples {which} in trial '
        f"{int(examples['trial'])}: the float model's answer on the left, the recommended model's "
        f"on the right.{_reading(examples['samples'])}</p>\n"
        f'  <div class="examples">\n{figures}\n  </div>\n</section>\n'
    )


def _reading(samples: Sequence[Mapping[str, Any]]) -> str:
    """Return how the form of the samples is read, where that is not plain."""
    return {
        NEXT: " Marked is the most likely next token at places of the text where the two differ.",
        NEIGHBOUR: " Below each text stands the nearest one among the others.",
    }.get(str(samples[0].get("form")), "")


def figure(number: int, sample: Mapping[str, Any], report: Mapping[str, Any]) -> str:
    """Return one sample's figure, or nothing where it cannot be drawn."""
    draw = FORMS.get(str(sample.get("form")))
    try:
        pair = draw(number, sample) if draw else None
        share = percent(float(sample["distance"]))
    except (KeyError, TypeError, ValueError, OverflowError, zlib.error):
        return ""
    if pair is None:
        return ""
    text = str(sample.get("input") or "")
    name = str(sample.get("name", ""))
    if text:  # the name of a text is its row and its first words
        name = name.partition(":")[0]
    name = html.escape(shorten(plain(name), 60))
    text = html.escape(shorten(" ".join(text.split()), MOST_INPUT))
    read = f'<p class="input" dir="auto">{text}</p>'
    sides = "".join(
        f'<div><span class="side">{TITLES[side]}</span>{answer}</div>'
        for side, answer in zip(SIDES, pair, strict=True)
    )
    what = "" if _is_one_answer(report) else f" · {share} {html.escape(wording.changed(report))}"
    return (
        f'<figure class="example">{read if text else ""}<div class="pair">{sides}</div>'
        f"<figcaption>{name}{what}</figcaption></figure>"
    )


def _is_one_answer(report: Mapping[str, Any]) -> bool:
    """Return whether a sample has one answer, which changed or did not: a share says nothing."""
    samples = report["examples"]["samples"]
    whole = all(sample.get("distance") == 1.0 for sample in samples)
    return whole and (report.get("output") or {}).get("changed") is None


# -------------------------------------------------------------------------------------- the forms


def _boxes(number: int, sample: Mapping[str, Any]) -> tuple[str, str]:
    height, width = (_positive(side) for side in sample["size"])
    tables = [_table(sample[side]) for side in SIDES]
    pairs = match_boxes(*tables, match=SAME_BOX)
    matched = [{pair[model] for pair in pairs} for model in (0, 1)]
    drawn = []
    for model, boxes in enumerate(tables):
        shapes = [
            _box(boxes, k, same=k in matched[model], unit=max(height, width))
            for k in range(len(boxes))
        ]
        drawn.append(_svg(number, sample, (height, width), "".join(shapes), first=model == 0))
    return drawn[0], drawn[1]


def _table(rows: Sequence[Sequence[float]]) -> Boxes:
    table = np.array([[float(x) for x in row] for row in rows], dtype=np.float64).reshape(-1, 6)
    if not np.isfinite(table).all():
        raise ValueError("a box has a side that is no number")
    return Boxes(table[:, :4], table[:, 4], table[:, 5].astype(np.int64))


def _box(boxes: Boxes, k: int, *, same: bool, unit: float) -> str:
    x1, y1, x2, y2 = (float(x) for x in boxes.boxes[k])
    kind = "same" if same else "other"
    label = f"{int(boxes.classes[k])} · {float(boxes.scores[k]):.2f}"
    return (
        f'<rect class="{kind}" x="{x1:.1f}" y="{y1:.1f}" width="{max(0.0, x2 - x1):.1f}" '
        f'height="{max(0.0, y2 - y1):.1f}" stroke-width="{unit / 160:.2f}"/>'
        f'<text class="{kind}" x="{x1 + unit / 100:.1f}" y="{y1 + unit / 22:.1f}" '
        f'font-size="{unit / 24:.1f}">{label}</text>'
    )


def _mask(number: int, sample: Mapping[str, Any]) -> tuple[str, str]:
    drawn = []
    for position, side in enumerate(SIDES):
        pixels = mask_pixels(dict(sample[side]))
        height, width = pixels.shape
        overlay = base64.b64encode(_png(_coloured(pixels))).decode()
        shape = (
            f'<image href="data:image/png;base64,{overlay}" width="{width}" height="{height}" '
            'preserveAspectRatio="none"/>'
        )
        drawn.append(_svg(number, sample, (height, width), shape, first=position == 0))
    return drawn[0], drawn[1]


def _text(_number: int, sample: Mapping[str, Any]) -> tuple[str, str]:
    before, after = (str(sample[side]).split() for side in SIDES)
    between = " "
    if len(before) <= 1 and len(after) <= 1:  # of single words, the letters
        before, after = list("".join(before)), list("".join(after))
        between = ""
    left: list[str] = []
    right: list[str] = []
    compared = difflib.SequenceMatcher(None, before, after, autojunk=False)
    for kind, a, b, c, d in compared.get_opcodes():
        for words, out in ((before[a:b], left), (after[c:d], right)):
            text = html.escape(between.join(plain(word) for word in words))
            if text:
                out.append(text if kind == "equal" else f"<mark>{text}</mark>")
    picture = _picture(sample)
    shown = f'<img alt="" src="{picture}">' if picture else ""
    texts = [f'<p dir="auto">{between.join(side)}</p>' for side in (left, right)]
    return shown + texts[0], shown + texts[1]


def _next(_number: int, sample: Mapping[str, Any]) -> tuple[str, str]:
    """Return each position of a text, behind the words before it, with one model's next token."""
    sides: list[str] = []
    for side in SIDES:
        rows = [
            f'<li dir="auto"><span class="before">…{_words(position["before"])}</span>'
            f"<mark>{_words(position[side])}</mark></li>"
            for position in sample["places"]
        ]
        sides.append(f"<ul>{''.join(rows)}</ul>")
    more = int(sample["changed"]) - len(sample["places"])
    if more > 0:
        sides = [f"{text}<small>and {more} more places</small>" for text in sides]
    return sides[0], sides[1]


def _words(text: Any) -> str:
    """Return text on one line whose spaces at the ends are kept: they are part of a token."""
    return html.escape(plain(re.sub(r"\s", " ", str(text))))


def _neighbour(_number: int, sample: Mapping[str, Any]) -> tuple[str, str]:
    """Return the nearest text by each model, with its cosine."""
    cells = []
    for side in SIDES:
        text = html.escape(shorten(plain(str(sample[side]["text"])), MOST_INPUT))
        cosine = float(sample[side]["cosine"])
        cells.append(f'<p dir="auto">{text}</p><small>cosine {cosine:.3f}</small>')
    return cells[0], cells[1]


FORMS: Mapping[str, Callable[[int, Mapping[str, Any]], tuple[str, str]]] = {
    BOXES: _boxes,
    MASK: _mask,
    TEXT: _text,
    NEXT: _next,
    NEIGHBOUR: _neighbour,
}


# ----------------------------------------------------------------------------------- small things


def _svg(
    number: int, sample: Mapping[str, Any], size: tuple[float, float], shapes: str, *, first: bool
) -> str:
    """Return a drawing over the sample's picture, which is embedded once and used twice."""
    height, width = size
    picture = _picture(sample)
    image_id = f"example-{number}"
    below = ""
    if picture and first:
        below = (
            f'<image id="{image_id}" href="{picture}" width="{width:g}" height="{height:g}" '
            'preserveAspectRatio="none"/>'
        )
    elif picture:
        below = f'<use href="#{image_id}"/>'
    return f'<svg viewBox="0 0 {width:g} {height:g}" role="img">{below}{shapes}</svg>'


def _picture(sample: Mapping[str, Any]) -> str:
    content = sample.get("picture")
    if not isinstance(content, str) or not _BASE64.fullmatch(content):
        return ""
    return f"data:image/jpeg;base64,{content}"


def _positive(value: Any) -> float:
    number = float(value)
    if not (math.isfinite(number) and 0 < number <= 1e5):
        raise ValueError("a picture has a side that is no size")
    return number


def _coloured(mask: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return class numbers as half-transparent colours; 0 is clear."""
    table = np.zeros((256, 4), np.uint8)
    for k in range(1, 256):
        table[k] = (*COLOURS[(k - 1) % len(COLOURS)], 140)
    return table[mask]


def _png(pixels: NDArray[np.uint8]) -> bytes:
    """Return a PNG file of H×W×4 pixels."""
    height, width, _ = pixels.shape
    rows = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, -1)], axis=1)

    def chunk(kind: bytes, data: bytes) -> bytes:
        check = zlib.crc32(kind + data)
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", check)

    head = struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0)
    body = zlib.compress(rows.tobytes(), 9)
    start = b"\x89PNG\r\n\x1a\n"
    return start + chunk(b"IHDR", head) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


def shown_examples(number: int | None, by_trial: Mapping[int, Any]) -> Json | None:
    """Return the examples of the recommended trial for a report; None where there are none."""
    event = by_trial.get(number) if number is not None else None
    if event is None:
        return None
    return {"trial": event.number, "split": event.split, "samples": list(event.examples)}
