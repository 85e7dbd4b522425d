"""Boxes as numbers whose squared differences grow with what a difference means to a detector.

IoU does not know pixels: a shift by a tenth of a box costs the same for a small box and for a large
one. Coordinates in shares of the picture hide what happens to small boxes. Seen on YOLOv8n, with
the grid of cells that its head adds to the offsets stored in 8 bits: hardly a box is lost at an IoU
of 0.5, and mAP over all IoUs falls from 0.380 to 0.318.

The two models' boxes are not seen together, so coordinates cannot be divided by float's sizes.
Instead a centre is written as phases of waves that are about four times as long as the box, a size
as its logarithm. Waves come in octaves; a box has its part in the two octaves beside its size, so
that the numbers change continuously. A difference by a small share d of the box's size is then a
difference of about d.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Values = NDArray[Any]
Floats = NDArray[np.float64]

OCTAVES = 7  # sizes from 1/64 of the picture to all of it; smaller ones count as 1/64
WAVE = 4.0  # length of a wave in sizes of the box: a shift up to a whole box is still unambiguous
NUMBERS = 4 * OCTAVES + 2  # of a box


def box_numbers(boxes: Values) -> Floats:
    """Return 30 numbers for each box [x1, y1, x2, y2] in shares of the picture."""
    corners = np.asarray(boxes, dtype=np.float64)
    sides = np.clip(corners[:, 2:] - corners[:, :2], 2.0 ** (1 - OCTAVES), 1.0)
    centres = (corners[:, 2:] + corners[:, :2]) / 2
    octave = np.log2(np.sqrt(sides[:, 0] * sides[:, 1]))[:, None] + np.arange(OCTAVES)
    part = np.clip(1.0 - np.abs(octave), 0.0, None)  # of each octave, 1, 1/2, 1/4 …; sums to 1
    lengths = WAVE * 2.0 ** -np.arange(OCTAVES)
    angles = 2 * np.pi * centres[:, :, None] / lengths
    waves = [part * wave(angles[:, axis]) for axis in (0, 1) for wave in (np.sin, np.cos)]
    return np.concatenate([*waves, np.log(sides)], axis=1)
