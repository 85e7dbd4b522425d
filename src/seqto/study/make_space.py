"""What a strategy may know of a run: layers, menu, bytes, ranking, treatments, milliseconds."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from seqto.assembly import rounded_weights
from seqto.assembly.plan import Plan
from seqto.config import Settings
from seqto.diagnosis import layer_errors
from seqto.errors import DeviceError, ModelError
from seqto.execution.local.pool import Pool
from seqto.model import files as model_files
from seqto.records import CALIBRATION, Json, Layer, LayerError
from seqto.schemes.scheme import Scheme
from seqto.search import choices, support
from seqto.search.space import Space
from seqto.search.strategy import Ask
from seqto.study import workspace
from seqto.study.setup import Job, calibration_methods
from seqto.study.study import Study
from seqto.transforms.variants import BASE, place_of, variant_of


def make_space(job: Job, study: Study, place: workspace.Workplace) -> Space:
    """What the strategy may know: layers, menu, bytes, ranking."""
    settings = job.settings
    default, fixed = default_plan(settings, place.layers)
    ranking: tuple[LayerError, ...] = ()
    if getattr(job.strategy, "wants_ranking", True):
        ranking = analysis(job, study, Plan.of(default))
        if settings.analysis.ranking == "damage":
            ranking = _by_damage(study, ranking, default)
    if settings.search.strategy != "stepwise":
        study.rounding.ensure(BASE)
        place.assembler.rounded.update(rounded_weights.load(place_of(place.folder)))
    roundable = frozenset(layer for layer, _ in place.assembler.rounded)
    menu, refused = offered_menu(job, place.layers, roundable=roundable)
    _note_refusals(study, refused)
    with_default = {n: tuple(dict.fromkeys((*c, default.get(n, "fp32")))) for n, c in menu.items()}
    order = [row.layer for row in ranking] or list(with_default)
    full = Plan.of(default, settings.quantize.transforms)
    usable = _tried_menu(study, place, with_default, order=order, full=full)
    default = _usable(default, usable)
    menu = {name: tuple(c for c in codes if c in usable[name]) for name, codes in menu.items()}
    sizes = {
        (layer.name, code): place.assembler.bytes_of(layer, Scheme.parse(code))
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
        transforms=_treatments(job, study, place, menu),
        **_profiles(job, study, place, menu),
        float_bytes=model_files.size_of(job.fetched.path),
    )


def _tried_menu(
    study: Study,
    place: workspace.Workplace,
    menu: Mapping[str, tuple[str, ...]],
    *,
    order: Sequence[str],
    full: Plan,
) -> dict[str, tuple[str, ...]]:
    """The menu without what this device refuses; each menu is tried once, then read back.

    The event names the plan of the fully quantized model too: the mode's schemes that are left.
    """
    key = _menu_key(menu)
    events = [e for e in study.journal.events if e["event"] == "tried"]
    tried = next((e for e in events if e.get("choices_key") == key), None)
    if tried is None:
        # what was refused on an earlier menu may crash: it is not tried again
        known = {(name, code) for e in events for name, code in e["refused"]}
        open_menu = {n: tuple(c for c in cs if (n, c) not in known) for n, cs in menu.items()}
        float_ops = {n.op_type for n in place.prepared.proto.graph.node}

        def added_ops(name: str, code: str) -> frozenset[str]:
            made = place.assembler.assemble(Plan.of({name: code})).data
            return frozenset(model_files.op_types(made) - float_ops)

        left, findings = support.narrow(
            place.layers, open_menu, order=order, runs=study.stops, added_ops=added_ops
        )
        for finding in findings:
            study.write(finding)
        refused = [[name, code] for name in menu for code in menu[name] if code not in left[name]]
        used = Plan.of(_usable(dict(full.schemes), left), full.transforms).key
        tried = {"event": "tried", "choices_key": key, "default_key": used, "refused": refused}
        study.write(tried)
    gone = {(name, code) for name, code in tried["refused"]}
    return {n: tuple(c for c in codes if (n, c) not in gone) for n, codes in menu.items()}


def _usable(default: Mapping[str, str], menu: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    return {name: code for name, code in default.items() if code in menu[name]}


def _menu_key(menu: Mapping[str, tuple[str, ...]]) -> str:
    choices = sorted((name, sorted(codes)) for name, codes in menu.items())
    return hashlib.sha256(json.dumps(choices).encode()).hexdigest()


def default_plan(
    settings: Settings, layers: Sequence[Layer]
) -> tuple[dict[str, str], dict[str, str]]:
    """The mode's scheme for each layer, and the layers that the user keeps float."""
    q = settings.quantize
    default = choices.default_schemes(
        layers,
        mode=q.mode,
        weight=q.weight,
        activation=q.activation,
        granularity="channel" if q.per_channel else "tensor",
        bias=q.bias,
        ranges=q.ranges,
    )
    names = [*choices.resolve(layers, q.exclude), *choices.skipped(layers, q.skip)]
    fixed = dict.fromkeys(names, "fp32")
    return {k: v for k, v in default.items() if k not in fixed}, fixed


