"""The nodes of a cluster: actors are started on each, asked who they are, and taken or refused."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from seqto.devices.environment import environment
from seqto.execution.ray.cpu import cpu_problem, version_problem
from seqto.execution.ray.schedule import Schedule, WorkerSlot
from seqto.records import Json

RESTARTS = 5  # actors that a node may lose before no more are started there
LEAVE_S = 10.0  # for the actors to end their processes and remove their files
DEVICE_PREFIX = "seqto_device_"


@dataclass(slots=True, eq=False)
class _Node:
    """One node of the cluster, as Ray names it."""

    identity: str
    name: str
    cpus: int
    devices: int
    started: int = 0  # actors that were started and not lost
    devices_used: int = 0
    losses: int = 0


@dataclass(slots=True, eq=False)
class _Joined:
    actor: Any
    node: _Node
    hello: Json


class Nodes:
    """Starts and ends actors; the schedule gets a worker for each that was taken."""

    def __init__(
        self, options: Json, schedule: Schedule, *, changed: Callable[[], None] = lambda: None
    ) -> None:
        self._options, self._schedule, self._changed = options, schedule, changed
        self._nodes: dict[str, _Node] = {}
        self._joined: dict[str, _Joined] = {}  # by worker
        self._here = environment()
        self._count = 0
        self._starting: set[asyncio.Task[None]] = set()
        self.refused: dict[str, str] = {}  # node → why
        self.interval_s = float(options.get("interval_s", 2.0))

    # ------------------------------------------------------------------------------ the cluster

    def connect(self) -> None:
        """Join the cluster that the address names, or start one of this machine alone."""
        import ray

        address, folder = self._options["address"], self._options["temporary"]
        common = {"log_to_driver": False, "configure_logging": False, "namespace": "seqto"}
        if address is not None:
            ray.init(address=address, **common)
            return
        ray.init(
            address="local",
            num_cpus=self._options["cpus"],
            include_dashboard=False,
            _node_ip_address="127.0.0.1",
            _temp_dir=folder,
            object_store_memory=self._options["object_store_bytes"],
            **common,
        )

    def disconnect(self) -> None:
        import ray

        leaving = [joined.actor.leave.remote() for joined in self._joined.values()]
        with contextlib.suppress(Exception):  # nodes that are gone leave nothing that we can reach
            ray.wait(leaving, num_returns=len(leaving), timeout=LEAVE_S)
        for joined in self._joined.values():
            self._kill(joined.actor)
        with contextlib.suppress(Exception):
            ray.shutdown()
        if self._options["address"] is None:
            shutil.rmtree(self._options["temporary"], ignore_errors=True)

    async def look(self) -> None:
        """Start actors on nodes that have come, and where actors were lost."""
        for row in await asyncio.to_thread(_alive_nodes):
            if row["NodeID"] not in self._nodes:
                self._nodes[row["NodeID"]] = self._node(row)
        for node in self._nodes.values():
            while self._wants(node):
                self._start(node)

    def _node(self, row: Mapping[str, Any]) -> _Node:
        resources = row["Resources"]
        name = f"{row['NodeManagerHostname']} ({row['NodeID'][:8]})"
        devices = int(resources.get(self._resource, 0)) if self._resource else 0
        return _Node(row["NodeID"], name, int(resources.get("CPU", 0)), devices)

    @property
    def _resource(self) -> str | None:
        name = self._options["resource"]
        return f"{DEVICE_PREFIX}{name}" if name else None

    def _wants(self, node: _Node) -> bool:
        if node.name in self.refused or node.losses > RESTARTS:
            return False
        most = self._options["jobs"] or float("inf")
        return node.started < node.cpus and sum(n.started for n in self._nodes.values()) < most

    # ------------------------------------------------------------------------------- the actors

    @property
    def starting(self) -> bool:
        return bool(self._starting)

    def _start(self, node: _Node) -> None:
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        device = node.devices_used < node.devices
        resources = {str(self._resource): 1} if device else {}
        actor = (
            ray.remote(_worker_class(self._options["worker"]))
            .options(
                num_cpus=1,
                resources=resources,
                max_concurrency=3,  # a job, and requests to end it
                scheduling_strategy=NodeAffinitySchedulingStrategy(node.identity, soft=False),
            )
            .remote(self._options["token"])
        )
        node.started += 1
        node.devices_used += device
        self._count += 1
        task = asyncio.ensure_future(self._join(f"w{self._count}", node, actor, device=device))
        self._starting.add(task)
        task.add_done_callback(self._starting.discard)

    async def _join(self, name: str, node: _Node, actor: Any, *, device: bool) -> None:
        """Take the actor if its machine gives the figures that this one would give."""
        try:
            hello: Json = await actor.hello.remote()
        except Exception as error:
            node.devices_used -= device
            self._give_up(node, _creation_problem(error))
            return
        theirs = hello["environment"]
        problem, times = version_problem(self._here, theirs), True
        if problem is None and not device:
            problem = cpu_problem(self._here, theirs)
            if problem is not None and self._options["other_cpus"] == "loss":
                problem, times = None, False
        if problem is not None:
            self.refused[node.name] = problem
            self._kill(actor)
            self._changed()
            return
        self._joined[name] = _Joined(actor, node, hello)
        slot = WorkerSlot(name, hello["host"], node.name, has_device=device, times=times)
        self._schedule.workers[name] = slot
        self._changed()

    def _give_up(self, node: _Node, problem: str) -> None:
        node.started -= 1
        node.losses += 1
        if node.losses > RESTARTS or "cannot import" in problem:
            self.refused[node.name] = problem
            self._changed()

    def _kill(self, actor: Any) -> None:
        import ray

        with contextlib.suppress(Exception):
            ray.kill(actor)

    # ------------------------------------------------------------------------- of one worker

    def actor(self, worker: WorkerSlot) -> Any:
        return self._joined[worker.name].actor

    def store_of(self, worker: WorkerSlot) -> str:
        return str(self._joined[worker.name].hello["store"])

    def describe(self, worker: WorkerSlot) -> Json:
        """Name and environment of a worker's node, for the trials that it ran."""
        joined = self._joined.get(worker.name)
        if joined is None:
            return {"name": worker.node}
        return {"name": joined.node.name, **joined.hello["environment"]}

    def lost(self, worker: WorkerSlot) -> None:
        """Start another actor for one that is gone, while its node is there."""
        joined = self._joined.pop(worker.name, None)
        if joined is not None:
            self._kill(joined.actor)
            joined.node.started -= 1
            joined.node.devices_used -= worker.has_device
            joined.node.losses += 1
        self._changed()

    def refuse(self, worker: WorkerSlot, reason: str) -> None:
        joined = self._joined.pop(worker.name, None)
        if joined is not None:
            self._kill(joined.actor)
            self.refused[joined.node.name] = reason
        self._changed()

    async def forget(self, run: str) -> None:
        """Let all actors go of a run that has ended."""
        calls = [j.actor.forget.remote(run) for j in list(self._joined.values())]
        for call in calls:
            with contextlib.suppress(Exception):
                await call

    def refusal(self) -> str:
        """Say why no node may be used; empty while one may."""
        left = [n for n in self._nodes.values() if n.name not in self.refused and n.cpus]
        return "" if left or self._joined or not self.refused else self.why_not()

    def why_not(self, *, device: bool = False) -> str:
        """Say why nobody can run a job."""
        parts = [f"node {name} is refused: {why}" for name, why in self.refused.items()]
        if device and self._resource and not any(n.devices for n in self._nodes.values()):
            parts.insert(0, f"no node has the resource {self._resource!r}")
        said = "; ".join(parts[:4]) or "it has no node with a free CPU"
        hint = (
            '; set executor.other_cpus = "loss" to use other CPUs for losses'
            if "CPU" in said and self._options["other_cpus"] != "loss"
            else ""
        )
        return f"no worker may run the jobs: {said}{hint}"


def is_bug(error: Exception) -> bool:
    """Return whether an actor's method has raised, which ours never do; else the actor is gone."""
    from ray.exceptions import RayTaskError

    return isinstance(error, RayTaskError)


def _worker_class(name: str) -> Any:
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)


def _alive_nodes() -> list[Mapping[str, Any]]:
    import ray

    try:
        return [row for row in ray.nodes() if row["Alive"]]
    except Exception:  # the head does not answer: what is known goes on, Ray decides when to end
        return []


def _creation_problem(error: Exception) -> str:
    text = str(error)
    if "ModuleNotFoundError" in text or "ImportError" in text:
        lines = [x.strip() for x in text.splitlines() if "Error:" in x]
        return f"cannot import seqto there: {(lines or [text])[-1][:200]}"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return (lines or [type(error).__name__])[0][:200]
