"""One model's run with all plug-ins chosen: from settings to objects."""

from __future__ import annotations

import contextlib
import dataclasses
import typing
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from seqto import config, plugins
from seqto.config import Settings
from seqto.data.data import Data
from seqto.data.preprocess import Preprocess
from seqto.devices.device import Device
from seqto.errors import ConfigError, nearest
from seqto.model import files as model_files
from seqto.model import prepare as model_prepare
from seqto.model.sources.source import Fetched
from seqto.records import Json
from seqto.schemes.scheme import Scheme
from seqto.schemes.static_int import StaticInt
from seqto.search.choices import WEIGHTED, Constraints, range_methods, rounded_types
from seqto.search.strategy import Need, Strategy
from seqto.study import workspace
from seqto.study.study import Listener
from seqto.tasks.task import Task
from seqto.transforms.transform import BIAS_CORRECTION, parse_transform

TASKS, STRATEGIES = "seqto.tasks", "seqto.strategies"


@dataclasses.dataclass(frozen=True, slots=True)
class Job:
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
    listener: Listener = lambda _event: None
    progress: workspace.Progress = lambda _what, _done, _total: None


def fetch(settings: Settings, parse_source: Callable[..., Any]) -> Iterator[Fetched]:
    source = parse_source(
        settings.model.path,
        cache_dir=settings.model.cache,
        endpoint=settings.model.endpoint,
        offline=settings.model.offline,
    )
    yield from source.fetch()


def make_job(
    fetched: Fetched,
    out: Path,
    settings: Settings,
    *,
    data: Any = None,
    task: Task | None = None,
    strategy: Any = None,
    listener: Listener = lambda _event: None,
) -> Job:
    """Choose the plug-ins that settings name; objects that are given win."""
    check_settings(settings, task=task, strategy=strategy)
    preprocess = _preprocess(settings, fetched)
    device_json = {"kind": settings.device.kind, **settings.device.settings}
    device = plugins.build("seqto.devices", device_json)
    if getattr(device, "cache", "") is None:
        # compiled models are shared by this run's workers and go with the other caches
        device_json["cache"] = str((out / "cache" / "compiled").resolve())
    chosen_task = task or plugins.build(TASKS, _task_json(settings))
    chosen = strategy or plugins.build(STRATEGIES, _strategy_json(settings))
    source = _data(settings, fetched, data)
    return Job(
        fetched,
        out,
        settings,
        source,
        preprocess,
        chosen_task,
        device,
        device_json,
        chosen,
        listener,
    )


def check_settings(settings: Settings, *, task: Any = None, strategy: Any = None) -> None:
    """Refuse what was set and would not be used: nothing that is asked for is dropped."""
    _refuse_unused(settings, TASKS, "task", ("label_offset", "top_k"), made=task)
    _refuse_unused(settings, STRATEGIES, "search", ("order", "stop_loss"), made=strategy)
    for code in (*settings.quantize.transforms, *settings.search.treatments):
        if code != BIAS_CORRECTION:
            parse_transform(code)
    plugin = strategy or plugins.find(STRATEGIES, settings.search.strategy)
    needs = getattr(plugin, "needs", None)
    if needs is None:
        raise ConfigError(
            f"strategy {settings.search.strategy!r} does not say what it needs: give it a class "
            "variable `needs`, a frozenset of seqto.search.strategy.Need"
        )
    for key in ("menu", "treatments"):
        if Need.WIDE_CHOICES not in needs and f"search.{key}" in settings.given:
            name = settings.search.strategy if strategy is None else type(strategy).__name__
            raise ConfigError(
                f"search.{key} is set, but strategy {name!r} has a menu of its own: leave it "
                "out, or choose frontier or evolve"
            )


