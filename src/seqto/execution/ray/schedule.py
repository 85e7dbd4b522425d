"""Schedule of jobs on the workers of a cluster: pure, without Ray and without clocks.

- Runs share the workers: the run with the fewest running jobs is served first.
- A job that must be alone reserves a host, waits until nothing runs there, and has it for itself.
  Several nodes may be one host. All such jobs of a run go to one host while it is there, so that
  their milliseconds compare.
- Where the device is a resource of some nodes, jobs for the device run on their workers only.
- A worker with another type of CPU is given no job that measures time.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

MOST_LOSSES = 2  # workers that a job may lose before it counts as failed


@dataclass(slots=True, eq=False)
class Task:
    """One job that waits or runs."""

    number: int
    run: str
    device: bool = True  # it runs models on the device
    alone: bool = False
    losses: int = 0  # workers that have gone while they ran it
    avoid: frozenset[str] = frozenset()  # workers that it is not given to again


@dataclass(slots=True, eq=False)
class WorkerSlot:
    """One worker that may run one job at a time."""

    name: str
    host: str
    node: str = ""
    has_device: bool = False
    times: bool = True  # False: another type of CPU, for losses only
    task: Task | None = None
    last_run: str = ""


@dataclass(slots=True)
class Schedule:
    """The jobs and workers of one command."""

    needs_resource: bool = False  # device jobs run on workers that have the device
    driver_host: str = ""  # timed only where there is no other host: the driver works there too
    workers: dict[str, WorkerSlot] = field(default_factory=dict)
    queues: dict[str, deque[Task]] = field(default_factory=dict)  # by run
    timing_host: dict[str, str] = field(default_factory=dict)  # run → host
    _reserved: dict[str, Task] = field(default_factory=dict)  # host → job that waits for it
    _turn: int = 0
    _served: dict[str, int] = field(default_factory=dict)  # run → when it was last given a worker

    # ------------------------------------------------------------------------------- changes

    def put(self, task: Task, *, first: bool = False) -> None:
        waiting = self.queues.setdefault(task.run, deque())
        (waiting.appendleft if first else waiting.append)(task)

    def cancel(self, number: int) -> Task | WorkerSlot | None:
        """Take a waiting job out and return it; for a running one return its worker."""
        for waiting in self.queues.values():
            for task in waiting:
                if task.number == number:
                    waiting.remove(task)
                    self._release(task)
                    return task
        return next((w for w in self.workers.values() if w.task and w.task.number == number), None)

    def finish(self, worker: WorkerSlot) -> None:
        worker.task = None

    def remove(self, name: str) -> Task | None:
        """Remove a worker that is gone; return the job that it ran."""
        worker = self.workers.pop(name)
        hosts = {w.host for w in self.workers.values()}
        for host in [h for h in self._reserved if h not in hosts]:
            del self._reserved[host]
        self.timing_host = {r: h for r, h in self.timing_host.items() if h in hosts}
        return worker.task

    def close(self, run: str) -> None:
        """Forget the jobs of a run that wait."""
        for task in self.queues.pop(run, ()):
            self._release(task)
        self.timing_host.pop(run, None)

    # ------------------------------------------------------------------------------ decisions

    def next(self) -> tuple[Task, WorkerSlot] | None:
        """Return a job and the worker that it starts on now, if any can start."""
        for run in self._fair_order():
            for task in self.queues[run]:
                worker = self._worker_for(task)
                if worker is None:
                    continue
                self.queues[run].remove(task)
                self._release(task)
                worker.task, worker.last_run = task, run
                self._turn += 1
                self._served[run] = self._turn
                return task, worker
        return None

    def stranded(self) -> list[Task]:
        """Return waiting jobs that no worker of now may run."""
        return [
            task
            for waiting in self.queues.values()
            for task in waiting
            if not any(self._may_run(task, w) for w in self.workers.values())
        ]

    def _fair_order(self) -> list[str]:
        waiting = [run for run, tasks in self.queues.items() if tasks]
        return sorted(waiting, key=lambda run: (self._running(run), self._served.get(run, 0)))

    def _running(self, run: str) -> int:
        return sum(w.task is not None and w.task.run == run for w in self.workers.values())

    def _may_run(self, task: Task, worker: WorkerSlot) -> bool:
        if worker.name in task.avoid:
            return False
        if task.device and self.needs_resource and not worker.has_device:
            return False
        return worker.times or not task.alone

    def _worker_for(self, task: Task) -> WorkerSlot | None:
        usable = [w for w in self.workers.values() if w.task is None and self._may_run(task, w)]
        if task.alone:
            host = self._host_for(task)
            if host is None or self._is_busy(host):
                return None
            usable = [w for w in usable if w.host == host]
        else:
            usable = [w for w in usable if not self._is_closed(w.host)]
        # the worker of the same run needs no set-up; jobs that need no device leave devices free
        usable.sort(key=lambda w: (w.has_device and not task.device, w.last_run != task.run))
        return usable[0] if usable else None

    def _host_for(self, task: Task) -> str | None:
        """Return the host that a job has reserved; it is reserved when first asked for."""
        able = [w for w in self.workers.values() if self._may_run(task, w)]
        for host, holder in list(self._reserved.items()):
            if holder is task and any(w.host == host for w in able):
                return host
        self._release(task)
        hosts = list(dict.fromkeys(w.host for w in able if w.host not in self._reserved))
        pinned = self.timing_host.get(task.run)
        if pinned is not None and any(w.host == pinned for w in able):
            hosts = [pinned] if pinned in hosts else []
        if not hosts:
            return None
        chosen = min(hosts, key=lambda h: (h == self.driver_host, self._is_busy(h)))
        self._reserved[chosen] = task
        self.timing_host.setdefault(task.run, chosen)
        return chosen

    def _is_busy(self, host: str) -> bool:
        return any(w.task is not None and w.host == host for w in self.workers.values())

    def _is_closed(self, host: str) -> bool:
        """Return whether a host is reserved or runs a job that must be alone."""
        return host in self._reserved or any(
            w.task is not None and w.task.alone and w.host == host for w in self.workers.values()
        )

    def _release(self, task: Task) -> None:
        for host in [h for h, holder in self._reserved.items() if holder is task]:
            del self._reserved[host]
