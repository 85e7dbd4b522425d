"""Migration of activation outliers into weights, folded into the layer in front.

Channel j of a layer's input is divided by s_j = max|X_j|^α / max|W_j|^(1-α), its weights are
multiplied by it (Xiao et al., "SmoothQuant", 2023). The division costs nothing where the layer in
front takes it up. Behind HardSwish, gates and clips that act it cannot; there a Mul with a
constant can be inserted, which pays only where single channels stand out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from seqto.errors import ConfigError
from seqto.model.prepare import Prepared
from seqto.transforms.editable_model import EditableModel, Floats, Weighted
from seqto.transforms.links import Link, Reader, find_link
from seqto.transforms.rescaling import (
    PROVEN,
    Reach,
    check_clip,
    input_ranges,
    normalise_factors,
    per_channel,
    rescale,
    scale_inputs,
)
from seqto.transforms.transform import Applied, Peaks

NEGLIGIBLE = 1e-6  # a factor nearer to 1 than this is no change


@dataclass(frozen=True, slots=True)
class Smooth:
    """Settings: how much moves, and whether a Mul may be added for it.

    alpha         0: weights become even, 1: activations become even
    insert        add a Mul where nothing in front can take the factors up …
    insert_above  … and the widest input channel exceeds the median one so many times
    clip          what allows channels in front of a clip to be scaled, as in Equalize
    """

    alpha: float = 0.5
    insert: bool = False
    insert_above: float = 8.0
    clip: str = PROVEN
    kind: ClassVar[str] = "smooth"

    def __post_init__(self) -> None:
        if not 0.0 <= self.alpha <= 1.0:
            raise ConfigError(f"smooth: alpha is {self.alpha}, use a number from 0 to 1")
        if not self.insert_above >= 1.0:
            raise ConfigError(f"smooth: insert_above is {self.insert_above}, use 1 or more")
        check_clip(self.clip, name="smooth")

    def apply(self, prepared: Prepared, peaks: Peaks) -> Applied:
        """Smooth the input of every layer that allows it. `peaks` are those of this model."""
        draft = EditableModel(prepared)
        reach = Reach.of(draft, peaks, clip=self.clip)
        skipped: dict[str, str] = {}
        folded: list[Link] = []
        for name, layer in draft.weighted.items():
            link = layer if isinstance(layer, str) else find_link(draft, layer, branches=True)
            factors = link if isinstance(link, str) else self._fold(draft, link, reach)
            if isinstance(link, str) or isinstance(factors, str):
                skipped[name if isinstance(link, str) else link.label] = str(factors)
                continue
            rescale(draft, link, factors)
            reach = reach.after(link, factors)
            folded.append(link)
        inserted = self._insert(draft, folded, reach.peaks) if self.insert else []
        names = {link.producer.name for link in folded} | set(inserted)
        names |= {r.layer.name for link in folded for r in link.readers}
        touched = tuple(name for name in draft.weighted if name in names)
        exact = self.clip == PROVEN or not any(link.limits for link in folded)
        notes = (f"{len(inserted)} Mul inserted: {', '.join(inserted)}",) if inserted else ()
        return Applied(draft.finish(), touched, tuple(skipped.items()), exact, notes)

    def _fold(self, draft: EditableModel, link: Link, reach: Reach) -> Floats | str:
        """Factors that the producer takes up; of several readers the geometric mean decides."""
        room = reach.headroom(link)
        if isinstance(room, str):
            return room
        free, ceiling = room
        found = [_look(draft, reader, reach.peaks) for reader in link.readers]
        if None in found:
            return "calibration knows no peaks of the channels between"
        sides = [x for x in found if x is not None]
        live = np.logical_and.reduce([(x > 0) & (w > 0) for x, w in sides])
        if not (live & free).any():
            return "no channel between them is alive on the calibration samples"
        logs = [np.log(self._wishes(x, w, live)) for x, w in sides]
        wishes = np.exp(np.mean([x - x[live].mean() for x in logs], axis=0))
        factors = np.minimum(normalise_factors(wishes, live, free), ceiling)
        if np.abs(factors - 1.0).max() < NEGLIGIBLE:
            return "the channels between are as even as they can be"
        return factors

    def _wishes(self, peaks: Floats, ranges: Floats, live: NDArray[np.bool_]) -> Floats:
        """1/s_j: what the input's channels are multiplied by."""
        x, w = np.where(live, peaks, 1.0), np.where(live, ranges, 1.0)
        wishes: Floats = w ** (1.0 - self.alpha) / x**self.alpha
        return wishes

    def _insert(
        self, draft: EditableModel, folded: list[Link], peaks: Mapping[str, Floats]
    ) -> list[str]:
        """Add a Mul for every layer that folding could not serve and that needs one."""
        # a clip leaves some channels as they were: such a layer may need a Mul all the same
        served = {r.layer.name for link in folded if not link.limits for r in link.readers}
        inserted = []
        for name, layer in draft.weighted.items():
            if isinstance(layer, str) or name in served:
                continue
            reader = Reader(layer, 1)
            sides = _look(draft, reader, peaks)
            if sides is None:
                continue
            x, w = sides
            live = (x > 0) & (w > 0)
            if not live.any() or x.max() / np.median(x[live]) < self.insert_above:
                continue
            factors = normalise_factors(self._wishes(x, w, live), live, np.ones_like(live))
            scale_inputs(draft, reader, 1.0 / factors)
            _insert_mul(draft, layer, factors)
            inserted.append(name)
        return inserted


def _look(
    draft: EditableModel, reader: Reader, peaks: Mapping[str, Floats]
) -> tuple[Floats, Floats] | None:
    """A reader's input peaks and weight ranges for each of the producer's channels."""
    layer = reader.layer
    found = peaks.get(layer.input)
    # of tensors with one spatial axis calibration looks at the last axis, not at channels
    if found is None or len(found) != layer.inputs or layer.rank not in (0, 2, 4):
        return None
    return per_channel(found, reader.repeat), input_ranges(draft, reader)


def _insert_mul(draft: EditableModel, layer: Weighted, factors: Floats) -> None:
    """At one factor of the product that makes the layer's input, else at that input.

    At a gate of one value a channel the Mul costs next to nothing; and a product that is smooth
    itself can be quantized too (HardSwish is prepared as x · HardSigmoid(x)).
    """
    shape = [1, -1, *[1] * (layer.rank - 2)] if layer.op_type == "Conv" else [-1]
    node, index = draft.makers[layer.output], 0
    product = draft.makers.get(layer.input)
    if product is not None and product.op_type == "Mul" and _is_private(draft, layer.input):
        places = [i for i, x in enumerate(product.input) if _takes(draft, x, layer)]
        if places:
            node = product
            index = min(places, key=lambda i: _positions(draft, product.input[i]))
    draft.insert_mul(node, index, name=f"{layer.name}/smooth", factors=factors.reshape(shape))


def _is_private(draft: EditableModel, tensor: str) -> bool:
    return tensor not in draft.public and len(draft.readers[tensor]) == 1


def _takes(draft: EditableModel, tensor: str, layer: Weighted) -> bool:
    """A tensor with the layer's input channels that nobody else reads?"""
    shape = draft.shapes.get(tensor, ())
    made = tensor in draft.makers and _is_private(draft, tensor)
    return made and len(shape) == layer.rank == 4 and shape[1] == layer.inputs


def _positions(draft: EditableModel, tensor: str) -> float:
    """Values of one channel; infinite where the shape is not known."""
    return math.prod(d or math.inf for d in draft.shapes[tensor][2:])
