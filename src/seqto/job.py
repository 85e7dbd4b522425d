"""One model's run with all plug-ins chosen: from settings to objects."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from seqto import model as onnx_model
from seqto import plugins, workplace
from seqto.config import Settings
from seqto.contracts import Data, Device, Fetched, Json, Scheme, Task
from seqto.errors import ConfigError
from seqto.inputs import Preprocess
from seqto.menu import WEIGHTED
from seqto.schemes.parts import INT4_OPSET
from seqto.study import Listener


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
    strategy: Any
    listener: Listener = lambda _event: None
    progress: workplace.Progress = lambda _what, _done, _total: None


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
    preprocess = _preprocess(settings, fetched)
    device_json = {"kind": settings.device.kind, **settings.device.settings}
    device = plugins.build("seqto.devices", device_json)
    if getattr(device, "cache", "") is None:
        # compiled models are shared by this run's workers and go with the other caches
        device_json["cache"] = str((out / "cache" / "compiled").resolve())
    chosen_task = task or plugins.build("seqto.tasks", _fields("seqto.tasks", settings.task))
    chosen = strategy or plugins.build("seqto.strategies", _strategy_json(settings))
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


def _fields(group: str, record: Any) -> Json:
    """The settings of a section that the chosen plug-in knows."""
    values = dataclasses.asdict(record)
    plugin = plugins.find(group, values["kind"])
    known = {f.name for f in dataclasses.fields(plugin)} | {"kind"}
    return {k: v for k, v in values.items() if k in known}


def _strategy_json(settings: Settings) -> Json:
    search = settings.search
    known = {f.name for f in dataclasses.fields(plugins.find("seqto.strategies", search.strategy))}
    values = {
        "order": search.order,
        "stop_loss": search.stop_loss,
        "objectives": search.objectives,
        "tolerance": search.tolerance,
    }
    return {"kind": search.strategy, **{k: v for k, v in values.items() if k in known}}


def _preprocess(settings: Settings, fetched: Fetched) -> Preprocess | None:
    from seqto.data.preprocess import from_settings

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

    specs = onnx_model.input_specs(onnx_model.load(fetched.path))
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
    codes = [settings.quantize.ranges, *settings.search.menu]
    methods = [m for m in ("percentile", "entropy", "mse") if any(m in c for c in codes)]
    return ["minmax", *methods]


def rounding_types(settings: Settings) -> tuple[str, ...]:
    """Weight types that the search may want rounded for the output; u8 is s8 moved up."""
    search, target = settings.search, settings.constraints
    codes = search.menu or (() if search.strategy == "stepwise" else WEIGHTED)
    schemes = [Scheme.parse(c) for c in codes]
    kinds = dict.fromkeys(s.weight.replace("u8", "s8") for s in schemes if s.rounding == "output")
    if 4 not in target.bits or (target.max_opset or INT4_OPSET) < INT4_OPSET:
        kinds.pop("s4", None)
    return tuple(kinds)
