"""Actors that differ from the real one in one way."""

from __future__ import annotations

from typing import Any

from seqto.execution.ray.worker import RemoteWorker


class SleepingWorker(RemoteWorker):
    """Its jobs sleep (see sleeping.py)."""

    target = "sleeping:serve"


class Owner:
    def make(self) -> Any:
        import ray

        return [ray.put(b"x" * 1_000_000)]


class LosingWorker(RemoteWorker):
    """The first sending of every content is an object whose owner has died: Ray has lost it."""

    def __init__(self, token: str) -> None:
        super().__init__(token)
        self._lost: set[str] = set()

    def run(self, order: Any, contents: Any) -> Any:
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        # here: another node may be one that an earlier test has ended
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        owner = ray.remote(Owner).options(num_cpus=0, scheduling_strategy=here).remote()
        dead = ray.get(owner.make.remote())
        ray.kill(owner)
        fresh = [sha256 for sha256 in contents if sha256 not in self._lost]
        self._lost.update(fresh)
        return super().run(order, {**contents, **dict.fromkeys(fresh, dead)})


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
