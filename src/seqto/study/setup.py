"""A run's set-up: the plug-ins that settings name, for one model and one run folder."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from seqto import config, plugins
from seqto.config import Settings
from seqto.data.arrays import Arrays
from seqto.data.coco import Coco
from seqto.data.data import Data
from seqto.data.iterable import FromIterable
from seqto.data.labelled import ARRAYS, OBJECT_MASK, Labelled, LabelledArrays, LabelledSet
from seqto.data.masks import Masks
from seqto.data.pictures import NO_LABELS, Pictures
from seqto.data.preprocess import Preprocess
from seqto.data.presets import from_settings
from seqto.devices.device import Device
from seqto.errors import ConfigError, SeqtoError, nearest
from seqto.execution.ray.executor import RayCluster
from seqto.model.sources import parse_source
from seqto.model.sources.bundle import Bundle
from seqto.model.sources.source import Fetched
from seqto.model.wiring import Wiring
from seqto.records import Json, Layer
from seqto.schemes.scheme import Scheme
from seqto.schemes.static_int import StaticInt
from seqto.search.choices import Constraints, range_methods, rounded_kinds
from seqto.search.offered import has_attention, offered
from seqto.search.strategy import Need, Strategy
from seqto.study.bundles import sample_inputs, wiring_of
from seqto.study.guess_task import with_task
from seqto.study.study import Listener
from seqto.tasks.guess import TaskGuess
from seqto.tasks.task import GenerationTask, LabelledTask, Task, probed_rows
from seqto.transforms.transform import BIAS_CORRECTION, parse_transform

Progress = Callable[[str, int, int], None]  # (step, done, total)


@dataclasses.dataclass(frozen=True, slots=True)
class RunSetup:
    """One model's run with all plug-ins chosen."""

    fetched: Fetched
    out: Path
    settings: Settings
    data: Data
    preprocess: Preprocess | None
    task: Task
    device: Device
    device_json: Json
    strategy: Strategy
    labelled: LabelledSet | None = None  # for the scores at the end
    wiring: Wiring | None = None  # of a bundle
    listener: Listener = lambda _event: None
    progress: Progress = lambda _what, _done, _total: None
    cluster: RayCluster | None = None  # shared with other runs; None: the run opens its own
    began: float | None = None  # of the command, where runs share its time; None: now
    guess: TaskGuess | None = None  # of the task, where nobody has named one


def make_setups(settings: Settings, models: Sequence[str] = (), *, out: Path) -> list[RunSetup]:
    """One run for each model that the paths (else model.path) name; several get sub-folders."""
    made = make_each(settings, models, out=out)
    for _, setup in made:
        if isinstance(setup, SeqtoError):
            raise setup
    return [setup for _, setup in made if isinstance(setup, RunSetup)]


def make_each(
    settings: Settings, models: Sequence[str] = (), *, out: Path
) -> list[tuple[str, RunSetup | SeqtoError]]:
    """(name, set-up or why there is none) of each model: one that is bad stops no other."""
    check_settings(settings)
    paths = models or ([settings.model.path] if settings.model.path else [])
    pairs: list[tuple[Fetched, Settings]] = []
    bad: list[tuple[str, RunSetup | SeqtoError]] = []
    if settings.model.bundle:
        pairs += [(fetched, settings) for fetched in fetch(settings)]
    elif not paths:
        raise ConfigError("no model: name one, or give --config with model.path")
    for path in paths:
        own = dataclasses.replace(settings, model=dataclasses.replace(settings.model, path=path))
        try:
            pairs += [(fetched, own) for fetched in fetch(own)]
        except SeqtoError as error:
            bad.append((path, error))
    names = distinct_names([fetched.name for fetched, _ in pairs])
    several = len(pairs) + len(bad) > 1
    return bad + [
        (name, _setup_or_error(fetched, out / name if several else out, own))
        for (fetched, own), name in zip(pairs, names, strict=True)
    ]


