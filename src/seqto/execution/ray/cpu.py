"""Compare machines: which workers give the figures that this machine would give."""

from __future__ import annotations

from seqto.records import Json

VERSIONS = ("seqto", "onnxruntime", "onnx", "numpy")

# instructions that ONNX Runtime chooses its kernels by: sums of other kernels round differently,
# and without VNNI products of 8-bit integers saturate
KERNEL_FLAGS = (
    *("avx", "avx2", "fma", "f16c", "avx512f", "avx512_vnni", "avx_vnni", "avx_vnni_int8"),
    *("amx_int8", "amx_bf16", "avx512_bf16", "asimd", "asimddp", "i8mm", "sve", "sve2"),
)


def cpu_type(environment: Json) -> tuple[str, ...]:
    """Return what decides a CPU's arithmetic: its architecture and kernel instructions."""
    flags = environment.get("cpu_flags", ())
    return (str(environment.get("cpu")), *(f for f in KERNEL_FLAGS if f in flags))


def version_problem(ours: Json, theirs: Json) -> str | None:
    """Name the first library whose version differs."""
    for name in VERSIONS:
        if ours.get(name) != theirs.get(name):
            return f"it has {name} {theirs.get(name)}, here is {ours.get(name)}"
    return None


def cpu_problem(ours: Json, theirs: Json) -> str | None:
    """Name the difference between two types of CPU."""
    here, there = cpu_type(ours), cpu_type(theirs)
    if here == there:
        return None
    if here[0] != there[0]:
        return f"its CPU is {there[0]}, here is {here[0]}"
    more = [f for f in there if f not in here]
    less = [f for f in here if f not in there]
    parts = [f"has {', '.join(more)}"] if more else []
    parts += [f"lacks {', '.join(less)}"] if less else []
    return f"its CPU {' and '.join(parts)}, unlike this machine's"
