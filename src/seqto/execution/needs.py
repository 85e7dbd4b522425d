"""Needs of a job: files, variants of the float model, the device."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from seqto.assembly.plan import Plan
from seqto.execution.files import FileRef, LocalFiles
from seqto.execution.jobs import (
    Diagnose,
    Job,
    RankLayers,
    RoundWeights,
    SaveModel,
    WorkerSetup,
)
from seqto.transforms.variants import BASE, variant_of

HOST_JOBS = (RankLayers, Diagnose, RoundWeights, SaveModel)  # they open no session on the device


def needs_device(job: Job) -> bool:
    """Return whether a job runs models on the device; the others need a processor only."""
    return not isinstance(job, HOST_JOBS)


def refs_in(record: Any) -> Iterator[FileRef]:
    """Yield the files that a job, a result or a set-up names."""
    for value in _values(record):
        if isinstance(value, FileRef):
            yield value


def variants_in(job: Job) -> tuple[str, ...]:
    """Return the names of the float models that a job's plans are built on."""
    if isinstance(job, RoundWeights):
        return (job.variant,)
    plans = [value for value in _values(job) if isinstance(value, Plan)]
    names = [variant_of(plan.transforms) for plan in plans]
    return tuple(dict.fromkeys(names or [BASE]))


def setup_files(setup: WorkerSetup) -> tuple[FileRef, ...]:
    return tuple(refs_in(setup))


def _values(record: Any) -> Iterator[Any]:
    """Yield the values of a record's fields; containers are opened, other records are not."""
    for field in dataclasses.fields(record):
        value = getattr(record, field.name)
        if isinstance(value, Mapping):
            yield from value.values()
        else:
            yield from value if isinstance(value, tuple) else (value,)


@dataclasses.dataclass(slots=True)
class NamedFiles:
    """The files of jobs, by content; a file is read again only after it has changed."""

    files: LocalFiles
    _known: dict[str, tuple[tuple[int, int, int], FileRef]] = dataclasses.field(
        default_factory=dict
    )

    def of_job(self, job: Job) -> tuple[FileRef, ...]:
        """Return all files that a worker needs for a job, beside those of its set-up."""
        refs = list(refs_in(job))
        for variant in variants_in(job):
            refs += self._of_folder(f"variants/{variant}")
        return tuple(refs)

    def _of_folder(self, name: str) -> list[FileRef]:
        folder = self.files.named(name)
        names = [path.name for path in self.files.complete_files(folder)]
        return [self._ref(f"{name}/{file}") for file in names]

    def _ref(self, name: str) -> FileRef:
        path = self.files.named(name)
        stat = path.stat()
        stamp = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
        known = self._known.get(name)
        if known is None or known[0] != stamp:
            known = (stamp, self.files.put(path))
            self._known[name] = known
        return known[1]