def _setup_or_error(fetched: Fetched, out: Path, settings: Settings) -> RunSetup | SeqtoError:
    try:
        return make_setup(fetched, out, settings)
    except SeqtoError as error:
        return error


def distinct_names(names: Sequence[str]) -> list[str]:
    """Folder names for models: all different, and none leads out of the run folder."""
    safe = ["".join(c if c.isalnum() or c in "-_.+" else "-" for c in n).strip(".") for n in names]
    taken = {n.casefold() for n in safe if n and _count(safe, n) == 1}
    chosen = []
    for i, name in enumerate(safe):
        own = name
        if not name or _count(safe, name) > 1:
            own = f"{name or 'model'}-{i}"
            while own.casefold() in taken:
                own += "-"
            taken.add(own.casefold())
        chosen.append(own)
    return chosen


def _count(names: Sequence[str], name: str) -> int:
    """Count the names that are one folder on a disk that does not distinguish capitals."""
    return sum(n.casefold() == name.casefold() for n in names)


def fetch(settings: Settings) -> Iterator[Fetched]:
    """Yield the models that model.path names, downloaded where they come from the hub."""
    model = settings.model
    if model.bundle and model.path:
        raise ConfigError(
            f"model.bundle and the model {model.path!r} are both given: leave one of them out"
        )
    if model.bundle:
        yield from Bundle(model.bundle).fetch()
        return
    source = parse_source(
        str(model.path), cache_dir=model.cache, endpoint=model.endpoint, offline=model.offline
    )
    yield from source.fetch()


def make_setup(
    fetched: Fetched,
    out: Path,
    settings: Settings,
    *,
    data: Any = None,
    task: Task | None = None,
    strategy: Any = None,
    listener: Listener = lambda _event: None,
) -> RunSetup:
    """Choose the plug-ins that settings name; objects that are given win."""
    guess = None
    if task is None:
        settings, guess = with_task(settings, fetched)
    check_settings(settings, task=task, strategy=strategy)
    preprocess = _preprocess(settings, fetched)
    device_json = {"kind": settings.device.kind, **settings.device.settings}
    device = _with_fields(
        plugins.DEVICES, settings.device.kind, {}, settings.device.settings, section="device"
    )
    chosen = task or _built(settings, plugins.TASKS)
    if isinstance(chosen, GenerationTask) and _reads_texts(settings):
        chosen = chosen.for_tokenizer(_tokenizer(settings, fetched))
    wiring = wiring_of(fetched, chosen)
    return RunSetup(
        fetched,
        out,
        settings,
        _data(settings, fetched, data, task=chosen),
        preprocess,
        chosen,
        device,
        device_json,
        strategy or _built(settings, plugins.STRATEGIES),
        _labelled(settings, chosen, preprocess),
        wiring,
        listener,
        guess=guess,
    )


# ------------------------------------------------------------------- settings that are plug-ins'


SECTIONS: Mapping[str, tuple[str, str]] = {  # group → section of the settings, its key for the kind
    plugins.TASKS: ("task", "kind"),
    plugins.STRATEGIES: ("search", "strategy"),
}


