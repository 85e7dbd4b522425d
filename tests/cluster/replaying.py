"""Executors that record what clocks have measured, or repeat it."""

from __future__ import annotations

import json
from typing import Any

from seqto.execution import jobs
from seqto.execution.executor import Done, Handle

CLOCKED = (jobs.ChooseBatch, jobs.TimePlans, jobs.ProfilePlan, jobs.MeasureMemory)


def key_of(job: jobs.Job) -> str:
    data = jobs.job_to_json(job)
    if data.get("files"):
        data["files"] = [file["sha256"] for file in data["files"].values()]
    return json.dumps(data, sort_keys=True)


class Clocked:
    """Wraps an executor; `record` gets the outcomes of jobs that clocks decide, or gives them.

    A trial may be timed twice, by the same job: outcomes are given in the order they were taken in.
    """

    def __init__(self, inner: Any, record: dict[str, list[Any]], *, replay: bool) -> None:
        self._inner, self._record, self._replay = inner, record, replay
        self._handles: dict[Handle, str] = {}
        self._known: list[Done] = []
        self.replayed = 0

    @property
    def slots(self) -> int:
        return int(self._inner.slots)

    @property
    def files(self) -> Any:
        return self._inner.files

    def submit(self, job: jobs.Job, *, alone: bool = False) -> Handle:
        key = key_of(job) if isinstance(job, CLOCKED) else None
        if key is not None and self._replay:
            handle = Handle(-1 - self.replayed)
            self.replayed += 1
            self._known.append(Done(handle, self._record[key].pop(0)))
            return handle
        handle = self._inner.submit(job, alone=alone)
        if key is not None:
            self._handles[handle] = key
        return handle

    def wait(self, timeout_s: float | None = None) -> list[Done]:
        if self._known:
            known, self._known = self._known, []
            return known
        found: list[Done] = self._inner.wait(timeout_s)
        for done in found:
            if done.handle in self._handles:
                key = self._handles.pop(done.handle)
                self._record.setdefault(key, []).append(done.outcome)
        return found

    def stop(self, handle: Handle) -> None:
        self._inner.stop(handle)

    def cancel(self, handle: Handle) -> None:
        self._inner.cancel(handle)

    def close(self) -> None:
        self._inner.close()
