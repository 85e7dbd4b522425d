"""Decoders by name: raw outputs of detectors → candidate boxes with scores.

A decoder takes the outputs of n samples by name and returns `Candidates`, before thresholds and
suppression. A user's own decoder is a function that returns (boxes n × cells × 4, scores n × cells
× classes).
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping

import numpy as np

from seqto.errors import ConfigError, ModelError, nearest
from seqto.tasks.answers import Named
from seqto.tasks.candidates import Candidates, Decoder, DecoderSettings
from seqto.tasks.grid_decoders import fastestdet, levels, yolov5, yolov8, yolox
from seqto.tasks.list_decoders import after_nms, boxes_scores, queries, ssd

DECODERS: Mapping[str, Decoder] = {
    "yolov5": yolov5,
    "yolov8": yolov8,
    "yolov11": yolov8,
    "yolox": yolox,
    "boxes-scores": boxes_scores,
    "ssd": ssd,
    "nms": after_nms,
    "queries": queries,
    "levels": levels,
    "fastestdet": fastestdet,
}


def find_decoder(decode: str) -> Decoder:
    """Return a built-in decoder by name, or a user's function by `package.module:function`."""
    if ":" not in decode:
        if decode not in DECODERS:
            known = ", ".join(DECODERS)
            raise ConfigError(
                f"task.decode = {decode!r} is no decoder{nearest(decode, list(DECODERS))} "
                f"(known: {known}; your own: package.module:function)"
            )
        return DECODERS[decode]
    module, _, name = decode.partition(":")
    try:
        function = getattr(importlib.import_module(module), name)
    except Exception as error:  # a user's module may raise anything while it loads
        raise ConfigError(
            f"task.decode = {decode!r} cannot be imported: {error}; is the module's folder in "
            "PYTHONPATH?"
        ) from error
    if not callable(function):
        raise ConfigError(f"task.decode = {decode!r} names no function")

    def decode_own(outputs: Named, _settings: DecoderSettings) -> Candidates:
        try:
            boxes, scores = (np.asarray(value) for value in function(outputs))
        except Exception as error:  # a user's function
            raise ModelError(f"task.decode = {decode!r} failed: {error!r}") from error
        if boxes.ndim != 3 or boxes.shape[2] != 4 or scores.shape[:2] != boxes.shape[:2]:
            raise ModelError(
                f"task.decode = {decode!r} returned shapes {list(boxes.shape)} and "
                f"{list(scores.shape)}: boxes n × cells × 4 and scores n × cells × classes are "
                "needed"
            )
        return Candidates(boxes, scores if scores.ndim == 3 else scores[:, :, None])

    return decode_own
