"""Context of a worker between jobs: assemblers by variant, samples, device, references."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

from seqto.assembly import rounded_weights
from seqto.assembly.assembler import Assembled, Assembler, open_assembler
from seqto.assembly.plan import Plan
from seqto.calibration.feeds import ModelFeeds, model_feeds
from seqto.data.store import SampleStore
from seqto.devices.bundle import BundleDevice
from seqto.devices.device import CachingDevice, Device
from seqto.execution.files import COMPILED, FileRef, LocalFiles
from seqto.execution.jobs import WorkerSetup
from seqto.files import write_file
from seqto.model.files import LARGE_MODEL_BYTES, constant_bytes, give_back_memory
from seqto.model.wiring import Wiring
from seqto.plugins import device_from_json
from seqto.records import LABELLED, Json
from seqto.tasks.scoring import Reference
from seqto.tasks.seq2seq import sketch_probabilities
from seqto.tasks.task import Task, task_from_json
from seqto.transforms.variants import BASE, variant_of

LARGE_FILE = "large-model"  # begins the names of files of large candidates


class WorkerContext:
    """Made once from the set-up; the functions that run jobs read it."""

    def __init__(self, setup: WorkerSetup, files: LocalFiles) -> None:
        self.setup, self.files = setup, files
        self.inner: Device = _with_cache(setup.device, files)  # runs models; of a bundle, merged
        self.wiring = Wiring.from_json(setup.wiring) if setup.wiring else None
        self.device: Any = self.inner  # runs samples; of a bundle, whole generations
        if self.wiring is not None:
            reduce = sketch_probabilities(self.wiring.max_length)
            self.device = BundleDevice(self.inner, self.wiring, reduce)
        self.exact: Device = device_from_json({"kind": "ort", "optimize": False})
        self.task: Task | None = task_from_json(setup.task) if setup.task else None
        labelled = setup.labelled_task
        self.labelled_task: Task | None = task_from_json(labelled) if labelled else None
        self.store = SampleStore.open(files.named(setup.samples))
        self._assemblers: dict[str, Assembler] = {}
        self._references: dict[str, Reference] = {}

    def assembler(self, variant: str) -> Assembler:
        folder = self.variant_folder(variant)
        if variant not in self._assemblers:
            large = [v for v, other in self._assemblers.items() if is_large(other)]
            for other in large:  # each variant's float model: three would be three times its size
                del self._assemblers[other]
            if large:
                give_back_memory()
            self._assemblers[variant] = open_assembler(folder, max_opset=self.setup.max_opset)
        assembler = self._assemblers[variant]
        if not assembler.rounded:  # may have been made since
            assembler.rounded.update(rounded_weights.load(folder))
        return assembler

    @property
    def has_large_models(self) -> bool:
        return any(map(is_large, self._assemblers.values()))

    def assembler_of(self, plan: Plan) -> Assembler:
        return self.assembler(variant_of(plan.transforms))

    def assemble(self, plan: Plan) -> Assembled:
        return self.assembler_of(plan).assemble(plan)

    def variant_folder(self, variant: str) -> Path:
        return self.files.named(f"variants/{variant}")

    @property
    def original(self) -> Path | dict[str, Path]:
        """The float model as it was given: of a bundle, the files of its components."""
        files = {name: self.files.path(ref) for name, ref in self.setup.components.items()}
        return files or self.files.path(self.setup.original)

    @cached_property
    def feeds(self) -> ModelFeeds:
        """Return the feeds of the float model in layer analyses."""
        return model_feeds(self.store, self.assembler(BASE).prepared.proto, self.wiring)

    def model_of(self, plan: Plan | None) -> bytes | Path | dict[str, Path]:
        """Return the model to open: the original by its path, since it may have data beside it."""
        return self.original if plan is None else self.openable(self.assemble(plan))

    def openable(self, assembled: Assembled) -> bytes | Path:
        """Return the model to open; a large one as a file, of which nobody holds the bytes.

        A session of ONNX Runtime keeps the bytes that it was made from as long as it lives. Who
        opens the file removes it (`discard`).
        """
        if len(assembled.data) < LARGE_MODEL_BYTES or self.wiring is not None:
            return assembled.data
        path = self.files.work_file(f"{LARGE_FILE}-{assembled.sha256}")
        write_file(path, assembled.data)
        return path

    def discard(self, model: bytes | Path | dict[str, Path]) -> None:
        """Remove a file that `openable` has written, and no other."""
        if isinstance(model, Path) and model.name.startswith(LARGE_FILE):
            model.unlink(missing_ok=True)

    def reference(self, ref: FileRef) -> Reference:
        if ref.sha256 not in self._references:
            self._references[ref.sha256] = Reference.load(self.files.path(ref))
        return self._references[ref.sha256]

    def task_of(self, split: str) -> Task | None:
        """Return the task that a split is judged with; None: it stays in the main process."""
        return self.labelled_task if split == LABELLED and self.labelled_task else self.task

    def labels(self, split: str) -> Any:
        return self.store.labels(split)


def is_large(assembler: Assembler) -> bool:
    return constant_bytes(assembler.prepared.proto) >= LARGE_MODEL_BYTES


def _with_cache(settings: Json, files: LocalFiles) -> Device:
    """Return the device; the workers of a machine share the models that it compiles."""
    device: Device = device_from_json(settings)
    if not isinstance(device, CachingDevice):
        return device
    cached: Device = device_from_json({**settings, **device.with_cache(files.named(COMPILED))})
    return cached
