"""TOML and command-line overrides → settings. An unknown key is an error that names the nearest.

The sections are the records below; docs/config.md is generated from them, so every field has
its explanation beside it. Further keys of [task], [data], [search] and [device] are fields of the
chosen plug-in; study/setup.py gives them to it, or refuses them.
"""

from __future__ import annotations

import codecs
import contextlib
import dataclasses
import math
import tomllib
import types
import typing
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seqto.errors import ConfigError, nearest
from seqto.files import open_regular, read_path, shown
from seqto.records import Json
from seqto.schemes.scheme import Scheme
from seqto.schemes.types import ACTIVATION_TYPES, RANGES, WEIGHT_TYPES
from seqto.selection.goal import WANTS, Goal
from seqto.selection.objectives import OBJECTIVES
from seqto.selection.recommend import TOLERANCE
from seqto.text import quantity, shorten

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
        "classification, multi-label, detection, segmentation, dense, or a plug-in's name; "
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
        "weight type: s8, s7 (reduced range), p8 (cannot saturate), u8, s4, b4", "s8"
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
    max_peak_memory: float | None = _help(
        'bound: highest peak memory, e.g. "200MB"', resume=True, unit="bytes"
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
    given: frozenset[str] = field(default=frozenset(), compare=False)  # dotted keys that were set

    def to_json(self) -> Json:
        return {name: dataclasses.asdict(getattr(self, name)) for name in SECTIONS}


SECTIONS = tuple(f.name for f in dataclasses.fields(Settings) if f.name != "given")


def _flagged(flag: str) -> frozenset[str]:
    """Dotted keys of the settings that have a flag in their metadata."""
    hints = typing.get_type_hints(Settings)
    return frozenset(
        f"{section}.{f.name}"
        for section in SECTIONS
        for f in dataclasses.fields(hints[section])
        if f.metadata.get(flag)
    )


def resume_keys(section: str = "", plugin: Any = None) -> frozenset[str]:
    """Settings that may change when a run is resumed; with a plug-in, its own as they are written.

    Objectives and tolerance are among them: they decide what is tried next and what is
    recommended, and the report follows the last call.
    """
    if plugin is None:
        return _flagged("resume")
    if not dataclasses.is_dataclass(plugin):
        return frozenset()
    fields = [f for f in dataclasses.fields(plugin) if f.metadata.get("resume")]
    names = [f.metadata.get("key", f.name) for f in fields]
    return frozenset(f"{section}.settings.{name}" for name in names)


def plugin_keys(section: str) -> tuple[str, ...]:
    """Keys of a section that only some plug-ins take."""
    keys = sorted(k for k in _flagged("plugin") if k.startswith(f"{section}."))
    return tuple(key.partition(".")[2] for key in keys)


LABELLED_PATHS = ("images", "annotations", "masks", "arrays")  # keys of [data.labelled]
PATHS_IN_DATA = {"labelled": LABELLED_PATHS, "tokenizer": ("file", "vocab", "merges")}
NO_PATHS = ("folders", "none")  # values of data.labels that name no file


# what a setting's type does not say; plug-in names are looked up where they are needed
CHOICES: Mapping[str, Sequence[str]] = {
    "quantize.mode": ("static", "dynamic", "weight"),
    "quantize.weight": WEIGHT_TYPES,
    "quantize.activation": ACTIVATION_TYPES,
    "quantize.bias": ("s32", "float"),
    "quantize.ranges": RANGES,
    "quantize.skip": ("depthwise", "first", "last"),
    "analysis.ranking": ("errors", "damage"),
    "search.order": ("worst", "reverse", "random"),
    "search.objectives": tuple(OBJECTIVES),
    "executor.kind": ("local", "ray"),
    "executor.other_cpus": ("refuse", "loss"),
    "search.want": tuple(WANTS),
}


AT_LEAST_ONE = (
    ("data", ("random", "calibration", "evaluation", "batch")),
    ("analysis", ("samples",)),
    ("search", ("probes", "max_trials")),
    ("device", ("memory_mb", "batch")),
    ("executor", ("studies",)),
    ("constraints", ("max_opset",)),
    ("task", ("top_k",)),
)


NOT_NEGATIVE = (
    ("data", ("report", "chunk", "seed")),
    ("analysis", ("qdq_weight", "xmodel_weight")),
    ("search", ("jobs", "max_minutes", "seed", "max_size", "min_speedup", "max_latency")),
    ("search", ("max_peak_memory",)),
    ("device", ("threads", "timeout_s", "latency_s")),
)


BOUNDS: Mapping[str, tuple[float, float]] = {
    **{f"{section}.{key}": (1, math.inf) for section, keys in AT_LEAST_ONE for key in keys},
    **{f"{section}.{key}": (0, math.inf) for section, keys in NOT_NEGATIVE for key in keys},
    "device.threads": (0, 4096),  # more only waits to be started
    "search.jobs": (0, 4096),
    "data.random": (1, 1_000_000_000),
    **dict.fromkeys(("data.max_bad_share", "search.max_loss", "search.tolerance"), (0, 1)),
    "search.max_score_drop": (0, 1),
}


def read_toml(path: str | Path) -> Json:
    """Read a config file as nested tables; relative paths are made absolute."""
    path = read_path(path, "config file")
    try:
        with open_regular(path) as stream:
            text = stream.read().removeprefix(codecs.BOM_UTF8).decode()
        tables = tomllib.loads(text)
    except FileNotFoundError as error:
        raise ConfigError(f"config file {shown(path)} does not exist") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not valid TOML: it is not UTF-8 text ({error})") from error
    except (ValueError, RecursionError) as error:  # tomllib's own, too many digits, too deep
        raise ConfigError(f"{path}: not valid TOML: {_toml_problem(error)}") from error
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    folder = path.resolve().parent
    for dotted in _flagged("path"):
        section, key = dotted.split(".")
        value = tables.get(section, {}).get(key) if isinstance(tables.get(section), dict) else None
        if isinstance(value, str) and not value.startswith("hub:") and value not in NO_PATHS:
            tables[section][key] = _absolute(value, folder)
    bundle = tables["model"].get("bundle") if isinstance(tables.get("model"), dict) else None
    if isinstance(bundle, dict):
        bundle |= {part: _absolute(path, folder) for part, path in bundle.items()}
    data = tables.get("data")
    for name, keys in PATHS_IN_DATA.items():
        table = data.get(name) if isinstance(data, dict) else None
        if isinstance(table, dict):
            table |= {key: _absolute(table[key], folder) for key in keys if key in table}
    return tables


def _absolute(value: Any, folder: Path) -> Any:
    """A path or several, relative to a folder; what is no path stays for the check of types."""
    if isinstance(value, list):
        return [_absolute(item, folder) for item in value]
    if not isinstance(value, str):
        return value
    return str(read_path(folder / value, "path").resolve())


def _toml_problem(error: Exception) -> str:
    """Return what is wrong with a TOML text, in one line."""
    if isinstance(error, tomllib.TOMLDecodeError):
        return str(error)
    if isinstance(error, RecursionError):
        return "its lists or tables are nested too deeply"
    return "it holds a number with too many digits"


def make(tables: Mapping[str, Any], overrides: Mapping[str, Any] | None = None) -> Settings:
    """Make settings from nested tables and dotted overrides ({"search.seed": 3})."""
    merged: dict[str, dict[str, Any]] = {}
    for section, values in tables.items():
        if not isinstance(values, Mapping):
            raise ConfigError(
                f"unknown key {section!r} outside of a table{nearest(section, SECTIONS)}"
            )
        merged[section] = dict(values)
    for dotted, value in (overrides or {}).items():
        section, _, key = dotted.partition(".")
        target = merged.setdefault(section, {})
        *tables_in, last = key.split(".")
        for name in tables_in:
            inner = dict(target.get(name, {}))
            target[name] = inner
            target = inner
        if not last:
            raise ConfigError(f"setting {dotted!r} has no key: write section.key=value")
        target[last] = value
    settings: Settings = _record(Settings, merged, where="")
    given = frozenset(f"{section}.{key}" for section in merged for key in merged[section])
    return dataclasses.replace(_aimed(settings, given), given=given)


def _aimed(settings: Settings, given: Collection[str]) -> Settings:
    """A bound of the loss is the tolerated loss too, unless that is given: the search aims there.

    A bound or a wish whose figure the search does not look at is refused.
    """
    search = settings.search
    goal = Goal.of(dataclasses.asdict(search))
    if goal is None:
        return settings
    for name in goal.objectives:
        if name == "latency" and name not in search.objectives:
            raise ConfigError(
                f"the goal ({goal.text()}) needs latency, which is not among search.objectives "
                f"({', '.join(search.objectives)}): add it"
            )
    if search.max_loss is None or "search.tolerance" in given:
        return settings
    return dataclasses.replace(
        settings, search=dataclasses.replace(search, tolerance=search.max_loss)
    )


def parse_assignment(text: str) -> tuple[str, Any]:
    """`search.seed=3` → ("search.seed", 3): values are TOML, bare words are strings."""
    dotted, sign, value = text.partition("=")
    if not sign or not dotted.strip():
        raise ConfigError(f"--set {text!r}: write it as section.key=value")
    try:
        parsed = tomllib.loads(f"v = {value}")["v"]
    except tomllib.TOMLDecodeError:
        parsed = value
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"--set {_cut(text)}: {_toml_problem(error)}") from error
    return dotted.strip(), parsed


