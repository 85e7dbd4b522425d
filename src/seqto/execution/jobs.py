"""Jobs for workers and their results: typed records, each ↔ JSON.

An executor knows jobs and files, never what a plan or a trial means.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from seqto.assembly.plan import Plan
from seqto.errors import PlanError
from seqto.execution import codec
from seqto.execution.files import FileRef
from seqto.model.outputs import Judged
from seqto.records import CALIBRATION, Json, Measurement, RivalPoint


@dataclass(frozen=True, slots=True)
class WorkerSetup:
    """Sent to a worker once. Names are relative to its root, which is the run folder here."""

    original: FileRef  # the float model as it was given
    beside: tuple[FileRef, ...]  # its external data
    samples: str  # folder of the sample store; `sample_files` has its files
    device: Json
    output: Judged
    sent: tuple[int, ...]  # positions of the outputs that the task gets
    task: Json | None = None  # None: the task stays in the main process, which gets raw outputs
    max_opset: int | None = None
    labelled_task: Json | None = None  # for the labelled split, where the thresholds differ
    components: Mapping[str, FileRef] = field(
        default_factory=dict
    )  # of a bundle, as they were given
    wiring: Json | None = None  # of a bundle
    sample_files: tuple[FileRef, ...] = ()


# ------------------------------------------------------------------------------------------- jobs


@dataclass(frozen=True, slots=True)
class Evaluate:
    """Run a plan's model over a split and compare its answers with the float model's."""

    plan: Plan
    split: str
    rows: int
    batch: int
    chunk: int  # rows after each of which the worker looks whether it may stop
    reference: FileRef | None  # the float model's answers; None: return raw outputs
    order: FileRef | None = None  # rows, in the order in which they are run
    rivals: tuple[RivalPoint, ...] = ()  # stop when beaten
    known: frozenset[str] = frozenset()  # contents that have been run: skip them
    intervals: bool = False  # of the drops of scores
    threads: int = 1
    examples: int = 0  # samples with the largest distance whose answers are wanted
    graph: bool = False  # tell the graph that the device makes of the model
    graph_rivals: Mapping[str, tuple[RivalPoint, ...]] = field(
        default_factory=dict
    )  # further rivals, by the graph that the device makes of the model
    least_rows: int = 0  # that are run before it may stop


@dataclass(frozen=True, slots=True)
class MakeReference:
    """Run the float model over some rows of a split; return its answers as a file."""

    plan: Plan | None  # None: the file as it was given
    split: str
    first: int
    stop: int
    batch: int
    chunk: int
    threads: int = 1


@dataclass(frozen=True, slots=True)
class TryPlan:
    """Run one batch of a plan's model, to learn whether the device can."""

    plan: Plan
    batch: int
    split: str = CALIBRATION
    threads: int = 1


@dataclass(frozen=True, slots=True)
class ChooseBatch:
    """Find the batch with the most samples a second on the float model."""

    split: str
    batches: tuple[int, ...]
    seconds: float  # for each batch
    threads: int = 1


@dataclass(frozen=True, slots=True)
class TimePlans:
    """Time plans and the float model by turns, in one process."""

    plans: tuple[Plan, ...]
    float_plan: Plan | None  # None: the file as it was given
    seconds: float
    threads: int = 0
    batch: int | None = None  # of throughput; None: not measured
    min_rounds: int = 10
    max_rounds: int = 400
    split: str = CALIBRATION


@dataclass(frozen=True, slots=True)
class SaveModel:
    """Write a plan's model to a file."""

    plan: Plan


@dataclass(frozen=True, slots=True)
class MeasureMemory:
    """Load and run a model in a process that does nothing else; needs a fresh worker."""

    files: Mapping[str, FileRef]  # of ModelSaved; none: the model as it was given
    threads: int = 0
    split: str = CALIBRATION


@dataclass(frozen=True, slots=True)
class ProfilePlan:
    """Measure kernel times by layer, on devices that can tell."""

    plan: Plan
    runs: int = 15


@dataclass(frozen=True, slots=True)
class RankLayers:
    """Measure the errors of each layer of a plan against float."""

    plan: Plan
    samples: int


@dataclass(frozen=True, slots=True)
class Diagnose:
    """Measure one part of what explains why a plan hurts."""

    plan: Plan
    part: str
    samples: int


