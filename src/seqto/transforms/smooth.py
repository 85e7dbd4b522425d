"""Migration of activation outliers into weights, folded into the layer or norm in front.

Channel j of a layer's input is divided by s_j = max|X_j|^α / max|W_j|^(1-α), its weights are
multiplied by it (Xiao et al., "SmoothQuant", 2023). The division costs nothing where a layer in
front, or the constants of a norm, take it up; all that read the norm share the factors. Behind
Gelu, HardSwish, gates and clips that act it cannot, nor where a residual reads the norm too; there
a Mul with a constant can be inserted, which pays only where single channels stand out.

With `against`, α is chosen for every link by the error that rounding leaves at the outputs of the
readers, measured on rows of calibration samples. Against int4, which rounds weights alone, factors
follow the mean magnitude of the input (Lin et al., "AWQ", 2023).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from seqto.errors import ConfigError
from seqto.model.prepare import Prepared
from seqto.transforms.affine import find_affines
from seqto.transforms.editable_model import EditableModel, Floats, Weighted
from seqto.transforms.insertion import insert_factors
from seqto.transforms.links import Link, Producer, Reader, find_link
from seqto.transforms.local_error import INT4, INT8, output_error
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
from seqto.transforms.transform import Applied, Peaks, Rows

NEGLIGIBLE = 1e-6  # a factor nearer to 1 than this is no change
ALPHAS = (0.15, 0.3, 0.4, 0.5, 0.6, 0.7, 0.85)
MEASURED_OUTPUTS = 384  # of a layer: an output's error says nothing about another's
INSERT_GAIN = 0.7  # an inserted Mul must lower the measured error to this share


@dataclass(frozen=True, slots=True)
class Smooth:
    """Settings: how much moves, and whether a Mul may be added for it.

    alpha         0: weights become even, 1: activations become even
    insert        add a Mul where nothing in front can take the factors up …
    insert_above  … and the widest input channel exceeds the median one so many times
    clip          what allows channels in front of a clip to be scaled, as in Equalize
    against       int8 or int4: only matrix products, each with the alpha that leaves the least
                  error at its output under such rounding; a Mul is added where that pays
    """

    alpha: float = 0.5
    insert: bool = False
    insert_above: float = 8.0
    clip: str = PROVEN
    against: str = ""
    kind: ClassVar[str] = "smooth"

    def __post_init__(self) -> None:
        if not 0.0 <= self.alpha <= 1.0:
            raise ConfigError(f"smooth: alpha is {self.alpha}, use a number from 0 to 1")
        if not self.insert_above >= 1.0:
            raise ConfigError(f"smooth: insert_above is {self.insert_above}, use 1 or more")
        if self.against not in ("", INT8, INT4):
            raise ConfigError(f"smooth: against is {self.against!r}, use {INT8!r} or {INT4!r}")
        check_clip(self.clip, name="smooth")

    @property
    def measures(self) -> bool:
        return bool(self.against)

    def apply(self, prepared: Prepared, peaks: Peaks) -> Applied:
        """Smooth the input of every layer that allows it. `peaks` are those of this model."""
        return self.apply_measured(prepared, peaks, {})

    def apply_measured(self, prepared: Prepared, peaks: Peaks, rows: Rows) -> Applied:
        """Apply the same with rows of what flows into layers, by which alpha is chosen."""
        draft = EditableModel(prepared)
        reach = Reach.of(draft, peaks, clip=self.clip)
        known = {name: x.astype(np.float64) for name, x in rows.items()} if self.against else {}
        skipped: dict[str, str] = {}
        folded: list[Link] = []
        producers: dict[str, Producer | str] = {**draft.weighted}
        producers |= {x.name: x for x in find_affines(draft)}
        for name, producer in producers.items():
            link = (
                producer if isinstance(producer, str) else find_link(draft, producer, branches=True)
            )
            factors = self._fold(draft, link, reach, known) if isinstance(link, Link) else link
            if not isinstance(link, Link) or isinstance(factors, str):
                skipped[link.label if isinstance(link, Link) else name] = str(factors)
                continue
            rescale(draft, link, factors)
            reach = reach.after(link, factors)
            known = _scaled_rows(known, link, factors)
            folded.append(link)
        inserted = self._insert(draft, folded, reach.peaks, known) if self.insert else []
        return self._applied(draft, folded, inserted, skipped)

    def _applied(
        self,
        draft: EditableModel,
        folded: Sequence[Link],
        inserted: Sequence[str],
        skipped: Mapping[str, str],
    ) -> Applied:
        names = {link.producer.name for link in folded} | set(inserted)
        names |= {r.layer.name for link in folded for r in link.readers}
        touched = tuple(name for name in draft.weighted if name in names)
        exact = self.clip == PROVEN or not any(link.limits for link in folded)
        notes = (f"{len(inserted)} Mul inserted: {', '.join(inserted)}",) if inserted else ()
        return Applied(draft.finish(), touched, tuple(skipped.items()), exact, notes)

    # ----------------------------------------------------------------------------- into the front

    def _fold(
        self, draft: EditableModel, link: Link, reach: Reach, rows: Mapping[str, Floats]
    ) -> Floats | str:
        """Return factors that the producer takes up.

        Of several readers the geometric mean decides.
        """
        room = reach.headroom(link)
        if isinstance(room, str):
            return room
        free, ceiling = room
        looked_at = [_look(draft, reader, reach.peaks) for reader in link.readers]
        sides = [x for x in looked_at if x is not None]
        if len(sides) < len(looked_at):
            return "calibration knows no peaks of the channels between"
        live = np.logical_and.reduce([(x > 0) & (w > 0) for x, w in sides])
        if not (live & free).any():
            return "no channel between them is alive on the calibration samples"

        def factors_by(alpha: float) -> Floats:
            wishes = self._joint(sides, live, alpha, _magnitudes(link.readers, rows))
            return np.minimum(normalise_factors(wishes, live, free), ceiling)

        factors = factors_by(self.alpha)
        if self.against:
            if not _all_measured(link.readers, rows):
                return "alpha is measured for matrix products that read one tensor"
            chosen = self._best(draft, link.readers, rows, factors_by)
            factors = np.ones(link.producer.outputs) if chosen is None else chosen[0]
        even = np.abs(factors - 1.0).max() < NEGLIGIBLE
        return "no factors make the channels between easier to round" if even else factors

    def _joint(
        self,
        sides: Sequence[tuple[Floats, Floats]],
        live: NDArray[np.bool_],
        alpha: float,
        magnitudes: Floats | None,
    ) -> Floats:
        """Return 1/s_j that suits all readers: what the input's channels are multiplied by."""
        logs = []
        for peaks, ranges in sides:
            x, w = np.where(live, peaks, 1.0), np.where(live, ranges, 1.0)
            if self.against == INT4 and magnitudes is not None:
                usual = np.where(live & (magnitudes > 0), magnitudes, 1.0)
                wishes = np.log(usual) * -alpha
            else:
                wishes = np.log(w) * (1.0 - alpha) - np.log(x) * alpha
            logs.append(wishes - wishes[live].mean())
        joint: Floats = np.exp(np.mean(logs, axis=0))
        return joint

    def _best(
        self,
        draft: EditableModel,
        readers: Sequence[Reader],
        rows: Mapping[str, Floats],
        factors_by: Callable[[float], Floats],
    ) -> tuple[Floats, float] | None:
        """Return the factors of the best alpha, and the share of the error left; or None."""
        x = rows[readers[0].layer.input]
        weights = [_some_columns(draft, r.layer) for r in readers]
        before = output_error(x, weights, np.ones(x.shape[1]), against=self.against)
        best: tuple[Floats, float] | None = None
        for alpha in ALPHAS:
            factors = factors_by(alpha)
            error = output_error(x, weights, factors, against=self.against)
            if error < before * (1.0 if best is None else best[1]):
                best = (factors, error / before)
        return best

    # ------------------------------------------------------------------------------ inserted nodes

    def _insert(
        self,
        draft: EditableModel,
        folded: Sequence[Link],
        peaks: Mapping[str, Floats],
        rows: Mapping[str, Floats],
    ) -> list[str]:
        """Add a Mul for all layers that folding could not serve and that need one."""
        # a clip leaves some channels as they were: such a layer may need a Mul all the same
        served = {r.layer.name for link in folded if not link.limits for r in link.readers}
        inserted: list[str] = []
        for group in _groups(draft, served):
            readers = [Reader(layer, 1) for layer in group]
            looked_at = [_look(draft, reader, peaks) for reader in readers]
            sides = [x for x in looked_at if x is not None]
            if len(sides) < len(readers):
                continue
            factors = self._inserted_factors(draft, readers, sides, rows)
            if factors is None:
                continue
            for reader in readers:
                scale_inputs(draft, reader, 1.0 / factors)
            insert_factors(draft, group, factors)
            inserted += [layer.name for layer in group]
        return inserted

    def _inserted_factors(
        self,
        draft: EditableModel,
        readers: Sequence[Reader],
        sides: Sequence[tuple[Floats, Floats]],
        rows: Mapping[str, Floats],
    ) -> Floats | None:
        """Return factors that are worth a Mul, or None."""
        live = np.logical_and.reduce([(x > 0) & (w > 0) for x, w in sides])
        if not live.any():
            return None

        def factors_by(alpha: float) -> Floats:
            wishes = self._joint(sides, live, alpha, _magnitudes(readers, rows))
            return normalise_factors(wishes, live, np.ones_like(live))

        if self.against:
            if not _all_measured(readers, rows):
                return None
            best = self._best(draft, readers, rows, factors_by)
            return best[0] if best is not None and best[1] < INSERT_GAIN else None
        x = sides[0][0]
        even = x.max() / np.median(x[live]) < self.insert_above
        return None if even else factors_by(self.alpha)


