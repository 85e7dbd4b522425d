"""Compare the answers of two float models on the same samples."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from seqto.errors import ModelError
from seqto.model.ort_session import open_session

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def unfit_samples(feeds: Mapping[str, NDArray[np.generic]], error: Exception) -> str:
    """Return one line for a float model that cannot take its samples."""
    shapes = ", ".join(f"{name}: {'×'.join(map(str, x.shape))}" for name, x in feeds.items())
    why = " ".join(str(error).split())
    pictures = any(x.ndim == 4 for x in feeds.values())
    cure = "set the height and width that it takes in data.preprocess, or " if pictures else ""
    return (
        f"the float model does not run on the first samples ({shapes}): {why[:300]}; {cure}give "
        "samples of the shape it takes with --data"
    )


def same_answers(
    original: bytes | str, prepared: bytes | str, feeds: Mapping[str, NDArray[np.generic]]
) -> float:
    """Return the largest difference between two models' outputs, relative to the outputs' spread.

    A model is given as its bytes, or by the path of its file.
    """
    runs = []
    for model in (original, prepared):
        try:
            runs.append(open_session(model).run(None, dict(feeds)))
        except Exception as error:  # ORT raises many types without a root
            raise ModelError(unfit_samples(feeds, error)) from error
    return max((relative_difference(a, b) for a, b in zip(*runs, strict=True)), default=0.0)


def relative_difference(a: Any, b: Any) -> float:
    """Return the largest difference of two outputs, relative to the spread; no numbers: 0 or 1."""
    import numpy as np

    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):  # sequences
        return max((relative_difference(x, y) for x, y in zip(a, b, strict=True)), default=0.0)
    if not isinstance(a, np.ndarray) or not isinstance(b, np.ndarray):
        return float(a != b)
    if a.shape != b.shape:
        return math.inf
    if not np.issubdtype(a.dtype, np.floating):
        return float(np.any(a != b))
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    if same.all():
        return 0.0
    gap = float(np.abs(a - b)[~same].max())
    spread = float(np.abs(a[np.isfinite(a)]).max(initial=0.0)) or 1.0
    return gap / spread if math.isfinite(gap) else math.inf
