"""One evaluation as the main process sees it: hears a worker, judges, says stop."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from seqto.assembly.plan import Plan
from seqto.execution.local.pool import Ticket
from seqto.record.trial import Trial
from seqto.records import Failure, Json, Measurement
from seqto.tasks import scoring


class Candidate:
    """A plan on its way to become a trial."""

    def __init__(
        self,
        number: int,
        plan: Plan,
        note: str,
        view: scoring.Judge,
        *,
        rivals: Sequence[tuple[int, int]] = (),
        by_content: Mapping[str, Trial] | None = None,
        leaders: dict[str, Candidate] | None = None,
    ) -> None:
        self.number, self.plan, self.note, self.view = number, plan, note, view
        self.rivals, self.by_content = rivals, by_content or {}
        self.leaders = {} if leaders is None else leaders
        self.size_bytes, self.sha256, self.content = 0, "", ""
        self.twin: Trial | None = None
        self.leader: Candidate | None = None  # runs the very same model right now
        self.concluded: Trial | None = None
        self.stop: Callable[[], None] = lambda: None

    def hear(self, message: Json, arrays: list) -> Json | None:  # type: ignore[type-arg]
        if "assembled" in message:
            self.size_bytes = message["assembled"]["size_bytes"]
            self.sha256 = message["assembled"]["sha256"]
            self.content = message["assembled"]["content"]
            self.twin = self.by_content.get(self.content)
            leader = self.leaders.setdefault(self.content, self)
            self.leader = None if leader is self else leader
            return {"go": self.twin is None and self.leader is None}
        if "start" in message:
            self.view.take(message["start"], arrays)
            if not self.view.stopped and not self.view.complete and self._hopeless():
                self.view.stopped = True
                self.stop()
        return None

    @property
    def can_conclude(self) -> bool:
        return self.leader is None or self.leader.concluded is not None

    def _hopeless(self) -> bool:
        """Whether a rival (bytes, changed answers) beats it for sure, whatever is still to come."""
        own = (self.size_bytes, self.view.changed)
        return any(
            size <= own[0] and changed <= own[1] and (size, changed) != own
            for size, changed in self.rivals
        )

    def trial(self, ticket: Ticket) -> Trial:
        failure = ticket.failure
        measurements: dict[str, Measurement] = {}
        if self.leader is not None:
            self.twin = self.leader.concluded
        if self.twin is not None:
            measurements, failure = dict(self.twin.measurements), self.twin.error
        elif failure is None and self.view.seen:
            found = self.view.measurement()
            measurements = {found.split: found}
        elif failure is None:
            failure = Failure("run", "the model gave no outputs")
        self.concluded = Trial(
            number=self.number,
            plan=self.plan,
            size_bytes=self.size_bytes,
            sha256=self.sha256,
            content=self.content,
            measurements=measurements,
            latency=self.twin.latency if self.twin else None,
            error=failure,
            seconds=round(ticket.seconds, 4),
            same_as=self.twin.number if self.twin else None,
            note=self.note,
        )
        return self.concluded
