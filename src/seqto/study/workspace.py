"""The content of a run folder that all trials share: prepared model, samples, statistics, variants.

journal.jsonl                       every finished trial
variants/                           the float model, prepared and transformed
cache/                              prepared samples; may be deleted
models/  plots/  report.*           the results
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
from seqto.calibration.feeds import ModelFeeds, model_feeds
from seqto.calibration.input_rows import input_rows
from seqto.calibration.statistics import save_statistics
from seqto.data.data import Data, reserved_rows
from seqto.data.labelled import WithLabelled
from seqto.data.splits import split_rows
from seqto.data.store import SampleStore
from seqto.devices.bundle import OUTPUTS
from seqto.errors import ConfigError, ModelError
from seqto.execution.local.first_run import moved_answers
from seqto.execution.local.fold import optimize_in_worker
from seqto.model import compare as model_compare
from seqto.model import files as model_files
from seqto.model import outputs
from seqto.model import prepare as model_prepare
from seqto.model.half import has_half
from seqto.model.prepare import Prepared
from seqto.model.wiring import DECODER
from seqto.records import CALIBRATION, EVALUATION, LABELLED, Json, Layer
from seqto.study.bundles import SEQUENCE
from seqto.study.setup import RunSetup, calibration_methods
from seqto.study.setup_data import fed_data
from seqto.tasks.task import ModelTask, Task, judges_one_output
from seqto.transforms.transform import (
    BIAS_CORRECTION,
    Applied,
    MeasuringTransform,
    Transform,
    parse_transform,
)
from seqto.transforms.variants import BASE, MODEL_FILE, STATISTICS_FILE, variant_folder

TREATED_FILE = "treated.onnx"  # a variant's model before it is checked and calibrated
TOLERANCE = 1e-3  # of the outputs' spread: what preparation and treatments may move
# the same for a model in half precision, whose own steps are 2**-11: they add up over its nodes
HALF_TOLERANCE = 0.05


@dataclass(frozen=True, slots=True)
class Workspace:
    """Everything that is made once and used by all candidates."""

    folder: Path
    original: Path
    prepared: Prepared
    store: SampleStore
    assembler: Assembler
    calibration: Calibration | None  # None when statistics were read back
    judged: outputs.Judged
    feeds: ModelFeeds

    @property
    def layers(self) -> tuple[Layer, ...]:
        return self.prepared.layers


def prepare_model(setup: RunSetup, folder: Path) -> Prepared:
    """Return the prepared model of a folder; it is made and saved when it is not there yet."""
    path = variant_folder(folder) / MODEL_FILE
    if not path.is_file():
        prepared = prepare_anew(setup, setup.fetched.load)
        model_files.save(prepared.proto, path)
        del prepared
        model_files.give_back_memory()
    return model_prepare.open_prepared(path)


def layers_of(setup: RunSetup) -> tuple[Layer, ...]:
    """Return the layers of a model as a run prepares it; nothing is written."""
    return prepare_anew(setup, lambda: model_files.load(setup.fetched.path)).layers


def prepare_anew(setup: RunSetup, load_model: Callable[[], Any]) -> Prepared:
    """Prepare the model that is loaded here as a run's settings say; nothing is written."""
    device = setup.settings.device
    return model_prepare.prepare_loaded(
        load_model,
        name=setup.fetched.name,
        max_opset=setup.settings.constraints.max_opset,
        optimize=optimize_in_worker(device.timeout_s, device.memory_mb),
    )