def check_settings(settings: Settings, *, task: Any = None, strategy: Any = None) -> None:
    """Refuse a setting that was given and that the chosen plug-in does not take."""
    for group, given in ((plugins.TASKS, task), (plugins.STRATEGIES, strategy)):
        section, key = SECTIONS[group]
        kind = getattr(getattr(settings, section), key)
        if kind == config.AUTO and given is None:
            continue  # the model tells; its settings are checked then
        known = [] if given is not None else plugins.fields_of(plugins.find(group, kind))
        name = f"{plugins.NAMES[group]} {kind!r}"
        if given is not None:
            name = f"{type(given).__name__}, an object whose fields are set where it is made"
        _refuse_unused(settings, group, section, known=known, name=name)
    for code in (*settings.quantize.transforms, *settings.search.treatments):
        if code != BIAS_CORRECTION:
            parse_transform(code)
    plugin = strategy or plugins.find(plugins.STRATEGIES, settings.search.strategy)
    needs = getattr(plugin, "needs", None)
    if needs is None:
        raise ConfigError(
            f"strategy {settings.search.strategy!r} does not say what it needs: give it a class "
            "variable `needs`, a frozenset of seqto.search.strategy.Need"
        )
    uniform = settings.quantize
    if (
        settings.constraints.portable
        and Need.WIDE_CHOICES not in needs
        and uniform.weight == "s8"
        and uniform.mode != "weight"
    ):
        raise ConfigError(
            "constraints.portable is set, but s8 weights may saturate on CPUs without VNNI and the "
            "strategy quantizes all layers alike: choose quantize.weight = p8 (with per_channel = "
            "true), s7 or u8, or the strategy frontier"
        )
    for key in ("menu", "treatments"):
        if Need.WIDE_CHOICES not in needs and f"search.{key}" in settings.given:
            name = settings.search.strategy if strategy is None else type(strategy).__name__
            raise ConfigError(
                f"search.{key} is set, but strategy {name!r} has a menu of its own: leave it "
                "out, or choose frontier or evolve"
            )


def _refuse_unused(
    settings: Settings, group: str, section: str, *, known: Sequence[str], name: str
) -> None:
    """`known`: the fields of the chosen plug-in."""
    record = getattr(settings, section)
    for key in config.plugin_keys(section):
        if f"{section}.{key}" in settings.given and key not in known:
            takers = " or ".join(plugins.kinds_with(group, key))
            raise ConfigError(
                f"{section}.{key} is set, but not taken by {name}: leave it out, or choose {takers}"
            )
    for key in record.settings:
        if key not in known:
            names = dict.fromkeys([*(f.name for f in dataclasses.fields(record)), *known])
            near = nearest(key, list(names))
            raise ConfigError(f"unknown setting '{section}.{key}'{near} (not taken by {name})")


def _built(settings: Settings, group: str) -> Any:
    """Build the plug-in of a section: its fields get the settings of their names."""
    section, kind_key = SECTIONS[group]
    record = getattr(settings, section)
    kind = getattr(record, kind_key)
    values = {f.name: (getattr(record, f.name), f.default) for f in dataclasses.fields(record)}
    # a key that nobody has set leaves the plug-in its own default
    shared = {k: v for k, (v, default) in values.items() if v != default}
    shared |= {k: v for k, (v, _) in values.items() if f"{section}.{k}" in settings.given}
    return _with_fields(group, kind, shared, record.settings, section=section)


def _with_fields(
    group: str, kind: str, shared: Mapping[str, Any], own: Mapping[str, Any], *, section: str
) -> Any:
    """Build a plug-in from the shared settings that it has fields for, and from its own."""
    plugin = plugins.find(group, kind)
    known = plugins.keys_of(plugin)
    values = {**{k: v for k, v in shared.items() if k in known}, **own}
    for key, value in own.items():
        values[key] = _typed(plugin, known.get(key, key), value, dotted=f"{section}.{key}")
    return plugins.build(group, {**values, "kind": kind})


def _typed(plugin: Any, field: str, value: Any, *, dotted: str) -> Any:
    """Return a value in the type of a plug-in's field, or as it is where that cannot be checked."""
    # types that only the plug-in can check, and keys that are no fields
    with contextlib.suppress(NameError, TypeError, KeyError):
        return config.typed(value, typing.get_type_hints(plugin)[field], dotted=dotted)
    return value


# ----------------------------------------------------------------------------------------- data


def _preprocess(settings: Settings, fetched: Fetched) -> Preprocess | None:
    if settings.data.preprocess:
        return from_settings(settings.data.preprocess)
    if fetched.preprocess:
        return Preprocess.from_json(fetched.preprocess)
    return None


