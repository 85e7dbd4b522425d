"""The whole vocabulary on one page: frozen records and protocols, no logic beyond JSON.

Every record that is written to a journal has `to_json` and `from_json`; what they produce is
plain JSON, so that a job can travel to a worker on another machine.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from seqto.errors import PlanError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.generic]
    Feeds = Mapping[str, Array]

Json = dict[str, Any]

EVALUATION = "evaluation"  # what a search may look at
REPORT = "report"  # what only final figures are measured on
CALIBRATION = "calibration"  # ranges and layer analysis
FAST_SIZE = 1.05  # of the fully quantized model's bytes: what a fast model may take
TOLERANCE = 0.025  # loss that is put up with, where no setting says another


# --------------------------------------------------------------------------- the model's layers


@dataclass(frozen=True, slots=True)
class Layer:
    """Nodes that are decided together: a Conv with the Clip behind it, an Add, a pool."""

    name: str
    op_type: str
    nodes: tuple[str, ...]
    inputs: tuple[str, ...]  # tensors that come from other layers or from outside
    output: str  # the one tensor that others read
    parameters: int  # number of weights and biases
    weight: str | None = None  # initializer; None for weightless layers
    bias: str | None = None
    depthwise: bool = False

    def to_json(self) -> Json:
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}

    @classmethod
    def from_json(cls, data: Json) -> Layer:
        values = dict(data)
        for key in ("nodes", "inputs"):
            values[key] = tuple(values[key])
        return cls(**values)


# ------------------------------------------------------------------------------ schemes and plans


@dataclass(frozen=True, slots=True)
class Scheme:
    """How one layer is kept. The code (`str(scheme)`) is its short, stable, readable name.

    kind         fp32 | fp16 | static | dynamic | weight
    weight       s8 | s7 (int8 with one bit less range) | p8 (int8 of which no two neighbours
                 saturate a 16-bit sum) | u8 | s4; empty for float kinds and weightless layers
    activation   u8 | s8 | u16 | s16 (static only)
    granularity  channel | tensor | block32 … (block: weight-only s4)
    bias         s32 | float (static only)
    ranges       minmax | percentile | entropy | mse: how the layer's output range is chosen
    rounding     nearest | output (weights rounded so that the layer's output error is small)
    """

    kind: str = "fp32"
    weight: str = ""
    activation: str = ""
    granularity: str = ""
    bias: str = ""
    ranges: str = ""
    rounding: str = ""

    def __str__(self) -> str:
        parts = [self.kind, self.weight, self.activation, self.granularity]
        parts += [f"bias-{self.bias}"] if self.bias and self.bias != "s32" else []
        parts += [self.ranges] if self.ranges and self.ranges != "minmax" else []
        parts += [f"round-{self.rounding}"] if self.rounding and self.rounding != "nearest" else []
        return "-".join(p for p in parts if p)

    @property
    def is_float(self) -> bool:
        return self.kind in ("fp32", "fp16")

    @property
    def kernel(self) -> str:
        """The kernel family that it runs on: what is folded at load (fp16, weight-only) runs as
        float, every signed static weight as int8."""
        if self.kind in ("fp32", "fp16", "weight"):
            return "float"
        if self.kind == "dynamic":
            return "dynamic"
        signed = "u8" if self.weight == "u8" else "s8"
        granularity = "tensor" if self.granularity == "tensor" else "channel"
        return f"static-{signed}-{self.activation}-{granularity}"

    @classmethod
    def parse(cls, code: str) -> Scheme:
        """The scheme that a code names: the inverse of `str`."""
        words = code.split("-")
        kind, rest = words[0], words[1:]
        if kind not in KINDS:
            raise PlanError(f"unknown scheme {code!r}: it starts with none of {', '.join(KINDS)}")
        values: dict[str, str] = {}
        position = iter(range(len(rest)))
        for i in position:
            word = rest[i]
            if word in ("bias", "round") and i + 1 < len(rest):
                values["bias" if word == "bias" else "rounding"] = rest[i + 1]
                next(position)
            elif word in RANGES:
                values["ranges"] = word
            elif word in ("channel", "tensor") or word.startswith("block"):
                values["granularity"] = word
            elif word in WEIGHT_TYPES and "weight" not in values:
                values["weight"] = word
            elif word in ACTIVATION_TYPES:
                values["activation"] = word
            else:
                raise PlanError(f"unknown scheme {code!r}: {word!r} is no part of a scheme")
        if kind == "static" and "activation" not in values:
            # a weightless layer: the one type given is that of its activations
            values["activation"] = values.pop("weight", "u8")
        return cls(kind=kind, **values)


KINDS = ("fp32", "fp16", "static", "dynamic", "weight")
WEIGHT_TYPES = ("s8", "s7", "p8", "u8", "s4")
ACTIVATION_TYPES = ("u8", "s8", "u16", "s16")
RANGES = ("minmax", "percentile", "entropy", "mse")

FP32 = Scheme("fp32")
FP16 = Scheme("fp16")


@dataclass(frozen=True, slots=True)
class Plan:
    """Transforms of the float model, then one scheme a layer. Layers not named stay fp32."""

    schemes: tuple[tuple[str, str], ...] = ()  # (layer, scheme code), sorted, fp32 left out
    transforms: tuple[str, ...] = ()

    @classmethod
    def of(cls, schemes: Mapping[str, Scheme | str], transforms: Sequence[str] = ()) -> Plan:
        pairs = sorted((layer, str(s)) for layer, s in schemes.items() if str(s) != "fp32")
        return cls(tuple(pairs), tuple(transforms))

    def scheme_of(self, layer: str) -> Scheme:
        return self.as_dict().get(layer, FP32)

    def as_dict(self) -> dict[str, Scheme]:
        return {layer: Scheme.parse(code) for layer, code in self.schemes}

    def replace(self, changes: Mapping[str, Scheme | str]) -> Plan:
        merged: dict[str, Scheme | str] = dict(self.schemes)
        merged.update(changes)
        return Plan.of(merged, self.transforms)

    @property
    def key(self) -> str:
        """Content hash: equal plans have equal keys on every machine."""
        text = json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def to_json(self) -> Json:
        return {"schemes": dict(self.schemes), "transforms": list(self.transforms)}

    @classmethod
    def from_json(cls, data: Json) -> Plan:
        return cls.of(data["schemes"], data.get("transforms", ()))


# ------------------------------------------------------------------------------- what is measured


@dataclass(frozen=True, slots=True)
class Loss:
    """Share of samples whose answer differs from the float model's, with its 95 % interval."""

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
    peak_memory_bytes: int | None = None

    def to_json(self) -> Json:
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}

    @classmethod
    def from_json(cls, data: Json) -> Latency:
        return cls(**data)