def build_store(
    setup: RunSetup, prepared: Prepared, folder: Path, *, calibration_only: bool = False
) -> SampleStore:
    """Prepare the samples of a run in a folder, or read back those that are there.

    With calibration alone, these are the rows that a run with the same settings calibrates on.
    """
    data = setup.settings.data
    rows: Mapping[str, Sequence[int]] = split_rows(
        len(setup.data),
        calibration=data.calibration,
        evaluation=0 if calibration_only else data.evaluation,
        report=0 if calibration_only else data.report,
        seed=data.seed,
        calibration_rows=reserved_rows(setup.data),
    )
    source: Data = setup.data
    if setup.labelled is not None and not calibration_only:
        source = WithLabelled(setup.data, setup.labelled)
        rows = {**rows, LABELLED: range(len(setup.data), len(source))}
    return SampleStore.build(
        fed_data(source, prepared.inputs, settings=setup.settings, fetched=setup.fetched),
        folder,
        splits={CALIBRATION: rows[CALIBRATION]} if calibration_only else rows,
        inputs=prepared.inputs if setup.wiring is None else (SEQUENCE,),
        preprocess=setup.preprocess,
        max_bad_share=data.max_bad_share,
        progress=lambda done, total: setup.progress("samples", done, total),
        batch=data.batch or 1,
    )


def check_answers(setup: RunSetup, prepared: Path, store: SampleStore) -> None:
    """Refuse a prepared model that does not give the float model's answers on real samples.

    This is the first time that the model runs: a worker does it, under the time limit.
    """
    device = setup.settings.device
    moved = moved_answers(
        [Path(path) for path in setup.fetched.files],
        prepared,
        store.folder,
        wiring=setup.wiring,
        timeout_s=device.timeout_s,
        memory_bytes=None if device.memory_mb is None else device.memory_mb * 1_000_000,
    )
    allowed = TOLERANCE
    if moved > allowed and any(has_half(model_files.load(p)) for p in setup.fetched.files):
        allowed = HALF_TOLERANCE
    if moved > allowed:
        raise ModelError(
            f"{setup.fetched.name}: preparing the model moves its outputs by {moved:.2g} of their "
            f"spread (at most {allowed} is allowed): it cannot be tuned; please report the model"
        )


def calibrate_or_load(
    setup: RunSetup, folder: Path, store: SampleStore, prepared: Prepared
) -> Workspace:
    """Calibrate once, or read back what an earlier call has calibrated."""
    settings = setup.settings
    judged = judged_output(setup, prepared)
    feeds = model_feeds(store, prepared.proto, setup.wiring)
    base, methods = variant_folder(folder), calibration_methods(settings)
    calibration = None
    if not (base / STATISTICS_FILE).is_file():
        check_answers(setup, base / MODEL_FILE, store)
        setup.progress("calibration", 0, 1)
        calibration = calibrate(prepared, feeds.calibration, methods=methods)
        setup.progress("calibration", 1, 1)
        model_files.give_back_memory()
        save_statistics(calibration.statistics, base / STATISTICS_FILE)
    assembler = open_assembler(base, max_opset=settings.constraints.max_opset)
    ranges = assembler.statistics.ranges
    missing = [m for m in methods if any(m not in by for by in ranges.values())]
    if missing:
        raise ConfigError(
            f"this run folder was calibrated without {missing[0]!r}: use a new --out folder"
        )
    original = Path(setup.fetched.path)
    return Workspace(
        folder, original, assembler.prepared, store, assembler, calibration, judged, feeds
    )


def judged_output(setup: RunSetup, prepared: Prepared) -> outputs.Judged:
    """Return the output that is judged; of a bundle, the decoder's, which becomes tokens."""
    if setup.wiring is None:
        return outputs.choose(
            prepared.proto, prepared.layers, output_name=setup.settings.task.output
        )
    name = f"{DECODER}/{setup.wiring.logits}"
    chosen = outputs.choose(prepared.proto, prepared.layers, output_name=name)
    return outputs.Judged(chosen.name, 0, 1, tuple(range(len(OUTPUTS))))


def task_for(setup: RunSetup, workspace: Workspace) -> Task:
    """Return the run's task, told the outputs that it gets and the size of the model's picture."""
    if not isinstance(setup.task, ModelTask):
        return setup.task
    judged, prepared = workspace.judged, workspace.prepared
    sent = (judged.position,) if judges_one_output(setup.task) else judged.numeric
    names = [prepared.outputs[position] for position in sent]
    return setup.task.for_model(outputs=names, size=_picture_size(setup, prepared))


