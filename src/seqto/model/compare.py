"""Compare the answers of two float models on the same samples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from seqto.errors import ModelError
from seqto.model.ort_session import open_session
from seqto.model.prepare import relative_difference

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
