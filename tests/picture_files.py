"""Small pictures on the disk, with boxes in COCO's JSON and with masks."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from PIL import Image


def write_pictures(folder: Path, count: int = 32) -> None:
    """Smooth colours in pictures of unlike sizes."""
    folder.mkdir()
    rng = np.random.default_rng(4)
    for k in range(count):
        small = Image.fromarray(rng.integers(0, 256, (4, 4, 3), np.uint8))
        size = (24 + 8 * (k % 3), 40 - 4 * (k % 2))
        small.resize(size, Image.Resampling.BILINEAR).save(folder / f"{k:02}.png")


def write_labelled(folder: Path, count: int = 10) -> None:
    """Pictures with boxes in COCO's JSON, and with masks of the same names."""
    folder.mkdir(exist_ok=True)
    write_pictures(folder / "labelled", count)
    (folder / "masks").mkdir()
    images, notes = [], []
    for k, path in enumerate(sorted((folder / "labelled").iterdir()), start=1):
        with Image.open(path) as image:
            width, height = image.size
        images.append({"id": k, "file_name": path.name, "width": width, "height": height})
        box = [2 + k % 5, 3, 12, 14]
        notes.append({"id": k, "image_id": k, "category_id": 7 + k % 3, "bbox": box})
        mask = np.zeros((height, width), np.uint8)
        mask[4:18, 3:15] = 255
        Image.fromarray(mask).save(folder / "masks" / path.name)
    categories = [{"id": c, "name": str(c)} for c in (7, 8, 9)]
    table = {"images": images, "annotations": notes, "categories": categories}
    (folder / "labels.json").write_text(json.dumps(table))