def _picture_size(setup: RunSetup, prepared: Prepared) -> tuple[int, int] | None:
    """Return height and width of the one input that takes pictures, where they are fixed."""
    pictures = [spec.shape for spec in prepared.inputs if len(spec.shape) == 4]
    if len(pictures) != 1:
        return None
    last = setup.preprocess is not None and setup.preprocess.layout == "NHWC"
    height, width = pictures[0][1:3] if last else pictures[0][2:4]
    return (height, width) if height and width else None


def _apply(
    transform: Transform, prepared: Prepared, peaks: Mapping[str, NDArray[Any]], feeds: ModelFeeds
) -> Applied:
    if isinstance(transform, MeasuringTransform) and transform.measures:
        rows = input_rows(prepared, feeds.calibration)
        return transform.apply_measured(prepared, peaks, rows)
    return transform.apply(prepared, peaks)


def _moved_outputs(workspace: Workspace, transformed: Path) -> float:
    """Return how far a transformed model's outputs are from the float model's, by their spread."""
    # samples that no treatment has looked at, where there are any
    split = EVALUATION if workspace.store.splits().get(EVALUATION) else CALIBRATION
    before = variant_folder(workspace.folder) / MODEL_FILE
    feeds = workspace.feeds.first(split, 8)
    return model_compare.same_answers(str(before), str(transformed), feeds)


def add_variant(
    workspace: Workspace,
    transforms: Sequence[str],
    *,
    methods: Sequence[str],
    peaks: Mapping[str, NDArray[Any]],
    needed: bool = True,
) -> Json:
    """Treat the float model, check its answers, calibrate it again; return {name, touched, moved}.

    A treatment that finds nothing to do leaves no variant, unless it is needed. Corrections alone
    need none: they are made while a model is assembled.
    """
    graph_transforms = [t for t in transforms if t != BIAS_CORRECTION]
    if not graph_transforms:
        return {"name": BASE, "touched": [], "skipped": [], "exact": True, "moved": 0.0}
    folder = variant_folder(workspace.folder, graph_transforms)
    name = folder.name
    prepared = workspace.prepared
    touched: list[str] = []
    skipped: list[str] = []
    exact = True
    for turn, code in enumerate(graph_transforms):
        if turn:  # what flows through the model has changed since
            peaks = calibrate(prepared, workspace.feeds.calibration).peaks
        applied = _apply(parse_transform(code), prepared, peaks, workspace.feeds)
        exact = exact and applied.exact
        touched += list(applied.touched)
        skipped += [f"{pair}: {reason}" for pair, reason in applied.skipped]
        model_files.save(applied.proto, folder / TREATED_FILE)
        del applied
        prepared = model_prepare.open_prepared(folder / TREATED_FILE)
    summary = {"name": name, "touched": sorted(set(touched)), "skipped": skipped, "exact": exact}
    if not touched and not needed:
        (folder / TREATED_FILE).unlink(missing_ok=True)  # what this call has made, nothing else
        with contextlib.suppress(OSError):  # not empty: then the rest is not from here
            folder.rmdir()
        return {**summary, "moved": 0.0}
    moved = _moved_outputs(workspace, folder / TREATED_FILE)
    if exact and moved > TOLERANCE:
        raise ModelError(
            f"treatment {name!r} moves the outputs by {moved:.2g} of their spread "
            f"(at most {TOLERANCE} is allowed) and is refused"
        )
    if not (folder / STATISTICS_FILE).is_file():
        calibration = calibrate(prepared, workspace.feeds.calibration, methods=methods)
        save_statistics(calibration.statistics, folder / STATISTICS_FILE)
    (folder / TREATED_FILE).replace(folder / MODEL_FILE)
    del prepared
    model_files.give_back_memory()
    return {**summary, "moved": moved}
