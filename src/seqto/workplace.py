"""A run folder made ready: prepared model, samples, statistics, treated variants.

journal.jsonl                       every finished trial
variants/base/model.onnx            the prepared float model
variants/base/statistics.npz        ranges, means, output-rounded weights
variants/equalize/…                 the same after a treatment
cache/                              prepared samples; may be deleted
models/  plots/  report.*           what the user came for
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqto import model as onnx_model
from seqto.assemble import Assembler, Statistics
from seqto.calibrate import Calibration, calibrate, load_statistics, save_statistics
from seqto.contracts import CALIBRATION, EVALUATION, Data, Fetched, Json, Layer
from seqto.errors import ConfigError, ModelError
from seqto.evaluate import BASE, CORRECTIONS
from seqto.inputs import Preprocess
from seqto.model import Prepared
from seqto.samples import SampleStore, split_rows
from seqto.schemes.integers import Quantized
from seqto.schemes.rounding import Rounder

Progress = Callable[[str, int, int], None]
TOLERANCE = 1e-3  # of the outputs' spread: what preparation and treatments may move
MODEL_FILE, STATISTICS_FILE = "model.onnx", "statistics.npz"


@dataclass(frozen=True, slots=True)
class Counts:
    """How many samples each split gets."""

    calibration: int
    evaluation: int
    report: int | None
    seed: int


@dataclass(frozen=True, slots=True)
class Workplace:
    """Everything that is made once and used by all candidates."""

    folder: Path
    original: Path
    prepared: Prepared
    store: SampleStore
    assembler: Assembler
    calibration: Calibration | None  # None when statistics were read back

    @property
    def layers(self) -> tuple[Layer, ...]:
        return self.prepared.layers

    def setup_json(self, device: Json, *, max_opset: int | None) -> Json:
        """What a worker needs to join."""
        return {
            "folder": str(self.folder.resolve()),
            "original": str(self.original.resolve()),
            "samples": str(self.store.folder.resolve()),
            "device": device,
            "max_opset": max_opset,
        }


def build_store(
    data: Data,
    folder: Path,
    prepared: Prepared,
    *,
    counts: Counts,
    preprocess: Preprocess | None,
    max_bad_share: float,
    progress: Progress = lambda _what, _done, _total: None,
) -> SampleStore:
    rows = split_rows(
        len(data),
        calibration=counts.calibration,
        evaluation=counts.evaluation,
        report=counts.report,
        seed=counts.seed,
        calibration_rows=getattr(data, "calibration_rows", None),
    )
    return SampleStore.build(
        data,
        folder,
        splits=rows,
        inputs=prepared.inputs,
        preprocess=preprocess,
        max_bad_share=max_bad_share,
        progress=lambda done, total: progress("samples", done, total),
    )


def prepare_model(fetched: Fetched, folder: Path, *, max_opset: int | None) -> Prepared:
    """The prepared model of a run folder; made and saved when it is not there yet."""
    place = folder / "variants" / BASE / MODEL_FILE
    if place.is_file():
        return onnx_model.open_prepared(place)
    prepared = onnx_model.prepare(
        onnx_model.load(fetched.path), name=fetched.name, max_opset=max_opset
    )
    onnx_model.save(prepared.proto, place)
    return onnx_model.open_prepared(place)


def check_answers(original: Path, prepared: Prepared, store: SampleStore, *, name: str) -> None:
    """The prepared model must give the float model's answers on real samples."""
    feeds = store.batch(CALIBRATION, 0, feed_rows(prepared, store, 4))
    moved = onnx_model.same_answers(str(original), onnx_model.to_bytes(prepared.proto), feeds)
    if moved > TOLERANCE:
        raise ModelError(
            f"{name}: preparing the model moves its outputs by {moved:.2g} of their spread "
            f"(at most {TOLERANCE} is allowed): it cannot be tuned; please report the model"
        )


def feed_rows(prepared: Prepared, store: SampleStore, wanted: int) -> int:
    fixed = prepared.inputs[0].shape[0] if prepared.inputs[0].shape else None
    return min(wanted if fixed is None else fixed, store.rows(CALIBRATION))


def batches_of(prepared: Prepared, store: SampleStore) -> Callable[[], Iterable[Any]]:
    """Calibration samples one by one: memory stays that of one sample."""
    step = feed_rows(prepared, store, 1)

    def batches() -> Iterable[Mapping[str, NDArray[Any]]]:
        for start in range(0, store.rows(CALIBRATION), step):
            yield store.batch(CALIBRATION, start, start + step)

    return batches


