"""What `seqto tune --dry-run` says: layers, menu, an estimate of time and disk."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from seqto import menu as menus
from seqto import model as onnx_model


def describe(job: Any) -> str:
    """Plain text; nothing is written."""
    settings = job.settings
    prepared = onnx_model.prepare(onnx_model.load(job.fetched.path), name=job.fetched.name)
    weighted = [x for x in prepared.layers if x.weight]
    c = settings.constraints
    menu, refusals = menus.full_menu(
        prepared.layers,
        job.device,
        menus.Constraints(c.integer_only, c.per_channel, c.bits, c.ops, c.max_opset),
        weight_bytes={x.name: 4 * x.parameters for x in prepared.layers},
        only=settings.search.menu,
        roundable=frozenset(x.name for x in weighted),
    )
    sample_s = _seconds_per_sample(job, prepared)
    probes = sum(len(m) - 1 for m in menu.values())
    stepwise = settings.search.strategy == "stepwise"
    trials = len(prepared.layers) if stepwise else 60
    trials = min(trials, settings.search.max_trials or trials)
    seconds = trials * (settings.data.evaluation * sample_s + 0.3)
    if not stepwise:
        seconds += probes * (settings.search.probes * sample_s + 0.3)
    import os

    seconds /= settings.search.jobs or os.cpu_count() or 1
    rows = settings.data.calibration + settings.data.evaluation + (settings.data.report or 0)
    disk = rows * _sample_bytes(prepared) + 3 * prepared.proto.ByteSize()
    lines = [
        f"{job.fetched.name}: {len(prepared.layers)} layers, {len(weighted)} with weights, "
        f"opset {prepared.opset}",
        f"strategy {settings.search.strategy}, mode {settings.quantize.mode}, "
        f"device {job.device.name}, objectives {', '.join(settings.search.objectives)}",
        f"samples: {len(job.data)} there; calibration {settings.data.calibration}, evaluation "
        f"{settings.data.evaluation}, report {settings.data.report or 'the rest'}",
        "menu: " + ", ".join(sorted({code for codes in menu.values() for code in codes})),
        *(f"not offered: {r['code']}, {r['reason']} ({len(r['layers'])} layers)" for r in refusals),
        f"about {trials} trials, {max(1, round(seconds / 60))} min, {disk / 1e6:.0f} MB in "
        f"{job.out} (samples are deleted at the end)",
        "layers:",
        *(f"  {x.name}  {x.op_type}  {x.parameters:,} parameters" for x in prepared.layers),
    ]
    return "\n".join(lines)


def _sample_bytes(prepared: onnx_model.Prepared) -> int:
    total = 0
    for spec in prepared.inputs:
        size = 1
        for dim in spec.shape[1:]:
            size *= dim or 1
        total += size
    return total


def _seconds_per_sample(job: Any, prepared: onnx_model.Prepared) -> float:
    """One measured run of the float model, with zeros of the right shape."""
    import numpy as np

    feeds = {s.name: np.zeros([d or 1 for d in s.shape], dtype=s.dtype) for s in prepared.inputs}
    session = job.device.open(Path(job.fetched.path).read_bytes(), threads=1)
    session.run(feeds)
    began = time.perf_counter()
    session.run(feeds)
    return time.perf_counter() - began