def _groups(draft: EditableModel, served: set[str]) -> list[list[Weighted]]:
    """Return the layers that one Mul can serve: products that read one tensor; others alone."""
    groups: dict[tuple[str, str], list[Weighted]] = {}
    for name, layer in draft.weighted.items():
        if not isinstance(layer, str) and name not in served:
            alone = name if layer.op_type == "Conv" else ""
            groups.setdefault((layer.input, alone), []).append(layer)
    return list(groups.values())


def _look(
    draft: EditableModel, reader: Reader, peaks: Mapping[str, Floats]
) -> tuple[Floats, Floats] | None:
    """Return a reader's input peaks and weight ranges for each of the producer's channels."""
    layer = reader.layer
    input_peaks = peaks.get(layer.input)
    # of tensors with one spatial axis calibration looks at the last axis, not at channels
    if input_peaks is None or len(input_peaks) != layer.inputs or layer.rank not in (0, 2, 4):
        return None
    return per_channel(input_peaks, reader.repeat), input_ranges(draft, reader)


def _some_columns(draft: EditableModel, layer: Weighted) -> Floats:
    """Return the weights of a matrix product, inputs first, of evenly spread outputs."""
    values = draft.array(layer.weight)
    matrix = values if layer.in_axis == 0 else values.T
    chosen = np.linspace(0, layer.outputs - 1, min(layer.outputs, MEASURED_OUTPUTS)).astype(int)
    some: Floats = matrix[:, chosen]
    return some


def _all_measured(readers: Sequence[Reader], rows: Mapping[str, Floats]) -> bool:
    """Return whether all readers multiply one tensor, of which rows are known, by a matrix."""
    tensors = {r.layer.input for r in readers}
    dense = all(r.layer.op_type != "Conv" and r.repeat == 1 for r in readers)
    return dense and len(tensors) == 1 and next(iter(tensors)) in rows


def _magnitudes(readers: Sequence[Reader], rows: Mapping[str, Floats]) -> Floats | None:
    if not _all_measured(readers, rows):
        return None
    mean: Floats = np.abs(rows[readers[0].layer.input]).mean(axis=0)
    return mean


def _scaled_rows(rows: Mapping[str, Floats], link: Link, factors: Floats) -> dict[str, Floats]:
    """Return the rows of the link's tensors once these are multiplied by `factors`."""
    inputs = {r.layer.input for r in link.readers if r.repeat == 1}
    return {n: x * factors if n in inputs else x for n, x in rows.items()}