def set_up(
    fetched: Fetched,
    folder: Path,
    store: SampleStore,
    prepared: Prepared,
    *,
    methods: Sequence[str],
    rounding: Sequence[str],
    max_opset: int | None,
    progress: Progress = lambda _what, _done, _total: None,
) -> Workplace:
    """Calibrate once, or read back what an earlier call has calibrated."""
    original = Path(fetched.path)
    place = folder / "variants" / BASE / STATISTICS_FILE
    calibration = None
    if place.is_file():
        statistics, rounded = load_statistics(place)
        missing = [m for m in methods if any(m not in by for by in statistics.ranges.values())]
        if missing:
            raise ConfigError(
                f"this run folder was calibrated without {missing[0]!r}: use a new --out folder"
            )
    else:
        check_answers(original, prepared, store, name=fetched.name)
        calibration, rounded = _calibrated(
            prepared, store, methods=methods, rounding=rounding, progress=progress
        )
        save_statistics(calibration.statistics, rounded, place)
        statistics, rounded = load_statistics(place)
    assembler = Assembler(prepared, statistics, rounded=rounded, max_opset=max_opset)
    return Workplace(folder, original, prepared, store, assembler, calibration)


def _calibrated(
    prepared: Prepared,
    store: SampleStore,
    *,
    methods: Sequence[str],
    rounding: Sequence[str],
    progress: Progress,
) -> tuple[Calibration, dict[tuple[str, str], Quantized]]:
    candidates = [x for x in prepared.layers if x.weight and not x.depthwise] if rounding else []
    progress("calibration", 0, 1)
    found = calibrate(
        prepared, batches_of(prepared, store), methods=methods, gram_layers=candidates
    )
    return found, round_weights(
        prepared,
        found.statistics,
        rounding,
        progress=lambda done, total: progress("rounding", done, total),
    )


def round_weights(
    prepared: Prepared,
    statistics: Statistics,
    kinds: Sequence[str],
    *,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> dict[tuple[str, str], Quantized]:
    """(layer, weight type) → integers with small output error, where Gram matrices are known."""
    constants = Assembler(prepared, statistics)
    rounded: dict[tuple[str, str], Quantized] = {}
    for i, layer in enumerate(prepared.layers):
        grams = statistics.grams.get(layer.name)
        if grams is None or not np.isfinite(grams).all():
            continue  # not known, or what flows in is beyond float's range: nearest must do
        progress(i, len(prepared.layers))
        axis = constants.channel_axis(layer)
        rounder = Rounder(layer, constants.weight(layer), grams.astype(np.float64), axis=axis)
        rounded.update({(layer.name, kind): rounder.round(kind) for kind in kinds})
    return rounded


def add_variant(
    place: Workplace,
    transforms: Sequence[str],
    *,
    methods: Sequence[str],
    rounding: Sequence[str],
    peaks: Mapping[str, NDArray[Any]],
) -> Json:
    """Treat the float model, check its answers, calibrate it again; {name, touched, moved}."""
    from seqto.plugins import find

    made = [t for t in transforms if t not in CORRECTIONS]
    name = "+".join(made)
    folder = place.folder / "variants" / name
    prepared = place.prepared
    touched: list[str] = []
    skipped: list[str] = []
    exact = True
    for turn, code in enumerate(made):
        kind, _, number = code.partition("-")
        plugin = find("seqto.transforms", kind)
        transform = plugin(float(number)) if number else plugin()
        if turn:  # what flows through the model has changed since
            peaks = calibrate(prepared, batches_of(prepared, place.store)).peaks
        applied = transform.apply(prepared, peaks)
        exact = exact and applied.exact
        touched += list(applied.touched)
        skipped += [f"{pair}: {reason}" for pair, reason in applied.skipped]
        onnx_model.save(applied.proto, folder / "treated.onnx")
        prepared = onnx_model.open_prepared(folder / "treated.onnx")
    # samples that no treatment has looked at, where there are any
    split = EVALUATION if place.store.splits().get(EVALUATION) else CALIBRATION
    feeds = place.store.batch(split, 0, feed_rows(prepared, place.store, 8))
    moved = onnx_model.same_answers(
        onnx_model.to_bytes(place.prepared.proto), onnx_model.to_bytes(prepared.proto), feeds
    )
    if exact and moved > TOLERANCE:
        raise ModelError(
            f"treatment {name!r} moves the outputs by {moved:.2g} of their spread "
            f"(at most {TOLERANCE} is allowed) and is refused"
        )
    statistics_file = folder / STATISTICS_FILE
    if not statistics_file.is_file():
        found, rounded = _calibrated(
            prepared,
            place.store,
            methods=methods,
            rounding=rounding,
            progress=lambda _what, _done, _total: None,
        )
        save_statistics(found.statistics, rounded, statistics_file)
    (folder / "treated.onnx").replace(folder / MODEL_FILE)
    return {
        "name": name,
        "touched": sorted(set(touched)),
        "skipped": skipped,
        "moved": moved,
        "exact": exact,
    }
