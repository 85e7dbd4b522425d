"""Records that several rooms share: layers, samples, measurements, failures, names of the splits.

Every record that is written to a journal has `to_json` and `from_json`; both work on plain JSON.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

if TYPE_CHECKING:
    Array = NDArray[np.generic]
    Feeds = Mapping[str, Array]
    Label = int | Array


Json = dict[str, Any]


EVALUATION = "evaluation"  # what a search may look at
REPORT = "report"  # what only final figures are measured on
LABELLED = "labelled"  # samples of [data.labelled], for the scores at the end
CALIBRATION = "calibration"  # ranges and layer analysis


# --------------------------------------------------------------------------- the model's layers


@dataclass(frozen=True, slots=True)
class Layer:
    """Nodes that are decided together: a Conv with the Clip behind it, an Add, a pool.

    A constant that a node reads other than as a factor of a product (the table of an embedding,
    the weights of a GRU, rotary tables) is a layer too: only how it is stored can be chosen.
    """

    name: str
    op_type: str
    nodes: tuple[str, ...]
    inputs: tuple[str, ...]  # tensors that come from other layers or from outside
    output: str  # the one tensor that others read
    parameters: int  # number of weights and biases
    weight: str | None = None  # initializer; None for weightless layers
    bias: str | None = None
    depthwise: bool = False
    weight_shape: tuple[int, ...] = ()
    transposed: bool = False  # a Gemm whose weights are [outputs, inputs]
    storage: bool = False  # the weights are a table or a constant: they can only be stored
    table: str | None = None  # initializer: the weights transposed, whose rows a Gather reads
    table_reader: str | None = None  # that Gather: a tied embedding, stored once for both

    def to_json(self) -> Json:
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}

    @classmethod
    def from_json(cls, data: Json) -> Layer:
        values = dict(data)
        for key in ("nodes", "inputs", "weight_shape"):
            values[key] = tuple(values.get(key, ()))
        return cls(**values)


# ------------------------------------------------------------------------------- what is measured


@dataclass(frozen=True, slots=True)
class Loss:
    """Mean distance of the answers from the float model's, with its 95 % interval."""

    value: float
    low: float
    high: float
    samples: int
    agreement: str = ""  # hex of the packed per-sample bits, 1 = same answer, in split order

    def to_json(self) -> Json:
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}

    @classmethod
    def from_json(cls, data: Json) -> Loss:
        return cls(**data)


@dataclass(frozen=True, slots=True)
class ExpectedLoss:
    """The loss to be expected on other samples, by how narrowly the answers stay, and its error."""

    value: float
    error: float  # standard error

    def to_json(self) -> Json:
        return {"value": self.value, "error": self.error}


WORST = "worst"  # of several devices: the one whose figure is the worst


@dataclass(frozen=True, slots=True)
class Latency:
    """One inference, measured alone on the device, interleaved with the float model."""

    median: float  # ms
    p90: float  # ms
    ratio: float  # median of (candidate / float) over the interleaved rounds; < 1 is faster
    ratio_low: float
    ratio_high: float
    runs: int
    throughput: float | None = None  # samples a second at `batch`
    batch: int | None = None
    peak_memory_bytes: int | None = None  # while it runs alone, beyond the idle process
    load_ms: float | None = None
    float_median: float | None = None  # ms of the float model in the same rounds
    extra: Mapping[str, float] = field(default_factory=dict)  # what a device measures besides
    node: str = ""  # of the cluster that timed it; empty: the machine of the run
    devices: Mapping[str, Latency] = field(default_factory=dict)  # of a fleet: by device
    judged_by: str = ""  # of a fleet: the device whose figures these are; WORST: of the slowest

    @property
    def float_ms(self) -> float:
        """The float model's milliseconds in the same rounds; of old journals by the ratio."""
        if self.float_median is not None:
            return self.float_median
        return self.median / self.ratio if self.ratio else self.median

    def to_json(self) -> Json:
        data = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        more = {"extra": dict(data.pop("extra")), "node": data.pop("node")}
        more["devices"] = {n: one.to_json() for n, one in data.pop("devices").items()}
        more["judged_by"] = data.pop("judged_by")
        return {**data, **{k: v for k, v in more.items() if v}}

    @classmethod
    def from_json(cls, data: Json) -> Latency:
        devices = {n: cls.from_json(one) for n, one in data.get("devices", {}).items()}
        return cls(**{**data, "devices": devices})


@dataclass(frozen=True, slots=True)
class ScoreKind:
    """The reading of a score: which direction is better, and whether it is a share."""

    lower_is_better: bool = False
    share: bool = True  # from 0 to 1, written in percent; else a number in a unit of its own

    def drop(self, before: float, after: float) -> float:
        """Return how much worse `after` is, in the score's own unit; negative if better."""
        return after - before if self.lower_is_better else before - after

    def to_json(self) -> Json:
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}