def offered_menu(
    job: Job, layers: Sequence[Layer], *, roundable: frozenset[str]
) -> tuple[dict[str, tuple[str, ...]], list[Json]]:
    """Layer → schemes that the strategy may choose from, before any is tried; and what is not.

    `roundable`: the layers whose weights can be rounded for the output.
    """
    default, fixed = default_plan(job.settings, layers)
    menu: dict[str, tuple[str, ...]] = {
        x.name: ("fp32", default[x.name]) if x.name in default else ("fp32",) for x in layers
    }
    refused: list[Json] = []
    if job.settings.search.strategy != "stepwise":
        c = job.settings.constraints
        menu, refused = choices.full_menu(
            layers,
            job.device,
            choices.Constraints(c.integer_only, c.per_channel, c.bits, c.ops, c.max_opset),
            weight_bytes={x.name: 4 * x.parameters for x in layers},
            only=job.settings.search.menu,
            roundable=roundable,
            timed="latency" in job.settings.search.objectives,
        )
    menu.update({name: (code,) for name, code in fixed.items()})
    return menu, refused


def _note_refusals(study: Study, refused: Sequence[Json]) -> None:
    # another call's settings may give another menu: what was said of the last one is void
    events = study.journal.events
    since = max((i for i, e in enumerate(events) if e["event"] == "settings"), default=0)
    if not any(e.get("kind") == "menu" for e in events[since:]):
        for row in refused:
            study.write(
                {
                    "event": "finding",
                    "kind": "menu",
                    "message": f"{row['code']} is not offered: {row['reason']}",
                    "layers": row["layers"],
                    "figures": {},
                }
            )


def _profiles(
    job: Job,
    study: Study,
    place: workspace.Workplace,
    menu: Mapping[str, tuple[str, ...]],
) -> dict[str, Any]:
    """Milliseconds of each layer under each scheme, from a few uniform plans run alone."""
    search = job.settings.search
    if search.strategy == "stepwise" or "latency" not in search.objectives:
        return {}
    from seqto.model.float_session import element_counts
    from seqto.search.latency_table import latency_table, profile_plans

    recorded = {e["scheme"]: e for e in study.journal.events if e["event"] == "profile"}
    for scheme, plan in profile_plans(place.layers, menu).items():
        if scheme in recorded:
            continue
        if (found := study.profile(plan, scheme=scheme)) is not None:
            recorded[scheme] = found
    feeds = place.store.batch(CALIBRATION, 0, place.store.feed_rows(1))
    return latency_table(place.layers, menu, recorded, element_counts(place.prepared, feeds))


