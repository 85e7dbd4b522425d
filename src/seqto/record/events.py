"""The events of a run: one record for each kind of line in the journal.

`tag` is the word for the kind on disk. `from_json` is the only way from a line to an event; it
refuses what no version of seqto writes, and formats that are newer than this one.

FORMAT is the number of the format of run folders (`schema` of the header):
    1   version 0.1.0; the second `latency` of a trial is the mean of both timings
    2   every `latency` is one timing, `replay` takes the mean
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from seqto.record.check_types import WrongTypeError, read_fields
from seqto.record.trial import Trial
from seqto.records import Failure, Json, Latency, Layer, LayerError, Measurement

FORMAT = 2

# kinds of findings that the program itself looks for; a plug-in or the diagnosis may add others
GUESS = "guess"  # which task a model was taken for
TASK = "task"  # what is doubtful about the model's answers
FLOAT_MODEL = "float model"  # the prepared model is the baseline, since the original does not run
MENU = "menu"  # schemes that are not offered to the search
OBJECTIVES = "objectives"  # objectives that the strategy does not plan for
UNSUPPORTED = "unsupported"  # schemes that the device refuses
TREATMENT = "treatment"  # a transformed float model was made
DIAGNOSIS = "diagnosis"
WARM_START = "warm start"  # what of an earlier run applies
BATCH_DEPENDENCE = "batch dependence"  # answers that change with what else is in the batch

# steps beside the trials that may fail
BATCH, TIMING, REPORT_SPLIT, PROFILE = "batch", "timing", "report split", "profile"
LABELLED_SET = "labelled set"
FOOTPRINT = "footprint"  # memory and time to load

DONE, BUDGET, INTERRUPTED = "done", "budget", "interrupted"  # reasons of the end


LATER_FIELDS = ("at_s", "spent")


class _Event:
    """JSON of an event: its tag, then its fields."""

    __slots__ = ()
    tag: ClassVar[str]

    def to_json(self) -> Json:
        fields = dataclasses.fields(self)  # type: ignore[arg-type]
        values = {f.name: getattr(self, f.name) for f in fields}
        # fields that came later are left out where they say nothing: older versions read the line
        written = {k: v for k, v in values.items() if v is not None or k not in LATER_FIELDS}
        return {"event": self.tag, **{k: _json(v) for k, v in written.items()}}


@dataclass(frozen=True, slots=True)
class RunStarted(_Event):
    """Model, data, settings and machine of a run."""

    tag: ClassVar[str] = "header"
    schema: int  # FORMAT of the version that began the run
    model: Json
    data: Json
    settings: Mapping[str, Json]
    environment: Json
    device: Json
    layers: tuple[Layer, ...]
    seqto: str | None = None  # version
    prepared: Json | None = None
    layer_inputs: tuple[tuple[int, ...], ...] | None = (
        None  # positions of the layers that each reads
    )


@dataclass(frozen=True, slots=True)
class SettingsChanged(_Event):
    """Settings of a later call on the same run folder."""

    tag: ClassVar[str] = "settings"
    settings: Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class BatchChosen(_Event):
    """Rows in one inference while answers are measured."""

    tag: ClassVar[str] = "tuning"
    batch: int


@dataclass(frozen=True, slots=True)
class Int8ProductsTested(_Event):
    """Whether the device adds products of 8-bit integers exactly."""

    tag: ClassVar[str] = "int8_products"
    result: str
    operators: Mapping[str, str]
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class BaselineMeasured(_Event):
    """Figures of the float model."""

    tag: ClassVar[str] = "baseline"
    size_bytes: int
    accuracy: Mapping[str, float | None]  # by split
    latency: Latency | None = None
    output: Json | None = None  # the output that is judged
    scores: Mapping[str, Mapping[str, float]] | None = None  # by split, then by name
    graph: str | None = None  # hash of the graph that the device makes of it

    def to_json(self) -> Json:
        data = _Event.to_json(self)
        return {k: v for k, v in data.items() if v is not None or k not in ("scores", "graph")}


@dataclass(frozen=True, slots=True)
class LayersRanked(_Event):
    """Errors of the layers, worst first."""

    tag: ClassVar[str] = "analysis"
    samples: int
    seconds: float
    ranking: tuple[LayerError, ...]


@dataclass(frozen=True, slots=True)
class SchemesTried(_Event):
    """Schemes that the device refuses, out of the choices with this key."""

    tag: ClassVar[str] = "tried"
    choices_key: str = ""  # hash of the choices; empty in version 0.1.0
    default_key: str | None = None  # plan of the fully quantized model
    refused: tuple[tuple[str, str], ...] = ()  # (layer, scheme)


@dataclass(frozen=True, slots=True)
class PlanProfiled(_Event):
    """Milliseconds of each layer of a plan; on disk what is in `more` stands beside the others."""

    tag: ClassVar[str] = "profile"
    plan_key: str
    scheme: str  # what was profiled: float, a kernel, alternating, planned, or `trial 12`
    layers_ms: Mapping[str, float]
    integer_layers: tuple[str, ...] | None = None  # layers on integer kernels
    placement: Mapping[str, str] | None = None  # layer → provider
    kernels: Mapping[str, str] | None = None  # layer → op that ran for it
    conversion_ms: float | None = None
    more: Json = dataclasses.field(default_factory=dict)  # what else the device said

    def to_json(self) -> Json:
        data = _Event.to_json(self)
        more: Json = data.pop("more")
        return {k: v for k, v in data.items() if v is not None} | more

    @classmethod
    def of(cls, profile: Mapping[str, Any], **known: Any) -> PlanProfiled:
        """Return the event for a profile as a worker gives it."""
        data = {**profile, **known}
        named = {f.name for f in dataclasses.fields(cls)} - {"more"}
        more = {k: v for k, v in data.items() if k not in named and k != "event"}
        event: PlanProfiled = read_fields(
            cls, {**{k: v for k, v in data.items() if k in named}, "more": more}
        )
        return event


@dataclass(frozen=True, slots=True)
class NodeUsed(_Event):
    """A node of a cluster that has measured something: its versions and its CPU."""

    tag: ClassVar[str] = "node"
    name: str
    environment: Json


@dataclass(frozen=True, slots=True)
class ProbeFinished(_Event):
    """A trial of one layer on few samples."""

    tag: ClassVar[str] = "probe"
    trial: Trial


@dataclass(frozen=True, slots=True)
class TrialFinished(_Event):
    """A plan and what was measured of it, or why it failed."""

    tag: ClassVar[str] = "trial"
    trial: Trial
    at_s: float | None = None  # seconds since the run began, over all of its calls


@dataclass(frozen=True, slots=True)
class TrialTimed(_Event):
    """One timing of a trial."""

    tag: ClassVar[str] = "latency"
    number: int
    latency: Latency
    at_s: float | None = None  # as of a trial
    final: bool = False  # beside all that the choice is between: it counts instead of earlier ones


@dataclass(frozen=True, slots=True)
class FootprintMeasured(_Event):
    """Memory and time to load of a timed trial, in a process of its own."""

    tag: ClassVar[str] = "footprint"
    number: int
    peak_memory_bytes: int | None
    load_ms: float | None


@dataclass(frozen=True, slots=True)
class TrialMeasured(_Event):
    """A trial on one more split."""

    tag: ClassVar[str] = "measurement"
    number: int
    measurement: Measurement


@dataclass(frozen=True, slots=True)
class ExamplesFound(_Event):
    """Samples of a split whose answers a trial changes most, for people to look at."""

    tag: ClassVar[str] = "examples"
    number: int
    split: str
    examples: tuple[Json, ...]  # {name, row, distance, picture, and what the task shows}


@dataclass(frozen=True, slots=True)
class StepFailed(_Event):
    """A step beside the trials that failed and is not tried again."""

    tag: ClassVar[str] = "failure"
    step: str  # BATCH, TIMING, REPORT_SPLIT, LABELLED_SET, PROFILE or FOOTPRINT
    number: int | None  # of the trial
    plan_key: str | None
    failure: Failure


@dataclass(frozen=True, slots=True)
class Finding(_Event):
    """A sentence for the report, with the layers and figures behind it."""

    tag: ClassVar[str] = "finding"
    kind: str
    message: str
    layers: tuple[str, ...] = ()
    figures: Json = dataclasses.field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class KnowledgeTaken(_Event):
    """Sensitivities, times and plans of an earlier run that this one starts from."""

    tag: ClassVar[str] = "knowledge"
    source: str
    knowledge: Json


@dataclass(frozen=True, slots=True)
class RunEnded(_Event):
    """The end of a call; a later call may go on."""

    tag: ClassVar[str] = "end"
    reason: str  # DONE, BUDGET or INTERRUPTED
    seconds: float | None = None
    spent: Json | None = None  # how the wall time was spent: study/meter.py


Event = (
    RunStarted
    | SettingsChanged
    | BatchChosen
    | Int8ProductsTested
    | BaselineMeasured
    | LayersRanked
    | SchemesTried
    | PlanProfiled
    | NodeUsed
    | ProbeFinished
    | TrialFinished
    | TrialTimed
    | FootprintMeasured
    | TrialMeasured
    | ExamplesFound
    | StepFailed
    | Finding
    | KnowledgeTaken
    | RunEnded
)
KINDS: Mapping[str, type[Event]] = {kind.tag: kind for kind in Event.__args__}


def from_json(data: Mapping[str, Any]) -> Event:
    """Return the event of a journal's line; WrongTypeError says what is wrong with it."""
    tag = data.get("event")
    kind = KINDS.get(tag) if isinstance(tag, str) else None
    if kind is None:
        raise WrongTypeError(f"its event is {tag!r:.40}, which seqto does not know")
    if kind is RunStarted:
        _check_format(data)
    event: Event = PlanProfiled.of(data) if kind is PlanProfiled else read_fields(kind, data)
    problem = _problem(event)
    if problem:
        raise WrongTypeError(problem)
    return event


