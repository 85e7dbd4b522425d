"""A run folder made ready for workers: the small residual net and labelled samples."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nets
from seqto import config
from seqto.assembly.plan import Plan
from seqto.execution.files import FileRef, LocalFiles
from seqto.execution.jobs import WorkerSetup
from seqto.model.sources.source import Fetched
from seqto.records import CALIBRATION
from seqto.study.one_shot import opened, planned
from seqto.study.open_executor import worker_setup
from seqto.study.setup import make_setup
from seqto.tasks import scoring

ROWS = 12


@contextlib.contextmanager
def ready(
    folder: Path, *, task: Any = None, proto: Any = None
) -> Iterator[tuple[WorkerSetup, LocalFiles, Plan]]:
    """Set-up, files and a fully quantized plan."""
    proto = nets.residual(uneven=True) if proto is None else proto
    path = nets.save(proto, folder / "net.onnx")
    settings = config.make({}, {"data.calibration": ROWS, "search.strategy": "stepwise"})
    data = [(row, i % 3) for i, row in enumerate(nets.pictures(ROWS))]
    fetched = Fetched("net", str(path), {"kind": "file"})
    job = make_setup(fetched, folder / "out", settings, data=data, task=task)
    with opened(job) as (place, _):
        setup, files = worker_setup(job, place)
        yield setup, files, planned(job, place)


def reference_of(files: LocalFiles, part: FileRef, task: Any, labels: Any) -> FileRef:
    """Return the reference that the main process makes of one part."""
    decoded, about = scoring.load_part(files.path(part))
    made = scoring.reference_from(task, CALIBRATION, [decoded], labels=labels, about=about)
    path = files.named("cache/work/reference-calibration")
    made.save(path)
    return files.put(path)
