"""A run folder made ready: prepared model, samples, statistics, treated variants.

journal.jsonl                       every finished trial
variants/                           the float model, prepared and treated (variants.py)
cache/                              prepared samples; may be deleted
models/  plots/  report.*           what the user came for
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from seqto.assembly.assembler import Assembler, open_assembler
from seqto.calibration.collect import Calibration, calibrate
from seqto.calibration.statistics import save_statistics
from seqto.data.data import Data
from seqto.data.preprocess import Preprocess
from seqto.data.splits import split_rows
from seqto.data.store import SampleStore
from seqto.errors import ConfigError, ModelError
from seqto.model import compare as model_compare
from seqto.model import files as model_files
from seqto.model import outputs
from seqto.model import prepare as model_prepare
from seqto.model.prepare import Prepared
from seqto.model.sources.source import Fetched
from seqto.records import CALIBRATION, EVALUATION, Json, Layer
from seqto.transforms.variants import BASE, CORRECTIONS, MODEL_FILE, STATISTICS_FILE, place_of

Progress = Callable[[str, int, int], None]


TREATED_FILE = "treated.onnx"  # a variant's model before it is checked and calibrated


TOLERANCE = 1e-3  # of the outputs' spread: what preparation and treatments may move


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
    judged: outputs.Judged

    @property
    def layers(self) -> tuple[Layer, ...]:
        return self.prepared.layers


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
    place = place_of(folder) / MODEL_FILE
    if place.is_file():
        return model_prepare.open_prepared(place)
    prepared = model_prepare.prepare(
        model_files.load(fetched.path), name=fetched.name, max_opset=max_opset
    )
    model_files.save(prepared.proto, place)
    return model_prepare.open_prepared(place)


def check_answers(original: Path, prepared: Prepared, store: SampleStore, *, name: str) -> None:
    """The prepared model must give the float model's answers on real samples."""
    feeds = store.batch(CALIBRATION, 0, store.feed_rows(4))
    moved = model_compare.same_answers(str(original), model_files.to_bytes(prepared.proto), feeds)
    if moved > TOLERANCE:
        raise ModelError(
            f"{name}: preparing the model moves its outputs by {moved:.2g} of their spread "
            f"(at most {TOLERANCE} is allowed): it cannot be tuned; please report the model"
        )


def set_up(
    fetched: Fetched,
    folder: Path,
    store: SampleStore,
    prepared: Prepared,
    *,
    methods: Sequence[str],
    max_opset: int | None,
    output: str | None = None,
    progress: Progress = lambda _what, _done, _total: None,
) -> Workplace:
    """Calibrate once, or read back what an earlier call has calibrated."""
    judged = outputs.choose(prepared.proto, prepared.layers, wanted=output)
    original = Path(fetched.path)
    place = place_of(folder)
    calibration = None
    if not (place / STATISTICS_FILE).is_file():
        check_answers(original, prepared, store, name=fetched.name)
        progress("calibration", 0, 1)
        calibration = calibrate(prepared, store.calibration, methods=methods)
        save_statistics(calibration.statistics, place / STATISTICS_FILE)
    assembler = open_assembler(place, max_opset=max_opset)
    ranges = assembler.statistics.ranges
    missing = [m for m in methods if any(m not in by for by in ranges.values())]
    if missing:
        raise ConfigError(
            f"this run folder was calibrated without {missing[0]!r}: use a new --out folder"
        )
    return Workplace(folder, original, assembler.prepared, store, assembler, calibration, judged)


def add_variant(
    place: Workplace,
    transforms: Sequence[str],
    *,
    methods: Sequence[str],
    peaks: Mapping[str, NDArray[Any]],
    needed: bool = True,
) -> Json:
    """Treat the float model, check its answers, calibrate it again; {name, touched, moved}.

    A treatment that finds nothing to do leaves no variant, unless it is needed. Corrections alone
    need none: they are made while a model is assembled.
    """
    from seqto.plugins import find

    made = [t for t in transforms if t not in CORRECTIONS]
    if not made:
        return {"name": BASE, "touched": [], "skipped": [], "exact": True, "moved": 0.0}
    folder = place_of(place.folder, made)
    name = folder.name
    prepared = place.prepared
    touched: list[str] = []
    skipped: list[str] = []
    exact = True
    for turn, code in enumerate(made):
        kind, _, number = code.partition("-")
        plugin = find("seqto.transforms", kind)
        transform = plugin(float(number)) if number else plugin()
        if turn:  # what flows through the model has changed since
            peaks = calibrate(prepared, place.store.calibration).peaks
        applied = transform.apply(prepared, peaks)
        exact = exact and applied.exact
        touched += list(applied.touched)
        skipped += [f"{pair}: {reason}" for pair, reason in applied.skipped]
        model_files.save(applied.proto, folder / TREATED_FILE)
        prepared = model_prepare.open_prepared(folder / TREATED_FILE)
    found = {"name": name, "touched": sorted(set(touched)), "skipped": skipped, "exact": exact}
    if not touched and not needed:
        (folder / TREATED_FILE).unlink(missing_ok=True)  # what this call has made, nothing else
        with contextlib.suppress(OSError):  # not empty: then the rest is not from here
            folder.rmdir()
        return {**found, "moved": 0.0}
    # samples that no treatment has looked at, where there are any
    split = EVALUATION if place.store.splits().get(EVALUATION) else CALIBRATION
    feeds = place.store.batch(split, 0, place.store.feed_rows(8))
    moved = model_compare.same_answers(
        model_files.to_bytes(place.prepared.proto), model_files.to_bytes(prepared.proto), feeds
    )
    if exact and moved > TOLERANCE:
        raise ModelError(
            f"treatment {name!r} moves the outputs by {moved:.2g} of their spread "
            f"(at most {TOLERANCE} is allowed) and is refused"
        )
    if not (folder / STATISTICS_FILE).is_file():
        calibration = calibrate(prepared, place.store.calibration, methods=methods)
        save_statistics(calibration.statistics, folder / STATISTICS_FILE)
    (folder / TREATED_FILE).replace(folder / MODEL_FILE)
    return {**found, "moved": moved}
