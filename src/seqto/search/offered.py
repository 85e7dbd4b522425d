"""The schemes that each kind of layer is offered, before devices and constraints narrow them.

Layers of models with attention (a product of two activations) get dynamic and n-bit kernels in
place of static ones. Static integers around Softmax, masks and norms take apart what ONNX Runtime
fuses (LayerNormalization, Gelu), a mask of -3e38 sets the range of Softmax's input, and outlier
channels set those of the MLPs; a dynamic MatMul is as fast, and its norms and masks stay float.
Layers without weights stay float there too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from seqto.model.layers import multiplies_activations
from seqto.records import Layer
from seqto.schemes.block_rounding import BlockForm
from seqto.schemes.dynamic_int import DynamicInt
from seqto.schemes.nbit import NBit
from seqto.schemes.scheme import FP16, Scheme
from seqto.schemes.static_int import StaticInt
from seqto.schemes.table import summed_length
from seqto.schemes.types import B4, BLOCKS, LEVELS, P8, S4, S5, S6, S7, S8, U4, U8, Rounding
from seqto.schemes.weight_only import WeightOnly

OUTPUT = Rounding.OUTPUT
# where both roundings are named, the nearest is for layers that have no other
WEIGHTED: tuple[Scheme, ...] = (
    FP16,
    WeightOnly(S8, rounding=OUTPUT),
    WeightOnly(S8),
    StaticInt(U8, U8, float_bias=True, rounding=OUTPUT),
    StaticInt(U8, U8, float_bias=True),
    StaticInt(S8, U8, float_bias=True, rounding=OUTPUT),
    StaticInt(S8, U8, float_bias=True),
    StaticInt(P8, U8, float_bias=True, rounding=OUTPUT),
    StaticInt(S7, U8, float_bias=True),
    StaticInt(B4, U8, float_bias=True, rounding=OUTPUT),
    WeightOnly(B4, rounding=OUTPUT),
    # the noise of static integers of few bits is that of weight-only ones, which come first
    WeightOnly(S6, rounding=OUTPUT),
    WeightOnly(S6),
    StaticInt(S6, U8, float_bias=True, rounding=OUTPUT),
    StaticInt(S6, U8, float_bias=True),
    WeightOnly(S5, rounding=OUTPUT),
    StaticInt(S5, U8, float_bias=True, rounding=OUTPUT),
)


DENSE_ONLY: tuple[Scheme, ...] = (DynamicInt(S8),)
WEIGHTLESS: tuple[Scheme, ...] = (StaticInt(None, U8),)
# of MatMul and Gemm in a model with attention. Few kinds of integers are to be rounded for the
# output: that takes longer than anything else before the search.
ATTENTION: tuple[Scheme, ...] = (
    FP16,
    NBit(S8, OUTPUT),
    NBit(S8),
    DynamicInt(S8, rounding=OUTPUT),
    DynamicInt(S8),
    DynamicInt(P8),
    # first of few bits: it is probed, and noise of the others is derived from it
    NBit(U4, OUTPUT, 32),
    NBit(U4, block=32),
    DynamicInt(B4, rounding=OUTPUT),
    NBit(S6, OUTPUT, 64),
    NBit(S6, block=64),
    NBit(S5, OUTPUT, 64),
    NBit(S5, block=64),
)


TIED: tuple[Scheme, ...] = (NBit(S4, OUTPUT, 32), NBit(S4, block=32))  # a table has no zero points
# the same where time is no objective: what becomes float at load does the least damage
ATTENTION_STORED: tuple[Scheme, ...] = (
    FP16,
    WeightOnly(S8, rounding=OUTPUT),
    WeightOnly(S8),
    WeightOnly(S4, rounding=OUTPUT, block=32),
    WeightOnly(S4, block=32),
    NBit(S4, OUTPUT, 32),  # rows that are no multiple of a block
    NBit(S4, block=32),
)


CONTRIB: tuple[Scheme, ...] = tuple(
    NBit(weight, rounding, block, level)
    for weight, block in ((S8, 0), (U4, 32))
    for rounding in (OUTPUT, Rounding.NEAREST)
    for level in LEVELS
)


# of embedding tables and other constants
STORAGE: tuple[Scheme, ...] = (
    FP16,
    WeightOnly(S8),
    WeightOnly(S4, block=32),
    WeightOnly(S4, block=64),
    WeightOnly(S4, block=128),
    WeightOnly(S4, block=32, read8=True),
    WeightOnly(S4, block=64, read8=True),
    WeightOnly(S4, block=128, read8=True),
    WeightOnly(S6),
    WeightOnly(S5),
    WeightOnly(S5, block=64),
)


def divided(schemes: Sequence[Scheme], layer: Layer) -> tuple[Scheme, ...]:
    """Return schemes with smaller blocks where the rows of a table are no multiple of theirs.

    Other matrices have their last block filled with zeros. Rounded to the nearest: the output
    rounding of these blocks would be made for all other layers too.
    """
    smallest = BLOCKS[0]
    length = summed_length(layer)

    def fitted(scheme: Scheme) -> Scheme:
        if not isinstance(scheme, NBit | WeightOnly) or scheme.block <= smallest:
            return scheme
        if not length % scheme.block or length % smallest:
            return scheme
        return dataclasses.replace(scheme.without_output_rounding(), block=smallest)

    return tuple(dict.fromkeys(map(fitted, schemes)))


def has_attention(layers: Sequence[Layer]) -> bool:
    """Return whether some layer multiplies two activations."""
    return any(map(multiplies_activations, layers))


def offered(
    layer: Layer, *, attention: bool, timed: bool = True, contrib: bool = False
) -> tuple[Scheme, ...]:
    """Return the schemes that may be considered for a layer."""
    if layer.storage:
        return divided(STORAGE, layer)
    if not layer.weight:
        return () if attention else WEIGHTLESS
    dense = layer.op_type in ("Gemm", "MatMul")
    if (dense and attention) or layer.table is not None:
        if not timed:
            return ATTENTION_STORED
        tied = divided((*ATTENTION, *TIED), layer) if layer.table is not None else ATTENTION
        return (*tied, *(CONTRIB if contrib else ()))
    return (*WEIGHTED, *DENSE_ONLY) if dense else WEIGHTED


def rounded_kind(scheme: Scheme) -> str | None:
    """Return the name of the integers rounded for the output that a scheme needs, or None.

    u8 is s8 moved up; blocks have names of their own.
    """
    if scheme.rounding is not OUTPUT or scheme.weight is None:
        return None
    block = scheme.block if isinstance(scheme, NBit | WeightOnly) else 0
    if block:
        return BlockForm(scheme.weight.bits, block, zero_points=not scheme.weight.signed).name
    return S8.name if scheme.weight is U8 else scheme.weight.name


def is_read8(scheme: Scheme) -> bool:
    """Return whether a scheme keeps in eight bits what calibration reads of a table."""
    return isinstance(scheme, WeightOnly) and scheme.read8


def preferred(scheme: Scheme) -> list[Scheme]:
    """Return the schemes that make this one superfluous.

    Rounding for the output falls back to the nearest where it does not help on held-out samples:
    nearest rounding is dropped where it exists. s7 is dropped where p8 exists, as fast and finer.
    """
    if scheme.weight is None or not scheme.per_channel or scheme.rounding is OUTPUT:
        return []
    if is_read8(scheme) or not isinstance(scheme, StaticInt | WeightOnly | DynamicInt | NBit):
        return []
    weights = (S7, P8) if scheme.weight is S7 else (scheme.weight,)
    return [dataclasses.replace(scheme, weight=w, rounding=OUTPUT) for w in weights]
