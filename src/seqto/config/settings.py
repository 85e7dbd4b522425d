"""The settings as records: one per section of the config file.

docs/config.md is generated from them, so every field has its explanation beside it. Further keys
of [task], [data], [search] and [device] are fields of the chosen plug-in; study/build_plugins.py
gives them to it, or refuses them.
"""

from __future__ import annotations

import dataclasses
import typing
from dataclasses import dataclass, field
from typing import Any

from seqto.records import WORST, Json
from seqto.selection.objectives import OBJECTIVES
from seqto.selection.recommend import TOLERANCE

AUTO = "auto"  # task.kind: by the model's inputs and outputs


def _help(
    text: str,
    default: Any = None,
    *,
    resume: bool = False,
    plugin: bool = False,
    path: bool = False,
    unit: str = "",
) -> Any:
    """Declare a setting with its one-line explanation.

    resume   it may change between two calls on one run folder: no figure that was measured
             depends on it. The fields of a plug-in have the same flag in their metadata.
    plugin   it is a field of some plug-ins only, and refused where the chosen one lacks it
    path     a relative path in a config file is relative to that file
    unit     a number that may be written with its unit: "1%", "4MB", "8ms" (text.quantity)
    """
    flags = {"resume": resume, "plugin": plugin, "path": path, "unit": unit}
    return field(default=default, metadata={"help": text, **flags})


@dataclass(frozen=True, slots=True)
class ModelSettings:
    path: str | None = _help(
        "file, folder, pattern, or hub:OWNER/NAME[/file][@revision]", resume=True, path=True
    )
    bundle: dict[str, Any] = field(
        default_factory=dict,
        metadata={
            "help": "several files tuned as one plan: encoder and decoder, or decoder",
            "resume": True,
        },
    )
    offline: bool = _help("take hub models from the local cache only", False, resume=True)
    cache: str | None = _help(
        "folder for hub downloads; the hub's own cache when not given", resume=True
    )
    endpoint: str | None = _help("address of another hub", resume=True)


@dataclass(frozen=True, slots=True)
class TaskSettings:
    kind: str = _help(
        "classification, multi-label, detection, segmentation, dense, dense-outputs, or a "
        "plug-in's name; "
        "auto: taken from the model's inputs and outputs, and said",
        AUTO,
    )
    label_offset: int = _help("label = argmax(scores) - label_offset", 0, plugin=True)
    top_k: int = _help("number of first answers that top-K figures look at", 5, plugin=True)
    output: str | None = _help("name of the judged output; the first suitable one if absent")
    settings: dict[str, Any] = field(default_factory=dict, metadata={"help": "the task's own keys"})


@dataclass(frozen=True, slots=True)
class DataSettings:
    images: str | None = _help("a folder of pictures", resume=True, path=True)
    labels: str | None = _help(
        'a CSV of file and class, or "folders", or "none"', resume=True, plugin=True, path=True
    )
    arrays: str | None = _help(
        ".npz or .npy: images or one array per input, labels", resume=True, path=True
    )
    texts: str | None = _help(
        "texts: .tsv, .csv, .jsonl, .parquet, or a file of lines", resume=True, path=True
    )
    pairs: str | None = _help(
        "pairs of texts: left and right, or source and references", resume=True, path=True
    )
    columns: tuple[str, ...] | dict[str, Any] | None = field(
        default=None,
        metadata={
            "help": "texts, pairs: what the columns hold, in their order, _ for none; or a table "
            "from that to the column's name",
            "resume": True,
            "plugin": True,
        },
    )
    tokenizer: dict[str, Any] = field(
        default_factory=dict,
        metadata={
            "help": "texts, pairs: file or vocab, merges; max_length, pad, lowercase, special, "
            "inputs",
            "resume": True,
            "plugin": True,
        },
    )
    random: int | None = _help("data-free: number of random inputs; figures say little then")
    calibration: int = _help("samples for ranges and layer analysis", 100)
    evaluation: int = _help("samples that the search measures loss on", 300)
    report: int | None = _help(
        "samples for the final figures only; 0: none; all that is left if absent"
    )
    seed: int = _help("seed of the splits", 0)
    chunk: int = _help(
        "samples run between two checks of the time; 0: chosen from the model", 0, resume=True
    )
    batch: int | None = _help(
        "samples run together, as they will be served; absent: 1 for texts, else the fastest"
    )
    max_bad_share: float = _help("largest share of unreadable samples that is tolerated", 0.05)
    preprocess: dict[str, Any] = field(
        default_factory=dict,
        metadata={
            "help": "resize, crop, letterbox, fill, stretch, channels, mean, std, layout, "
            "interpolation, or preset"
        },
    )
    labelled: dict[str, Any] = field(
        default_factory=dict,
        metadata={
            "help": "detection, segmentation: images and annotations, or images and masks; "
            "multi-label, dense: arrays"
        },
    )
    constants: dict[str, Any] = field(
        default_factory=dict,
        metadata={"help": "model input = number or lists: the same for every sample"},
    )
    states: dict[str, Any] = field(
        default_factory=dict,
        metadata={
            "help": "model input = output of the float model that feeds it for the next sample"
        },
    )
    settings: dict[str, Any] = field(
        default_factory=dict, metadata={"help": "the data source's own keys"}
    )


