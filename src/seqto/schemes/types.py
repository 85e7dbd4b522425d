"""Integer types, arithmetic, kernels and rounding: the vocabulary that schemes are made of."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

INT4_OPSET = 21  # the opset that has int4 tensors


PLANE_BITS = 4  # of the narrowest tensors: numbers of five and six bits are stored in two of them


INT16_OPSET = 21  # the opset whose QuantizeLinear takes 16 bits


@dataclass(frozen=True, slots=True, eq=False)
class IntType:
    """One integer type. The rows below are the only instances: types are compared by identity."""

    name: str  # in codes
    dtype: str  # of the numpy array that holds it
    bits: int  # of one number in the file
    low: int  # limits of a range with a zero point
    high: int
    symmetric_low: int  # limits of a range around zero
    symmetric_high: int
    lowest: int  # limits that rounded numbers are clipped to
    highest: int
    signed: bool
    opset: int = 0  # the opset that activations or weights of this type need
    # Two neighbours of one sign may add up to this. x86 without VNNI adds two products of u8
    # activations and s8 weights in 16 bits (vpmaddubsw), and 255 · 128 < 2¹⁵. Of unlike signs, any
    # two are safe.
    pair_limit: int | None = None
    # Inputs that share a multiplier: a number is four bits times that (multiples.py). 0: none do.
    multiples: int = 0

    def __str__(self) -> str:
        return self.name

    @property
    def in_planes(self) -> bool:
        """Whether a file has no tensors of so many bits: two tensors hold them."""
        return PLANE_BITS < self.bits < 8

    @property
    def tensor_bits(self) -> int:
        """Bits of the narrowest tensor that a file needs for this type."""
        return PLANE_BITS if self.in_planes else self.bits

    @property
    def is_narrow(self) -> bool:
        """Whether a number takes less than a byte in a file; it becomes int8 or float at load."""
        return self.bits < 8


S8 = IntType("s8", "int8", 8, -128, 127, -127, 127, -128, 127, signed=True)


# int8 with one bit less range: no sum of two products saturates 16 bits
S7 = IntType("s7", "int8", 8, -64, 64, -64, 64, -128, 127, signed=True)


# int8 of which no two neighbours saturate a 16-bit sum; nor -128, of which ARM kernels without SDOT
# cannot add two products in 16 bits
P8 = IntType("p8", "int8", 8, -128, 127, -127, 127, -127, 127, signed=True, pair_limit=128)


U8 = IntType("u8", "uint8", 8, 0, 255, 0, 255, 0, 255, signed=False)


S4 = IntType("s4", "int8", 4, -8, 7, -7, 7, -8, 7, signed=True, opset=INT4_OPSET)


# four bits times a multiplier of sixteen inputs, which makes them int8 at load
B4 = IntType(
    "b4",
    "int8",
    4,
    low=-64,
    high=56,
    symmetric_low=-64,
    symmetric_high=56,
    lowest=-64,
    highest=56,
    signed=True,
    opset=INT4_OPSET,
    multiples=16,
)


# five and six bits, a scale a channel; too small for two products to saturate 16 bits
S5 = IntType("s5", "int8", 5, -16, 15, -15, 15, -16, 15, signed=True, opset=INT4_OPSET)


S6 = IntType("s6", "int8", 6, -32, 31, -31, 31, -32, 31, signed=True, opset=INT4_OPSET)


# four bits with a zero point: of blocks only
U4 = IntType("u4", "uint8", 4, 0, 15, 0, 15, 0, 15, signed=False, opset=INT4_OPSET)


S16 = IntType(
    "s16", "int16", 16, -32768, 32767, -32767, 32767, -32768, 32767, signed=True, opset=INT16_OPSET
)


U16 = IntType("u16", "uint16", 16, 0, 65535, 0, 65535, 0, 65535, signed=False, opset=INT16_OPSET)


INT_TYPES: Mapping[str, IntType] = {
    t.name: t for t in (S8, S7, P8, U8, S6, S5, S4, B4, U4, S16, U16)
}


WEIGHTS = (S8, S7, P8, U8, S6, S5, S4, B4)  # u4 goes by block: nbit alone has it
BLOCKS = (32, 64, 128)  # numbers that share a scale; the n-bit kernel has these
BLOCK_OPSET = 21  # the opset whose DequantizeLinear takes blocks
ACTIVATIONS = (U8, S8, U16, S16)
WEIGHT_TYPES = tuple(t.name for t in WEIGHTS)
ACTIVATION_TYPES = tuple(t.name for t in ACTIVATIONS)
MINMAX = "minmax"
RANGES = (MINMAX, "percentile", "entropy", "mse")  # how the range of a tensor is chosen


class Rounding(enum.Enum):
    """How weights are rounded: to the nearest, or so that the layer's output error is small."""

    NEAREST = "nearest"
    OUTPUT = "output"


class Arithmetic(enum.Enum):
    """The numbers that a layer computes with while the model runs."""

    FLOAT = "float"  # also fp16 and weight-only: their weights become float32 at load
    INTEGER = "integer"  # inputs and output are quantized by calibrated ranges
    DYNAMIC = "dynamic"  # the input is quantized while the model runs
    NBIT = "nbit"  # weights stay integers, inputs are quantized by row and block as it runs


@dataclass(frozen=True, slots=True)
class Kernel:
    """The family of kernels that a layer runs on; schemes of one family take the same time."""

    arithmetic: Arithmetic = Arithmetic.FLOAT
    weight: IntType | None = None  # INTEGER: S8 for every signed type, or U8; NBIT: S8 or S4
    activation: IntType | None = None  # INTEGER
    per_channel: bool = True
    level: int | None = None  # NBIT: the accuracy level, None for the runtime's choice

    @property
    def name(self) -> str:
        """The name that profiles have in journals."""
        if self.arithmetic is Arithmetic.NBIT:
            level = "" if self.level is None else f"-level{self.level}"
            return f"nbit-{self.weight.bits if self.weight else 8}{level}"
        if self.arithmetic is not Arithmetic.INTEGER:
            return str(self.arithmetic.value)
        return f"static-{self.weight}-{self.activation}-{granularity_word(self.per_channel)}"

    @staticmethod
    def named(name: str) -> Kernel | None:
        """Return the kernel that a profile names, or None: profiles of trials name none."""
        return _KERNELS.get(name)


def granularity_word(per_channel: bool, block: int = 0) -> str:
    if block:
        return f"block{block}"
    return "channel" if per_channel else "tensor"


FLOAT_KERNEL = Kernel()
DYNAMIC_KERNEL = Kernel(Arithmetic.DYNAMIC)
LEVELS = (0, 4)  # accuracy levels of the n-bit kernel: float inputs, int8 inputs
NBIT_KERNELS = tuple(
    Kernel(Arithmetic.NBIT, weight, level=level) for weight in (S8, S4) for level in (None, *LEVELS)
)


_KERNELS = {
    kernel.name: kernel
    for kernel in (
        FLOAT_KERNEL,
        DYNAMIC_KERNEL,
        *NBIT_KERNELS,
        *(
            Kernel(Arithmetic.INTEGER, weight, activation, per_channel)
            for weight in (S8, U8)
            for activation in ACTIVATIONS
            for per_channel in (True, False)
        ),
    )
}
