"""Examples of what changed: the samples' names, and pictures small enough to be put on a page."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence

from seqto.data.store import SampleStore
from seqto.records import Json

MOST_EXAMPLES = 12
SIDE = 224  # pixels of the longer side
QUALITY = 70  # of JPEG: about 8 kB a picture


def described(store: SampleStore, split: str, examples: Sequence[Json]) -> tuple[Json, ...]:
    """Return the examples with the name of their sample and, where there is one, its picture."""
    names = store.names(split)
    found = []
    for example in examples:
        row = int(example["row"])
        picture = store.picture(split, row)
        made = {} if picture is None else {"picture": _jpeg(picture)}
        found.append({"name": names[row], **example, **made})
    return tuple(found)


def _jpeg(pixels: object) -> str:
    from PIL import Image

    picture = Image.fromarray(pixels)  # type: ignore[arg-type]
    picture.thumbnail((SIDE, SIDE))
    stream = io.BytesIO()
    picture.convert("RGB").save(stream, "JPEG", quality=QUALITY)
    return base64.b64encode(stream.getvalue()).decode()