def differences(old: Json, new: Json, *, free: Collection[str] = ()) -> list[str]:
    """Return the settings that matter and have changed, as `key: was → is`."""
    changed = []
    free = {*resume_keys(), *free}
    flat_old, flat_new = flatten(old), flatten(new)
    for key in sorted({*flat_old, *flat_new}):
        if key in free or any(key.startswith(f + ".") for f in free):
            continue
        was, now = flat_old.get(key), flat_new.get(key)
        if was != now and (was, now) not in ((None, {}), ({}, None)):  # an empty table is none
            changed.append(f"{key}: {was!r} → {now!r}")
    return changed


def flatten(tables: Json, prefix: str = "") -> Json:
    flat: Json = {}
    for key, value in tables.items():
        dotted = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            flat.update(flatten(dict(value), dotted + "."))
        else:
            flat[dotted] = list(value) if isinstance(value, tuple) else value
    return flat


def _record(record: Any, values: Mapping[str, Any], *, where: str) -> Any:
    known = {f.name: f for f in dataclasses.fields(record) if f.name != "given"}
    hints = typing.get_type_hints(record)
    fields: dict[str, Any] = {}
    for key, value in values.items():
        dotted = f"{where}{key}"
        if key not in known:
            if "settings" in known:  # the plug-in's own: study/setup.py refuses what it lacks
                fields["settings"] = {**fields.get("settings", {}), key: value}
                continue
            raise ConfigError(f"unknown setting {dotted!r}{nearest(key, list(known))}")
        hint = hints[key]
        if dataclasses.is_dataclass(hint):
            if not isinstance(value, Mapping):
                raise ConfigError(f"{dotted} is a table, not {value!r}")
            fields[key] = _record(hint, value, where=f"{dotted}.")
        else:
            fields[key] = typed(_measured(known[key], value, dotted), hint, dotted=dotted)
            _check(dotted, fields[key])
            if known[key].metadata.get("path") and isinstance(fields[key], str):
                read_path(fields[key], dotted)
    return record(**fields)