def data_kinds(settings: Settings) -> dict[str, Any]:
    """The data sources that settings name: [data] images = "folder" → {"images": "folder"}."""
    data = settings.data
    chosen: dict[str, Any] = {}
    for kind in plugins.kinds(plugins.DATA):
        value = data.settings.get(kind, getattr(data, kind, None))
        if value is not None:
            chosen[kind] = value
    return chosen


def _labelled(settings: Settings, task: Task, preprocess: Preprocess | None) -> LabelledSet | None:
    """Return the labelled set that [data.labelled] names, in the form that the task takes."""
    table = settings.data.labelled
    if not table:
        return None
    name = settings.task.kind
    if not isinstance(task, LabelledTask):
        raise ConfigError(
            f"data.labelled is not taken by task {name!r}: it is for detection, segmentation, "
            "multi-label and dense"
        )
    own = list(inspect.signature(task.for_labels).parameters)
    known = [*config.LABELLED_PATHS, *own]
    for key, value in table.items():
        if key not in known:
            raise ConfigError(f"unknown setting 'data.labelled.{key}'{nearest(key, known)}")
        listed = value if isinstance(value, list) else [value]
        if key not in own and not (listed and all(isinstance(item, str) for item in listed)):
            raise ConfigError(f"data.labelled.{key} = {value!r} is no path and no list of paths")
    task.for_labels(**label_settings(settings))  # wrong values must not wait until the end
    if task.label_form == ARRAYS:
        if not isinstance(table.get("arrays"), str):
            raise ConfigError(f"data.labelled needs arrays, an .npz with labels, for task {name!r}")
        return LabelledArrays(Arrays(table["arrays"]))
    if "images" not in table or ("annotations" in table) == ("masks" in table):
        raise ConfigError("data.labelled needs images and either annotations or masks")
    if preprocess is None:
        raise ConfigError("data.labelled needs data.preprocess with letterbox or stretch")
    if "annotations" in table:
        return Labelled(Coco(table["images"], table["annotations"]), preprocess, task.label_form)
    for key in ("images", "masks"):
        if not isinstance(table[key], str):
            raise ConfigError(f"data.labelled.{key} must be one folder where masks are given")
    source = Masks(table["images"], table["masks"], binary=task.label_form == OBJECT_MASK)
    return Labelled(source, preprocess, task.label_form)


def label_settings(settings: Settings) -> Json:
    """Return the keys of [data.labelled] that are settings of the task's `for_labels`."""
    return {k: v for k, v in settings.data.labelled.items() if k not in config.LABELLED_PATHS}


def labelled_task(setup: RunSetup) -> Task | None:
    """Return the task that the labelled set is scored with."""
    if setup.labelled is None or not isinstance(setup.task, LabelledTask):
        return None
    return setup.task.for_labels(**label_settings(setup.settings))


def _data(settings: Settings, fetched: Fetched, given: Any, *, task: Task) -> Data:
    chosen = data_kinds(settings)
    labels = _labels(settings, task)
    if given is not None:
        name = f"{type(given).__name__}, which is given as data"
        known = ["labels"] if isinstance(given, str | Path) else []
        _refuse_unused(settings, plugins.DATA, "data", known=known, name=name)
        return _given_data(given, labels)
    if len(chosen) != 1:
        _refuse_unused(settings, plugins.DATA, "data", known=["labels", *chosen], name="any source")
        what = "no data are given"
        if chosen:
            what = f"data has both {' and '.join(list(chosen)[:2])}"
        raise ConfigError(
            f"{what}: set one of data.images, data.arrays, data.texts, data.pairs, data.dataset, "
            "data.random"
        )
    ((kind, value),) = chosen.items()
    plugin = plugins.find(plugins.DATA, kind)
    fields = plugins.fields_of(plugin)
    name = f"{plugins.NAMES[plugins.DATA]} {kind!r}"
    _refuse_unused(settings, plugins.DATA, "data", known=[kind, *fields], name=name)
    if kind in settings.data.settings:
        value = _typed(plugin, fields[0], value, dotted=f"data.{kind}")
    shared: Json = {"labels": labels, "seed": settings.data.seed, fields[0]: value}
    shared |= _program_fields(plugin, settings, fetched, task=task)
    own = {k: v for k, v in settings.data.settings.items() if k != kind}
    source: Data = _with_fields(plugins.DATA, kind, shared, own, section="data")
    return source


