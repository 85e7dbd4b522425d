"""Factors for the channels between layers: what limits them, and how they are applied."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqto.errors import ConfigError
from seqto.transforms.affine import Affine
from seqto.transforms.bounds import bounds_before_clips
from seqto.transforms.editable_model import EditableModel, Floats, Weighted
from seqto.transforms.links import Link, Reader
from seqto.transforms.transform import Peaks

# A channel a thousand times off its neighbours has a quarter of an 8-bit step left: beyond that
# there is nothing to save, only the noise of near-dead channels to blow up.
LARGEST_FACTOR = 1e3
PROVEN, CALIBRATED = "proven", "calibrated"


CALIBRATED_MARGIN = 0.9  # unseen samples go further than calibration did
PROVEN_MARGIN = 1.0 - 1e-5  # proofs are in doubles, the model computes in single precision


def output_ranges(draft: EditableModel, layer: Weighted) -> Floats:
    """Return the largest weight of each output channel."""
    values = np.abs(draft.array(layer.weight))
    others = tuple(i for i in range(values.ndim) if i != layer.out_axis)
    ranges: Floats = values.max(axis=others)
    return ranges


def input_ranges(draft: EditableModel, reader: Reader) -> Floats:
    """Return the largest weight that each of the producer's channels meets."""
    layer, values = reader.layer, np.abs(draft.array(reader.layer.weight))
    if layer.depthwise:
        ranges = values.reshape(layer.inputs, -1).max(axis=1)
    else:
        others = tuple(i for i in range(values.ndim) if i != layer.in_axis)
        ranges = values.max(axis=others)
    return per_channel(ranges, reader.repeat)


def per_channel(values: NDArray[Any], repeat: int) -> Floats:
    """Return the largest of each run of `repeat` values."""
    largest: Floats = values.reshape(-1, repeat).max(axis=1).astype(np.float64)
    return largest


def rescale(draft: EditableModel, link: Link, factors: Floats) -> None:
    """Multiply the producer's output channels, divide the readers' input channels."""
    _scale_outputs(draft, link, factors)
    for reader in link.readers:
        scale_inputs(draft, reader, 1.0 / factors)


def _scale_outputs(draft: EditableModel, link: Link, factors: Floats) -> None:
    layer = link.producer
    if isinstance(layer, Affine):
        constants = [(draft.nodes[name], index) for name, index in layer.constants]
    else:
        values = draft.array(layer.weight)
        draft.put(layer.weight, values * _along(factors, values.ndim, layer.out_axis))
        node = draft.makers[layer.output]
        constants = [(node, 2)] if len(node.input) > 2 and node.input[2] else []
        for name in link.shifts:
            adding = draft.nodes[name]
            index = next(i for i, x in enumerate(adding.input) if x in draft.constants)
            constants.append((adding, index))
    for owner, index in constants:
        name = draft.own_constant(owner, index)
        # a Gemm's bias may be one number for all channels: the product spreads it out
        draft.put(name, draft.array(name) * factors)


def scale_inputs(draft: EditableModel, reader: Reader, factors: Floats) -> None:
    layer, values = reader.layer, draft.array(reader.layer.weight)
    if layer.depthwise:
        spread = np.repeat(factors, layer.outputs // layer.inputs)
        draft.put(layer.weight, values * _along(spread, values.ndim, 0))
        return
    spread = np.repeat(factors, reader.repeat)
    draft.put(layer.weight, values * _along(spread, values.ndim, layer.in_axis))


def _along(values: Floats, ndim: int, axis: int) -> Floats:
    return values.reshape([-1 if i == axis else 1 for i in range(ndim)])


# ------------------------------------------------------------------------------------ factors


def check_clip(clip: str, *, name: str) -> None:
    if clip not in (PROVEN, CALIBRATED):
        raise ConfigError(f"{name}: clip is {clip!r}, use {PROVEN!r} or {CALIBRATED!r}")


@dataclass(frozen=True, slots=True)
class Reach:
    """The present magnitude of each channel: calibrated peaks, and what meets a Clip."""

    peaks: Mapping[str, Floats]
    at_clips: Mapping[str, Floats]
    margin: float

    @classmethod
    def of(cls, draft: EditableModel, peaks: Peaks, *, clip: str) -> Reach:
        doubles = {name: values.astype(np.float64) for name, values in peaks.items()}
        if clip == CALIBRATED:
            return cls(doubles, doubles, CALIBRATED_MARGIN)
        return cls(doubles, bounds_before_clips(draft, peaks), PROVEN_MARGIN)

    def after(self, link: Link, factors: Floats) -> Reach:
        """Return the reach once the link's tensors are multiplied by `factors`."""
        tensors = link.tensors
        return Reach(
            _multiplied(self.peaks, tensors, factors),
            _multiplied(self.at_clips, tensors, factors),
            self.margin,
        )

    def between(self, link: Link) -> Floats | None:
        """Return the peaks of the first tensor behind the producer that has any."""
        for tensor in link.tensors:
            peaks = self.peaks.get(tensor)
            if peaks is not None and len(peaks) % link.producer.outputs == 0:
                return per_channel(peaks, len(peaks) // link.producer.outputs)
        return None

    def headroom(self, link: Link) -> tuple[NDArray[np.bool_], Floats] | str:
        """Return the channels that no Clip acts on, and by how much each of these may grow."""
        channels = link.producer.outputs
        free = np.ones(channels, np.bool_)
        ceiling = np.full(channels, LARGEST_FACTOR)
        for limit in link.limits:
            if not np.isfinite(limit.bound):
                continue
            known = [self.at_clips[x] for x in limit.tensors if x in self.at_clips]
            if not known or len(known[0]) % channels:
                return f"a clip at {limit.bound:g} lies between and may act in every channel"
            reach = per_channel(known[0], len(known[0]) // channels)
            room = self.margin * limit.bound
            # channels that are zero on all calibration samples have an unknown range
            within = (reach > 0) & (reach <= room)
            free &= within
            growth = np.where(within, room / np.where(within, reach, 1.0), 1.0)
            ceiling = np.minimum(ceiling, growth)
        if not free.any():
            return "a clip between may act in every channel, so none can be scaled"
        return free, ceiling


def normalise_factors(wishes: Floats, live: NDArray[np.bool_], free: NDArray[np.bool_]) -> Floats:
    """Make wished factors relative: a factor common to all channels would change nothing.

    Channels that cannot move stay at 1, so the others are set in relation to what those wished;
    without any such, the geometric mean becomes 1 and activations keep their magnitude.
    """
    stuck = live & ~free
    anchors = stuck if stuck.any() else live & free
    factors = np.ones_like(wishes)
    if anchors.any():
        middle = np.exp(np.log(wishes[anchors]).mean())
        factors = np.where(live & free, wishes / middle, 1.0)
    bounded: Floats = np.clip(factors, 1.0 / LARGEST_FACTOR, LARGEST_FACTOR)
    return bounded


def _multiplied(
    peaks: Mapping[str, Floats], tensors: Iterable[str], factors: Floats
) -> dict[str, Floats]:
    changed = dict(peaks)
    for tensor in tensors:
        if tensor in changed and len(changed[tensor]) % len(factors) == 0:
            repeat = len(changed[tensor]) // len(factors)
            changed[tensor] = changed[tensor] * np.repeat(factors, repeat)
    return changed
