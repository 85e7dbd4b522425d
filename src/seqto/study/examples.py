"""Examples of what changed: the samples' names, and pictures small enough to be put on a page."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence

from seqto.data.store import SampleStore
from seqto.records import Json
from seqto.tasks.example import NEIGHBOUR

MOST_EXAMPLES = 12
SIDE = 224  # pixels of the longer side
QUALITY = 70  # of JPEG: about 8 kB a picture


def described(store: SampleStore, split: str, examples: Sequence[Json]) -> tuple[Json, ...]:
    """Return the examples with the name, the picture and the texts of their sample."""
    names, texts = store.names(split), store.texts(split)
    completed = []
    for example in examples:
        row = int(example["row"])
        picture = store.picture(split, row)
        sample_fields = {} if picture is None else {"picture": _jpeg(picture)}
        if texts[row]:
            sample_fields["input"] = " / ".join(texts[row])
        if example.get("form") == NEIGHBOUR:
            sample_fields |= _neighbours(example, texts, names)
        completed.append({"name": names[row], **example, **sample_fields})
    return tuple(completed)


def _neighbours(example: Json, texts: Sequence[Sequence[str]], names: Sequence[str]) -> Json:
    """Return both models' nearest samples with their texts; and the text that was looked up."""
    nearest: Json = {}
    side = int(example["side"])
    for model in ("float", "candidate"):
        row = int(example[model]["row"])
        text = texts[row][side] if len(texts[row]) > side else names[row]
        nearest[model] = {**example[model], "text": text}
    own = texts[int(example["row"])]
    return nearest | ({"input": own[0]} if own else {})


def _jpeg(pixels: object) -> str:
    from PIL import Image

    picture = Image.fromarray(pixels)  # type: ignore[arg-type]
    picture.thumbnail((SIDE, SIDE))
    stream = io.BytesIO()
    picture.convert("RGB").save(stream, "JPEG", quality=QUALITY)
    return base64.b64encode(stream.getvalue()).decode()
