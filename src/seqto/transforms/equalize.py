"""Cross-layer equalization: channels of one layer's weights get ranges that fit one scale.

Between two layers with a positively homogeneous activation a channel may be scaled up in one and
down in the other without any change of the result. The factors here make the ranges of both
equal in each channel (Nagel et al., "Data-Free Quantization Through Weight Equalization and Bias
Correction", 2019). Over chains the pairs are visited several times.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from seqto.errors import ConfigError
from seqto.model import Prepared
from seqto.transforms.graph import (
    Applied,
    Draft,
    Floats,
    Link,
    Peaks,
    follow,
    headroom,
    input_ranges,
    output_ranges,
    rescale,
    scaled_peaks,
    settle,
)

NEGLIGIBLE = 1e-6  # a factor nearer to 1 than this is no change


@dataclass(frozen=True, slots=True)
class Equalize:
    """rounds: visits of every pair; margin: share of a Clip's bound that channels may reach."""

    rounds: int = 3
    margin: float = 0.9

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise ConfigError(f"equalize: rounds is {self.rounds}, use 1 or more")
        if not 0.0 < self.margin <= 1.0:
            raise ConfigError(f"equalize: margin is {self.margin}, use more than 0, at most 1")

    def apply(self, prepared: Prepared, peaks: Peaks) -> Applied:
        """Equalize every pair of layers that allows it."""
        draft = Draft(prepared)
        links, skipped = _pairs(draft)
        present = {name: values.astype(np.float64) for name, values in peaks.items()}
        touched: set[str] = set()
        refused: dict[str, str] = {}
        for _ in range(self.rounds):
            for link in links:
                found = _factors(draft, link, present, margin=self.margin)
                if isinstance(found, str):
                    refused.setdefault(link.label, found)
                    continue
                rescale(draft, link, found)
                present = scaled_peaks(present, link.tensors, found)
                touched.add(link.producer.name)
        done = {x for link in links if link.producer.name in touched for x in _names(link)}
        for link in links:
            if link.producer.name not in touched:
                skipped.append((link.label, refused[link.label]))
        order = tuple(name for name in draft.weighted if name in done)
        return Applied(draft.finish(), order, tuple(skipped), exact=True)


def _names(link: Link) -> tuple[str, str]:
    return link.producer.name, link.readers[0].layer.name


def _pairs(draft: Draft) -> tuple[list[Link], list[tuple[str, str]]]:
    """Every layer with the one layer that reads it, and the layers for which there is none."""
    links, skipped = [], []
    for name, layer in draft.weighted.items():
        found = layer if isinstance(layer, str) else follow(draft, layer)
        if isinstance(found, str):
            skipped.append((name, found))
        else:
            links.append(found)
    return links, skipped


def _factors(
    draft: Draft, link: Link, peaks: Mapping[str, Floats], *, margin: float
) -> Floats | str:
    """Factors for the channels between the two layers, or why there are none."""
    room = headroom(link, peaks, margin=margin)
    if isinstance(room, str):
        return room
    free, ceiling = room
    first = output_ranges(draft, link.producer)
    second = input_ranges(draft, link.readers[0])
    live = (first > 0) & (second > 0)  # a dead channel has no range to bring near the others'
    if not (live & free).any():
        return "no channel between them is alive in both"
    wishes = np.sqrt(np.where(live, second, 1.0) / np.where(live, first, 1.0))
    wanted = np.minimum(settle(wishes, live, free), ceiling)
    if np.abs(wanted - 1.0).max() < NEGLIGIBLE:
        return "the ranges of their channels are even already"
    before = max(_spread(first[live]), _spread(second[live]))
    # channels that a clip holds back can leave the rest further apart than before; a part of
    # the way may still help
    for share in (1.0, 0.5, 0.25):
        factors: Floats = wanted**share
        after = max(_spread((first * factors)[live]), _spread((second / factors)[live]))
        if after <= before * (1.0 + NEGLIGIBLE):
            return factors
    return "no scaling that the clip allows brings the ranges of their channels closer"


def _spread(ranges: Floats) -> float:
    return float(ranges.max() / ranges.min())
