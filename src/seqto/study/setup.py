"""A run's set-up: the plug-ins that settings name, for one model and one run folder."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from seqto import plugins
from seqto.config import Settings
from seqto.data.data import Data
from seqto.data.labelled import LabelledSet
from seqto.data.preprocess import Preprocess
from seqto.devices.device import Device
from seqto.errors import ConfigError, SeqtoError
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
from seqto.study.build_plugins import build_plugin, check_settings
from seqto.study.bundles import wiring_of
from seqto.study.fleet_devices import RunDevice, run_devices
from seqto.study.guess_task import with_task
from seqto.study.setup_data import (
    data_source,
    label_settings,
    labelled_set,
    preprocess_of,
    reads_texts,
    tokenizer_table,
)
from seqto.study.study import Listener
from seqto.tasks.task import LabelledTask, Task, TokenTask, probed_rows
from seqto.tasks.task_guess import TaskGuess

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
    others: tuple[RunDevice, ...] = ()  # devices that trials are judged on besides the first
    device_name: str = ""  # of the first device, where there are others

    @property
    def devices(self) -> tuple[RunDevice, ...]:
        """All devices, the first one first."""
        name = self.device_name or self.device.name
        first = RunDevice(name, self.settings.device, self.device, self.device_json)
        return first, *self.others


def make_setups(settings: Settings, models: Sequence[str] = (), *, out: Path) -> list[RunSetup]:
    """Return one run for each model that the paths (else model.path) name.

    Several get sub-folders.
    """
    setups_or_errors = make_each(settings, models, out=out)
    for _, setup in setups_or_errors:
        if isinstance(setup, SeqtoError):
            raise setup
    return [setup for _, setup in setups_or_errors if isinstance(setup, RunSetup)]


def make_each(
    settings: Settings, models: Sequence[str] = (), *, out: Path
) -> list[tuple[str, RunSetup | SeqtoError]]:
    """Return (name, set-up or why there is none) of each model: one that is bad stops no other."""
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
    """Return folder names for models: all different, and none leads out of the run folder."""
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
        yield from Bundle(model.bundle, model.cache, model.endpoint, model.offline).fetch()
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
    preprocess = preprocess_of(settings, fetched)
    first, *others = run_devices(settings)
    chosen = task or build_plugin(settings, plugins.TASKS)
    if isinstance(chosen, TokenTask) and reads_texts(settings):
        chosen = chosen.for_tokenizer(tokenizer_table(settings, fetched))
    wiring = wiring_of(fetched, chosen)
    return RunSetup(
        fetched,
        out,
        settings,
        data_source(settings, fetched, data, task=chosen),
        preprocess,
        chosen,
        first.device,
        first.json,
        strategy or build_plugin(settings, plugins.STRATEGIES),
        labelled_set(settings, chosen, preprocess),
        wiring,
        listener,
        guess=guess,
        others=tuple(others),
        device_name=first.name,
    )


def labelled_task(setup: RunSetup) -> Task | None:
    """Return the task that the labelled set is scored with."""
    if setup.labelled is None or not isinstance(setup.task, LabelledTask):
        return None
    return setup.task.for_labels(**label_settings(setup.settings))


def calibration_methods(settings: Settings) -> list[str]:
    asked = [Scheme.parse(code) for code in settings.search.menu]
    return range_methods([StaticInt(ranges=settings.quantize.ranges), *asked])


def probe_rows(setup: RunSetup) -> int:
    """Return the number of samples of a probe: as set, else as few as the task can do with."""
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
