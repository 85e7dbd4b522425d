"""Knowledge that another run of the same graph can start from, as a small JSON file.

ranges       of the float model's tensors: sensitivities hold where these are near
damage       at the output, of each layer under each scheme alone: the sensitivities
float_model  the transforms that they were probed under
profiles     milliseconds by layer and kernel, of one machine
plans        of the front and the recommended trials
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from seqto.assembly.plan import Plan
from seqto.calibration.statistics import load_statistics
from seqto.devices.environment import version
from seqto.errors import ConfigError, SeqtoError
from seqto.files import open_regular, read_path, shown
from seqto.record.events import PlanProfiled
from seqto.record.events import from_json as event_from_json
from seqto.record.own_files import JOURNAL
from seqto.record.replay import RunState, read_state
from seqto.record.trial import Trial
from seqto.records import Json, Layer
from seqto.schemes.scheme import Scheme
from seqto.schemes.types import Kernel
from seqto.search.latency_table import ALTERNATING
from seqto.search.strategies.targets import damage_of
from seqto.selection.objectives import figure_of
from seqto.selection.pareto import hypervolume
from seqto.selection.recommend import recommend
from seqto.transforms.variants import STATISTICS_FILE, variant_folder

FORMAT = 1
MARK = "seqto_sensitivities"  # the key by which a file is known
MOST_PLANS = 24
MOST_SHARED = 16  # layers of a probe whose damage is shared out among them
MACHINE = ("cpu", "cpu_flags", "cores", "onnxruntime")  # of the environment: what times depend on


@dataclass(frozen=True, slots=True)
class Knowledge:
    """The sensitivities, times and good plans of one run."""

    source: str  # the run folder or file
    model: Json  # name and sha256
    layers: tuple[Layer, ...]
    ranges: Mapping[str, tuple[float, float]]
    damage: Mapping[tuple[str, Scheme], float]
    shared: frozenset[tuple[str, Scheme]]  # probed in a group, whose damage they share
    float_model: Plan
    kept_float: tuple[str, ...]
    int8_products: str | None
    machine: Json
    profiles: tuple[PlanProfiled, ...]
    plans: tuple[Plan, ...]

    def to_json(self) -> Json:
        damage: dict[str, dict[str, float]] = {}
        for (layer, scheme), value in self.damage.items():
            damage.setdefault(layer, {})[str(scheme)] = value
        return {
            MARK: FORMAT,
            "seqto": version(),
            "source": self.source,
            "model": self.model,
            "layers": [layer.to_json() for layer in self.layers],
            "ranges": {name: list(pair) for name, pair in self.ranges.items()},
            "damage": damage,
            "shared": sorted([layer, str(scheme)] for layer, scheme in self.shared),
            "float_model": list(self.float_model.transform_codes),
            "kept_float": list(self.kept_float),
            "int8_products": self.int8_products,
            "machine": self.machine,
            "profiles": [profile.to_json() for profile in self.profiles],
            "plans": [plan.to_json() for plan in self.plans],
        }

    @classmethod
    def from_json(cls, data: Json, *, source: str) -> Knowledge:
        """Read what `to_json` gave; ConfigError where the file is another one."""
        if not isinstance(data, dict) or MARK not in data:
            raise ConfigError(
                f"{source} holds no sensitivities: give a run folder, or the file "
                "that `seqto report RUN --format sensitivities` prints"
            )
        if data[MARK] != FORMAT:
            raise ConfigError(f"{source} has format {data[MARK]!r} of a newer seqto: update seqto")
        try:
            profiles = [event_from_json(row) for row in data["profiles"]]
            return cls(
                source=source,
                model=dict(data["model"]),
                layers=tuple(Layer.from_json(row) for row in data["layers"]),
                ranges={n: (_finite(p[0]), _finite(p[1])) for n, p in data["ranges"].items()},
                damage={
                    (layer, Scheme.parse(code)): _finite(value)
                    for layer, by in data["damage"].items()
                    for code, value in by.items()
                },
                shared=frozenset((n, Scheme.parse(code)) for n, code in data["shared"]),
                float_model=Plan.of({}, data["float_model"]),
                kept_float=tuple(data["kept_float"]),
                int8_products=data["int8_products"],
                machine=dict(data["machine"]),
                profiles=tuple(p for p in profiles if isinstance(p, PlanProfiled)),
                plans=tuple(Plan.from_json(row) for row in data["plans"]),
            )
        except (
            *(KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError),
            SeqtoError,
        ) as error:
            raise ConfigError(
                f"{source} is damaged ({type(error).__name__}: {error}): write it again with "
                "`seqto report RUN --format sensitivities`"
            ) from error


def _finite(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{number} is not finite")
    return number


def read_knowledge(path: str | Path) -> Knowledge:
    """Read the knowledge of a run folder, or of a file of sensitivities."""
    folder_or_file = read_path(path, "search.warm_start")
    if folder_or_file.is_dir():
        if not (folder_or_file / JOURNAL).is_file():
            raise ConfigError(f"{shown(folder_or_file)} is no run folder: it has no {JOURNAL}")
        return knowledge_of(read_state(folder_or_file / JOURNAL), folder_or_file)
    try:
        with open_regular(folder_or_file) as stream:
            data = json.loads(stream.read())
    except FileNotFoundError as error:
        raise ConfigError(
            f"{shown(folder_or_file)} does not exist: give a run folder, or a file of sensitivities"
        ) from error
    except OSError as error:
        raise ConfigError(
            f"{shown(folder_or_file)} cannot be read: {error.strerror or error}"
        ) from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(
            f"{shown(folder_or_file)} is no run folder and no JSON file: {error}"
        ) from error
    return Knowledge.from_json(data, source=str(path))


def knowledge_of(state: RunState, folder: Path) -> Knowledge:
    """Collect what a run has learnt; nothing is measured."""
    if state.header is None:
        raise ConfigError(f"{shown(folder)} has no header yet: nothing is known of its model")
    header = state.header
    float_model = _float_model(state.probes.values())
    probed = _probed(state.probes.values(), float_model)
    return Knowledge(
        source=str(folder),
        model={key: header.model.get(key) for key in ("name", "sha256")},
        layers=tuple(header.layers),
        ranges=_ranges(folder),
        damage={pair: value for pair, (_, value) in probed.items()},
        shared=frozenset(pair for pair, (count, _) in probed.items() if count > 1),
        float_model=float_model,
        kept_float=_kept_float(state),
        int8_products=state.int8_products.result if state.int8_products else None,
        machine=machine_json(header.environment, header.device),
        profiles=tuple(p for p in state.profiles.values() if _is_of_kernel(p)),
        plans=_good_plans(state),
    )


def machine_json(environment: Mapping[str, Any], device: Json) -> Json:
    """Return what times depend on."""
    return {**{key: environment.get(key) for key in MACHINE}, "device": device}


def _is_of_kernel(profile: PlanProfiled) -> bool:
    return profile.scheme == ALTERNATING or Kernel.named(profile.scheme) is not None


def _ranges(folder: Path) -> dict[str, tuple[float, float]]:
    path = variant_folder(folder) / STATISTICS_FILE
    if not path.is_file():
        return {}
    known = load_statistics(path).ranges
    return {name: by["minmax"] for name, by in known.items() if "minmax" in by}


def _float_model(probes: Iterable[Trial]) -> Plan:
    """Return the transforms that most single layers were probed under."""
    counts = Counter(t.plan.with_schemes({}) for t in probes if len(t.plan.schemes) == 1)
    return counts.most_common(1)[0][0] if counts else Plan()


def _probed(
    probes: Iterable[Trial], float_model: Plan
) -> dict[tuple[str, Scheme], tuple[int, float]]:
    """Return (layers that were probed together, damage of each) of single layers."""
    by_layer_and_scheme: dict[tuple[str, Scheme], tuple[int, float]] = {}
    for trial in probes:
        count = len(trial.plan.schemes)
        if trial.error is not None or trial.plan.with_schemes({}) != float_model:
            continue
        if not 0 < count <= MOST_SHARED:
            continue
        for pair in trial.plan.schemes:
            if pair not in by_layer_and_scheme or count < by_layer_and_scheme[pair][0]:
                by_layer_and_scheme[pair] = (count, damage_of(trial) / count)
    return by_layer_and_scheme


def _kept_float(state: RunState) -> tuple[str, ...]:
    """Return the layers that uniform plans of the run left out since they were of no use."""
    uniform = next((t for t in state.numbered if t.note == "good uniform"), None)
    without_some = next((t for t in state.numbered if _keeps_some(t.note)), None)
    if uniform is None or without_some is None:
        return ()
    return tuple(
        name for name, _ in uniform.plan.schemes if name not in without_some.plan.as_dict()
    )


def _keeps_some(note: str) -> bool:
    return note.startswith("good uniform, ") and note.endswith(" float")


def _good_plans(state: RunState) -> tuple[Plan, ...]:
    """Return the front and the picks, first what adds most to the front of those before it."""
    chosen = recommend(state)
    numbers = list(dict.fromkeys([*chosen.front, *chosen.picks.values()]))
    trials = [state.trials[n] for n in numbers if state.trials[n].plan.schemes]
    figures = [[figure_of(t, n, state.baseline) for n in chosen.ranked_by] for t in trials]
    points = np.array([[math.inf if f is None else f for f in row] for row in figures], dtype=float)
    if not trials or not np.isfinite(points).all():
        return tuple(t.plan for t in trials[:MOST_PLANS])
    span = np.ptp(points, axis=0)
    scaled = (points - points.min(axis=0)) / np.where(span > 0, span, 1.0)
    return tuple(trials[i].plan for i in _by_gain(scaled.tolist()))


def _by_gain(points: list[list[float]]) -> list[int]:
    """Order points such that the dominated volume grows fastest, at most MOST_PLANS."""
    reference = [1.1] * len(points[0])
    order: list[int] = []
    while len(order) < min(MOST_PLANS, len(points)):
        taken = [points[i] for i in order]
        left = [i for i in range(len(points)) if i not in order]
        order.append(max(left, key=lambda i: hypervolume([*taken, points[i]], reference=reference)))
    return order