def _program_fields(plugin: Any, settings: Settings, fetched: Fetched, *, task: Task) -> Json:
    """Return the fields of a data source that follow from the model and other settings."""
    names = {f.name for f in dataclasses.fields(plugin)} if dataclasses.is_dataclass(plugin) else ()
    values: Json = {}
    if "specs" in names:
        values["specs"] = sample_inputs(fetched)
    if "classes" in names:
        values["classes"] = tuple(getattr(task, "labels", None) or ())
    if "columns" in names and settings.data.columns is not None:
        values["columns"] = settings.data.columns
    if "tokenizer" in names:
        values["tokenizer"] = _tokenizer(settings, fetched)
    return values


def _reads_texts(settings: Settings) -> bool:
    """Whether the data source has a tokenizer."""
    kinds = (plugins.find(plugins.DATA, kind) for kind in data_kinds(settings))
    return any("tokenizer" in plugins.fields_of(kind) for kind in kinds)


def _tokenizer(settings: Settings, fetched: Fetched) -> Json:
    """[data.tokenizer]; without a file, the repository's tokenizer or the one beside the model."""
    table = dict(settings.data.tokenizer)
    if "file" in table or "vocab" in table:
        return table
    if fetched.text is not None:
        return {**fetched.text["tokenizer"], **table}
    model = Path(fetched.path)
    beside = [model.with_suffix(".tokenizer.json"), model.with_name("tokenizer.json")]
    found = next((path for path in beside if path.is_file()), None)
    if found is None:
        raise ConfigError(
            f"texts need a tokenizer: set data.tokenizer.file, or put tokenizer.json beside "
            f"{model.name}"
        )
    return {**table, "file": str(found)}


def _labels(settings: Settings, task: Task) -> str | None:
    """data.labels; without it, a task of boxes or masks takes no classes from sub-folders."""
    if not isinstance(task, LabelledTask):
        return settings.data.labels
    if settings.data.labels not in (None, NO_LABELS):
        raise ConfigError(
            f"data.labels = {settings.data.labels!r} holds class numbers, which task "
            f"{settings.task.kind!r} does not take: leave it out, and give data.labelled for scores"
        )
    return NO_LABELS


def _given_data(given: Any, labels: str | None) -> Data:
    if isinstance(given, Data):
        return given
    if isinstance(given, str | Path):
        path = Path(given)
        return Pictures(path, labels) if path.is_dir() else Arrays(path)
    return FromIterable(given)


def calibration_methods(settings: Settings) -> list[str]:
    asked = [Scheme.parse(code) for code in settings.search.menu]
    return range_methods([StaticInt(ranges=settings.quantize.ranges), *asked])


def probe_rows(setup: RunSetup) -> int:
    """Samples of a probe: as set, else as few as the task can do with."""
    asked = setup.settings.search.probes
    if "search.probes" in setup.settings.given:
        return asked
    return probed_rows(setup.task, asked)


def rounding_kinds(
    settings: Settings, strategy: Strategy, layers: Sequence[Layer]
) -> tuple[str, ...]:
    """Return the kinds of integers that the search may want rounded for the output."""
    if Need.WIDE_CHOICES not in strategy.needs:
        return ()
    target = settings.constraints
    schemes = [Scheme.parse(code) for code in settings.search.menu]
    attention = has_attention(layers)
    timed = "latency" in settings.search.objectives
    for layer in layers if not schemes else ():
        schemes += offered(layer, attention=attention, timed=timed, contrib=target.contrib_ops)
    constraints = Constraints(bits=target.bits, max_opset=target.max_opset)
    return rounded_kinds(list(dict.fromkeys(schemes)), constraints)
