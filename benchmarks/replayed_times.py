"""An executor whose clock is a table: two runs can be compared that ask for plans in another order.

A first run measures the profiles; further runs repeat them. A plan's time is the sum of its layers'
times in these profiles, off by up to ERROR either way: a share that is drawn from the plan's key,
so that a plan takes the same time whenever it is asked for.
"""

from __future__ import annotations

import hashlib
from typing import Any

from seqto.assembly.plan import Plan
from seqto.execution import jobs
from seqto.execution.executor import Done, Handle
from seqto.schemes.types import FLOAT_KERNEL

ERROR = 0.05
ROUNDS = 10


class ReplayedTimes:
    """Wraps an executor; `profiles` by plan key are filled if `record`, else only read."""

    def __init__(self, inner: Any, profiles: dict[str, tuple[Plan, Any]], *, record: bool) -> None:
        self._inner, self._profiles, self._record = inner, profiles, record
        self._asked: dict[Handle, Plan] = {}
        self._answers: list[Done] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def submit(self, job: jobs.Job, *, alone: bool = False) -> Handle:
        if isinstance(job, jobs.TimePlans):
            plans = [job.float_plan or Plan(), *job.plans]
            times = tuple((self.time_ms(plan),) * ROUNDS for plan in plans)
            return self._answer(jobs.Timed(times))
        if isinstance(job, jobs.ProfilePlan) and job.plan.key in self._profiles:
            return self._answer(self._profiles[job.plan.key][1])
        handle: Handle = self._inner.submit(job, alone=alone)
        if isinstance(job, jobs.ProfilePlan):
            self._asked[handle] = job.plan
        return handle

    def _answer(self, outcome: Any) -> Handle:
        handle = Handle(-1 - len(self._answers))
        self._answers.append(Done(handle, outcome))
        return handle

    def wait(self, timeout_s: float | None = None) -> list[Done]:
        if self._answers:
            answers, self._answers = self._answers, []
            return answers
        ended: list[Done] = self._inner.wait(timeout_s)
        for done in ended:
            plan = self._asked.pop(done.handle, None)
            if plan is not None and self._record and isinstance(done.outcome, jobs.Figures):
                self._profiles[plan.key] = (plan, done.outcome)
        return ended

    def time_ms(self, plan: Plan) -> float:
        """Return the sum of the layers' times, each in the profile of its kernel."""
        by_kernel: dict[tuple[str, Any], float] = {}
        for profiled, figures in self._profiles.values():
            for layer, ms in figures.values["layers_ms"].items():
                kernel = _kernel(profiled, layer)
                by_kernel.setdefault((layer, kernel), ms)
        layers = {layer for layer, _ in by_kernel}
        total = 0.0
        for layer in layers:
            own = by_kernel.get((layer, _kernel(plan, layer)))
            total += by_kernel.get((layer, FLOAT_KERNEL), 0.0) if own is None else own
        if not plan.schemes:
            return max(total, 1e-3)
        draw = int(hashlib.sha256(plan.key.encode()).hexdigest()[:8], 16) / 0xFFFFFFFF
        return max(total, 1e-3) * (1 + ERROR * (2 * draw - 1))


def _kernel(plan: Plan, layer: str) -> Any:
    scheme = plan.as_dict().get(layer)
    return FLOAT_KERNEL if scheme is None else scheme.kernel
