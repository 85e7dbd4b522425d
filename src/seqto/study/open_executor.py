"""Start the workers of a run."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from seqto.config import Settings
from seqto.devices.device import Device, LimitedDevice
from seqto.execution.executor import Executor
from seqto.execution.files import LocalFiles
from seqto.execution.jobs import WorkerSetup
from seqto.execution.local.executor import LocalExecutor
from seqto.execution.ray.executor import ClusterSettings, RayCluster
from seqto.model.files import external_files
from seqto.study.fleet_devices import RunDevice
from seqto.study.setup import RunSetup, labelled_task
from seqto.study.workspace import Workspace
from seqto.tasks.task import judges_one_output, portable_form


@contextlib.contextmanager
def open_executor(
    setup: RunSetup, workspace: Workspace, on: RunDevice | None = None
) -> Iterator[Executor]:
    """Open the executor that a run's settings ask for; its processes end with the block.

    `on`: another of the run's devices than the first.
    """
    used = on or setup.devices[0]
    worker, files = worker_setup(setup, workspace)
    worker = dataclasses.replace(worker, device=used.json)
    memory = used.settings.memory_mb
    limits: dict[str, Any] = {
        "timeout_s": used.settings.timeout_s,
        "memory_bytes": None if memory is None else memory * 1_000_000,
    }
    with contextlib.ExitStack() as stack:
        executor: Executor
        if setup.settings.executor.kind == "ray":
            cluster = setup.cluster or stack.enter_context(open_cluster(setup.settings))
            executor = cluster.executor(worker, files, **limits)
        else:
            slots, launcher = _slots(setup, used.device), used.settings.launcher
            executor = LocalExecutor(worker, files, slots=slots, launcher=launcher, **limits)
        yield stack.enter_context(contextlib.closing(executor))


@contextlib.contextmanager
def open_others(setup: RunSetup, workspace: Workspace) -> Iterator[dict[str, Executor]]:
    """Open the executors of a run's other devices; yields them by name."""
    with contextlib.ExitStack() as stack:
        yield {
            one.name: stack.enter_context(open_executor(setup, workspace, one))
            for one in setup.others
        }


def open_cluster(settings: Settings) -> RayCluster:
    """Connect to the Ray cluster that the settings name."""
    chosen = settings.executor
    return RayCluster(
        ClusterSettings(
            chosen.address,
            chosen.folder,
            chosen.resource,
            chosen.other_cpus,
            jobs=settings.search.jobs,
        )
    )


def worker_setup(setup: RunSetup, workspace: Workspace) -> tuple[WorkerSetup, LocalFiles]:
    """Return the set-up of a worker: files by hash and relative name, device, task."""
    originals = [Path(path).resolve() for path in setup.fetched.files]
    # the user's own files stay where they are and stand under these names
    named: dict[str, Path] = {}
    beside: list[Path] = []
    for number, file in enumerate(originals):
        folder = f"original-{number}" if number else "original"
        data = external_files(file)
        named |= {f"{folder}/{p.relative_to(file.parent).as_posix()}": p for p in (file, *data)}
        beside += data
    files = LocalFiles(workspace.folder.resolve(), named)
    judged, scored = workspace.judged, labelled_task(setup)
    samples = _relative(workspace.store.folder, workspace.folder)
    worker = WorkerSetup(
        original=files.put(originals[0]),
        beside=tuple(files.put(p) for p in beside),
        samples=samples,
        device=setup.device_json,
        output=judged,
        sent=(judged.position,) if judges_one_output(setup.task) else judged.numeric,
        task=portable_form(setup.task),
        max_opset=setup.settings.constraints.max_opset,
        labelled_task=None if scored is None else portable_form(scored),
        sample_files=files.put_folder(samples),
        components={
            name: files.put(path)
            for name, path in zip(setup.fetched.components, originals, strict=False)
        },
        wiring=None if setup.wiring is None else setup.wiring.to_json(),
    )
    return worker, files


def _relative(path: Path, root: Path) -> str:
    return path.resolve().relative_to(root.resolve()).as_posix()


def _slots(setup: RunSetup, device: Device) -> int:
    workers = setup.settings.search.jobs or os.cpu_count() or 1
    if isinstance(device, LimitedDevice):
        return min(workers, device.max_workers or workers)
    return workers
