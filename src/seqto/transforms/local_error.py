"""The error that rounding leaves at the outputs of layers when their input's channels are scaled.

Measured on rows of what flows into the layers, with plain rounding: enough to compare factors, not
to price a scheme.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from seqto.transforms.editable_model import Floats

INT8, INT4 = "int8", "int4"


BLOCK = 32  # inputs that share a scale where weights have four bits


def output_error(x: Floats, weights: Sequence[Floats], factors: Floats, *, against: str) -> float:
    """Return the mean relative squared error of x·W for every W [inputs, outputs].

    against   int8: activations have one range, weights a scale a column, eight bits each
              int4: activations stay float, weights have a scale for every block of inputs
    """
    scaled = x * factors
    rounded = _u8(scaled) if against == INT8 else scaled
    errors = []
    for weight in weights:
        moved = weight / factors[:, None]
        restored = _s8(moved) if against == INT8 else _s4(moved)
        exact = x @ weight
        error = float(np.square(rounded @ restored - exact).sum())
        errors.append(error / max(float(np.square(exact).sum()), 1e-30))
    return float(np.mean(errors))


def _u8(x: Floats) -> Floats:
    low, high = min(float(x.min()), 0.0), max(float(x.max()), 0.0)
    scale = (high - low) / 255.0 or 1.0
    zero = np.round(-low / scale)
    rounded: Floats = (np.clip(np.round(x / scale) + zero, 0, 255) - zero) * scale
    return rounded


def _s8(weight: Floats) -> Floats:
    scale = np.abs(weight).max(axis=0) / 127.0
    scale = np.where(scale > 0, scale, 1.0)
    rounded: Floats = np.round(weight / scale) * scale
    return rounded


def _s4(weight: Floats) -> Floats:
    inputs, outputs = weight.shape
    padded = np.pad(weight, ((0, -inputs % BLOCK), (0, 0))).reshape(-1, BLOCK, outputs)
    scale = np.abs(padded).max(axis=1, keepdims=True) / 7.5
    scale = np.where(scale > 0, scale, 1.0)
    rounded: Floats = np.clip(np.round(padded / scale), -8, 7) * scale
    return rounded.reshape(-1, outputs)[:inputs]
