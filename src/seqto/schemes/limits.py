"""Which layers ONNX can keep under which scheme, and the opset that a scheme needs."""

from __future__ import annotations

from seqto.model.prepare import LOWEST_OPSET
from seqto.records import Layer
from seqto.schemes.part import INT4_OPSET, INT16_OPSET
from seqto.schemes.scheme import Scheme


def opset_needed(scheme: Scheme) -> int:
    if scheme.weight == "s4":
        return INT4_OPSET
    return INT16_OPSET if scheme.activation in ("u16", "s16") else LOWEST_OPSET


def unfit(layer: Layer, scheme: Scheme, *, max_opset: int | None = None) -> str | None:
    """Why a layer cannot be kept so by ONNX itself, or None. Devices have their own say."""
    if scheme.kind == "fp32":
        return None
    if max_opset is not None and opset_needed(scheme) > max_opset:
        return f"it needs opset {opset_needed(scheme)} and max_opset is {max_opset}"
    if layer.weight is None:
        fits = scheme.kind == "static" and not scheme.weight
        return None if fits else "it has no weights: it can be fp32 or static-<activation type>"
    return _unfit_weight(layer, scheme)


def _unfit_weight(layer: Layer, scheme: Scheme) -> str | None:
    reasons = {
        "no weight type is given": scheme.kind != "fp16" and not scheme.weight,
        "ONNX has no integer op for it": scheme.kind == "dynamic"
        and (layer.op_type == "ConvTranspose" or scheme.weight == "s4"),
        "weight-only needs a signed type": scheme.kind == "weight" and scheme.weight == "u8",
        "four bits for a whole tensor are too few: use channel": scheme.weight == "s4"
        and scheme.granularity == "tensor",
        "p8 goes by channel": scheme.weight == "p8" and scheme.granularity == "tensor",
    }
    return next((reason for reason, holds in reasons.items() if holds), None)
