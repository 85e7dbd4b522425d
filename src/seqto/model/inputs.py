"""The inputs of a model: what it declares, and what samples are fed to."""

from __future__ import annotations

from typing import Any

from seqto.errors import ModelError
from seqto.model.bundle import components_of
from seqto.records import InputSpec


def input_specs(proto: Any) -> tuple[InputSpec, ...]:
    """Return the inputs that samples are fed to.

    What flows between a bundle's components has axes of its own: samples are not stacked there.
    """
    specs = declared_inputs(proto)
    if components_of(proto):
        return tuple(specs)
    states = {s.name for s in specs if _is_state(s, specs, proto)}
    if not states:
        return _of_one_batch(specs)
    stacked = _of_one_batch([s for s in specs if s.name not in states])
    if any(s.shape[0] not in (None, 1) for s in stacked):
        raise ModelError(
            f"input {min(states)!r} has no axis of samples, but others take {stacked[0].shape[0]} "
            "at once: export the model for a batch of 1"
        )
    shapes = {s.name: (1, *s.shape[1:]) for s in stacked} | {
        s.name: (1, *s.shape) for s in specs if s.name in states
    }
    return tuple(InputSpec(s.name, shapes[s.name], s.dtype, s.name in states) for s in specs)


def _is_state(spec: InputSpec, specs: list[InputSpec], proto: Any) -> bool:
    """Return whether an input has no axis of samples in front: a single number, or a state.

    A state comes back as an output of the same form. Its first axis is fixed (layers, directions)
    where other inputs have another first axis, and the batch is one of its later axes.
    """
    if not spec.shape:
        return len(specs) > 1
    first, *later = spec.shape
    others = [s.shape[0] for s in specs if s.shape and s.name != spec.name]
    if first in (None, 1) or first in others or not others:
        return False
    if not any(side in (None, 1) for side in later):
        return False
    return any(_same_form(spec.shape, value) for value in proto.graph.output)


def _same_form(shape: tuple[int | None, ...], value: Any) -> bool:
    sides = [int(d.dim_value) or None for d in value.type.tensor_type.shape.dim]
    return len(sides) == len(shape) and all(
        a is None or b is None or a == b for a, b in zip(shape, sides, strict=True)
    )


def declared_inputs(proto: Any) -> list[InputSpec]:
    """Return the inputs as the model declares them."""
    import onnx

    constants = {t.name for t in proto.graph.initializer}
    specs = []
    for value in proto.graph.input:
        if value.name in constants:
            continue
        tensor = value.type.tensor_type
        _refuse_input(value)
        shape = tuple(int(d.dim_value) if d.dim_value > 0 else None for d in tensor.shape.dim)
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type).name
        specs.append(InputSpec(value.name, shape, dtype))
    return specs


def _refuse_input(value: Any) -> None:
    """Refuse inputs that are no numbers: samples are arrays of numbers."""
    import onnx

    kind = value.type.WhichOneof("value")
    if kind not in ("tensor_type", None):
        what = f"is a {kind.removesuffix('_type').replace('_', ' ')}"
    elif kind is None or value.type.tensor_type.elem_type == onnx.TensorProto.UNDEFINED:
        what = "has no type"
    elif value.type.tensor_type.elem_type == onnx.TensorProto.STRING:
        what = "takes text"
    else:
        return
    raise ModelError(
        f"input {value.name!r} {what}, but samples are arrays of numbers: export the model with "
        "numeric tensors as inputs"
    )


def _of_one_batch(specs: list[InputSpec]) -> tuple[InputSpec, ...]:
    """Return inputs of one batch: samples are stacked along the first axis of every input."""
    for spec in specs:
        if not spec.shape:
            raise ModelError(
                f"input {spec.name!r} is a single number, but samples are stacked along the first "
                "axis of every input: make it a constant of the model"
            )
    fixed = {s.shape[0]: s.name for s in specs if s.shape[0] is not None}
    if len(fixed) > 1:
        (a, one), (b, other) = list(fixed.items())[:2]
        raise ModelError(
            f"inputs {one!r} and {other!r} have {a} and {b} as their first axis, but samples are "
            "stacked along the first axis of every input: export the model with one batch for all"
        )
    batch = next(iter(fixed), None)
    return tuple(InputSpec(s.name, (batch, *s.shape[1:]), s.dtype) for s in specs)
