"""The public door: settings → run folder → Result."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import platform
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from seqto import config as configuration
from seqto import menu as menus
from seqto import model as onnx_model
from seqto import plugins, sensitivity, workplace
from seqto.config import Settings
from seqto.contracts import (
    CALIBRATION,
    Data,
    Device,
    Fetched,
    Json,
    LayerError,
    Plan,
    Result,
    Space,
    Task,
)
from seqto.errors import ConfigError, JournalError
from seqto.evaluate import BASE
from seqto.inputs import Preprocess
from seqto.journal import Journal, read_events
from seqto.study import Budget, Listener, Study, Timing, replayed
from seqto.workers import Pool

SCHEMA = 1
JOURNAL = "journal.jsonl"


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


def tune(
    model: str | Path | None = None,
    *,
    out: str | Path,
    config: str | Path | None = None,
    data: Any = None,
    task: Task | None = None,
    strategy: Any = None,
    listener: Listener = lambda _event: None,
    progress: workplace.Progress = lambda _what, _done, _total: None,
    **overrides: Any,
) -> Result:
    """Tune one model. Keyword overrides are settings with `__` for the dot: search__seed=3.

    `data` is a folder, an .npz, any iterable of arrays or (array, label), or a Data plug-in.
    """
    tables = configuration.read_toml(config) if config else {}
    dotted = {key.replace("__", "."): value for key, value in overrides.items()}
    if model is not None:
        dotted["model.path"] = str(model)
    settings = configuration.make(tables, dotted)
    from seqto.sources import parse_source

    if settings.model.path is None:
        raise ConfigError("no model is given: pass a path, or set model.path in the config")
    (fetched,) = _only_one(settings, parse_source)
    job = make_job(
        fetched, Path(out), settings, data=data, task=task, strategy=strategy, listener=listener
    )
    return run(dataclasses.replace(job, progress=progress))


def _only_one(settings: Settings, parse_source: Callable[..., Any]) -> list[Fetched]:
    found = list(fetch(settings, parse_source))
    if len(found) != 1:
        names = ", ".join(f.name for f in found)
        raise ConfigError(f"{settings.model.path} names several models ({names}): tune one a call")
    return found


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
    known = {
        f.name for f in dataclasses.fields(plugins.find("seqto.strategies", search.strategy))
    }
    values = {"order": search.order, "stop_loss": search.stop_loss, "objectives": search.objectives}
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


# ---------------------------------------------------------------------------------------- the run


def run(job: Job) -> Result:
    """Run or resume; returns when done or out of budget, raises KeyboardInterrupt on Ctrl-C."""
    began = time.monotonic()
    job.out.mkdir(parents=True, exist_ok=True)
    with Journal.open(job.out / JOURNAL) as journal:
        place, header = _open_workplace(job, journal)
        try:
            with _pool(job, place) as pool:
                study = _study(job, journal, pool, place, began=began)
                if study.found("header") is None:
                    study.write(header)
                reason = _steps(job, study, place)
                study.write(
                    {
                        "event": "end",
                        "reason": reason,
                        "seconds": round(time.monotonic() - began, 1),
                    }
                )
        except KeyboardInterrupt:
            with contextlib.suppress(JournalError):
                seconds = round(time.monotonic() - began, 1)
                journal.append({"event": "end", "reason": "interrupted", "seconds": seconds})
            write_outputs(job.out, journal.events)
            raise
    result = write_outputs(job.out, read_events(job.out / JOURNAL))
    shutil.rmtree(job.out / "cache", ignore_errors=True)
    return _gated(result, job.settings.search.max_loss)


def _gated(result: Result, max_loss: float | None) -> Result:
    if max_loss is None:
        return result
    met = any(t.loss is not None and t.loss.value <= max_loss for t in result.trials)
    return dataclasses.replace(result, met_max_loss=met)


def _open_workplace(job: Job, journal: Journal) -> tuple[workplace.Workplace, Json]:
    settings = job.settings
    identity = model_identity(job.fetched)
    recorded = next((e for e in journal.events if e["event"] == "header"), None)
    if recorded is None and journal.events:
        raise JournalError(f"{job.out / JOURNAL} has no header: give another --out folder")
    if recorded is not None:
        _refuse_changes(job, recorded, identity)
    else:
        shutil.rmtree(job.out / "variants", ignore_errors=True)
    prepared = workplace.prepare_model(
        job.fetched, job.out, max_opset=settings.constraints.max_opset
    )
    store = workplace.build_store(
        job.data,
        job.out / "cache" / "samples",
        prepared,
        counts=workplace.Counts(
            settings.data.calibration,
            settings.data.evaluation,
            settings.data.report,
            settings.data.seed,
        ),
        preprocess=job.preprocess,
        max_bad_share=settings.data.max_bad_share,
        progress=job.progress,
    )
    if recorded is not None and recorded["data"]["identity"] != store.identity:
        raise JournalError(
            f"the data have changed since {job.out} was begun: give another --out folder, "
            "or the same data"
        )
    place = workplace.set_up(
        job.fetched,
        job.out,
        store,
        prepared,
        methods=calibration_methods(settings),
        four_bits=_wants_four_bits(settings),
        max_opset=settings.constraints.max_opset,
        progress=job.progress,
    )
    return place, _header(job, place, identity)


def calibration_methods(settings: Settings) -> list[str]:
    codes = [settings.quantize.ranges, *settings.search.menu]
    methods = [m for m in ("percentile", "entropy", "mse") if any(m in c for c in codes)]
    return ["minmax", *methods]


def _wants_four_bits(settings: Settings) -> bool:
    if 4 not in settings.constraints.bits or settings.search.strategy == "stepwise":
        return any("s4" in c for c in settings.search.menu)
    if settings.search.menu:
        return any("s4" in c for c in settings.search.menu)
    opset = settings.constraints.max_opset
    return opset is None or opset >= 21


def model_identity(fetched: Fetched) -> Json:
    path = Path(fetched.path)
    proto = onnx_model.load(path)
    return {
        "name": fetched.name,
        "path": str(path),
        "sha256": onnx_model.sha256_of_file(path),
        "size_bytes": onnx_model.size_of(path),
        "opset": onnx_model.opset_of(proto),
        "origin": dict(fetched.origin),
    }


def _refuse_changes(job: Job, header: Json, identity: Json) -> None:
    """A run folder goes on only with the same model, data and settings that matter."""
    changed = []
    if header["model"]["sha256"] != identity["sha256"]:
        old, new = header["model"]["sha256"][:12], identity["sha256"][:12]
        changed.append(f"model: sha256 {old}… → {new}…")
    changed += configuration.differences(header["settings"], _settings_json(job))
    if changed:
        raise JournalError(
            f"{job.out} was begun with other input ({'; '.join(changed[:4])}): give another "
            "--out folder, or the same input to go on"
        )


def _settings_json(job: Job) -> Json:
    data = configuration.flatten(job.settings.to_json())
    nested: Json = {}
    for dotted, value in data.items():
        target = nested
        *parents, last = dotted.split(".")
        for name in parents:
            target = target.setdefault(name, {})
        target[last] = value
    return nested


def _header(job: Job, place: workplace.Workplace, identity: Json) -> Json:
    return {
        "event": "header",
        "schema": SCHEMA,
        "seqto": version(),
        "model": identity,
        "prepared": {
            "path": f"variants/{BASE}/{workplace.MODEL_FILE}",
            "sha256": place.prepared.sha256,
            "size_bytes": place.prepared.proto.ByteSize(),
            "opset": place.prepared.opset,
        },
        "data": {
            "identity": place.store.identity,
            "kind": place.store.data.get("kind", "data"),
            "splits": place.store.splits(),
            "unreadable": list(place.store.unreadable),
        },
        "settings": _settings_json(job),
        "environment": environment(),
        "device": job.device.describe(),
        "layers": [layer.to_json() for layer in place.layers],
    }


def version() -> str:
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as of

    try:
        return of("seqto")
    except PackageNotFoundError:
        return "0+source"


def environment() -> Json:
    """Versions and the CPU: what a figure depends on beside the model."""
    import numpy
    import onnx
    import onnxruntime

    flags: list[str] = []
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith(("flags", "Features")):
                flags = line.split(":", 1)[1].split()
                break
    wanted = ("sse4", "avx", "vnni", "amx", "neon", "asimd", "sve", "fma", "f16c", "i8mm")
    return {
        "seqto": version(),
        "python": platform.python_version(),
        "onnx": onnx.__version__,
        "onnxruntime": onnxruntime.__version__,
        "numpy": numpy.__version__,
        "platform": platform.platform(),
        "cpu": platform.processor() or platform.machine(),
        "cpu_flags": sorted(f for f in flags if any(w in f for w in wanted)),
        "cores": os.cpu_count(),
        "threads": os.cpu_count(),
    }


def _pool(job: Job, place: workplace.Workplace) -> Pool:
    device = job.settings.device
    return Pool(
        "seqto.evaluate:serve",
        place.setup_json(job.device_json, max_opset=job.settings.constraints.max_opset),
        size=job.settings.search.jobs or os.cpu_count() or 1,
        timeout_s=device.timeout_s,
        memory_bytes=None if device.memory_mb is None else device.memory_mb * 1_000_000,
    )


def _study(
    job: Job, journal: Journal, pool: Pool, place: workplace.Workplace, *, began: float
) -> Study:
    search, device = job.settings.search, job.settings.device
    return Study(
        journal,
        pool,
        place.store,
        task=job.task,
        device=job.device,
        budget=Budget(search.max_trials, search.max_minutes),
        timing=Timing(device.threads, device.latency_s, device.batch),
        racing=search.racing,
        race_objectives=search.objectives,
        probes=search.probes,
        chunk=job.settings.data.chunk,
        listener=job.listener,
        began=began,
    )


def _steps(job: Job, study: Study, place: workplace.Workplace) -> str:
    """Baseline, analysis, search, then final figures for what is recommended."""
    study.baseline()
    if study.found("baseline") is None:
        latency = study.time_baseline()
        study.write(
            {
                "event": "baseline",
                "size_bytes": onnx_model.size_of(job.fetched.path),
                "accuracy": {s: r.accuracy for s, r in study.references.items()},
                "latency": latency.to_json() if latency else None,
            }
        )
    space = make_space(job, study, place)
    reason = study.search(job.strategy, space, seed=job.settings.search.seed)
    finish(job, study)
    return reason


def make_space(job: Job, study: Study, place: workplace.Workplace) -> Space:
    """What the strategy may know: layers, menu, bytes, ranking."""
    settings = job.settings
    default, fixed = default_plan(settings, place)
    ranking = _analysis(job, study, Plan.of(default))
    menu = {name: ("fp32", code) for name, code in default.items()}
    for layer in place.layers:
        menu.setdefault(layer.name, ("fp32",))
    if settings.search.strategy != "stepwise":
        menu = _wide_menu(job, study, place)
    menu.update({name: (code,) for name, code in fixed.items()})
    sizes = {
        (layer.name, code): place.assembler.bytes_of(layer, Plan.of({"x": code}).scheme_of("x"))
        for layer in place.layers
        for code in menu[layer.name]
    }
    return Space(
        layers=place.layers,
        menu=menu,
        default=default,
        bytes_of=sizes,
        ranking=ranking,
        fixed=fixed,
        transforms=_treatments(job, study, place),
        **_profiles(job, study, place, menu),
        float_bytes=onnx_model.size_of(job.fetched.path),
    )


def _profiles(
    job: Job,
    study: Study,
    place: workplace.Workplace,
    menu: Mapping[str, tuple[str, ...]],
) -> dict[str, Any]:
    """Milliseconds of each layer under each scheme, from a few uniform plans run alone."""
    search = job.settings.search
    if search.strategy == "stepwise" or "latency" not in search.objectives:
        return {}
    from seqto.calibrate import element_counts
    from seqto.profiles import latency_table, profile_plans

    recorded = {e["scheme"]: e for e in study.journal.events if e["event"] == "profile"}
    for scheme, plan in profile_plans(place.layers, menu).items():
        if scheme in recorded:
            continue
        (ticket,) = study.pool.map([{"kind": "profile", "plan": plan.to_json(), "runs": 15}])
        row = ticket.result or {"layers_ms": {}, "conversion_ms": 0.0, "conversions": 0}
        event = {"event": "profile", "plan_key": plan.key, "scheme": scheme, **row}
        study.write(event)
        recorded[scheme] = event
    feeds = place.store.batch(CALIBRATION, 0, workplace.feed_rows(place.prepared, place.store, 1))
    return latency_table(place.layers, menu, recorded, element_counts(place.prepared, feeds))


def default_plan(
    settings: Settings, place: workplace.Workplace
) -> tuple[dict[str, str], dict[str, str]]:
    """The mode's scheme for each layer, and the layers that the user keeps float."""
    q = settings.quantize
    default = menus.default_schemes(
        place.layers,
        mode=q.mode,
        weight=q.weight,
        activation=q.activation,
        granularity="channel" if q.per_channel else "tensor",
        bias=q.bias,
        ranges=q.ranges,
    )
    names = [*menus.resolve(place.layers, q.exclude), *menus.skipped(place.layers, q.skip)]
    fixed = {name: "fp32" for name in names}
    return {k: v for k, v in default.items() if k not in fixed}, fixed