def _treatments(
    job: Job,
    study: Study,
    place: workspace.Workplace,
    menu: Mapping[str, tuple[str, ...]],
) -> tuple[tuple[str, ...], ...]:
    """Variants of the float model that plans may be built on; made once, before the search.

    They ease the rounding of activations: a menu that rounds none needs none.
    """
    wanted = [job.settings.quantize.transforms]
    integer = any(c.startswith(("static", "dynamic")) for codes in menu.values() for c in codes)
    if job.settings.search.strategy != "stepwise" and integer:
        wanted += [(t,) for t in job.settings.search.treatments]
    wanted = [w for w in dict.fromkeys(wanted) if w]
    if not wanted:
        return ((),)
    peaks = place.calibration.peaks if place.calibration else None
    if peaks is None:
        from seqto.calibration.collect import calibrate

        peaks = calibrate(place.prepared, place.store.calibration).peaks
    made: list[tuple[str, ...]] = [()] if not job.settings.quantize.transforms else []
    for transforms in wanted:
        if variant_of(transforms) == BASE:  # made while a model is assembled: nothing to make here
            made.append(transforms)
            continue
        name = "+".join(transforms)
        try:
            row = workspace.add_variant(
                place,
                transforms,
                methods=calibration_methods(job.settings),
                peaks=peaks,
                needed=transforms == job.settings.quantize.transforms,
            )
        except ModelError as error:
            if transforms == job.settings.quantize.transforms:
                raise
            _note_treatment(study, str(error), layers=[], figures={"name": name})
            continue
        if row["touched"] or transforms == job.settings.quantize.transforms:
            made.append(transforms)
        message = (
            f"treatment {name}: {len(row['touched'])} layers changed, outputs moved "
            f"by {row['moved']:.1e} of their spread"
        )
        figures = {k: row[k] for k in ("name", "moved", "exact", "skipped")}
        _note_treatment(study, message, layers=row["touched"], figures=figures)
    return tuple(made)


def _note_treatment(study: Study, message: str, *, layers: list[str], figures: Json) -> None:
    known = [e["figures"] for e in study.journal.events if e.get("kind") == "treatment"]
    if figures["name"] not in [k["name"] for k in known]:
        study.write(
            {
                "event": "finding",
                "kind": "treatment",
                "message": message,
                "layers": layers,
                "figures": figures,
            }
        )


def analysis(job: Job, study: Study, plan: Plan) -> tuple[LayerError, ...]:
    """The papers' ranking, recorded; for the report it is made even where no strategy asks."""
    recorded = study.found("analysis")
    if recorded is None:
        recorded = analysis_event(job, study.pool, plan)
        study.write(recorded)
    return tuple(LayerError.from_json(row) for row in recorded["ranking"])


def _by_damage(
    study: Study, ranking: tuple[LayerError, ...], default: Mapping[str, str]
) -> tuple[LayerError, ...]:
    """The layers that hurt the model's output most when they alone are quantized come first."""
    plans = tuple(Plan.of({row.layer: default[row.layer]}) for row in ranking)
    damage = []
    for trial in study.answer(Ask(plans, probe=True)):
        seen = next(iter(trial.measurements.values()), None)
        damage.append(0.0 if seen is None or seen.damage is None else seen.damage)
    order = sorted(range(len(ranking)), key=lambda i: (-damage[i], ranking[i].layer))
    return tuple(
        dataclasses.replace(ranking[i], rank=place, damage=damage[i])
        for place, i in enumerate(order)
    )


def analysis_event(job: Job, pool: Pool, plan: Plan) -> Json:
    """Layer errors of a plan, measured and ranked."""
    settings = job.settings.analysis
    task = {"kind": "analyze", "plan": plan.to_json(), "samples": settings.samples}
    (ticket,) = pool.map([task])
    if ticket.failure is not None or ticket.result is None:
        message = ticket.failure.message if ticket.failure else "no result"
        raise DeviceError(f"the layer analysis failed: {message}")
    ranking = layer_errors.rank(
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