def _measured(declared: dataclasses.Field[Any], value: Any, dotted: str) -> Any:
    """Return a text with a unit ("4MB") as a number; all other values as they are."""
    unit = declared.metadata.get("unit")
    if not unit or not isinstance(value, str):
        return value
    try:
        return quantity(value, unit)
    except ValueError as error:
        raise ConfigError(f"{dotted} = {value!r} is not understood: {error}") from error


def _check(dotted: str, value: Any) -> None:
    """Choices, bounds and scheme codes: wrong ones must not wait until they are used."""
    items = value if isinstance(value, tuple) else (value,)
    choices = CHOICES.get(dotted)
    for item in items:
        if choices is not None and item is not None and item not in choices:
            raise ConfigError(f"{dotted} = {_cut(item)} is none of {', '.join(choices)}")
        if dotted == "search.menu":
            Scheme.parse(item)
    low, high = BOUNDS.get(dotted, (-math.inf, math.inf))
    if isinstance(value, float) and math.isnan(value):
        raise ConfigError(f"{dotted} = nan is not a number: give one")
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ConfigError(f"{dotted} = {_cut(value)} is too large: give a number below 2^63")
    if isinstance(value, int | float) and not low <= value <= high:
        room = f"at least {low:g}" if math.isinf(high) else f"between {low:g} and {high:g}"
        raise ConfigError(f"{dotted} = {value!r} must be {room}")


def _cut(value: Any) -> str:
    """Format a value for a message; a very long one is shortened."""
    return shorten(repr(value), 120)


def typed(value: Any, hint: Any, *, dotted: str) -> Any:
    """Return a value in its field's type, or raise an error that names the setting."""
    options = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if value is None and type(None) in options:
        return None
    for option in options:
        origin = typing.get_origin(option)
        if option is float and isinstance(value, int) and not isinstance(value, bool):
            with contextlib.suppress(OverflowError):  # else it is a number, but for nobody
                return float(value)
        if origin is tuple:
            items = [value] if isinstance(value, str) else value
            inner = typing.get_args(option)[0]
            if isinstance(items, Sequence) and all(isinstance(x, inner) for x in items):
                return tuple(items)
        elif origin in (dict, Mapping):
            if isinstance(value, Mapping):
                return dict(value)
        elif isinstance(value, option) and not (option is int and isinstance(value, bool)):
            return value
    names = " or ".join(type_name(o) for o in options if o is not type(None))
    raise ConfigError(f"{dotted} = {_cut(value)} is not {names}")


_TYPE_NAMES = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}


def type_name(hint: Any) -> str:
    """Name a type in the words of docs/config.md: `tuple[str, ...]` is a list of texts."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is tuple:
        item = _TYPE_NAMES.get(inner[0], "a value").split(" ", 1)[1] if inner else "value"
        return f"a list of {item}s"
    if origin in (dict, Mapping):
        return "a table"
    return _TYPE_NAMES.get(hint, getattr(hint, "__name__", str(hint)))
