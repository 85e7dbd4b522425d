"""Examples of a sample's answers for people: small JSON that a page draws.

{"form": "boxes", "size": [height, width], "float": [[x1, y1, x2, y2, score, class], …],
 "candidate": […]}                           in input pixels, the strongest boxes
{"form": "mask", "float": MASK, "candidate": MASK}
                                             MASK: {"size": [height, width], "rows": base64 of
                                             one byte a pixel, compressed by zlib}
{"form": "text", "float": "…", "candidate": "…"}
{"form": "next", "changed": number, "places": [{"before": "…", "text": "…", "float": "…",
 "candidate": "…"}, …]}                      next tokens, where they differ: what was read before,
                                             the text's own token, both models' most likely one
{"form": "neighbour", "float": {"row": number, "cosine": number}, "candidate": {…}, "side": number}
                                             the nearest sample; `side`: which of a sample's texts
                                             (study/examples.py adds them as "text")
Samples that were read from texts have them as "input".
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqto.records import Json

BOXES, MASK, TEXT = "boxes", "mask", "text"
NEXT, NEIGHBOUR = "next", "neighbour"
MOST_BOXES = 30  # of one model in one picture
MASK_SIDE = 96  # pixels that a mask is thinned to
MOST_TEXT = 2000  # characters
MOST_PLACES = 4  # of one text whose next tokens are shown
MOST_BEFORE = 60  # characters in front of such a place


def text_example(reference: str, answer: str) -> Json:
    """Return two texts; a page marks where they differ."""
    return {"form": TEXT, "float": reference[:MOST_TEXT], "candidate": answer[:MOST_TEXT]}


def next_example(places: Sequence[Json], *, changed: int) -> Json:
    """Return some places of a text where the most likely next tokens differ, of all that do."""
    shown = [{**place, "before": place["before"][-MOST_BEFORE:]} for place in places[:MOST_PLACES]]
    return {"form": NEXT, "changed": changed, "places": shown}


def neighbour_example(
    reference: tuple[int, float], answer: tuple[int, float], *, side: int
) -> Json:
    """Return the nearest samples (row, cosine) by both models.

    `side`: which text of a sample it is.
    """
    rows = [{"row": row, "cosine": round(cosine, 4)} for row, cosine in (reference, answer)]
    return {"form": NEIGHBOUR, "float": rows[0], "candidate": rows[1], "side": side}


def box_example(size: Sequence[int], reference: Json, answer: Json) -> Json:
    """Return boxes of both models; each is {boxes, scores, classes}, strongest first."""
    return {
        "form": BOXES,
        "size": [int(side) for side in size],
        "float": _rows(reference),
        "candidate": _rows(answer),
    }


def _rows(answer: Json) -> list[list[float]]:
    table = np.column_stack([answer["boxes"], answer["scores"], answer["classes"]])[:MOST_BOXES]
    return [[round(float(x), 3) for x in row] for row in np.nan_to_num(table)]


def mask_example(reference: NDArray[Any], answer: NDArray[Any]) -> Json:
    """Return masks of class numbers, height × width."""
    return {"form": MASK, "float": _mask(reference), "candidate": _mask(answer)}


def _mask(mask: NDArray[Any]) -> Json:
    step = max(1, -(-max(mask.shape) // MASK_SIDE))
    thin = (np.asarray(mask[::step, ::step], dtype=np.int64) % 256).astype(np.uint8)
    rows = base64.b64encode(zlib.compress(thin.tobytes(), 9)).decode()
    return {"size": list(thin.shape), "rows": rows}


def mask_pixels(mask: Json) -> NDArray[np.uint8]:
    """Return the pixels of a MASK; ValueError where it is none."""
    height, width = (int(side) for side in mask["size"])
    if not (0 < height <= 4096 and 0 < width <= 4096):
        raise ValueError("a mask has 1 to 4096 pixels a side")
    inflate = zlib.decompressobj()
    raw = inflate.decompress(base64.b64decode(mask["rows"], validate=True), height * width)
    if len(raw) != height * width:
        raise ValueError("a mask has one byte a pixel")
    return np.frombuffer(raw, np.uint8).reshape(height, width)
