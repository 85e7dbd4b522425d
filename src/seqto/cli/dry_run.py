"""The text of `seqto tune --dry-run`: layers, choices, an estimate of time and disk."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from pathlib import Path

from seqto.calibration.gram import columns_of
from seqto.data.store import SampleStore
from seqto.errors import DeviceError, ModelError
from seqto.model import compare as model_compare
from seqto.model import prepare as model_prepare
from seqto.records import CALIBRATION
from seqto.search.strategy import Need
from seqto.study.bundles import SEQUENCE, device_for
from seqto.study.make_space import mode_of, offered_menu
from seqto.study.setup import RunSetup, probe_rows, rounding_kinds
from seqto.study.workspace import judged_output


def describe(setup: RunSetup) -> str:
    """Describe a run in plain text; nothing is written."""
    settings = setup.settings
    prepared = model_prepare.prepare(
        setup.fetched.load(),
        name=setup.fetched.name,
        max_opset=settings.constraints.max_opset,
    )
    weighted = [x for x in prepared.layers if x.weight]
    # a run rounds them and leaves out those whose inputs are not finite, which are very few
    matrices = [x.name for x in prepared.layers if columns_of(x, prepared) is not None]
    kinds = rounding_kinds(settings, setup.strategy, prepared.layers)
    stepwise = Need.WIDE_CHOICES not in setup.strategy.needs
    menu, refusals = offered_menu(
        setup,
        prepared.layers,
        roundable=frozenset((name, kind) for name in matrices for kind in kinds),
    )
    judged = judged_output(setup, prepared)
    sample_s, sample_bytes = _one_sample(setup, prepared)
    probes = sum(len(m) - 1 for m in menu.values())
    trials = len(prepared.layers) if stepwise else 60
    trials = min(trials, settings.search.max_trials or trials)
    seconds = trials * (settings.data.evaluation * sample_s + 0.3)
    if not stepwise:
        seconds += probes * (probe_rows(setup) * sample_s + 0.3)
    seconds /= settings.search.jobs or os.cpu_count() or 1
    rows = settings.data.calibration + settings.data.evaluation + (settings.data.report or 0)
    disk = rows * sample_bytes + 3 * prepared.proto.ByteSize()
    lines = [
        f"{setup.fetched.name}: {len(prepared.layers)} layers, {len(weighted)} with weights, "
        f"opset {prepared.opset}",
        *([f"task: {setup.guess.sentence}"] if setup.guess else []),
        f"judged output: {judged.name!r} of {judged.count}",
        f"strategy {settings.search.strategy}, mode {mode_of(settings, prepared.layers)}, "
        f"device {setup.device.name}, objectives {', '.join(settings.search.objectives)}",
        f"samples: {len(setup.data)} there; calibration {settings.data.calibration}, evaluation "
        f"{settings.data.evaluation}, report "
        f"{'the rest' if settings.data.report is None else settings.data.report}",
        "menu: " + ", ".join(sorted({str(s) for schemes in menu.values() for s in schemes})),
        *(f"not offered: {r.what}, {r.reason} ({len(r.layers)} layers)" for r in refusals),
        f"about {trials} trials, {max(1, round(seconds / 60))} min, {disk / 1e6:.0f} MB in "
        f"{setup.out} (samples are deleted at the end)",
        "layers:",
        *(f"  {x.name}  {x.op_type}  {x.parameters:,} parameters" for x in prepared.layers),
    ]
    return "\n".join(lines)


def _one_sample(setup: RunSetup, prepared: model_prepare.Prepared) -> tuple[float, float]:
    """Measure one sample: seconds in the float model, bytes on disk."""
    inputs = prepared.inputs if setup.wiring is None else (SEQUENCE,)
    batch = inputs[0].shape[0] or 1
    with tempfile.TemporaryDirectory(prefix="seqto-") as scratch:
        store = SampleStore.build(
            setup.data,
            Path(scratch),
            splits={CALIBRATION: list(range(min(batch, len(setup.data))))},
            inputs=inputs,
            preprocess=setup.preprocess,
        )
        feeds = store.batch(CALIBRATION, 0, batch)
        size = sum(f.stat().st_size for f in Path(scratch).rglob("*") if f.is_file())
    # by its path: it may have external data beside it
    files = {name: Path(path) for name, path in setup.fetched.components.items()}
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