def _check_format(data: Mapping[str, Any]) -> None:
    schema = data.get("schema")
    if type(schema) is int and schema > FORMAT:
        version = data.get("seqto")
        writer = f"seqto {version}" if isinstance(version, str) else "a newer seqto"
        raise NewerFormatError(f"format {schema} of {writer:.40}")


class NewerFormatError(WrongTypeError):
    """The run folder was written by a newer version."""


def _problem(event: Event) -> str | None:  # noqa: PLR0911  (one answer for each kind)
    """Return what no version of seqto writes although every type is right."""
    match event:
        case TrialFinished(trial=Trial(number=number)) if number < 0:
            return f"trial.number is {number}, which is no count"
        case TrialFinished(trial=trial) | ProbeFinished(trial=trial):
            return _figures_problem(trial.latency, *trial.measurements.values())
        case TrialTimed(latency=latency) | BaselineMeasured(latency=latency):
            return _figures_problem(latency)
        case TrialMeasured(measurement=measurement):
            return _figures_problem(None, measurement)
        case BatchChosen(batch=batch) if batch < 1:
            return f"batch is {batch}"
        case RunStarted(model=model) if not isinstance(model.get("sha256"), str):
            return "model has no sha256"
        case RunStarted(model=model) if not _is_object(model.get("origin")):
            return f"model.origin is {model['origin']!r:.40}, not an object"
        case RunStarted(data=data) if not _is_object(data.get("origin")):
            return f"data.origin is {data['origin']!r:.40}, not an object"
        case RunStarted(data=data) if not _is_names(data.get("unreadable", [])):
            return f"data.unreadable is {data['unreadable']!r:.40}, not a list of names"
        case RunStarted(settings=settings) | SettingsChanged(settings=settings):
            return _settings_problem(settings)
    return None


