"""Text of `seqto tune --dry-run`: layers, choices, an estimate of time and disk."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from seqto.calibration.gram import columns_of
from seqto.data.store import SampleStore
from seqto.errors import DeviceError, ModelError
from seqto.execution.local.first_run import refuse_endless, refuse_endless_bundle
from seqto.files import temporary_folder
from seqto.model import compare as model_compare
from seqto.model.files import constant_bytes
from seqto.model.prepare import Prepared
from seqto.records import CALIBRATION, Json, Layer
from seqto.report.columns import layers_text
from seqto.search.choices import Choices
from seqto.search.strategy import Need
from seqto.study.bundles import SEQUENCE, device_for
from seqto.study.make_space import mode_of, offered_menu
from seqto.study.setup import RunSetup, probe_rows, rounding_kinds
from seqto.study.setup_data import fed_data
from seqto.study.workspace import judged_output, prepare_anew
from seqto.tasks.task import judges_one_output
from seqto.text import plain

SHOWN = 30  # layers that are listed for people
PROCESS_BYTES = 150e6  # of a process before it holds a model: interpreter, ONNX Runtime, samples
# of the float model's bytes, as measured on 1.2 GB (benchmarks/large_model.py): a worker 4.0 at its
# peak; the main process 2.1, and 4.0 while it treats the model, when workers are idle
WORKER_COPIES, MAIN_COPIES = 4.2, 2.2


@dataclass(frozen=True, slots=True)
class DryRun:
    """The steps of a run, and an estimate of its time and disk."""

    model: str
    out: str
    opset: int
    layers: tuple[Layer, ...]
    task: str | None  # a sentence on how the task was guessed; None: it was given
    judged_output: str
    outputs: int
    all_outputs: bool  # the task reads all of them, not the judged one alone
    strategy: str
    mode: str
    device: str
    objectives: tuple[str, ...]
    samples: Mapping[str, int | None]  # there, calibration, evaluation, report (None: the rest)
    menu: tuple[str, ...]  # codes of the schemes that are offered
    not_offered: tuple[str, ...]
    trials: int
    seconds: float
    disk_bytes: float
    workers: int
    memory_bytes: float  # of the main process and all workers

    def to_json(self) -> Json:
        return {**dataclasses.asdict(self), "layers": [x.to_json() for x in self.layers]}

    @property
    def missing_samples(self) -> int:
        """Samples that the splits need and the data do not have: a run would refuse them."""
        needed = sum(self.samples[split] or 0 for split in ("calibration", "evaluation", "report"))
        return max(0, needed - int(self.samples["there"] or 0))

    def __str__(self) -> str:
        weighted = sum(bool(x.weight) for x in self.layers)
        report = "the rest" if self.samples["report"] is None else self.samples["report"]
        lines = [
            f"{self.model}: {len(self.layers)} layers, {weighted} with weights, opset {self.opset}",
            *([f"task: {self.task}"] if self.task else []),
            f"judged outputs: all {self.outputs}"
            if self.all_outputs
            else f"judged output: {self.judged_output!r} of {self.outputs}",
            f"strategy {self.strategy}, mode {self.mode}, device {self.device}, "
            f"objectives {', '.join(self.objectives)}",
            f"samples: {self.samples['there']} there; calibration {self.samples['calibration']}, "
            f"evaluation {self.samples['evaluation']}, report {report}",
            *([_too_few(self.missing_samples)] if self.missing_samples else []),
            f"menu: {', '.join(self.menu)}",
            *(f"not offered: {text}" for text in self.not_offered),
            f"about {self.trials} trials, {max(1, round(self.seconds / 60))} min, "
            f"{self.disk_bytes / 1e6:.0f} MB in {self.out} (samples are deleted at the end), "
            f"up to {self.memory_bytes / 1e9:.1f} GB of memory with {self.workers} workers "
            "(--jobs sets their number)",
            "layers:",
            *(f"  {x.name}  {x.op_type}  {x.parameters:,} parameters" for x in self.layers[:SHOWN]),
        ]
        more = len(self.layers) - SHOWN
        lines += [f"  and {more} more: --dry-run --json lists all"] if more > 0 else []
        return "\n".join(plain(line) for line in lines)  # names are a stranger's


def _too_few(missing: int) -> str:
    return (
        f"too few samples, {missing} are missing: lower data.calibration, data.evaluation and "
        "data.report, or give more data"
    )


def describe(setup: RunSetup) -> DryRun:
    """Describe a run; nothing is written."""
    settings = setup.settings
    prepared = prepare_anew(setup, setup.fetched.load)
    # a run rounds them and leaves out those whose inputs are not finite, which are very few
    matrices = [x.name for x in prepared.layers if columns_of(x, prepared) is not None]
    kinds = rounding_kinds(settings, setup.strategy, prepared.layers)
    menu, refusals = offered_menu(
        setup,
        prepared.layers,
        roundable=frozenset((name, kind) for name in matrices for kind in kinds),
    )
    judged = judged_output(setup, prepared)
    sample_s, sample_bytes = _one_sample(setup, prepared)
    trials, seconds = _expected_work(setup, menu, sample_s=sample_s)
    workers = _workers(setup)
    data = settings.data
    rows = data.calibration + data.evaluation + (data.report or 0)
    return DryRun(
        model=setup.fetched.name,
        out=str(setup.out),
        opset=prepared.opset,
        layers=prepared.layers,
        task=setup.guess.sentence if setup.guess else None,
        judged_output=judged.name,
        outputs=judged.count,
        all_outputs=judged.count > 1
        and not judges_one_output(setup.task)
        and settings.task.output is None,
        strategy=settings.search.strategy,
        mode=mode_of(settings, prepared.layers),
        device=setup.device.name,
        objectives=settings.search.objectives,
        samples={
            "there": len(setup.data),
            "calibration": data.calibration,
            "evaluation": data.evaluation,
            "report": data.report,
        },
        menu=tuple(sorted({str(s) for schemes in menu.values() for s in schemes})),
        not_offered=tuple(f"{r.what}, {r.reason} ({layers_text(r.layers)})" for r in refusals),
        trials=trials,
        seconds=seconds,
        disk_bytes=rows * sample_bytes + 3 * constant_bytes(prepared.proto),
        workers=workers,
        memory_bytes=expected_memory(constant_bytes(prepared.proto), workers),
    )


def expected_memory(model_bytes: int, workers: int) -> float:
    """Return an upper estimate of what a run allocates; benchmarks/large_model.py measures it."""
    worker = PROCESS_BYTES + WORKER_COPIES * model_bytes
    return PROCESS_BYTES + MAIN_COPIES * model_bytes + workers * worker


def _expected_work(setup: RunSetup, menu: Choices, *, sample_s: float) -> tuple[int, float]:
    """Return trials, and seconds of trials and probes on all workers."""
    settings = setup.settings
    stepwise = Need.WIDE_CHOICES not in setup.strategy.needs
    trials = len(menu) if stepwise else 60
    trials = min(trials, settings.search.max_trials or trials)
    seconds = trials * (settings.data.evaluation * sample_s + 0.3)
    if not stepwise:
        probes = sum(len(m) - 1 for m in menu.values())
        seconds += probes * (probe_rows(setup) * sample_s + 0.3)
    return trials, seconds / _workers(setup)


def _workers(setup: RunSetup) -> int:
    return setup.settings.search.jobs or os.cpu_count() or 1


def _one_sample(setup: RunSetup, prepared: Prepared) -> tuple[float, float]:
    """Measure one sample: seconds in the float model, bytes on disk."""
    inputs = prepared.inputs if setup.wiring is None else (SEQUENCE,)
    batch = inputs[0].shape[0] or 1
    files = {name: Path(path) for name, path in setup.fetched.components.items()}
    with temporary_folder("seqto-") as scratch:
        store = SampleStore.build(
            fed_data(setup.data, inputs, settings=setup.settings, fetched=setup.fetched),
            scratch,
            splits={CALIBRATION: list(range(min(batch, len(setup.data))))},
            inputs=inputs,
            preprocess=setup.preprocess,
        )
        feeds = store.batch(CALIBRATION, 0, batch)
        _refuse_endless(setup, files, scratch, batch=batch)
        size = sum(f.stat().st_size for f in scratch.rglob("*") if f.is_file())
    # by its path: it may have external data beside it
    device = device_for(setup.device, setup.wiring)
    opened = device.open(files or Path(setup.fetched.path), threads=1)
    with contextlib.closing(opened) as session:
        try:
            session.run(feeds)
        except DeviceError as error:
            raise ModelError(model_compare.unfit_samples(feeds, error)) from error
        began = time.perf_counter()
        session.run(feeds)
        seconds = time.perf_counter() - began
    return seconds / batch, size / feeds.rows


def _refuse_endless(
    setup: RunSetup, components: Mapping[str, Path], samples: Path, *, batch: int
) -> None:
    """Refuse a model, or a bundle, that gives no answer within the time limit of a worker."""
    limit_s = setup.settings.device.timeout_s
    if setup.wiring is not None:
        refuse_endless_bundle(
            components, setup.wiring, samples, split=CALIBRATION, timeout_s=limit_s
        )
        return
    model = Path(setup.fetched.path)
    refuse_endless([model], samples, split=CALIBRATION, rows=batch, timeout_s=limit_s)