@dataclass(frozen=True, slots=True)
class Measurement:
    """What one model did on one split of one device."""

    split: str
    device: str
    loss: Loss
    accuracy: float | None = None  # share of right answers where labels exist
    baseline_accuracy: float | None = None  # the float model's on the same samples
    top_k_loss: float | None = None  # float's top-1 missing from the candidate's top-K
    kendall_tau: float | None = None  # over the top-K, the published tool's figure
    damage: float | None = None  # squared error of the outputs over that of float's variance
    stopped_early: bool = False  # racing: clearly dominated, so not all samples were run

    def to_json(self) -> Json:
        data = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        data["loss"] = self.loss.to_json()
        return data

    @classmethod
    def from_json(cls, data: Json) -> Measurement:
        return cls(**{**data, "loss": Loss.from_json(data["loss"])})


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a trial has no figures: where it failed, and which ops and layers are to blame."""

    stage: str  # plan | assemble | import | compile | load | run | time | crash | timeout | memory
    message: str
    ops: tuple[str, ...] = ()
    layers: tuple[str, ...] = ()

    def to_json(self) -> Json:
        return {
            "stage": self.stage,
            "message": self.message,
            "ops": list(self.ops),
            "layers": list(self.layers),
        }

    @classmethod
    def from_json(cls, data: Json) -> Failure:
        return cls(data["stage"], data["message"], tuple(data["ops"]), tuple(data["layers"]))


@dataclass(frozen=True, slots=True)
class Trial:
    """A plan and what came of it. A failed trial is a recorded trial."""

    number: int
    plan: Plan
    size_bytes: int = 0
    sha256: str = ""
    measurements: Mapping[str, Measurement] = field(default_factory=dict)  # by split
    latency: Latency | None = None
    error: Failure | None = None
    seconds: float = 0.0
    same_as: int | None = None  # an earlier trial whose model is byte for byte the same
    note: str = ""  # what the strategy says it is: "step 3: without conv1"
    content: str = ""  # sha256 of the model without the plan in its metadata: equal models

    @property
    def loss(self) -> Loss | None:
        found = self.measurements.get(EVALUATION)
        return found.loss if found else None

    def to_json(self) -> Json:
        return {
            "number": self.number,
            "key": self.plan.key,
            "plan": self.plan.to_json(),
            "size_bytes": self.size_bytes,
            "sha256": self.sha256,
            "measurements": {k: m.to_json() for k, m in self.measurements.items()},
            "latency": self.latency.to_json() if self.latency else None,
            "error": self.error.to_json() if self.error else None,
            "seconds": self.seconds,
            "same_as": self.same_as,
            "note": self.note,
            "content": self.content,
        }

    @classmethod
    def from_json(cls, data: Json) -> Trial:
        return cls(
            number=data["number"],
            plan=Plan.from_json(data["plan"]),
            size_bytes=data["size_bytes"],
            sha256=data["sha256"],
            measurements={k: Measurement.from_json(m) for k, m in data["measurements"].items()},
            latency=Latency.from_json(data["latency"]) if data["latency"] else None,
            error=Failure.from_json(data["error"]) if data["error"] else None,
            seconds=data["seconds"],
            same_as=data["same_as"],
            note=data["note"],
            content=data.get("content", ""),
        )


# --------------------------------------------------------------------------- what a strategy sees


@dataclass(frozen=True, slots=True)
class LayerError:
    """One row of the layer analysis; the two errors are higher-is-worse."""

    layer: str
    qdq_err: float
    xmodel_err: float
    error: float  # weighted mean of the two, each min-max normalised
    qdq_sqnr_db: float
    xmodel_sqnr_db: float
    rank: int  # 0 = worst, excluded first
    damage: float | None = None  # at the model's output when only this layer is quantized

    def to_json(self) -> Json:
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}

    @classmethod
    def from_json(cls, data: Json) -> LayerError:
        return cls(**data)


@dataclass(frozen=True, slots=True)
class Space:
    """All a strategy may know: layers, what each may be, what it costs, how bad it looked."""

    layers: tuple[Layer, ...]
    menu: Mapping[str, tuple[str, ...]]  # layer → scheme codes, fp32 always among them
    default: Mapping[str, str]  # layer → the scheme that `mode` gives it
    bytes_of: Mapping[tuple[str, str], int]  # (layer, code) → bytes in the file
    ranking: tuple[LayerError, ...]  # worst first
    fixed: Mapping[str, str] = field(default_factory=dict)  # user's exclusions: not to be changed
    transforms: tuple[tuple[str, ...], ...] = ((),)  # the treatments that may be chosen from
    latency_of: Mapping[tuple[str, str], float] = field(default_factory=dict)  # profiled ms
    boundary_ms: Mapping[str, float] = field(default_factory=dict)  # one Q or DQ of a tensor
    float_bytes: int = 0  # of the original file

    @property
    def fully_quantized(self) -> Plan:
        """Every layer as the mode says, but for what the device refuses or the user excludes."""
        demanded = self.transforms[0] if self.transforms else ()
        return Plan.of({**self.default, **self.fixed}, demanded)


@dataclass(frozen=True, slots=True)
class Ask:
    """A batch a strategy wants run. A probe sees few samples and is no candidate."""

    plans: tuple[Plan, ...]
    notes: tuple[str, ...] = ()
    probe: bool = False
    latency: bool = False  # also time them, alone

    def __post_init__(self) -> None:
        if self.probe and self.latency:
            raise PlanError(
                "a probe cannot be timed: it sees few samples and is no trial; ask for its plans "
                "without probe to have their latency"
            )


Answers = Sequence[Trial]


@runtime_checkable
class Strategy(Protocol):
    """Which plan to try next. No file, no device, no clock: a generator."""

    def search(self, space: Space, *, seed: int) -> Generator[Ask, Answers, None]: ...


# ------------------------------------------------------------------------------------- the world


@runtime_checkable
class Session(Protocol):
    """A model that is loaded on a device."""

    def run(self, feeds: Feeds) -> list[Array]: ...

    def time_ms(self, feeds: Feeds) -> float:
        """Run once, return the milliseconds that it took on the device."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class Device(Protocol):
    """Where a model runs. A frozen dataclass: its fields are its settings."""

    @property
    def name(self) -> str: ...

    def open(self, model: bytes | Path, *, threads: int = 0) -> Session:
        """Load; raises DeviceError with the stage that failed. threads 0 = device's choice.

        A candidate comes as bytes, a file of the user's as its path: it may have data beside it.
        """
        ...

    def refuses(self, layer: Layer, scheme: Scheme) -> str | None:
        """Why this device cannot run a layer so, or None. Known limits only, others show."""
        ...

    def describe(self) -> Json:
        """What identifies it in a report: provider, CPU flags, threads, versions."""
        ...