def _refuse_unused(
    settings: Settings, group: str, section: str, shared: Sequence[str], *, made: Any
) -> None:
    """`shared`: keys of the section that only some plug-ins of the group take."""
    record = getattr(settings, section)
    kind = record.kind if group == TASKS else record.strategy
    name = f"{plugins.NAMES[group]} {kind!r}"
    known: list[str] = []
    if made is not None:
        name = f"{type(made).__name__}, an object whose fields are set where it is made"
    else:
        known = [f.name for f in dataclasses.fields(plugins.find(group, kind))]
    for key in shared:
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


def _task_json(settings: Settings) -> Json:
    task = settings.task
    values = {
        "label_offset": task.label_offset,
        "top_k": task.top_k,
        "tolerance": task.tolerance,
    }
    return _plugin_json(TASKS, task.kind, values, task.settings, section="task")


def _strategy_json(settings: Settings) -> Json:
    search = settings.search
    values = {
        "order": search.order,
        "stop_loss": search.stop_loss,
        "objectives": search.objectives,
        "tolerance": search.tolerance,
    }
    return _plugin_json(STRATEGIES, search.strategy, values, search.settings, section="search")


def _plugin_json(group: str, kind: str, shared: Json, own: Json, *, section: str) -> Json:
    """What a plug-in is built from: the shared settings that it has fields for, and its own."""
    plugin = plugins.find(group, kind)
    known = {f.name for f in dataclasses.fields(plugin)}
    values = {**{k: v for k, v in shared.items() if k in known}, **own}
    for key, value in own.items():
        with contextlib.suppress(NameError, TypeError):  # a type that only the plug-in can check
            hint = typing.get_type_hints(plugin)[key]
            values[key] = config.typed(value, hint, dotted=f"{section}.{key}")
    return {"kind": kind, **values}


def _preprocess(settings: Settings, fetched: Fetched) -> Preprocess | None:
    from seqto.data.presets import from_settings

    if settings.data.preprocess:
        return from_settings(settings.data.preprocess)
    if fetched.preprocess:
        return Preprocess.from_json(fetched.preprocess)
    return None


def _data(settings: Settings, fetched: Fetched, given: Any) -> Data:
    chosen = [k for k in ("images", "arrays", "random") if getattr(settings.data, k) is not None]
    if given is None and len(chosen) != 1:
        what = "no data are given" if not chosen else f"data has both {chosen[0]} and {chosen[1]}"
        raise ConfigError(f"{what}: set one of data.images, data.arrays, data.random")
    if given is not None:
        return _given_data(given, settings)
    if settings.data.images is not None:
        from seqto.data.pictures import Pictures

        return Pictures(settings.data.images, settings.data.labels)
    if settings.data.arrays is not None:
        from seqto.data.arrays import Arrays

        return Arrays(settings.data.arrays)
    from seqto.data.random_inputs import RandomInputs

    specs = model_prepare.input_specs(model_files.load(fetched.path))
    return RandomInputs(int(settings.data.random or 0), settings.data.seed, specs)


def _given_data(given: Any, settings: Settings) -> Data:
    if isinstance(given, Data):
        return given
    if isinstance(given, str | Path):
        path = Path(given)
        if path.is_dir():
            from seqto.data.pictures import Pictures

            return Pictures(path, settings.data.labels)
        from seqto.data.arrays import Arrays

        return Arrays(path)
    from seqto.data.iterable import FromIterable

    return FromIterable(given)


def calibration_methods(settings: Settings) -> list[str]:
    asked = [Scheme.parse(code) for code in settings.search.menu]
    return range_methods([StaticInt(ranges=settings.quantize.ranges), *asked])


def rounding_types(settings: Settings, strategy: Strategy) -> tuple[str, ...]:
    """Return the weight types that the search may want rounded for the output."""
    if Need.WIDE_CHOICES not in strategy.needs:
        return ()
    target = settings.constraints
    schemes = [Scheme.parse(code) for code in settings.search.menu] or WEIGHTED
    constraints = Constraints(bits=target.bits, max_opset=target.max_opset)
    return tuple(t.name for t in rounded_types(schemes, constraints))
