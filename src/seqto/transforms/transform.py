"""The result of a transform of the float model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Applied:
    """What a transform made of a model."""

    proto: Any  # a new onnx.ModelProto; existing nodes keep their names
    touched: tuple[str, ...]  # layers whose weights changed
    skipped: tuple[tuple[str, str], ...]  # (layer or "layer → layer", why not)
    exact: bool  # True: outputs must stay within tolerance; False: they may move
    notes: tuple[str, ...] = ()  # figures worth showing
