"""Subject of a diagnosis: model, plan and samples that a worker has, and answers it judges."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqto.assembly.assembler import Assembler
from seqto.assembly.plan import Plan
from seqto.calibration.collect import calibrate
from seqto.calibration.statistics import Statistics
from seqto.devices.device import Device
from seqto.diagnosis import isolated_layers
from seqto.diagnosis.isolated_layers import Values
from seqto.model import outputs as model_outputs
from seqto.model.batch import Batch, rows_fed, rows_that_count
from seqto.model.layers import OUTPUT_OP
from seqto.records import Layer
from seqto.schemes.scheme import Scheme
from seqto.tasks import scoring
from seqto.tasks.task import Answers, SmoothTask, Task


@dataclass(frozen=True, slots=True)
class Judged:
    """A task's answers and signal of one run, one row a sample."""

    signal: NDArray[Any]
    answers: Answers | None  # None: the task stays in the main process


@dataclass(frozen=True, slots=True)
class Subject:
    """The plan that is diagnosed, samples, and where it runs.

    `outputs` are those that the task gets; without a task the first of them is judged as it is.
    """

    assembler: Assembler
    plan: Plan
    samples: Sequence[Values]
    device: Device
    exact: Device
    alive: Callable[[], None] = lambda: None
    outputs: tuple[str, ...] = ()  # empty: the model's first
    task: Task | None = None  # None: it stays in the main process

    @property
    def judged(self) -> tuple[str, ...]:
        return self.outputs or self.assembler.prepared.outputs[:1]

    def judge(
        self, outputs: Sequence[Any], feeds: Values, *, reference: Judged | None = None
    ) -> Judged:
        """Return what the task makes of the outputs of one run; `reference`: what of float's.

        Damage is the task's own, so that a diagnosis and the trials of a run speak of one: what a
        detector's suppression throws away does not count.
        """
        by_sample = self._by_sample(outputs, feeds)
        if self.task is None:
            return Judged(by_sample[0], None)
        sequences = feeds if isinstance(feeds, Batch) and feeds.lengths is not None else None
        answers = None if reference is None else reference.answers
        decoded = scoring.decode(self.task, by_sample, batch=sequences, reference=answers)
        return Judged(decoded.signal, decoded.answers.without_details())

    def gaps(self, want: Judged, judged: Judged) -> NDArray[np.float64]:
        """Return what damage adds up, per sample."""
        if isinstance(self.task, SmoothTask) and want.answers and judged.answers:
            return np.asarray(self.task.gaps(want.answers, judged.answers), np.float64)
        return model_outputs.squared_gaps(want.signal, judged.signal)

    def spread(self, wants: Sequence[Judged]) -> float:
        """Return the gap that counts as a damage of 1."""
        answers = [want.answers for want in wants if want.answers is not None]
        if isinstance(self.task, SmoothTask) and answers:
            return self.task.spread(Answers.joined(answers))
        return model_outputs.spread([want.signal for want in wants])

    def _by_sample(self, outputs: Sequence[Any], feeds: Values) -> list[NDArray[Any]]:
        """Return the judged outputs, one row a sample, without what only fills a fixed batch."""
        rows, fed = rows_that_count(feeds), rows_fed(feeds)
        return [
            model_outputs.by_sample(value, name=name, fed=fed, rows=rows)
            for name, value in zip(self.judged, outputs, strict=True)
        ]

    def layers(self) -> list[tuple[Layer, Scheme]]:
        schemes = self.plan.as_dict()
        layers = isolated_layers.quantized_layers(self.assembler.prepared, self.plan)
        return [(x, schemes[x.name]) for x in layers]

    def restricted(self, names: Sequence[str]) -> Plan:
        """Return the plan of these layers, and of outputs, which say what is handed on."""
        outputs = [x.name for x in self.assembler.prepared.layers if x.op_type == OUTPUT_OP]
        schemes = {n: s for n, s in self.plan.schemes if n in names or n in outputs}
        return self.plan.with_schemes(schemes)


def with_ranges(subject: Subject) -> Subject:
    """Add percentile and MSE ranges beside those that were calibrated, from few samples."""
    before = subject.assembler
    known = before.statistics
    missing = [m for m in ("percentile", "mse") if any(m not in by for by in known.ranges.values())]
    if not missing:
        return subject
    calibration = calibrate(before.prepared, lambda: subject.samples, methods=["minmax", *missing])
    subject.alive()
    fresh = calibration.statistics.ranges
    merged = {n: {**fresh.get(n, {}), **by} for n, by in known.ranges.items()}
    assembler = Assembler(
        before.prepared,
        Statistics(merged, known.means, known.row_reads),
        rounded=before.rounded,
        max_opset=before.max_opset,
    )
    return dataclasses.replace(subject, assembler=assembler)