def _figures_problem(latency: Latency | None, *measurements: Measurement) -> str | None:
    if latency is not None and latency.runs < 1:
        return f"latency.runs is {latency.runs}"
    for loss in (m.loss for m in measurements):
        if not 0 <= loss.value <= 1 or loss.samples < 0:
            return f"the loss is {loss.value} of {loss.samples} samples"
    return None


def _is_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _is_object(value: Any) -> bool:
    return value is None or isinstance(value, dict)


def _settings_problem(settings: Mapping[str, Json]) -> str | None:
    kind = settings.get("task", {}).get("kind")
    if not isinstance(kind, str | None):
        return f"settings.task.kind is {kind!r:.40}, not text"
    search = settings.get("search", {})
    objectives, want = search.get("objectives", []), search.get("want")
    if not _is_names(objectives):
        return f"settings.search.objectives is {objectives!r:.40}, not a list of names"
    if not isinstance(want, str | None):
        return f"settings.search.want is {want!r:.40}, not text"
    for name in _NUMBERS:
        value = search.get(name, 0.0)
        absent = value is None and name != "tolerance"
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not absent and not (number and abs(value) < _LARGEST):
            return f"settings.search.{name} is {value!r:.40}, not a number"
    return None


_LARGEST = 2**63
_NUMBERS = (  # settings of the search that reports read
    *("tolerance", "max_loss", "max_score_drop", "max_size", "min_speedup", "max_latency"),
    "max_peak_memory",
)


def _json(value: Any) -> Any:
    if hasattr(value, "to_json"):
        return value.to_json()
    if isinstance(value, Mapping):
        return {k: _json(v) for k, v in value.items()}
    if isinstance(value, tuple | list):
        return [_json(v) for v in value]
    return value
