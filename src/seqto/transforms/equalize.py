"""Cross-layer equalization: channels of one layer's weights get ranges that fit one scale.

Between two layers with a positively homogeneous activation a channel may be scaled up in one and
down in the other without any change of the result. The factors here make the ranges of both
even in each channel (Nagel et al., "Data-Free Quantization Through Weight Equalization and Bias
Correction", 2019). Over chains the pairs are visited several times.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from seqto.errors import ConfigError
from seqto.model.prepare import Prepared
from seqto.transforms.editable_model import EditableModel, Floats, Weighted
from seqto.transforms.links import Link, find_link
from seqto.transforms.rescaling import (
    PROVEN,
    Reach,
    check_clip,
    input_ranges,
    normalise_factors,
    output_ranges,
    rescale,
)
from seqto.transforms.transform import Applied, Peaks

NEGLIGIBLE = 1e-6  # a factor nearer to 1 than this is no change
# Weights alone would let a channel's activations shrink until the tensor's one scale rounds them
# away: mobilenetv1, per channel u8, lost 62 of 100 answers so, and 2 to 5 with this bound (2
# without any equalization). An eighth of the widest channel leaves 5 of 8 bits.
SHALLOWEST = 1.0 / 8.0


@dataclass(frozen=True, slots=True)
class Equalize:
    """Settings: how often, and what allows channels in front of a ReLU6 to be scaled.

    rounds   visits of every pair
    clip     proven: only channels that can never reach the clip, whatever the sample is
             calibrated: channels that stayed clear of it on the calibration samples; others may
             not, so outputs can move and the result is not called exact
    """

    rounds: int = 3
    clip: str = PROVEN
    kind: ClassVar[str] = "equalize"

    def __post_init__(self) -> None:
        if not 1 <= self.rounds < 1000 or self.rounds != int(self.rounds):
            raise ConfigError(f"equalize: rounds is {self.rounds}, use a whole number from 1 on")
        check_clip(self.clip, name="equalize")

    def apply(self, prepared: Prepared, peaks: Peaks) -> Applied:
        """Equalize every pair of layers that allows it. `peaks` are those of this model."""
        draft = EditableModel(prepared)
        links, skipped = _pairs(draft)
        reach = Reach.of(draft, peaks, clip=self.clip)
        changed: set[str] = set()
        refused: dict[str, str] = {}
        for _ in range(int(self.rounds)):
            for link in links:
                factors = _factors(draft, link, reach)
                if isinstance(factors, str):
                    refused.setdefault(link.label, factors)
                    continue
                rescale(draft, link, factors)
                reach = reach.after(link, factors)
                changed.add(link.label)
        done = [link for link in links if link.label in changed]
        names = {x for link in done for x in (link.producer.name, link.readers[0].layer.name)}
        touched = tuple(name for name in draft.weighted if name in names)
        skipped += [(label, why) for label, why in refused.items() if label not in changed]
        # calibrated evidence only matters where a clip was in the way
        exact = self.clip == PROVEN or not any(link.limits for link in done)
        return Applied(draft.finish(), touched, tuple(skipped), exact)


def _pairs(draft: EditableModel) -> tuple[list[Link], list[tuple[str, str]]]:
    """Return layers with the one layer that reads them, and those for which there is none."""
    links, skipped = [], []
    for name, layer in draft.weighted.items():
        link = layer if isinstance(layer, str) else find_link(draft, layer)
        if isinstance(link, str):
            skipped.append((name, link))
        else:
            links.append(link)
    return links, skipped


def _factors(draft: EditableModel, link: Link, reach: Reach) -> Floats | str:
    """Return factors for the channels between the two layers, or why there are none."""
    room = reach.headroom(link)
    if isinstance(room, str):
        return room
    free, ceiling = room
    assert isinstance(link.producer, Weighted)  # pairs begin with layers
    first = output_ranges(draft, link.producer)
    second = input_ranges(draft, link.readers[0])
    live = (first > 0) & (second > 0)  # a dead channel has no range to bring near the others'
    if not (live & free).any():
        return "no channel between them is alive in both"
    wishes = np.sqrt(np.where(live, second, 1.0) / np.where(live, first, 1.0))
    target = _held(normalise_factors(wishes, live, free), reach.between(link))
    target = np.minimum(target, ceiling)
    if np.abs(target - 1.0).max() < NEGLIGIBLE:
        return "the ranges of their channels are as even as they can be"
    before = max(_spread(first[live]), _spread(second[live]))
    # channels that are held back can leave the rest further apart than before; a part of the
    # way may still help
    for share in (1.0, 0.5, 0.25):
        factors: Floats = target**share
        after = max(_spread((first * factors)[live]), _spread((second / factors)[live]))
        if after <= before:
            return factors
    return "no factors that are allowed bring the ranges of their channels closer"


def _held(factors: Floats, peaks: Floats | None) -> Floats:
    """Return factors that keep every channel between the widest activation and a share of it."""
    if peaks is None or peaks.max() <= 0:
        return factors
    distance = peaks.max() / np.where(peaks > 0, peaks, peaks.max())
    held: Floats = np.clip(
        factors, np.minimum(1.0, SHALLOWEST * distance), np.maximum(1.0, distance)
    )
    return held


def _spread(ranges: Floats) -> float:
    return float(ranges.max() / ranges.min())