@dataclass(frozen=True, slots=True)
class QuantizeSettings:
    mode: str = _help(
        "static, dynamic or weight: the scheme that layers get by default; if absent, models with "
        "attention get dynamic",
        "static",
    )
    weight: str = _help(
        "weight type: s8, s7 (reduced range), p8 (cannot saturate), u8, s6, s5, s4, b4", "s8"
    )
    activation: str = _help("activation type: s8, u8, s16, u16", "s8")
    per_channel: bool = _help("one scale per channel instead of one per tensor", False)
    bias: str = _help("s32 or float", "s32")
    ranges: str = _help("minmax, percentile, entropy or mse", "minmax")
    exclude: tuple[str, ...] = _help("nodes or layers that stay float in every trial", ())
    skip: tuple[str, ...] = _help("rules: depthwise, first, last", ())
    transforms: tuple[str, ...] = _help("equalize, smooth-0.5, denormals, bias-correction", ())


@dataclass(frozen=True, slots=True)
class AnalysisSettings:
    samples: int = _help("calibration samples for the layer analysis", 16)
    qdq_weight: float = _help("weight of qdq_err in the ranking", 0.5)
    xmodel_weight: float = _help("weight of xmodel_err in the ranking", 0.5)
    ranking: str = _help("errors (the papers') or damage (at the model's output)", "errors")
    diagnose: bool = _help("name the causes of the loss", True)
    examples: bool = _help(
        "show up to twelve samples on the page whose answers changed most", True, resume=True
    )


@dataclass(frozen=True, slots=True)
class SearchSettings:
    strategy: str = _help("stepwise, frontier or evolve", "frontier")
    objectives: tuple[str, ...] = _help(
        f"figures to make small: of {', '.join(OBJECTIVES)}",
        ("loss", "size", "latency"),
        resume=True,
    )
    order: str = _help("stepwise: worst, reverse or random", "worst", plugin=True)
    stop_loss: float = _help("stepwise: end at the first step that loses no more", 0.0, plugin=True)
    menu: tuple[str, ...] = _help("frontier, evolve: only these schemes", ())
    treatments: tuple[str, ...] = _help(
        "frontier, evolve: transforms to choose from: equalize, smooth-ALPHA, smooth-against=int8",
        ("smooth-0.5", "smooth-insert=true-against=int8"),
    )
    tolerance: float = _help(
        "largest loss of the picks `small`, `fast` and `balanced`", TOLERANCE, resume=True
    )
    probes: int = _help(
        "samples from which one layer's damage is estimated; if absent, detection takes 8 and "
        "segmentation 4",
        16,
    )
    seed: int = _help("seed of the strategy", 0)
    racing: bool = _help(
        "stop clearly dominated candidates early; only where objectives are loss and size", True
    )
    jobs: int = _help("number of workers; 0: one per core", 0, resume=True)
    max_trials: int | None = _help("number of trials after which the search ends", resume=True)
    max_minutes: float | None = _help(
        "minutes after which the search ends and the report is written", resume=True
    )
    want: str | None = _help(
        "what to make small within the bounds: smallest, fastest or lowest-loss", resume=True
    )
    max_loss: float | None = _help(
        'bound: largest share of changed answers, e.g. "1%"', resume=True, unit="share"
    )
    max_score_drop: float | None = _help(
        'bound: largest drop of the task\'s score, in points of it, e.g. "1%"',
        resume=True,
        unit="share",
    )
    max_size: float | None = _help('bound: largest file, e.g. "4MB"', resume=True, unit="bytes")
    min_speedup: float | None = _help(
        "bound: least speed-up over float, e.g. 1.3", resume=True, unit="factor"
    )
    max_latency: float | None = _help(
        'bound: longest median latency, e.g. "8ms"', resume=True, unit="milliseconds"
    )
    latency_of: str = _help(
        "several devices: the latency that counts, of the slowest (worst) or of a named device",
        WORST,
    )
    max_peak_memory: float | None = _help(
        'bound: highest peak memory, e.g. "200MB"', resume=True, unit="bytes"
    )
    warm_start: str | None = _help(
        "frontier, evolve: a run folder of the same graph, or its sensitivities, to start from",
        path=True,
    )
    settings: dict[str, Any] = field(
        default_factory=dict, metadata={"help": "the strategy's own keys"}
    )