def _wide_menu(
    job: Job, study: Study, place: workplace.Workplace
) -> dict[str, tuple[str, ...]]:
    c = job.settings.constraints
    constraints = menus.Constraints(c.integer_only, c.per_channel, c.bits, c.ops, c.max_opset)
    menu, refusals = menus.full_menu(
        place.layers,
        job.device,
        constraints,
        weight_bytes={x.name: 4 * x.parameters for x in place.layers},
        only=job.settings.search.menu,
        roundable=frozenset(layer for layer, _ in place.assembler.rounded),
    )
    if study.found("finding") is None:
        for row in refusals:
            study.write(
                {
                    "event": "finding",
                    "kind": "menu",
                    "message": f"{row['code']} is not offered: {row['reason']}",
                    "layers": row["layers"],
                    "figures": {},
                }
            )
    return menu


def _treatments(
    job: Job, study: Study, place: workplace.Workplace
) -> tuple[tuple[str, ...], ...]:
    """Variants of the float model that plans may be built on; made once, before the search."""
    wanted = [job.settings.quantize.transforms]
    if job.settings.search.strategy != "stepwise":
        wanted += [(t,) for t in job.settings.search.treatments]
    wanted = [w for w in dict.fromkeys(wanted) if w]
    if not wanted:
        return ((),)
    peaks = place.calibration.peaks if place.calibration else None
    if peaks is None:
        from seqto.calibrate import calibrate

        peaks = calibrate(place.prepared, workplace.batches_of(place.prepared, place.store)).peaks
    made: list[tuple[str, ...]] = [()] if not job.settings.quantize.transforms else []
    for transforms in wanted:
        row = workplace.add_variant(
            place,
            transforms,
            methods=calibration_methods(job.settings),
            four_bits=_wants_four_bits(job.settings),
            peaks=peaks,
        )
        if row["touched"] or transforms == job.settings.quantize.transforms:
            made.append(transforms)
        known = [e for e in study.journal.events if e.get("kind") == "treatment"]
        if row["name"] not in [e["figures"]["name"] for e in known]:
            message = (
                f"treatment {row['name']}: {len(row['touched'])} layers changed, outputs moved "
                f"by {row['moved']:.1e} of their spread"
            )
            study.write(
                {
                    "event": "finding",
                    "kind": "treatment",
                    "message": message,
                    "layers": row["touched"],
                    "figures": {"name": row["name"], "moved": row["moved"]},
                }
            )
    return tuple(made)