@dataclass(frozen=True, slots=True)
class RoundWeights:
    """Round the weights of some layers of a variant for the output error."""

    variant: str
    layers: tuple[str, ...]
    kinds: tuple[str, ...]
    file: str  # the name that it will have in the variant's folder


@dataclass(frozen=True, slots=True)
class CheckSaturation:
    """Find out whether the device adds 8-bit products exactly."""


Job = (
    Evaluate
    | MakeReference
    | TryPlan
    | ChooseBatch
    | TimePlans
    | SaveModel
    | MeasureMemory
    | ProfilePlan
    | RankLayers
    | Diagnose
    | RoundWeights
    | CheckSaturation
)


# ---------------------------------------------------------------------------------------- results


@dataclass(frozen=True, slots=True)
class ModelMade:
    """An assembled model: its size, its hash, and its hash without the plan in its metadata."""

    size_bytes: int
    sha256: str
    content: str
    may_saturate: tuple[str, ...] = ()  # layers whose products may exceed 16 bits
    graph: str = ""  # hash of the graph that the device makes of it; empty: not told


@dataclass(frozen=True, slots=True)
class Evaluated:
    model: ModelMade
    measurement: Measurement
    seconds: Mapping[str, float] = field(default_factory=dict)  # assemble, load, run
    examples: tuple[Json, ...] = ()  # {row, distance, and what the task shows}


@dataclass(frozen=True, slots=True)
class RawOutputs:
    """The outputs of all rows, for a task that stays in the main process."""

    model: ModelMade
    file: FileRef
    seconds: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Skipped:
    """The model is one of the `known` ones."""

    model: ModelMade


@dataclass(frozen=True, slots=True)
class ReferenceMade:
    """Answers of the float model, or its raw outputs where the task stays in main."""

    first: int
    file: FileRef
    graph: str = ""  # hash of the float model's graph on the device; empty: not told


@dataclass(frozen=True, slots=True)
class PlanRan:
    """One batch has run."""


@dataclass(frozen=True, slots=True)
class BatchChosen:
    batch: int
    speed: Mapping[str, float]  # samples a second by batch


@dataclass(frozen=True, slots=True)
class Timed:
    times_ms: tuple[tuple[float, ...], ...]  # the float model first; one a round
    throughput: tuple[float, ...] | None = None
    # of sequences: tokens of the sample that is timed, of a long one, and the times of that
    lengths: tuple[int, ...] | None = None
    long_ms: tuple[tuple[float, ...], ...] | None = None
    figures: tuple[Mapping[str, float], ...] = ()  # what sessions measure besides, float first


@dataclass(frozen=True, slots=True)
class ModelSaved:
    files: Mapping[str, FileRef]  # by component; of an ordinary model one, without a name


@dataclass(frozen=True, slots=True)
class MemoryMeasured:
    peak_memory_bytes: int  # beyond the idle process
    load_ms: float


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of a profile, a layer analysis, a diagnosis or a check."""

    values: Json


@dataclass(frozen=True, slots=True)
class WeightsRounded:
    file: FileRef
    rows: tuple[Json, ...]  # of the index


Result = (
    Evaluated
    | RawOutputs
    | Skipped
    | ReferenceMade
    | PlanRan
    | BatchChosen
    | Timed
    | ModelSaved
    | MemoryMeasured
    | Figures
    | WeightsRounded
)


# ------------------------------------------------------------------------------------------- JSON

JOBS = {
    kind.__name__: kind
    for kind in (
        *(Evaluate, MakeReference, TryPlan, ChooseBatch, TimePlans, SaveModel, MeasureMemory),
        *(ProfilePlan, RankLayers, Diagnose, RoundWeights, CheckSaturation),
    )
}

RESULTS = {
    kind.__name__: kind
    for kind in (
        *(Evaluated, RawOutputs, Skipped, ReferenceMade, PlanRan, BatchChosen, Timed),
        *(ModelSaved, MemoryMeasured, Figures, WeightsRounded),
    )
}


def job_to_json(job: Job) -> Json:
    return codec.tagged(job)


def job_from_json(data: Json) -> Job:
    if data.get("kind") not in JOBS:
        raise PlanError(f"unknown job {data.get('kind')!r}")
    job: Job = codec.untagged(data, JOBS)
    return job


def result_to_json(result: Result) -> Json:
    return codec.tagged(result)


def result_from_json(data: Json) -> Result:
    result: Result = codec.untagged(data, RESULTS)
    return result