@dataclass(frozen=True, slots=True)
class Measurement:
    """Figures of one model on one split and one device."""

    split: str
    device: str
    loss: Loss
    scores: Mapping[str, float] = field(default_factory=dict)  # the task's, where labels exist
    baseline_scores: Mapping[str, float] = field(default_factory=dict)  # float's, same samples
    score_kinds: Mapping[str, ScoreKind] = field(default_factory=dict)  # not named: the default
    # 95 % interval of how much worse than float's the score is, on the same samples; at the end
    score_drops: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    figures: Mapping[str, float] = field(default_factory=dict)  # of the task: top_k_loss, …
    damage: float | None = None  # squared error of the outputs over that of float's variance
    expected_loss: ExpectedLoss | None = None  # where the task tells how narrowly answers stay
    stopped_early: bool = False  # racing: clearly dominated, so not all samples were run
    devices: Mapping[str, Measurement] = field(default_factory=dict)  # of a fleet: by device

    def to_json(self) -> Json:
        data = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        data["loss"] = self.loss.to_json()
        data["score_drops"] = {name: list(ends) for name, ends in self.score_drops.items()}
        kinds = {name: kind.to_json() for name, kind in data.pop("score_kinds").items()}
        data |= {"score_kinds": kinds} if kinds else {}
        devices = {name: one.to_json() for name, one in data.pop("devices").items()}
        data |= {"devices": devices} if devices else {}
        expected = data.pop("expected_loss")
        data |= {} if expected is None else {"expected_loss": expected.to_json()}
        return {k: dict(v) if isinstance(v, Mapping) else v for k, v in data.items()}

    def kind_of_score(self, name: str) -> ScoreKind:
        return self.score_kinds.get(name, ScoreKind())

    @classmethod
    def from_json(cls, data: Json) -> Measurement:
        """Read a measurement; also in the form of journals of schema 1, with fields of its own."""
        values = {k: v for k, v in data.items() if k not in _EARLIER_FIGURES}
        for name, (target, key) in _EARLIER_FIGURES.items():
            if data.get(name) is not None:
                values[target] = {**values.get(target, {}), key: data[name]}
        for name in (
            "scores",
            "baseline_scores",
        ):  # a score that is not a number is written as null
            if isinstance(values.get(name), dict):
                values[name] = {k: v for k, v in values[name].items() if v is not None}
        drops = {k: (low, high) for k, (low, high) in data.get("score_drops", {}).items()}
        kinds = {k: ScoreKind(**kind) for k, kind in data.get("score_kinds", {}).items()}
        values["devices"] = {n: cls.from_json(one) for n, one in data.get("devices", {}).items()}
        if data.get("expected_loss") is not None:
            values["expected_loss"] = ExpectedLoss(**data["expected_loss"])
        loss = Loss.from_json(data["loss"])
        return cls(**{**values, "loss": loss, "score_drops": drops, "score_kinds": kinds})


# fields of a measurement in journals of schema 1 → where they are now
_EARLIER_FIGURES = {
    "accuracy": ("scores", "accuracy"),
    "baseline_accuracy": ("baseline_scores", "accuracy"),
    "top_k_loss": ("figures", "top_k_loss"),
    "kendall_tau": ("figures", "kendall_tau"),
}


LOST = "lost"  # stage of a failure that is nobody's fault: the device or the worker is gone


@dataclass(frozen=True, slots=True)
class RivalPoint:
    """What a job knows of a finished trial: it stops when it is beaten."""

    size_bytes: int
    total: float  # summed distance over all samples
    portable: bool = False  # the same answers on every CPU

    def may_stop(self, *, portable: bool) -> bool:
        """Return whether a trial may be stopped by this one."""
        return self.portable or not portable


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a trial has no figures: where it failed, and which ops and layers are to blame."""

    # plan | assemble | import | compile | load | run | time | crash | timeout | memory | LOST
    stage: str
    message: str
    ops: tuple[str, ...] = ()
    layers: tuple[str, ...] = ()
    device: str = ""  # of several devices, the one that it failed on

    def to_json(self) -> Json:
        return {
            "stage": self.stage,
            "message": self.message,
            "ops": list(self.ops),
            "layers": list(self.layers),
            **({"device": self.device} if self.device else {}),
        }

    @classmethod
    def from_json(cls, data: Json) -> Failure:
        ops, layers = tuple(data["ops"]), tuple(data["layers"])
        return cls(data["stage"], data["message"], ops, layers, data.get("device", ""))


# --------------------------------------------------------------------------- what a strategy sees


@dataclass(frozen=True, slots=True)
class LayerError:
    """One row of the layer analysis; the two errors are higher-is-worse."""

    layer: str
    qdq_err: float | None  # None: not finite
    xmodel_err: float | None
    error: float | None  # weighted mean of the two, each min-max normalised
    qdq_sqnr_db: float | None
    xmodel_sqnr_db: float | None
    rank: int  # 0 = worst, excluded first
    damage: float | None = None  # at the model's output when only this layer is quantized

    def to_json(self) -> Json:
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}

    @classmethod
    def from_json(cls, data: Json) -> LayerError:
        return cls(**data)


@dataclass(frozen=True, slots=True)
class Sample:
    """One input as it comes from a data source, before normalisation."""

    inputs: Mapping[str, Array]  # by input name; "" for the model's only input
    label: Label | None  # a class number, or an array as the task understands it
    name: str
    others: tuple[Mapping[str, Array], ...] = ()  # run by themselves: the second text of a pair
    texts: tuple[str, ...] = ()  # what was read, for people
    dropped: int = 0  # tokens that did not fit


@dataclass(frozen=True, slots=True)
class InputSpec:
    """One input of the model; the first axis is the batch, None is a size that is left open.

    A `whole` input has no axis of samples (a state, a single number): the model takes its shape
    without the first axis, and samples run one by one.
    """

    name: str
    shape: tuple[int | None, ...]
    dtype: str = "float32"
    whole: bool = False

    def to_json(self) -> Json:
        fields: Json = {"name": self.name, "shape": list(self.shape), "dtype": self.dtype}
        return {**fields, "whole": True} if self.whole else fields

    @classmethod
    def from_json(cls, data: Json) -> InputSpec:
        return cls(data["name"], tuple(data["shape"]), data["dtype"], data.get("whole", False))