@dataclass(frozen=True, slots=True)
class DeviceSettings:
    kind: str = _help("ort, tvm, or a plug-in's name", "ort")
    settings: dict[str, Any] = field(
        default_factory=dict, metadata={"help": "the device's own keys"}
    )
    threads: int = _help("threads while latency is measured; 0: the device's choice", 0)
    timeout_s: float = _help("seconds after which a silent worker is ended", 300.0, resume=True)
    memory_mb: int | None = _help("memory above which a worker is ended", resume=True)
    latency_s: float = _help("seconds spent on timing one candidate", 0.6)
    batch: int | None = _help("also measure throughput at this batch")
    name: str | None = _help(
        "what reports call this device; needed where two would be called alike"
    )
    launcher: tuple[str, ...] = _help(
        "a command that workers are started through: taskset, numactl, qemu-user, a script", ()
    )


@dataclass(frozen=True, slots=True)
class ExecutorSettings:
    kind: str = _help(
        "local (this machine's processes) or ray (a Ray cluster)", "local", resume=True
    )
    address: str | None = _help(
        'ray: "auto", "host:port" or "ray://host:port"; one of this machine is started if absent',
        resume=True,
    )
    folder: str | None = _help(
        "ray: a folder that all nodes share, for files; the object store if absent",
        resume=True,
        path=True,
    )
    resource: str | None = _help(
        "ray: NAME of the resource seqto_device_NAME of the nodes that have the device",
        resume=True,
    )
    other_cpus: str = _help(
        "ray: refuse nodes with another type of CPU, or use them for loss only",
        "refuse",
        resume=True,
    )
    studies: int = _help("ray: models that are tuned at the same time", 4, resume=True)


@dataclass(frozen=True, slots=True)
class ConstraintSettings:
    integer_only: bool = _help("no float layer with weights, bias int32", False)
    per_channel: bool = _help("the target has per-channel scales", True)
    bits: tuple[int, ...] = _help("bit widths that the target has", (4, 8, 16, 32))
    ops: tuple[str, ...] = _help("op types that may be quantized; empty = all", ())
    max_opset: int | None = _help("highest opset of the result")
    contrib_ops: bool = _help("operators that only ONNX Runtime has may be written", False)
    batch_invariant: bool = _help("no answer may depend on what else is in the batch", False)
    portable: bool = _help(
        "no answer may depend on the CPU: no products that saturate without VNNI",
        False,
        resume=True,
    )


@dataclass(frozen=True, slots=True)
class Settings:
    model: ModelSettings = field(default_factory=ModelSettings)
    task: TaskSettings = field(default_factory=TaskSettings)
    data: DataSettings = field(default_factory=DataSettings)
    quantize: QuantizeSettings = field(default_factory=QuantizeSettings)
    analysis: AnalysisSettings = field(default_factory=AnalysisSettings)
    search: SearchSettings = field(default_factory=SearchSettings)
    device: DeviceSettings = field(default_factory=DeviceSettings)
    executor: ExecutorSettings = field(default_factory=ExecutorSettings)
    constraints: ConstraintSettings = field(default_factory=ConstraintSettings)
    devices: tuple[DeviceSettings, ...] = ()  # of several [[device]] tables, those after the first
    given: frozenset[str] = field(default=frozenset(), compare=False)  # dotted keys that were set

    def to_json(self) -> Json:
        tables: Json = {name: dataclasses.asdict(getattr(self, name)) for name in SECTIONS}
        if self.devices:
            numbered = enumerate(self.devices, start=2)
            tables["devices"] = {str(n): dataclasses.asdict(device) for n, device in numbered}
        return tables


SECTIONS = tuple(f.name for f in dataclasses.fields(Settings) if f.name not in ("given", "devices"))


def flagged(flag: str) -> frozenset[str]:
    """Return the dotted keys of the settings that have a flag in their metadata."""
    hints = typing.get_type_hints(Settings)
    return frozenset(
        f"{section}.{f.name}"
        for section in SECTIONS
        for f in dataclasses.fields(hints[section])
        if f.metadata.get(flag)
    )


def plugin_keys(section: str) -> tuple[str, ...]:
    """Return the keys of a section that only some plug-ins take."""
    keys = sorted(k for k in flagged("plugin") if k.startswith(f"{section}."))
    return tuple(key.partition(".")[2] for key in keys)