def _analysis(job: Job, study: Study, plan: Plan) -> tuple[LayerError, ...]:
    recorded = study.found("analysis")
    if recorded is None:
        recorded = analysis_event(job, study.pool, plan)
        study.write(recorded)
    return tuple(LayerError.from_json(row) for row in recorded["ranking"])


def analysis_event(job: Job, pool: Pool, plan: Plan) -> Json:
    """Layer errors of a plan, measured and ranked."""
    settings = job.settings.analysis
    task = {"kind": "analyze", "plan": plan.to_json(), "samples": settings.samples}
    (ticket,) = pool.map([task])
    if ticket.failure is not None or ticket.result is None:
        from seqto.errors import DeviceError

        message = ticket.failure.message if ticket.failure else "no result"
        raise DeviceError(f"the layer analysis failed: {message}")
    ranking = sensitivity.rank(
        ticket.result["errors"],
        qdq_weight=settings.qdq_weight,
        xmodel_weight=settings.xmodel_weight,
    )
    return {
        "event": "analysis",
        "samples": ticket.result["samples"],
        "seconds": round(ticket.seconds, 2),
        "ranking": [row.to_json() for row in ranking],
    }


def finish(job: Job, study: Study) -> None:
    """Time the front, choose, measure the chosen on the report split, save their models."""
    from seqto.reports.json_file import build_report

    report = build_report(study.journal.events)
    keys = {t.number: k for k, t in study.trials.items()}
    wanted = {*report["front"], *report["recommended"].values()}
    untimed = [n for n in sorted(wanted) if study.trials[keys[n]].latency is None]
    study.time([keys[n] for n in untimed])
    report = build_report(study.journal.events)
    study.confirm([keys[n] for n in sorted(set(report["recommended"].values()))])


def write_outputs(out: Path, events: Sequence[Json]) -> Result:
    """report.json, plots and the recommended models: a pure function of the run folder."""
    from seqto.contracts import Layer
    from seqto.export import save_recommended
    from seqto.reports import csv_file, html_page, json_file, plots

    report = json_file.build_report(events)
    save_recommended(out, events, report)
    json_file.write_report(out, events)
    plots.write_plots(out / "plots", report)
    html_page.write_page(out, report)
    csv_file.write_front(out, report)
    header = next((e for e in events if e["event"] == "header"), {"layers": []})
    trials = tuple(replayed(events).values())
    return Result(
        folder=str(out),
        report=report,
        trials=trials,
        front=tuple(report["front"]),
        recommended=dict(report["recommended"]),
        layers=tuple(Layer.from_json(x) for x in header["layers"]),
    )