@dataclass(frozen=True, slots=True)
class Sample:
    """One input as it comes from a data source, before normalisation."""

    inputs: Mapping[str, Array]  # by input name; "" for the model's only input
    label: int | None
    name: str


@runtime_checkable
class Data(Protocol):
    """Where samples come from. Reading may fail for one sample without ending the run."""

    def __len__(self) -> int: ...

    def read(self, index: int) -> Sample:
        """Raises DataError when this sample cannot be read."""
        ...

    def identity(self) -> Json:
        """What changes when the data change: names, sizes, digest."""
        ...


@runtime_checkable
class Task(Protocol):
    """What a right answer is. Both methods work on a batch, one entry a sample."""

    def agree(self, reference: list[Array], outputs: list[Array]) -> NDArray[np.bool_]:
        """Per sample: is the candidate's answer the float model's?"""
        ...

    def correct(self, outputs: list[Array], labels: Array) -> NDArray[np.bool_] | None:
        """Per sample: is the answer right? None where labels say nothing about such outputs."""
        ...


@runtime_checkable
class Source(Protocol):
    """Where models come from: yields (name, path, provenance)."""

    def fetch(self) -> Iterator[Fetched]: ...


@dataclass(frozen=True, slots=True)
class Fetched:
    """A model file on this disk, and what its origin says about it."""

    name: str
    path: str
    origin: Json  # {"kind": "hub", "repo": …, "revision": …} or {"kind": "file"}
    preprocess: Json | None = None  # from the repository's own config, where it has one


@dataclass(frozen=True, slots=True)
class Result:
    """What `tune` returns; the same facts as report.json."""

    folder: str
    report: Json
    trials: tuple[Trial, ...]
    front: tuple[int, ...]
    recommended: Mapping[str, int]
    layers: tuple[Layer, ...]
    met_max_loss: bool | None = None
    problems: tuple[str, ...] = ()  # what could not be written beside the reports
    not_written: tuple[str, ...] = ()  # one sentence a file that is not ours and was left
