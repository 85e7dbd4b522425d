"""Actors that differ from the real one in one way."""

from __future__ import annotations

from typing import Any

from seqto.execution.ray.worker import RemoteWorker


class SleepingWorker(RemoteWorker):
    """Its jobs sleep (see sleeping.py)."""

    target = "sleeping:serve"


class LosingWorker(RemoteWorker):
    """Frees every object when it is first sent, so that it cannot be read."""

    def __init__(self, token: str) -> None:
        super().__init__(token)
        self._lost: set[str] = set()

    def run(self, order: Any, contents: Any) -> Any:
        from ray._private.internal_api import free

        for sha256, parts in contents.items():
            if sha256 not in self._lost:
                self._lost.add(sha256)
                free(list(parts), local_only=False)
        return super().run(order, contents)


class OtherCpuWorker(RemoteWorker):
    """Says that its CPU has no VNNI."""

    def hello(self) -> Any:
        found = super().hello()
        flags = [f for f in found["environment"]["cpu_flags"] if "vnni" not in f]
        environment = {**found["environment"], "cpu_flags": [*flags, "avx2"]}
        environment["cpu"] = "another"
        return {**found, "environment": environment}


class OtherVersionWorker(RemoteWorker):
    """Says that it has another onnxruntime."""

    def hello(self) -> Any:
        found = super().hello()
        return {**found, "environment": {**found["environment"], "onnxruntime": "1.2.3"}}
